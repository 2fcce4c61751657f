use super::*;

fn parse(text: &str) -> StoreUrl {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn etcd(text: &str) -> (Vec<String>, String) {
    let url = parse(text);
    let Place::Etcd(endpoints) = &url.place else { panic!("{url:?}") };
    (endpoints.iter().map(Address::to_string).collect(), url.prefix)
}

#[test]
fn an_etcd_url_has_members_and_a_prefix() {
    let (endpoints, prefix) = etcd("etcd://h1:2379,10.0.0.2,[::1]:4,[fe80::2]/team/prod/");
    assert_eq!(endpoints, ["h1:2379", "10.0.0.2:2379", "[::1]:4", "[fe80::2]:2379"]);
    assert_eq!(prefix, "team/prod");
    for text in ["etcd://h", "etcd://h/"] {
        assert_eq!(etcd(text), (vec!["h:2379".to_owned()], "bellwether".to_owned()), "{text}");
    }
}

#[test]
fn a_file_is_named_by_its_full_path_byte_for_byte() {
    assert_eq!(parse("sqlite:///var/lib/a b/%41@é.db").place, Place::Sqlite(PathBuf::from("/var/lib/a b/%41@é.db")));
}

#[test]
fn a_store_says_what_it_can_keep_and_who_can_see_it() {
    let etcd = parse("etcd://h/p");
    assert_eq!((etcd.least_ttl(), etcd.is_local(), etcd.scheme()), (Duration::from_secs(1), false, "etcd"));
    let sqlite = parse("sqlite:///x.db");
    assert_eq!((sqlite.least_ttl(), sqlite.is_local(), sqlite.scheme()), (Duration::from_millis(500), true, "sqlite"));
    assert!(parse("memory:").is_local());
    assert_eq!(etcd.election("web").unwrap().key(), "p/web/leader");
}

#[test]
fn each_wrong_url_says_what_to_write() {
    for (text, words) in [
        ("", "no store URL"),
        ("etcd", "no store URL"),
        ("localhost:2379", "no store URL"),
        ("etcd:h1:2379", "no store URL"),
        ("://h", "no store URL"),
        ("redis://h", "there are etcd://, sqlite:// and memory:"),
        ("consul://h:8500", "not in this version"),
        ("zk://h", "not in this version"),
        ("postgres://user@host/db", "not in this version"),
        ("mysql://user@host/db", "not in this version"),
        ("kubernetes://namespace", "not in this version"),
        ("etcd://", "names no host"),
        ("etcd:///prefix", "names no host"),
        ("etcd://h1,,h2", "names no host"),
        ("etcd://h:0", "1 to 65535"),
        ("etcd://h:99999", "1 to 65535"),
        ("etcd://::1:2379", "brackets"),
        ("etcd://h h", "ip:port"),
        ("etcd://h:1,h:1", "twice"),
        ("etcd://h//p", "single slashes"),
        ("etcd://h/p q", "single slashes"),
        ("etcd://h/p?timeout=3", "--store-opt"),
        ("etcd://h/p#x", "--store-opt"),
        ("etcd://root@h", "username=USER"),
        ("sqlite://file.db", "three slashes"),
        ("sqlite://", "three slashes"),
        ("sqlite:///", "name the database file"),
        ("sqlite:///var/", "name the database file"),
        ("sqlite:///var/..", "name the database file"),
        ("sqlite:///x.db?mode=ro", "--store-opt"),
        ("memory://x", "memory:NAME"),
        ("memory:a/b", "memory:NAME"),
    ] {
        let error = text.parse::<StoreUrl>().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
        assert!(!error.contains('\n') && !error.ends_with('.'), "{error}");
    }
}

#[test]
fn a_password_is_refused_and_never_repeated() {
    for text in [
        "etcd://root:hunter2@h:2379/p",
        "etcd://root:hunter2/x@h",
        "etcd://root:hunter2?x@h",
        "etcd://root:hunter2@x@h",
        "root:hunter2@h:2379",
        "sqlite://root:hunter2@h/x.db",
        "memory:root:hunter2@h",
        "redis://root:hunter2@h",
        "postgres://root:hunter2@h/db",
    ] {
        let error = text.parse::<StoreUrl>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{text}: {error}");
    }
    let error = "etcd://root:hunter2@h".parse::<StoreUrl>().unwrap_err().to_string();
    assert!(error.contains("password-file=FILE"), "{error}");
}
