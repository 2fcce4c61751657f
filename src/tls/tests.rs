use std::path::Path;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::reload::Look;
use super::{Client, Shown, Terms, Tls, Untrusted};

#[path = "../../tests/support/certificates.rs"]
mod certificates;

use certificates::{Authority, Credentials, LONG, Wanted};

const BOTH: &str = "serverAuth,clientAuth";
const HERE: &str = "IP:127.0.0.1,DNS:localhost";

/// An authority, and what it issues.
pub(crate) struct World {
    folder: TempDir,
    pub(crate) authority: Authority,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "ca");
        Self { folder, authority }
    }

    fn node(&self) -> Credentials {
        self.authority.issue(Wanted { name: "node", hosts: HERE, usage: BOTH, life: LONG })
    }

    /// A node that knows no others, and asks nobody for a certificate.
    pub(crate) fn lone(&self) -> Terms {
        Terms { verify: false, dialled_at: None, ..mutual(&self.node()) }
    }

    fn issue(&self, name: &str, hosts: &str, usage: &str) -> Credentials {
        self.authority.issue(Wanted { name, hosts, usage, life: LONG })
    }
}

/// A node among others, which reach it at 127.0.0.1, and all show certificates.
fn mutual(files: &Credentials) -> Terms {
    Terms {
        http2: true,
        ca: Some(files.ca.clone()),
        cert: files.cert.clone(),
        key: files.key.clone(),
        verify: true,
        dialled_at: Some("127.0.0.1".to_owned()),
        server_name: None,
        with_app: false,
    }
}

fn refusal(terms: Terms) -> String {
    Tls::load(terms).map(|_| ()).unwrap_err().to_string()
}

/// Has `client` dial `server` at 127.0.0.1, and tells what both ends make of it.
async fn meet(server: &Tls, client: &Client) -> (std::io::Result<Shown>, std::io::Result<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let serve = async {
        let (mut stream, shown) = server.accept(accepted).await.map_err(|(error, _)| error)?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await?;
        Ok(shown)
    };
    let ask = async {
        let mut stream = client.connect("127.0.0.1", stream).await?;
        let mut said = String::new();
        // Only here does a client learn that its own certificate was refused.
        stream.read_to_string(&mut said).await?;
        Ok(said)
    };
    tokio::join!(serve, ask)
}

#[tokio::test]
async fn nodes_of_one_ca_believe_each_other() {
    let world = World::new();
    let (node, _) = Tls::load(mutual(&world.node())).unwrap();
    let (served, asked) = meet(&node, &node.to_nodes()).await;
    assert_eq!((served.unwrap(), asked.unwrap().as_str()), (Shown::Node, "hello"));
}

#[tokio::test]
async fn a_user_s_certificate_makes_nobody_a_node() {
    let world = World::new();
    let (node, _) = Tls::load(mutual(&world.node())).unwrap();
    for (name, hosts, usage, expected) in [
        ("user", "", "clientAuth", Shown::Client),
        ("anything", "", "", Shown::Client),
        ("named", "DNS:laptop.example", "clientAuth", Shown::Client),
        ("mail", "email:alice@example.org", "", Shown::Client),
        ("peer", "DNS:b.example", BOTH, Shown::Node),
    ] {
        let user = world.issue(name, hosts, usage);
        let client = Client::read(Some(&user.ca), Some((&user.cert, &user.key))).unwrap();
        assert_eq!(meet(&node, &client).await.0.unwrap(), expected, "{name}");
    }
}

#[tokio::test]
async fn who_has_no_certificate_of_the_ca_is_refused_where_one_is_asked_for() {
    let world = World::new();
    let files = world.node();
    let (node, _) = Tls::load(mutual(&files)).unwrap();
    let others = Authority::new(world.folder.path(), "others");
    let stranger = others.issue(Wanted { name: "stranger", hosts: HERE, usage: BOTH, life: LONG });
    for pair in [None, Some((stranger.cert.as_path(), stranger.key.as_path()))] {
        let client = Client::read(Some(&files.ca), pair).unwrap();
        let (served, asked) = meet(&node, &client).await;
        assert!(served.is_err() && asked.is_err(), "{pair:?}: {served:?} {asked:?}");
    }
    let (open, _) = Tls::load(Terms { verify: false, ..mutual(&files) }).unwrap();
    let (served, asked) = meet(&open, &Client::read(Some(&files.ca), None).unwrap()).await;
    assert_eq!((served.unwrap(), asked.unwrap().as_str()), (Shown::Nothing, "hello"));
}

