//! Cases that the test suites of other proxies hold, as far as they concern a proxy in front of one app: odd answers and odd
//! requests, byte by byte on both sides, at each of the three places. `tests/CASES.md` says which suite each is from, and where
//! the others are tested.

use std::path::Path;
use std::time::Duration;

use crate::support::place::Place;
use crate::support::places::Places;
use crate::support::raw::{Origin, Raw, header};

/// What an app answers, and what the client gets: its status, and everything behind the head.
const ANSWERS: &[(&str, &str, &str, u16, &str)] = &[
    ("more than its length", "GET", "200 OK\r\nContent-Length: 2\r\n\r\nokMORE", 200, "ok"),
    ("less than its length", "GET", "200 OK\r\nContent-Length: 9\r\n\r\npart", 200, "part"),
    ("nothing of its length", "GET", "200 OK\r\nContent-Length: 9\r\n\r\n", 200, ""),
    ("a body to HEAD", "HEAD", "200 OK\r\nContent-Length: 2\r\n\r\nok", 200, ""),
    ("a length in a 304", "GET", "304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, ""),
    ("a body in a 204", "GET", "204 No Content\r\n\r\nok", 204, ""),
    (
        "more than the last chunk",
        "GET",
        "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nMORE",
        200,
        "2\r\nok\r\n0\r\n\r\n",
    ),
    ("no last chunk", "GET", "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", 200, "2\r\nok\r\n"),
    ("a chunk that is none", "GET", "200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n", 200, ""),
    (
        "both lengths",
        "GET",
        "200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 30\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n",
        200,
        "0\r\n\r\n",
    ),
    ("one length twice", "GET", "200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", 200, "ok"),
    ("two lengths", "GET", "200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", 502, "upstream-failed"),
    ("a list of lengths", "GET", "200 OK\r\nContent-Length: 2, 2\r\n\r\nok", 502, "upstream-failed"),
    ("a length that is none", "GET", "200 OK\r\nContent-Length: some\r\n\r\nok", 502, "upstream-failed"),
    ("a length with a sign", "GET", "200 OK\r\nContent-Length: +2\r\n\r\nok", 502, "upstream-failed"),
    ("a length that is none, to HEAD", "HEAD", "200 OK\r\nContent-Length: some\r\n\r\n", 502, ""),
    ("an unknown encoding", "GET", "200 OK\r\nTransfer-Encoding: odd\r\n\r\nok", 502, "upstream-failed"),
    (
        "chunked twice",
        "GET",
        "200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        502,
        "upstream-failed",
    ),
    ("two encodings", "GET", "200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 502, "upstream-failed"),
    ("an upgrade in a 200", "GET", "200 OK\r\nUpgrade: odd\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nok", 200, "ok"),
    (
        "a switch that nobody asked for",
        "GET",
        "101 Switching Protocols\r\nUpgrade: odd\r\nConnection: upgrade\r\n\r\nraw",
        502,
        "upstream-failed",
    ),
    ("hints before it", "GET", "103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok"),
    ("hints alone", "GET", "103 Early Hints\r\nLink: </a>\r\n\r\n", 502, "upstream-failed"),
    ("half a head", "GET", "200 OK\r\nX-Half", 502, "upstream-failed"),
    ("a name with a space", "GET", "200 OK\r\nX Odd: 1\r\nContent-Length: 2\r\n\r\nok", 502, "upstream-failed"),
    ("a name with a space behind it", "GET", "200 OK\r\nX-Odd : 1\r\nContent-Length: 2\r\n\r\nok", 502, "upstream-failed"),
    ("a folded line", "GET", "200 OK\r\nX-Odd: 1\r\n 2\r\nContent-Length: 2\r\n\r\nok", 502, "upstream-failed"),
    ("a zero byte", "GET", "200 OK\r\nX-Odd: \0\r\nContent-Length: 2\r\n\r\nok", 502, "upstream-failed"),
    ("a status below 100", "GET", "99 Odd\r\nContent-Length: 2\r\n\r\nok", 502, "upstream-failed"),
    ("a status above 599", "GET", "999 Odd\r\nContent-Length: 2\r\n\r\nok", 999, "ok"),
    ("a part", "GET", "206 Partial Content\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nok", 206, "ok"),
];

/// A request's line, lines of its head, and its body; and the first line that reaches the app, unless it is refused.
const REQUESTS: &[(&str, &str, &str, Option<&str>)] = &[
    ("GET http://other.example:81/p?q#f HTTP/1.1", "", "", Some("GET /p?q HTTP/1.1")),
    ("GET http://other.example?q HTTP/1.1", "", "", Some("GET /?q HTTP/1.1")),
    ("GET /a/../b/./c//d/%2e%2E/%41?x=/../ HTTP/1.1", "", "", Some("GET /a/../b/./c//d/%2e%2E/%41?x=/../ HTTP/1.1")),
    ("GET /a%zz%2 HTTP/1.1", "", "", Some("GET /a%zz%2 HTTP/1.1")),
    ("TRACE /x HTTP/1.1", "", "", Some("TRACE /x HTTP/1.1")),
    ("get /x HTTP/1.1", "", "", Some("get /x HTTP/1.1")),
    ("OPTIONS * HTTP/1.1", "", "", Some("OPTIONS * HTTP/1.1")),
    ("GET /x HTTP/1.0", "Upgrade: odd\r\n", "", Some("GET /x HTTP/1.1")),
    ("GET /x HTTP/1.1", "x_odd: 1\r\nAuthorization: a\r\nAuthorization: b\r\n", "", Some("GET /x HTTP/1.1")),
    ("POST /x HTTP/1.1", "Content-Length: 2\r\nContent-Length: 2\r\n", "ok", Some("POST /x HTTP/1.1")),
    ("POST /x HTTP/1.1", "Expect: 200-ok\r\nContent-Length: 2\r\n", "ok", Some("POST /x HTTP/1.1")),
    ("GET /x HTTP/1.1", "Content-Length: 2\r\n", "ok", Some("GET /x HTTP/1.1")),
    ("OPTIONS */test HTTP/1.1", "", "", None),
    ("CONNECT other.example:80 HTTP/1.1", "", "", None),
    ("CONNECT /x HTTP/1.1", "", "", None),
    ("GET other.example:80 HTTP/1.1", "", "", None),
    ("GET admin/a HTTP/1.1", "", "", None),
    ("GET /x HTTP/1.2", "", "", None),
    ("GET /x HTTP/2.0", "", "", None),
    ("GET  /x HTTP/1.1", "", "", None),
    ("GET\t/x\tHTTP/1.1", "", "", None),
    ("GE(T /x HTTP/1.1", "", "", None),
    ("GET /a\u{1}b HTTP/1.1", "", "", None),
    ("GET /x HTTP/1.1", "Host: service\r\n", "", None),
    ("GET /x HTTP/1.1", ": 1\r\n", "", None),
    ("GET /x HTTP/1.1", "X-Odd: 1\r\n 2\r\n", "", None),
    ("POST /x HTTP/1.1", "Content-Length: -1\r\n", "", None),
    ("POST /x HTTP/1.1", "Content-Length:\r\n", "", None),
    ("POST /x HTTP/1.1", "Content-Length: 99999999999999999999999\r\n", "", None),
    ("POST /x HTTP/1.1", "Transfer-Encoding: identity\r\n", "", None),
    ("POST /x HTTP/1.0", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n", None),
];

/// Has a client at `place` send `request`, and the app, where it is to be reached, answer and end the connection. Gives what
/// reached the app, the head that the client got, and the client, which may read on.
async fn play(place: &Place, origin: &Origin, request: &str, answer: Option<&str>) -> (String, String, Raw) {
    let mut client = Raw::connect(place).await;
    client.send(request).await;
    let mut reached = String::new();
    if let Some(answer) = answer {
        let (_, body) = request.split_once("\r\n\r\n").expect("a whole head");
        let mut app = origin.accept().await;
        reached = app.head().await + std::str::from_utf8(&app.take(body.len()).await).expect("UTF-8");
        app.send(format!("HTTP/1.1 {answer}")).await;
        app.finish().await;
    }
    let head = client.head().await;
    (reached, head, client)
}

#[tokio::test]
async fn odd_answers_are_passed_on_as_what_they_are_or_refused() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        for (what, method, answer, status, behind) in ANSWERS {
            let request = format!("{method} /x HTTP/1.1\r\nHost: service\r\nConnection: close\r\n\r\n");
            let (_, head, mut client) = play(&place, &origin, &request, Some(answer)).await;
            let rest = String::from_utf8(client.rest().await).expect("UTF-8");
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{what} at {place}: {head}{rest}");
            let said = if *status == 502 { rest.contains(behind) } else { rest == *behind };
            assert!(said, "{what} at {place}: {head}{rest}");
            assert!(!head.contains("odd"), "{what} at {place}: {head}");
            assert_eq!(header(&head, "connection"), Some("close"), "{what} at {place}: {head}");
        }
    }
}

#[tokio::test]
async fn odd_requests_reach_the_app_as_they_are_or_not_at_all() {
    const ANSWER: &str = "200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        for (line, lines, body, reaches) in REQUESTS {
            let request = format!("{line}\r\nHost: service\r\nConnection: close\r\n{lines}\r\n{body}");
            let (reached, head, _) = play(&place, &origin, &request, reaches.map(|_| ANSWER)).await;
            assert_eq!(reached.lines().next(), *reaches, "{line:?} at {place}");
            assert!(reached.ends_with(body) || reaches.is_none(), "{line:?} at {place}: {reached}");
            let status = if reaches.is_some() { 200 } else { 400 };
            assert!(head.contains(&format!(" {status} ")), "{line:?} with {lines:?} at {place}: {head}");
        }
    }
    assert!(origin.is_left_alone(Duration::from_millis(100)).await, "what was refused reached the app");
}

/// Each test that the list of cases names is there.
#[test]
fn the_list_of_cases_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = std::fs::read_to_string(root.join("tests/CASES.md")).expect("the list of cases");
    let named = list.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::")).collect::<Vec<_>>();
    assert!(named.len() > 30, "{} tests are named", named.len());
    for (file, test) in named {
        let source = std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(source.contains(&format!("fn {test}(")), "{file} has no test {test}");
    }
}
