//! Who may use a database, and what those are told who may not. No message has a secret in it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bellwether::store::{Lock, Renewal, StoreError};

use tempfile::TempDir;

use crate::mariadb_server::Mariadb;
use crate::papers::Papers;
use crate::postgres_server::Postgres;
use crate::rig::node;
use crate::sql_rig::{Server, denied, lock_at, on_each_server};
use crate::suite::steps::{lose, renew, win};

const TTL: Duration = Duration::from_secs(60);

on_each_server! {
    a_user_is_let_in_by_the_password_in_the_file
    a_missing_database_is_named
    missing_rights_are_named
}

/// A lock as `user`, with the password in a file.
fn as_user<S: Server>(server: &S, user: &str, database: &str, password: &Path) -> Arc<dyn Lock> {
    let url = server.here().replace("bellwether@", "").replace("/election", &format!("/{database}"));
    let options = [format!("username={user}"), format!("password-file={}", password.display())];
    lock_at(&url, &options, &node(1), TTL).expect("open a lock")
}

fn written(folder: &TempDir, password: &str) -> std::path::PathBuf {
    let file = folder.path().join("password");
    fs::write(&file, format!("{password}\n")).expect("write a password");
    file
}

/// Also when it changes while the program runs, and when it has expired.
async fn a_user_is_let_in_by_the_password_in_the_file<S: Server>() {
    let (server, folder) = (S::make().await, tempfile::tempdir().expect("a temporary folder"));
    server.administer(S::GUARDED).await;
    let lock = as_user(&server, "guarded", "election", &written(&folder, "hunter2"));
    let mut lease = win(&*lock, "the password is right").await;
    assert!(!format!("{lock:?} {lease:?}").contains("hunter2"), "{lock:?}");

    let file = written(&folder, "hunter3");
    let refused = as_user(&server, "guarded", "election", &file);
    for _ in 0..2 {
        let error = refused.leader().await.expect_err("the password is wrong");
        assert!(!format!("{error} {error:?} {refused:?}").contains("hunter"), "{error:?}");
        denied(Err::<(), _>(error), &["user `guarded`", "password-file", "database `election`"]);
    }
    denied(as_user(&server, "nobody", "election", &file).leader().await, &["user `nobody`"]);
    assert_eq!(renew(&mut *lease).await, Renewal::Held, "whoever is in stays in");

    server.administer(S::NEW_PASSWORD).await;
    lose(&*refused, "the file has the new password, and the first leads").await;
    server.administer(S::EXPIRED_PASSWORD).await;
    denied(as_user(&server, "guarded", "election", &file).leader().await, &["user `guarded`", "expired"]);
    assert_eq!(renew(&mut *lease).await, Renewal::Held, "whoever is in stays in");

    fs::remove_file(&file).expect("remove the password");
    let missing = lock_at(&server.here().replace("bellwether@", "guarded@"), &[format!("password-file={}", file.display())], &node(1), TTL);
    let error = missing.map(drop).expect_err("there is no password").to_string();
    assert!(error.contains("cannot read") && error.contains("password"), "{error}");
}

async fn a_missing_database_is_named<S: Server>() {
    let server = S::make().await;
    let url = server.here().replace("/election", "/elsewhere");
    denied(lock_at(&url, &[], &node(1), TTL).expect("open a lock").leader().await, &["database `elsewhere`", "CREATE DATABASE elsewhere"]);
}

/// Neither to make the table, nor to use it; and with just the rights that the documents ask for.
async fn missing_rights_are_named<S: Server>() {
    let server = S::make().await;
    server.administer(S::LIMITED).await;
    let url = server.here().replace("bellwether@", "limited@");
    let limited = lock_at(&url, &[], &node(1), TTL).expect("open a lock");
    denied(limited.acquire().await, &["has no table leader_leases", "user `limited`"]);
    server.open(2, TTL * 20).leader().await.expect("somebody else makes the table");
    server.texts(S::GRANT_READING).await;
    denied(limited.acquire().await, &["user `limited`", "GRANT SELECT, INSERT, UPDATE"]);
    for grant in S::GRANT_ALL_NEEDED {
        server.texts(grant).await;
    }
    let mut lease = win(&*limited, "it has all that it needs").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
}

fn veiled<S: Server>(server: &S, options: &[String]) -> Arc<dyn Lock> {
    lock_at(&server.here().replace("bellwether@", "veiled@"), options, &node(1), TTL).expect("open a lock")
}

