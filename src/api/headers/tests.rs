use http::header::{CONNECTION, HeaderValue, TE, UPGRADE, VIA};
use http::request::Parts;
use http::{Request, StatusCode};

use super::strip::is_ours;
use super::*;
use crate::api::error::Reason;
use crate::api::handshake::Channel;
use crate::api::{Config, Limits};
use crate::tls::Shown;

fn config(trusted: &str) -> Config {
    Config {
        listen: Vec::new(),
        upstream: Vec::new(),
        hold_timeout: Duration::from_secs(1),
        hold_requests: 1,
        hold_bytes: 1,
        ttl: Duration::from_secs(1),
        max_connections: 1,
        forward: Default::default(),
        workers: std::num::NonZeroUsize::MIN,
        http2: true,
        trusted_proxies: trusted.split_terminator(',').map(|network| network.parse().unwrap()).collect(),
        forwarded: false,
        tls: None,
        to_app: None,
        limits: Limits::default(),
    }
}

fn peer(trusted: &str) -> Peer {
    Peer::new(Some("10.1.2.3".parse().unwrap()), &config(trusted))
}

fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> Parts {
    let mut builder = Request::builder().method(method).uri(target);
    for (name, value) in fields {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap().into_parts().0
}

fn prepared(mut head: Parts) -> (Parts, Terms) {
    let terms = prepare(&mut head, &peer(""), &Limits::default()).unwrap();
    (head, terms)
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    headers.keys().map(HeaderName::as_str).collect()
}

#[test]
fn fields_that_connection_names_go_and_ours_stay() {
    // B81: also when a client names the fields that the proxy adds.
    let fields = [
        ("host", "a"),
        ("connection", "close, X-Secret, X-Forwarded-For, Host, Content-Length"),
        ("x-secret", "1"),
        ("content-length", "0"),
        ("x-last", "2"),
    ];
    let (head, _) = prepared(head("POST", "/", &fields));
    assert_eq!(
        names(&head.headers),
        ["host", "content-length", "x-last", "via", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"]
    );
    assert_eq!(head.headers["x-forwarded-for"], "10.1.2.3");
}

#[test]
fn a_long_list_of_names_costs_no_time() {
    // 100 fields, and a Connection that names one of them again and again.
    let list = "x-5,".repeat(12_000);
    let mut fields: Vec<(String, &str)> = (0..97).map(|index| (format!("x-{index}"), "v")).collect();
    fields.extend([("host".to_owned(), "a"), ("connection".to_owned(), list.as_str())]);
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let started = tokio::time::Instant::now();
    let (head, _) = prepared(head("GET", "/", &fields));
    assert!(!head.headers.contains_key("x-5") && head.headers.contains_key("x-6"));
    assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
}

#[test]
fn an_upgrade_is_known_in_every_spelling() {
    // B140.
    for lines in [vec!["keep-alive, Upgrade"], vec!["upgrade"], vec!["keep-alive", "UPGRADE"]] {
        let mut fields = vec![("host", "a"), ("upgrade", "WebSocket")];
        fields.extend(lines.iter().map(|line| ("connection", *line)));
        let (head, terms) = prepared(head("GET", "/", &fields));
        assert!(terms.upgrade, "{lines:?}");
        assert_eq!(
            (&head.headers["connection"], &head.headers["upgrade"]),
            (&HeaderValue::from_static("Upgrade"), &HeaderValue::from_static("WebSocket"))
        );
    }
    let (head, terms) = prepared(head("GET", "/", &[("host", "a"), ("upgrade", "h2c")]));
    assert!(!terms.upgrade && !head.headers.contains_key(UPGRADE), "not without Connection: upgrade");
}

#[test]
fn settings_of_an_h2c_upgrade_stay_on_this_hop() {
    // B81: the app must not think that it can switch to HTTP/2 in mid-stream with settings it never saw.
    let fields = [("host", "a"), ("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABk")];
    let unnamed = [fields[0], ("connection", "Upgrade"), fields[2], fields[3]];
    for fields in [fields, unnamed] {
        let (head, terms) = prepared(head("GET", "/", &fields));
        assert!(terms.upgrade && !head.headers.contains_key("http2-settings"));
    }
}

#[test]
fn of_te_only_trailers_go_on() {
    let (with, _) = prepared(head("GET", "/", &[("host", "a"), ("te", "gzip;q=0.5, trailers")]));
    assert_eq!(
        (&with.headers["te"], &with.headers["connection"]),
        (&HeaderValue::from_static("trailers"), &HeaderValue::from_static("te"))
    );
    let (without, _) = prepared(head("GET", "/", &[("host", "a"), ("te", "gzip")]));
    assert!(!without.headers.contains_key(TE) && !without.headers.contains_key(CONNECTION));
}

#[test]
fn a_client_says_nothing_in_our_name() {
    let fields = [("host", "a"), ("bellwether-epoch", "9"), ("bellwether-hop", "nonsense"), ("bellwether-anything", "x")];
    let (head, terms) = prepared(head("GET", "/", &fields));
    assert_eq!(terms.hop, None);
    assert!(!head.headers.keys().any(is_ours), "{:?}", head.headers);
}

#[test]
fn names_with_underscores_are_removed_like_those_with_dashes() {
    let spoofed = ["bellwether_epoch", "Bellwether-Epoch_", "bellwether_hop", "x_forwarded_for", "X-Forwarded_Proto", "x_forwarded-host"];
    let fields: Vec<_> = [("host", "a")].into_iter().chain(spoofed.map(|name| (name, "9"))).chain([("x_request_id", "1")]).collect();
    let (head, _) = prepared(head("GET", "/", &fields));
    assert_eq!(names(&head.headers), ["host", "x_request_id", "via", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"]);
    assert_eq!(head.headers["x-forwarded-for"], "10.1.2.3");
}

#[test]
fn the_certificate_of_a_user_makes_nobody_another_node() {
    for (shown, expected) in [(Shown::Client, false), (Shown::Node, true)] {
        let mut head = head("GET", "/", &[("host", "a"), ("bellwether-hop", "00000000000000ff;epoch=12")]);
        let peer = peer("").over(Channel::Secured(shown));
        let terms = prepare(&mut head, &peer, &Limits::default()).unwrap();
        assert_eq!((terms.hop.is_some(), head.headers.contains_key(HOP)), (expected, false));
    }
}

#[test]
fn a_hop_is_read_and_taken_off_without_moving_the_rest() {
    let fields = [("host", "a"), ("x-b", "1"), ("x-c", "2"), ("bellwether-hop", "00000000000000ff;epoch=12")];
    let (head, terms) = prepared(head("GET", "/", &fields));
    assert_eq!(terms.hop.unwrap().to_string(), "00000000000000ff;epoch=12");
    assert_eq!(names(&head.headers)[..3], ["host", "x-b", "x-c"]);
    assert!(!head.headers.keys().any(is_ours));
}

#[test]
fn two_nodes_are_one_entry_of_via() {
    let via = |fields: &[(&str, &str)]| prepared(head("GET", "/", fields)).0.headers.get_all(VIA).iter().count();
    let hop = ("bellwether-hop", "00000000000000ff;epoch=12");
    assert_eq!(via(&[("host", "a"), ("via", "1.0 other")]), 2);
    assert_eq!(via(&[("host", "a"), ("via", "1.1 bellwether"), hop]), 1);
    assert_eq!(via(&[("host", "a"), hop]), 1);
}

#[test]
fn only_one_well_formed_hop_is_a_hop() {
    for text in [
        "",
        "ff;epoch=1",
        "00000000000000ff",
        "00000000000000ff;epoch=",
        "00000000000000ff;epoch=-1",
        "+0000000000000ff;epoch=1",
        "00000000000000ff;epoch=99999999999999999999",
    ] {
        assert!(text.parse::<Hop>().is_err(), "{text}");
    }
    let hop = ("bellwether-hop", "00000000000000ff;epoch=12");
    assert_eq!(prepared(head("GET", "/", &[("host", "a"), hop, hop])).1.hop, None);
}

#[test]
fn forwarded_fields_are_kept_only_from_those_who_are_trusted() {
    let fields = [("host", "inner"), ("x-forwarded-for", "1.1.1.1"), ("x-forwarded-proto", "https"), ("x-forwarded-host", "outer")];
    let (untrusted, _) = prepared(head("GET", "/", &fields));
    let shown =
        |headers: &HeaderMap, name: &str| headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(shown(&untrusted.headers, "x-forwarded-for"), ["10.1.2.3"]);
    assert_eq!(shown(&untrusted.headers, "x-forwarded-proto"), ["http"]);
    assert_eq!(shown(&untrusted.headers, "x-forwarded-host"), ["inner"]);

    let mut trusted = head("GET", "/", &fields);
    prepare(&mut trusted, &peer("10.0.0.0/8"), &Limits::default()).unwrap();
    assert_eq!(shown(&trusted.headers, "x-forwarded-for"), ["1.1.1.1", "10.1.2.3"]);
    assert_eq!(shown(&trusted.headers, "x-forwarded-proto"), ["https"]);
    assert_eq!(shown(&trusted.headers, "x-forwarded-host"), ["outer"]);
}

/// RFC 7239: a list that goes on where it is believed, and is none of a client's to begin.
#[test]
fn a_list_of_proxies_is_continued_for_those_who_are_trusted() {
    let fields = [("host", "inner:81"), ("forwarded", "for=1.1.1.1;proto=https, for=2.2.2.2"), ("x-last", "1")];
    let listed = |headers: &HeaderMap| -> Vec<String> {
        headers.get_all("forwarded").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    assert!(listed(&prepared(head("GET", "/", &fields)).0.headers).is_empty());

    let mut trusted = head("GET", "/", &fields);
    prepare(&mut trusted, &peer("10.0.0.0/8"), &Limits::default()).unwrap();
    assert_eq!(listed(&trusted.headers), [fields[1].1, "for=10.1.2.3;host=\"inner:81\";proto=http"]);

    let mut sixth = head("GET", "/", &fields);
    let peer = Peer::new(Some("2001:db8::1".parse().unwrap()), &config("2001:db8::/32")).over(Channel::Secured(Shown::Nothing));
    prepare(&mut sixth, &peer, &Limits::default()).unwrap();
    assert_eq!(listed(&sixth.headers)[1], "for=\"[2001:db8::1]\";host=\"inner:81\";proto=https");

    let mut silent = head("GET", "/", &fields[..1]);
    prepare(&mut silent, &peer, &Limits::default()).unwrap();
    assert!(listed(&silent.headers).is_empty(), "nobody asked for one");
}

#[test]
fn a_list_of_proxies_is_begun_where_that_is_asked_for() {
    let begun = |address: Option<&str>, channel, fields: &[(&str, &str)]| -> Vec<String> {
        let config = Config { forwarded: true, ..config("10.0.0.0/8") };
        let peer = Peer::new(address.map(|address| address.parse().unwrap()), &config).over(channel);
        let mut head = head("GET", "/", fields);
        head.version = http::Version::HTTP_10;
        prepare(&mut head, &peer, &Limits::default()).unwrap();
        head.headers.get_all("forwarded").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    let host = ("host", "[::1]:80");
    let secured = Channel::Secured(Shown::Nothing);
    assert_eq!(begun(Some("192.0.2.1"), Channel::Plain, &[host]), ["for=192.0.2.1;host=\"[::1]:80\";proto=http"]);
    assert_eq!(begun(Some("2001:db8::1"), secured, &[host]), ["for=\"[2001:db8::1]\";host=\"[::1]:80\";proto=https"]);
    assert_eq!(begun(None, Channel::Plain, &[host]), ["for=unknown;host=\"[::1]:80\";proto=http"]);
    assert_eq!(begun(None, Channel::Plain, &[]), ["for=unknown;proto=http"]);
    let own = ("forwarded", "for=6.6.6.6");
    assert_eq!(begun(Some("192.0.2.1"), Channel::Plain, &[own]), ["for=192.0.2.1;proto=http"], "a client's own goes all the same");
    assert_eq!(begun(Some("10.0.0.1"), Channel::Plain, &[own]), ["for=6.6.6.6", "for=10.0.0.1;proto=http"]);
}

#[test]
fn an_ipv4_client_of_a_dual_stack_listener_is_known_by_its_ipv4_address() {
    let peer = Peer::new(Some("::ffff:10.1.2.3".parse().unwrap()), &config("10.0.0.0/8"));
    assert!(peer.is_trusted());
    assert_eq!(peer.address().unwrap(), "10.1.2.3");
}

#[test]
fn a_url_as_target_becomes_a_path_for_its_host() {
    let (absolute, _) = prepared(head("GET", "http://other:81//a/%2F?x=&y", &[("host", "a")]));
    assert_eq!((absolute.uri.to_string().as_str(), &absolute.headers["host"]), ("//a/%2F?x=&y", &HeaderValue::from_static("other:81")));
    for target in ["/echo?", "/a%2Fb/../c", "//double", "/%E2%9C%93", "/;v=1", "*", "/?", "/a?b?c"] {
        // B74.
        assert_eq!(prepared(head("OPTIONS", target, &[("host", "a")])).0.uri.to_string(), target);
    }
}

#[test]
fn how_far_a_request_may_go_is_counted_once_for_each_service() {
    let counted = |method, given: &[&str], hop: bool| -> Vec<String> {
        let mut fields = vec![("host", "a")];
        fields.extend(given.iter().map(|value| ("max-forwards", *value)));
        fields.extend(hop.then_some(("bellwether-hop", "00000000000000ff;epoch=12")));
        let (head, _) = prepared(head(method, "/", &fields));
        head.headers.get_all("max-forwards").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    for method in ["OPTIONS", "TRACE"] {
        assert_eq!(counted(method, &["1"], false), ["0"]);
        assert_eq!(counted(method, &["1"], true), ["1"], "another node of this service has counted");
        assert_eq!(counted(method, &["99999999999999999999"], false), [(u64::MAX - 1).to_string()]);
        for odd in [&["-1"][..], &["x"], &[""], &["1", "2"], &[]] {
            assert_eq!(counted(method, odd, false), odd, "what is no number is passed on");
        }
    }
    assert_eq!(counted("GET", &["1"], false), ["1"]);
}

#[test]
fn a_request_that_may_go_no_further_is_answered_without_its_secrets() {
    let fields =
        [("host", "a"), ("max-forwards", "0"), ("cookie", "s"), ("authorization", "s"), ("proxy-authorization", "s"), ("via", "1.1 b")];
    let answer = final_answer(&head("TRACE", "/a?b", &fields)).unwrap();
    assert_eq!((answer.status(), &answer.headers()["content-type"]), (StatusCode::OK, &HeaderValue::from_static("message/http")));
    assert_eq!(answer.body(), "TRACE /a?b HTTP/1.1\r\nhost: a\r\nmax-forwards: 0\r\nvia: 1.1 b\r\n\r\n");
    assert!(final_answer(&head("OPTIONS", "*", &fields)).unwrap().body().is_empty());
    assert!(final_answer(&head("GET", "/", &fields)).is_none() && final_answer(&head("OPTIONS", "*", &fields[..1])).is_none());
}

#[test]
fn what_must_not_be_passed_on_is_refused() {
    let many: Vec<(String, &str)> = (0..101).map(|index| (format!("x-{index}"), "v")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let long = "x".repeat(65 * 1024);
    for (head, reason) in [
        (head("CONNECT", "a:443", &[("host", "a")]), Reason::BadRequest),
        (head("GET", "/", &[("host", "a"), ("x", " b")]), Reason::BadRequest),
        (head("GET", "/", &[("host", "a"), ("x", "b\t")]), Reason::BadRequest),
        (head("GET", "a:443", &[("host", "a")]), Reason::BadRequest),
        (head("GET", "http://user@a/", &[("host", "a")]), Reason::BadRequest),
        (head("GET", "http://user:word@a:80/", &[("host", "a")]), Reason::BadRequest),
        (head("GET", "/", &[("host", "a"), ("host", "b")]), Reason::BadRequest),
        (head("GET", "/", &many), Reason::TooLarge),
        (head("GET", "/", &[("cookie", &long)]), Reason::TooLarge),
        (head("GET", &format!("/?{}", &long[..60_000]), &[("host", "a"), ("cookie", &long[..10_000])]), Reason::TooLarge),
    ] {
        let mut head = head;
        assert_eq!(prepare(&mut head, &peer(""), &Limits::default()).unwrap_err().reason, reason, "{head:?}");
    }
}

#[test]
fn what_a_replica_adds_never_tips_a_request_over_the_limit() {
    // B97.
    let mut fields: Vec<(String, String)> = (0..100).map(|index| (format!("x-{index}"), "v".repeat(640))).collect();
    fields.truncate(99);
    fields.push(("host".to_owned(), "a".to_owned()));
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let (mut on_replica, _) = prepared(head("GET", "/", &fields));
    on_replica.headers.insert(HOP, HeaderValue::from_static("00000000000000ff;epoch=1"));
    assert!(on_replica.headers.len() > Limits::default().head_lines);
    assert!(prepare(&mut on_replica, &peer(""), &Limits::default()).is_ok());
}

#[test]
fn a_wait_is_read_from_any_preference() {
    for (value, seconds) in
        [("wait=10", Some(10)), ("respond-async, Wait = \"7\"; x=y", Some(7)), ("respond-async", None), ("wait=-1", None), ("wait", None)]
    {
        let head = head("GET", "/", &[("prefer", value)]);
        assert_eq!(preferred_wait(&head.headers), seconds.map(Duration::from_secs), "{value}");
    }
}

#[test]
fn an_app_says_nothing_in_our_name_and_a_leader_does() {
    let fields = [("bellwether-epoch", "9"), ("x-a", "1"), ("bellwether-refused", "superseded"), ("keep-alive", "timeout=5"), ("x-b", "2")];
    let mut from_app = head("GET", "/", &fields).headers;
    relay(StatusCode::OK, &mut from_app, Origin::App).unwrap();
    assert_eq!(names(&from_app), ["x-a", "x-b"]);
    let mut from_leader = head("GET", "/", &fields).headers;
    relay(StatusCode::OK, &mut from_leader, Origin::Leader).unwrap();
    assert_eq!(names(&from_leader), ["x-a", "x-b", "bellwether-epoch"]);
}

#[test]
fn a_length_beside_an_encoding_is_dropped() {
    let mut headers = head("GET", "/", &[("content-length", "3"), ("transfer-encoding", "chunked")]).headers;
    relay(StatusCode::OK, &mut headers, Origin::App).unwrap();
    assert_eq!(names(&headers), ["transfer-encoding"]);
}

#[test]
fn a_url_without_a_path_asks_for_the_root() {
    for (target, path) in [("http://a", "/"), ("http://a#b", "/"), ("http://a:1?c", "/?c"), ("http://a/?c#d", "/?c")] {
        let (head, _) = prepared(head("GET", target, &[("host", "b")]));
        assert_eq!(head.uri.to_string(), path, "{target}");
    }
}

#[test]
fn an_answer_with_an_odd_length_is_not_passed_on() {
    for (odd, lines) in [
        (false, &[("content-length", "2")][..]),
        (false, &[("transfer-encoding", "Chunked"), ("content-length", "2")]),
        (true, &[("content-length", "2, 2")]),
        (true, &[("content-length", "some")]),
        (true, &[("transfer-encoding", "gzip, chunked")]),
        (true, &[("transfer-encoding", "identity")]),
        (true, &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]),
    ] {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        assert_eq!(relay(StatusCode::OK, &mut headers, Origin::App).is_err(), odd, "{lines:?}");
    }
}
