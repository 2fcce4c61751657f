//! How far a request may go (RFC 9110 §7.6.2): whoever asks with OPTIONS or TRACE can have each intermediary on its way answer.
//! All nodes of a service are one of them, as in `Via`: what one node passes on to another is looked at by the first alone.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderValue, MAX_FORWARDS, PROXY_AUTHORIZATION, SERVER};
use http::request::Parts;
use http::{HeaderMap, Method, Response};

/// Whether the field means anything to a request.
pub(super) fn is_limited(head: &Parts) -> bool {
    matches!(head.method, Method::OPTIONS | Method::TRACE) && head.headers.contains_key(MAX_FORWARDS)
}

/// How many more intermediaries a request may come through. A field that is no number is nobody's here.
fn left(headers: &HeaderMap) -> Option<u64> {
    let mut values = headers.get_all(MAX_FORWARDS).iter();
    let (value, another) = (values.next()?.to_str().ok()?, values.next());
    let is_number = another.is_none() && !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    // RFC 9110 §7.6.2: a number may be as great as the recipient can take it to be.
    is_number.then(|| value.parse().unwrap_or(u64::MAX))
}

/// Counts this service.
pub(super) fn count(headers: &mut HeaderMap) {
    if let Some(left) = left(headers) {
        headers.insert(MAX_FORWARDS, HeaderValue::from(left.saturating_sub(1)));
    }
}

/// The answer to a request, as it came, that may go no further.
pub(in crate::api) fn final_answer(head: &Parts) -> Option<Response<Bytes>> {
    if !is_limited(head) || left(&head.headers) != Some(0) {
        return None;
    }
    let mut answer = Response::new(Bytes::new());
    answer.headers_mut().insert(SERVER, HeaderValue::from_static(concat!("bellwether/", env!("CARGO_PKG_VERSION"))));
    if head.method == Method::TRACE {
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("message/http"));
        *answer.body_mut() = reflected(head);
    }
    Some(answer)
}

/// What a TRACE has brought along, but for what is nobody's to repeat (RFC 9110 §9.3.8).
fn reflected(head: &Parts) -> Bytes {
    let mut message = format!("TRACE {} HTTP/1.1\r\n", head.uri).into_bytes();
    let secrets = [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION];
    for (name, value) in head.headers.iter().filter(|(name, _)| !secrets.contains(name)) {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            message.extend_from_slice(part);
        }
    }
    message.extend_from_slice(b"\r\n");
    message.into()
}
