//! What names a host: `uri-host [":" port]` (RFC 9110 §7.2), with a host as in RFC 3986 §3.2.2.

use std::net::Ipv6Addr;

/// Whether `value` can be that of a `Host`, or the place that a request's target names. Whether it names anything that exists is
/// not looked at: `a..b` is a name as good as any, and so is none at all.
pub(super) fn is_host(value: &[u8]) -> bool {
    if value.first() == Some(&b'[') {
        return is_literal(value);
    }
    let mut rest = value.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let mut is_digit = || rest.next().is_some_and(u8::is_ascii_hexdigit);
                if !(is_digit() && is_digit()) {
                    return false;
                }
            }
            b':' => return rest.all(u8::is_ascii_digit),
            _ if is_plain(*byte) => {}
            _ => return false,
        }
    }
    true
}

/// What a name may have besides what is written as `%XX`: the unreserved and the sub-delims.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~')
        || matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
}

/// Whether it is an address in brackets, with a port or without one.
fn is_literal(value: &[u8]) -> bool {
    let Some(end) = value.iter().position(|byte| *byte == b']') else { return false };
    let (address, port) = (&value[1..end], &value[end + 1..]);
    let is_port = port.is_empty() || port[0] == b':' && port[1..].iter().all(u8::is_ascii_digit);
    let is_v6 = || std::str::from_utf8(address).is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok());
    is_port && (is_v6() || is_of_the_future(address))
}

/// Whether it is an address of a version that is yet to come.
fn is_of_the_future(address: &[u8]) -> bool {
    let Some(dot) = address.iter().position(|byte| *byte == b'.') else { return false };
    let (version, rest) = (&address[..dot], &address[dot + 1..]);
    let is_version = version.len() > 1 && version[0].eq_ignore_ascii_case(&b'v') && version[1..].iter().all(u8::is_ascii_hexdigit);
    is_version && !rest.is_empty() && rest.iter().all(|byte| is_plain(*byte) || *byte == b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for host in [
            "",
            "a",
            "a-b_c.example:8080",
            "a.:80",
            "a..b",
            "a:",
            ":80",
            "127.0.0.1:1",
            "caf%C3%A9",
            "!$&'()*+,;=~",
            "[::1]",
            "[::1]:",
            "[::1]:80",
            "[2001:db8::7]:443",
            "[::ffff:1.2.3.4]",
            "[v1.a:b]:80",
        ] {
            assert!(is_host(host.as_bytes()), "{host:?}");
        }
    }

    #[test]
    fn nothing_else_is() {
        for host in [
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "u@a",
            "a\\b",
            "a\"b",
            "<a>",
            "caf\u{e9}",
            "a%",
            "a%4",
            "a%4g",
            "a%:80",
            "a:1:2",
            "a:b",
            "a:-1",
            "::1",
            "a[",
            "a]",
            "[",
            "[]",
            "[::1",
            "[::1:80",
            "[::1]80",
            "[::1]:8o",
            "[::1]:1:2",
            "[[::1]]",
            "[1.2.3.4]",
            "[a]",
            "[::g]",
            "[fe80::1%25lo]",
            "[v.a]",
            "[v1.]",
            "[v1]",
            "[x1.a]",
        ] {
            assert!(!is_host(host.as_bytes()), "{host:?}");
        }
    }
}
