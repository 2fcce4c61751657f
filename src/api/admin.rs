//! Who may act on a node: whoever comes through the admin listener, whoever has the token, and under `--tlsverify` whoever
//! has a certificate of the CA.
//!
//! Neither an address nor a header that any client can set gives the right. A browser on the same machine reaches a
//! loopback listener in the name of whatever page it shows, and shows its user's certificate in the name of any page; so a
//! request that a page made needs the token all the same.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, ORIGIN};

use super::Right;

/// Long enough for any token, short enough that a wrong file is noticed.
const LONGEST_TOKEN: usize = 4096;

/// A secret that gives the right to act. It cannot be printed.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

/// Why a file gives no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// There is nothing in it, or nothing that could be sent in a header.
    #[error("it must hold one line of 1 to {LONGEST_TOKEN} visible ASCII characters")]
    Content,
}

impl Token {
    /// Reads the token that is the only line of the file at `path`; true when others than the owner may read it too.
    ///
    /// # Errors
    /// [`TokenError`] when the file cannot be read or holds no token.
    pub fn read(path: &Path) -> Result<(Self, bool), TokenError> {
        let exposed = fs::metadata(path)?.permissions().mode() & 0o004 != 0;
        let content = fs::read(path)?;
        let token = content.trim_ascii();
        if token.is_empty() || token.len() > LONGEST_TOKEN || !token.iter().all(u8::is_ascii_graphic) {
            return Err(TokenError::Content);
        }
        Ok((Self(token.into()), exposed))
    }

    /// The header value that shows this token.
    pub fn bearer(&self) -> HeaderValue {
        let mut value = HeaderValue::from_bytes(&[b"Bearer ", &*self.0].concat()).expect("a token is visible ASCII");
        value.set_sensitive(true);
        value
    }

    /// Compares in a time that depends on the lengths alone.
    fn is(&self, given: &[u8]) -> bool {
        let differing = self.0.iter().zip(given).fold(0, |differing, (ours, theirs)| differing | (ours ^ theirs));
        self.0.len() == given.len() && std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(…)")
    }
}

/// Whether a request with these headers, come through a listener that gives `right`, may act.
pub(super) fn may_act(right: Right, headers: &HeaderMap, token: Option<&Token>) -> bool {
    let by_way = match right {
        Right::None => false,
        Right::AdminListener | Right::Certificate => true,
    };
    let from_page = headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site");
    (by_way && !from_page) || token.is_some_and(|token| brings(headers, token))
}

fn brings(headers: &HeaderMap, token: &Token) -> bool {
    let Some(value) = headers.get(AUTHORIZATION) else { return false };
    let Some((scheme, given)) = value.as_bytes().split_at_checked("Bearer ".len()) else { return false };
    scheme.eq_ignore_ascii_case(b"Bearer ") && token.is(given.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn only_the_whole_token_gives_the_right() {
        let token = Token(Box::from(*b"sesame"));
        for (value, allowed) in [
            ("Bearer sesame", true),
            ("bearer sesame", true),
            ("Bearer  sesame", true),
            ("Bearer sesam", false),
            ("Bearer sesame2", false),
            ("Bearer ", false),
            ("Bearer", false),
            ("Basic sesame", false),
            ("sesame", false),
        ] {
            assert_eq!(may_act(Right::None, &with("authorization", value), Some(&token)), allowed, "{value}");
            assert!(!may_act(Right::None, &with("authorization", value), None), "{value}");
        }
    }

    #[test]
    fn a_page_in_a_browser_has_no_right_but_by_the_token() {
        for right in [Right::AdminListener, Right::Certificate] {
            assert!(may_act(right, &HeaderMap::new(), None));
            assert!(!may_act(right, &with("origin", "https://example.org"), None));
            assert!(!may_act(right, &with("sec-fetch-site", "cross-site"), None));
        }
    }

    #[test]
    fn a_token_cannot_be_printed() {
        let token = Token(Box::from(*b"sesame"));
        assert!(!format!("{token:?} {:?}", token.bearer()).contains("sesame"));
    }

    #[test]
    fn a_token_file_holds_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for (content, good) in [("sesame\n", true), ("", false), ("\n", false), ("two lines\n", false), ("a\nb\n", false)] {
            fs::write(&file, content).unwrap();
            assert_eq!(Token::read(&file).is_ok(), good, "{content:?}");
        }
        fs::write(&file, "sesame").unwrap();
        for (mode, exposed) in [(0o644, true), (0o600, false), (0o640, false)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Token::read(&file).unwrap().1, exposed);
        }
        assert!(matches!(Token::read(&folder.path().join("none")), Err(TokenError::Read(_))));
    }
}