#[tokio::test]
async fn a_server_that_is_not_whom_it_should_be_is_told_apart() {
    let world = World::new();
    let others = Authority::new(world.folder.path(), "others");
    let lone = |files: &Credentials| Tls::load(Terms { verify: false, dialled_at: None, ..mutual(files) }).unwrap().0;
    let client = Client::read(Some(&world.authority.file()), None).unwrap();
    for (files, words) in [
        (others.issue(Wanted { name: "impostor", hosts: HERE, usage: BOTH, life: LONG }), "was issued by no CA"),
        (world.issue("elsewhere", "DNS:b.example,IP:10.0.0.2", BOTH), "is for b.example, 10.0.0.2 and not for 127.0.0.1"),
    ] {
        let (_, asked) = meet(&lone(&files), &client).await;
        let why = asked.unwrap_err().downcast::<Untrusted>().unwrap().to_string();
        assert!(why.contains(words), "{why}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_told_apart() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut plain, _) = listener.accept().await.unwrap();
    plain.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let client = Client::read(Some(&world.authority.file()), None).unwrap();
    let why = client.connect("127.0.0.1", stream).await.unwrap_err().downcast::<Untrusted>().unwrap();
    assert_eq!(why.to_string(), "it does not speak TLS");
}

#[test]
fn each_bad_file_gets_its_sentence() {
    let world = World::new();
    let good = mutual(&world.node());
    let file = |name: &str, text: &str| {
        let path = world.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let other = world.issue("other", HERE, BOTH);
    let cut = text(&good.cert).replace("-----END", "----END");
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let secret = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let missing = world.folder.path().join("missing");
    for (terms, flag, words) in [
        (Terms { cert: missing.clone(), ..good.clone() }, "--tlscert", "cannot be read: No such file"),
        (Terms { key: missing.clone(), ..good.clone() }, "--tlskey", "cannot be read: No such file"),
        (Terms { ca: Some(missing), ..good.clone() }, "--tlscacert", "cannot be read: No such file"),
        (Terms { cert: world.folder.path().to_owned(), ..good.clone() }, "--tlscert", "no file of certificates"),
        (Terms { cert: good.key.clone(), ..good.clone() }, "--tlscert", "has no certificate in it"),
        (Terms { key: good.cert.clone(), ..good.clone() }, "--tlskey", "has no private key in it"),
        (Terms { key: file("secret", secret), ..good.clone() }, "--tlskey", "is encrypted"),
        (Terms { ca: Some(file("empty", "")), ..good.clone() }, "--tlscacert", "has no certificate in it"),
        (Terms { ca: Some(file("junk", junk)), ..good.clone() }, "--tlscacert", "cannot be read"),
        (Terms { cert: file("cut", &cut), ..good.clone() }, "--tlscert", "is no good PEM file"),
        (Terms { cert: file("junk2", junk), ..good.clone() }, "--tlscert", "cannot be used"),
        (Terms { key: other.key.clone(), ..good.clone() }, "--tlskey", "does not belong to the certificate in"),
    ] {
        let sentence = refusal(terms);
        assert!(sentence.starts_with(flag) && sentence.contains(words), "{flag}, {words}: {sentence}");
    }
}

#[test]
fn a_certificate_that_others_would_refuse_is_refused_at_once() {
    let world = World::new();
    let others = Authority::new(world.folder.path(), "others");
    let known = world.authority.file();
    let with = |files: &Credentials| Terms { ca: Some(known.clone()), ..mutual(files) };
    let (past, future) = (("20200101000000Z", "20210101000000Z"), ("20480101000000Z", "20490101000000Z"));
    let wanted = Wanted { name: "x", hosts: HERE, usage: BOTH, life: LONG };
    for (authority, wanted, words) in [
        (&world.authority, Wanted { life: past, ..wanted }, "ran out on 2021-01-01T00:00:00Z: renew it"),
        (&world.authority, Wanted { life: future, ..wanted }, "is not valid before 2048-01-01T00:00:00Z"),
        (&world.authority, Wanted { usage: "clientAuth", ..wanted }, "issue it again for servers"),
        (&world.authority, Wanted { usage: "serverAuth", ..wanted }, "not all of serverAuth, and clientAuth"),
        (&world.authority, Wanted { hosts: "DNS:b.example", ..wanted }, "is for b.example and not for 127.0.0.1"),
        (&world.authority, Wanted { hosts: "", ..wanted }, "names no host and not for 127.0.0.1"),
        (&others, wanted, "was issued by no CA that is believed here"),
    ] {
        let sentence = refusal(with(&authority.issue(wanted)));
        assert!(sentence.starts_with("--tlscert") && sentence.contains(words), "{words}: {sentence}");
    }
    // Nobody dials a lone node as a node, and its clients may know another CA.
    let foreign = others.issue(Wanted { usage: "serverAuth", hosts: "DNS:b.example", ..wanted });
    Tls::load(Terms { dialled_at: None, ..with(&foreign) }).unwrap();
}

#[test]
fn a_key_that_all_can_read_is_odd() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let terms = mutual(&world.node());
    for (mode, odd) in [(0o600, 0), (0o644, 1)] {
        std::fs::set_permissions(&terms.key, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(Tls::load(terms.clone()).unwrap().1.len(), odd, "{mode:o}");
    }
}

#[tokio::test]
async fn a_half_replaced_pair_is_kept_out_until_it_is_whole() {
    let world = World::new();
    let terms = mutual(&world.node());
    let (node, _) = Tls::load(terms.clone()).unwrap();
    let before = node.life();
    assert_eq!(node.look(), Look::Same);
    let next = world.authority.issue(Wanted { name: "next", hosts: HERE, usage: BOTH, life: ("20200101000000Z", "20480101000000Z") });
    std::fs::copy(&next.cert, &terms.cert).unwrap();
    let Look::Refused(half) = node.look() else { panic!("half a pair is in use") };
    assert!(half.to_string().contains("does not belong to the certificate"), "{half}");
    assert_eq!(node.life(), before);
    let (served, _) = meet(&node, &node.to_nodes()).await;
    assert_eq!(served.unwrap(), Shown::Node);
    std::fs::copy(&next.key, &terms.key).unwrap();
    assert_eq!(node.look(), Look::Replaced);
    assert!(node.life().until < before.until);
    let (served, _) = meet(&node, &node.to_nodes()).await;
    assert_eq!(served.unwrap(), Shown::Node);
    assert_eq!(node.look(), Look::Same);
}

#[tokio::test]
async fn another_ca_is_believed_from_its_file_on() {
    let world = World::new();
    let terms = mutual(&world.node());
    let (node, _) = Tls::load(terms.clone()).unwrap();
    let others = Authority::new(world.folder.path(), "others");
    let guest = others.issue(Wanted { name: "guest", hosts: "", usage: "clientAuth", life: LONG });
    let client = Client::read(terms.ca.as_deref(), Some((&guest.cert, &guest.key))).unwrap();
    assert!(meet(&node, &client).await.0.is_err());
    let both = [world.authority.file(), others.file()].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    let ca = terms.ca.as_ref().unwrap();
    std::fs::write(ca, both).unwrap();
    assert_eq!(node.look(), Look::Replaced);
    assert_eq!(meet(&node, &client).await.0.unwrap(), Shown::Client);
    // The node's own certificate is not of the new one alone: the old one stays believed.
    std::fs::copy(others.file(), ca).unwrap();
    assert!(matches!(node.look(), Look::Refused(_)));
}

#[test]
fn nothing_of_a_key_is_shown() {
    let world = World::new();
    let (node, _) = Tls::load(mutual(&world.node())).unwrap();
    let shown = format!("{node:?} {:?}", node.to_nodes());
    assert!(shown.contains("node.key") && !shown.contains("PRIVATE"), "{shown}");
}