/// With `cacert` the server must show a certificate of that authority for its name; without, TLS is used where it is
/// offered, and nobody knows with whom.
async fn tls<S: Server>(server: S, good: &Papers, certified: bool) {
    let other = Papers::for_a_server_at("IP:127.0.0.1");
    let mut options = vec![good.cacert()];
    if certified {
        denied(veiled(&server, &options).leader().await, &["database `election`"]);
        options.extend([format!("cert={}", good.path("veiled.pem")), format!("key={}", good.path("veiled.key"))]);
    } else {
        veiled(&server, &[]).leader().await.expect("TLS without a check");
    }
    let lock = veiled(&server, &options);
    let mut lease = win(&*lock, "the certificate is right").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    options[0] = other.cacert();
    denied(veiled(&server, &options).leader().await, &["TLS", "cacert"]);
    let bad = lock_at(&server.here(), &[format!("cacert={}", good.path("ca.key"))], &node(1), TTL);
    assert!(bad.map(drop).expect_err("that is a key").to_string().contains("no PEM block of a certificate"));
}

/// Puts a server's certificates where its user can read them.
fn installed(certificates: &Papers, folder: &Path) {
    for name in ["ca.pem", "server.pem", "server.key"] {
        let place = folder.join(name);
        fs::copy(certificates.path(name), &place).expect("copy a certificate");
        let owner = fs::metadata(folder).expect("a server's folder");
        let (user, group) = (std::os::unix::fs::MetadataExt::uid(&owner), std::os::unix::fs::MetadataExt::gid(&owner));
        std::os::unix::fs::chown(&place, Some(user), Some(group)).expect("give a certificate away");
        fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("hide a key");
    }
}

#[tokio::test]
async fn tls_is_checked_on_postgres() {
    for certified in [false, true] {
        let (mut server, certificates) = (Postgres::start().await, Papers::for_a_server_at("IP:127.0.0.1"));
        denied(veiled(&server, &[certificates.cacert()]).leader().await, &["TLS"]);
        denied(veiled(&server, &[]).leader().await, &["user `veiled`"]);
        installed(&certificates, &server.data());
        let settings = "ssl = on\nssl_cert_file = 'server.pem'\nssl_key_file = 'server.key'\nssl_ca_file = 'ca.pem'\n";
        let place = server.data().join("postgresql.auto.conf");
        fs::write(place, settings).expect("write the settings");
        if certified {
            let place = server.data().join("pg_hba.conf");
            let access = fs::read_to_string(&place).expect("who may come in");
            fs::write(place, access.replace("veiled 127.0.0.1/32 trust", "veiled 127.0.0.1/32 trust clientcert=verify-full"))
                .expect("ask for a certificate");
        }
        server.stop();
        server.restart().await;
        server.administer("CREATE ROLE veiled LOGIN IN ROLE bellwether;GRANT ALL ON DATABASE election TO veiled").await;
        server.texts("GRANT ALL ON SCHEMA public TO veiled").await;
        tls(server, &certificates, certified).await;
    }
}

#[tokio::test]
async fn tls_is_checked_on_mariadb() {
    for certified in [false, true] {
        let certificates = Papers::for_a_server_at("IP:127.0.0.1");
        let settings = ["ca.pem", "server.pem", "server.key"].map(|name| certificates.path(name));
        let settings = [format!("ssl-ca={}", settings[0]), format!("ssl-cert={}", settings[1]), format!("ssl-key={}", settings[2])];
        fs::set_permissions(certificates.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("show certificates");
        fs::set_permissions(certificates.path("server.key"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("show a key");
        let server = Mariadb::start_with(&settings.each_ref().map(String::as_str)).await;
        let require = if certified { "X509" } else { "SSL" };
        server.administer(&format!("CREATE USER veiled@'%' REQUIRE {require};GRANT ALL ON election.* TO veiled@'%'")).await;
        tls(server, &certificates, certified).await;
    }
}

/// A certificate for another host is no proof.
#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let certificates = Papers::for_a_server_at("DNS:elsewhere.example");
    fs::set_permissions(certificates.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("show certificates");
    fs::set_permissions(certificates.path("server.key"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("show a key");
    let settings = [format!("ssl-cert={}", certificates.path("server.pem")), format!("ssl-key={}", certificates.path("server.key"))];
    let server = Mariadb::start_with(&settings.each_ref().map(String::as_str)).await;
    let lock = lock_at(&server.here(), &[certificates.cacert()], &node(1), TTL).expect("open a lock");
    denied(lock.leader().await, &["TLS", "cacert"]);
    let error = lock.acquire().await.expect_err("the certificate is for another host");
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
}
