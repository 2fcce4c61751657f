//! A certificate authority and the certificates that it issues, made by openssl(1) in a folder of the test's.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a test wants of a certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Its common name, and that of its files.
    pub(crate) name: &'a str,
    /// Whom it is for, as in `DNS:a.example,IP:127.0.0.1`; nobody when empty.
    pub(crate) hosts: &'a str,
    /// What it is for, as in `serverAuth,clientAuth`; anything when empty.
    pub(crate) usage: &'a str,
    /// When it begins and ends, as in `20200101000000Z`.
    pub(crate) life: (&'a str, &'a str),
}

/// Valid now, and for tests whose clocks are wrong.
pub(crate) const LONG: (&str, &str) = ("20200101000000Z", "20491231235959Z");

/// PEM files that go together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Credentials {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Issues certificates.
#[derive(Clone, Debug)]
pub(crate) struct Authority {
    folder: PathBuf,
}

/// What `openssl ca` wants to know.
const AUTHORITY: &str = "
[ca]
default_ca = here
[here]
new_certs_dir = .
database = index.txt
unique_subject = no
rand_serial = yes
default_md = sha256
private_key = ca.key
certificate = ca.pem
policy = any
[any]
commonName = supplied
";

/// A key that is quickly made.
const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

impl Authority {
    /// A new one, with its files in a new folder of `folder`.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let folder = folder.join(name);
        std::fs::create_dir(&folder).expect("a folder for an authority");
        let subject = format!("/CN={name}");
        openssl(&folder, &[&["req", "-x509", "-days", "30", "-subj", &subject, "-keyout", "ca.key", "-out", "ca.pem"], &KEY[..]].concat());
        std::fs::write(folder.join("ca.cnf"), AUTHORITY).expect("write");
        std::fs::write(folder.join("index.txt"), "").expect("write");
        Self { folder }
    }

    /// The file of its own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Issues a certificate. One of the same name is replaced.
    pub(crate) fn issue(&self, Wanted { name, hosts, usage, life: (from, until) }: Wanted<'_>) -> Credentials {
        let file = |end: &str| format!("{name}.{end}");
        let mut extensions = "basicConstraints=CA:FALSE\n".to_owned();
        for (extension, value) in [("subjectAltName", hosts), ("extendedKeyUsage", usage)] {
            if !value.is_empty() {
                extensions += &format!("{extension}={value}\n");
            }
        }
        std::fs::write(self.folder.join(file("ext")), extensions).expect("write");
        let (key, asked, cert) = (file("key"), file("csr"), file("pem"));
        let subject = format!("/CN={name}");
        openssl(&self.folder, &[&["req", "-subj", &subject, "-keyout", &key, "-out", &asked], &KEY[..]].concat());
        let sign = ["ca", "-batch", "-notext", "-config", "ca.cnf", "-startdate", from, "-enddate", until, "-in", &asked];
        openssl(&self.folder, &[&sign[..], &["-extfile", &file("ext"), "-out", &cert]].concat());
        Credentials { ca: self.file(), cert: self.folder.join(cert), key: self.folder.join(key) }
    }
}

/// Runs openssl(1) with its files in `folder`.
pub(crate) fn openssl(folder: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("start openssl, of the Debian package openssl: {error}"));
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
