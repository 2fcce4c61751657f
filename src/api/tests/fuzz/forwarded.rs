//! A head as it is made ready to be forwarded, for every kind of peer: the target stays byte for byte, nobody's words pass for
//! ours, and what is nobody's business goes on unchanged.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request};

use super::Fuzz;
use super::heads::WORDS;
use super::reference::{Read, read};
use crate::api::Limits;
use crate::api::headers::{Peer, prepare};
use crate::api::tests::rig::TestNode;

/// A head as the library would hand it in.
fn parts(read: &Read) -> Option<Parts> {
    let mut request = Request::builder().method(read.method.as_str()).uri(read.target.as_str()).body(()).ok()?;
    for (name, value) in &read.fields {
        request.headers_mut().append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    Some(request.into_parts().0)
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
}

/// As it goes out.
fn written(head: &Parts) -> Vec<u8> {
    let mut bytes = format!("{} {} HTTP/1.1\r\n", head.method, head.uri).into_bytes();
    for (name, value) in &head.headers {
        bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    bytes.extend(b"\r\n");
    bytes
}

fn assert_forwardable(before: &Parts, after: &Parts, peer: Option<&str>, trusted: bool, said: &Read) {
    let target = |head: &Parts| head.uri.path_and_query().map(|target| target.as_str().to_owned());
    assert_eq!(target(before), target(after), "the target changes");
    let heard = read(&written(after)).unwrap_or_else(|| panic!("nobody can read {after:?}"));
    assert_eq!((heard.method.as_str(), heard.fields.len()), (after.method.as_str(), after.headers.len()), "it is read as something else");
    assert!(values(&after.headers, "host").len() <= 1);
    let theirs = values(&before.headers, "x-forwarded-for");
    let mut expected = if trusted { theirs } else { Vec::new() };
    expected.extend(peer.map(str::as_bytes));
    let connection = said.elements("connection");
    if !connection.iter().any(|name| name.starts_with("x-forwarded-")) {
        assert_eq!(values(&after.headers, "x-forwarded-for"), expected, "of {said:?}");
    }
    let is_dropped = |name: &str| {
        let hop_by_hop = ["connection", "keep-alive", "proxy-connection", "te", "upgrade"].contains(&name);
        hop_by_hop || name.starts_with("bellwether-") || name.starts_with("x-forwarded-") || connection.iter().any(|named| named == name)
    };
    let (mut kept, mut passed) = (Vec::new(), Vec::new());
    for (name, value) in &before.headers {
        let essential = ["host", "content-length", "transfer-encoding", "trailer"].contains(&name.as_str());
        // An absolute target says what the Host is, `Via` gets an entry of ours, and `Max-Forwards` counts it.
        if !is_dropped(name.as_str()) && !essential && *name != "via" && *name != "max-forwards" {
            kept.push((name, value));
        }
    }
    for (name, value) in &after.headers {
        let name_of = name.as_str();
        assert!(!name_of.starts_with("bellwether-") && !["keep-alive", "proxy-connection"].contains(&name_of), "{name} comes through");
        let one_of_ours = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"].contains(&name_of);
        assert!(trusted || one_of_ours || !name_of.starts_with("x-forwarded-"), "{name} comes through");
        if !is_dropped(name_of) && !["host", "content-length", "transfer-encoding", "trailer", "via", "max-forwards"].contains(&name_of) {
            passed.push((name, value));
        }
    }
    if before.headers.contains_key("bellwether-hop") {
        // Other nodes put theirs last; whoever poses as one has the order of its own fields changed.
        kept.sort_by_key(|(name, _)| name.as_str());
        passed.sort_by_key(|(name, _)| name.as_str());
    }
    assert_eq!(kept, passed, "what is nobody's business changes");
}

#[test]
fn whatever_a_head_says_it_is_forwarded_as_it_should_be() {
    let mut fuzz = Fuzz::of("heads", WORDS, 20_000);
    let mut config = TestNode::config(None);
    let strangers = config.clone();
    config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    let address = "10.1.2.3".parse().unwrap();
    let peers = [
        (Peer::new(Some(address), &strangers), Some("10.1.2.3"), false),
        (Peer::new(Some(address), &config), Some("10.1.2.3"), true),
        (Peer::new(None, &config), None, false),
    ];
    let mut passed = 0;
    while let Some(case) = fuzz.next_case() {
        let Some(said) = read(&case.input) else { continue };
        let Some(before) = parts(&said) else { continue };
        for (peer, address, trusted) in &peers {
            let mut after = parts(&said).expect("it was one before");
            if prepare(&mut after, peer, &Limits::default()).is_ok() {
                assert_forwardable(&before, &after, *address, *trusted, &said);
                passed += 1;
            }
        }
    }
    assert!(passed > 0, "some heads are forwarded");
}
