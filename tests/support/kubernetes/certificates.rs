//! A certificate authority for one run of the tests, with a certificate for the server and one for a user.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// PEM texts.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) authority: String,
    pub(crate) server: (String, String),
    pub(crate) user: (String, String),
}

/// Whom the user's certificate names.
pub(crate) const USER: &str = "alice";

/// Valid also to nodes whose wall clocks are wrong.
const FROM: &str = "20200101000000Z";
const UNTIL: &str = "20491231235959Z";

/// What `openssl ca` wants to know.
const AUTHORITY: &str = "
[ca]
default_ca = here
[here]
new_certs_dir = .
database = index.txt
rand_serial = yes
default_md = sha256
private_key = ca.key
certificate = ca.pem
policy = any
[any]
commonName = supplied
";

impl Certificates {
    /// Made once for all servers of this process.
    pub(crate) fn get() -> &'static Self {
        static MADE: OnceLock<Certificates> = OnceLock::new();
        MADE.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let here = folder.path();
            std::fs::write(here.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default").expect("write");
            std::fs::write(here.join("client"), "extendedKeyUsage=clientAuth").expect("write");
            let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
            let authority = ["req", "-x509", "-days", "30", "-subj", "/CN=tests", "-keyout", "ca.key", "-out", "ca.pem"];
            openssl(here, &[&authority[..], &key].concat());
            std::fs::write(here.join("ca.cnf"), AUTHORITY).expect("write");
            std::fs::write(here.join("index.txt"), "").expect("write");
            for (name, subject, extensions) in [("server", "server", "names"), ("user", USER, "client")] {
                let file = |end: &str| format!("{name}.{end}");
                let (secret, asked, signed) = (file("key"), file("csr"), file("pem"));
                let subject = format!("/CN={subject}");
                openssl(here, &[&["req", "-subj", &subject, "-keyout", &secret, "-out", &asked], &key[..]].concat());
                let sign = ["ca", "-batch", "-notext", "-config", "ca.cnf", "-startdate", FROM, "-enddate", UNTIL, "-in", &asked];
                openssl(here, &[&sign[..], &["-extfile", extensions, "-out", &signed]].concat());
            }
            let text = |name: &str| std::fs::read_to_string(here.join(name)).expect("what openssl wrote");
            let pair = |name: &str| (text(&format!("{name}.pem")), text(&format!("{name}.key")));
            Self { authority: text("ca.pem"), server: pair("server"), user: pair("user") }
        })
    }
}

fn openssl(folder: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("start openssl, of the Debian package openssl: {error}"));
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
