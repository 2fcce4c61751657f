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
fn each_kind_of_store_with_members_has_its_port() {
    let Place::Consul(agents) = parse("consul://h1,[::1]/team").place else { panic!("no Consul") };
    assert_eq!(agents.iter().map(Address::as_str).collect::<Vec<_>>(), ["h1:8500", "[::1]:8500"]);
    let url = parse("zk://h1:1,h2/team/prod");
    assert_eq!(url.election("web").unwrap().key(), "team/prod/web/leader");
    let Place::ZooKeeper(members) = url.place else { panic!("no ZooKeeper") };
    assert_eq!(members.iter().map(Address::as_str).collect::<Vec<_>>(), ["h1:1", "h2:2181"]);
}

#[test]
fn a_database_has_a_server_a_user_and_a_name() {
    let database = |text: &str| match parse(text).place {
        Place::Mysql(database) | Place::Postgres(database) => {
            let user = database.user(&StoreOptions::default()).map(str::to_owned);
            (database.server.to_string(), user, database.name)
        }
        place => panic!("{place:?}"),
    };
    let expected = |server: &str, user: &str, name: &str| (server.to_owned(), Some(user.to_owned()), name.to_owned());
    assert_eq!(database("postgres://bw@db.local/prod"), expected("db.local:5432", "bw", "prod"));
    assert_eq!(database("mysql://bw@[fe80::1]/prod/"), expected("[fe80::1]:3306", "bw", "prod"));
    // Some providers' users have the server's name in them.
    assert_eq!(database("mysql://bw@shop@db:3307/prod-1"), expected("db:3307", "bw@shop", "prod-1"));
    assert_eq!(database("postgres://db/prod").1, None);
    let options = StoreOptions::new(["username=other".parse().unwrap()]).unwrap();
    let Place::Postgres(named) = parse("postgres://db/prod").place else { panic!("no PostgreSQL") };
    assert_eq!((named.user(&options), named.names_user()), (Some("other"), false));
    assert_eq!(parse("postgres://bw@db/prod").election("web").unwrap().component(), "web");
}

#[test]
fn a_namespace_is_a_label() {
    for text in ["kubernetes://team-1", "kubernetes://team-1/"] {
        assert_eq!(parse(text).place, Place::Kubernetes("team-1".to_owned()));
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
    for (text, scheme) in [
        ("consul://h", "consul"),
        ("kubernetes://n", "kubernetes"),
        ("mysql://u@h/d", "mysql"),
        ("postgres://u@h/d", "postgres"),
        ("zk://h", "zk"),
    ] {
        assert_eq!((parse(text).is_local(), parse(text).scheme()), (false, scheme));
    }
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
        ("redis://h", "there are consul://, etcd://, kubernetes://, mysql://, postgres://, sqlite://, zk:// and memory:"),
        ("postgresql://u@h/db", "there are consul://"),
        ("consul://", "like consul://HOST:8500/prefix"),
        ("consul://u@h", "--store-opt token-file=FILE instead"),
        ("zk://", "like zk://HOST:2181/prefix"),
        ("zk://h1/p//q", "single slashes"),
        ("zk://u@h", "--store-opt username=USER instead"),
        ("postgres://", "like postgres://USER@HOST:5432/DATABASE"),
        ("postgres:///db", "names no host"),
        ("postgres://u@h", "names no database"),
        ("mysql://u@h:3306/", "like mysql://USER@HOST:3306/DATABASE"),
        ("mysql://u@h/a/b", "one name, without slashes"),
        ("mysql://u@h/a%20b", "without slashes, spaces or %"),
        ("mysql://u@h/d?ssl-mode=off", "--store-opt"),
        ("mysql://@h/d", "is empty"),
        ("mysql://a%40b@h/d", "--store-opt username=USER instead"),
        ("postgres://u@h1,h2/d", "ip:port"),
        ("kubernetes://", "kubernetes://NAMESPACE"),
        ("kubernetes://Team", "a-z 0-9 -"),
        ("kubernetes://-team", "a-z 0-9 -"),
        ("kubernetes://team/prefix", "a-z 0-9 -"),
        ("kubernetes://u@team", "--store-opt token-file=FILE instead"),
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
        "postgres://root:hunter2/x@h/db",
        "mysql://root:hunter2?x@h/db",
        "mysql://root:hunter2@x@h/db",
        "consul://:hunter2@h",
        "zk://root:hunter2@h/p",
        "kubernetes://root:hunter2@team",
    ] {
        let error = text.parse::<StoreUrl>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{text}: {error}");
    }
    let error = "etcd://root:hunter2@h".parse::<StoreUrl>().unwrap_err().to_string();
    assert!(error.contains("password-file=FILE"), "{error}");
}
