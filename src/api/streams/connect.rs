//! WebSocket to an app over a stream (RFC 8441): the upgrade that a client asks for, turned into an extended CONNECT, and the
//! app's answer back. The other way round is in `websocket.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::WEBSOCKET;
use crate::api::feed::RequestBody;

/// What a server proves with that it has read a key as that of a WebSocket (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// How long a key is, decoded.
const KEY: usize = 16;

/// Whether a request that asks for an upgrade asks for a WebSocket.
pub(in crate::api) fn asks_for_websocket(head: &Parts) -> bool {
    let named = head.headers.get_all(UPGRADE).into_iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    head.method == Method::GET && named.map(str::trim).any(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET))
}

/// A request for a WebSocket that was turned into an extended CONNECT.
pub(in crate::api) struct Connect {
    /// What the client is to be told if the app agrees.
    accept: HeaderValue,
}

impl Connect {
    /// Turns an upgrade into an extended CONNECT (RFC 8441 §5). The app is asked for no proof that it has read a key, so the
    /// client's stays here.
    ///
    /// # Errors
    /// With what is wrong, when a server has to refuse the request (RFC 6455 §4.2.1).
    pub(in crate::api) fn turn(request: &mut Request<RequestBody>) -> Result<Self, &'static str> {
        if !matches!(request.body(), RequestBody::Empty) {
            return Err("a request for a WebSocket has no body");
        }
        let key =
            only_key(request.headers()).ok_or("the request for a WebSocket has no Sec-WebSocket-Key, or a bad one (RFC 6455 §4.2.1)")?;
        let accept = accept(key);
        for about_the_upgrade in [SEC_WEBSOCKET_KEY, CONNECTION, UPGRADE, CONTENT_LENGTH] {
            request.headers_mut().remove(about_the_upgrade);
        }
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(Protocol::from_static(WEBSOCKET));
        Ok(Self { accept })
    }

    /// Turns the agreement of the app back into one to an upgrade, with what its stream has become. A refusal stays as it is.
    pub(in crate::api) async fn turn_back(self, answer: &mut Response<Incoming>) -> Option<Upgraded> {
        // The library takes no other success for an agreement.
        if answer.status() != StatusCode::OK {
            return None;
        }
        let upgraded = hyper::upgrade::on(&mut *answer).await.ok()?;
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = answer.headers_mut();
        headers.remove(CONTENT_LENGTH);
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept);
        Some(upgraded)
    }
}

/// The one key of a request, if it is one.
fn only_key(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut keys = headers.get_all(SEC_WEBSOCKET_KEY).iter();
    let key = keys.next().filter(|_| keys.next().is_none())?;
    BASE64.decode(key.as_bytes()).is_ok_and(|key| key.len() == KEY).then_some(key)
}

/// What an agreement says about a key (RFC 6455 §4.2.2).
fn accept(key: &HeaderValue) -> HeaderValue {
    let proof = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), GUID].concat());
    HeaderValue::try_from(BASE64.encode(proof)).expect("base64 is visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(keys: &[&str]) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::Empty);
        for key in keys {
            request.headers_mut().append(SEC_WEBSOCKET_KEY, key.parse().unwrap());
        }
        request
    }

    #[test]
    fn the_key_of_the_standard_is_accepted_as_it_says() {
        let connect = Connect::turn(&mut request(&["dGhlIHNhbXBsZSBub25jZQ=="])).unwrap();
        assert_eq!(connect.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_key_that_is_none_is_refused() {
        let good = "dGhlIHNhbXBsZSBub25jZQ==";
        for keys in [&[][..], &[""], &["x"], &["dGhlIHNhbXBsZSBub25jZQ"], &["dG9vIHNob3J0"], &[good, good]] {
            assert!(Connect::turn(&mut request(keys)).is_err(), "{keys:?}");
        }
    }

    #[test]
    fn a_websocket_may_be_one_of_several_wishes() {
        for (lines, expected) in [
            (&["WebSocket"][..], true),
            (&["h2c, websocket"], true),
            (&["h2c", "websocket"], true),
            (&["tcp"], false),
            (&["websocket/13"], false),
            (&[], false),
        ] {
            let mut head = Request::new(()).into_parts().0;
            for line in lines {
                head.headers.append(UPGRADE, line.parse().unwrap());
            }
            assert_eq!(asks_for_websocket(&head), expected, "{lines:?}");
            head.method = Method::POST;
            assert!(!asks_for_websocket(&head), "only by GET (RFC 6455 §4.1)");
        }
    }
}
