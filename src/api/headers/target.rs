//! Where a request goes: what its target, its `Host` and its `:authority` say, and that they agree.

use http::Method;
use http::header::{HOST, HeaderValue};
use http::request::Parts;
use http::uri::Uri;

use super::host::is_host;
use crate::api::error::{Failure, Reason};

/// Refuses a request over HTTP/2 that does not say where it goes, or says two things about it (RFC 9113 §8.3.1): what looks at
/// the one and what serves by the other would differ.
pub(super) fn one_authority(head: &Parts) -> Result<(), Failure> {
    let message = match (head.uri.authority(), head.headers.get(HOST)) {
        (None, None) => "the request names neither an :authority nor a Host (RFC 9113 §8.3.1)",
        (Some(authority), Some(host)) if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) => {
            "the request's :authority and its Host differ (RFC 9113 §8.3.1)"
        }
        (_, _) => return Ok(()),
    };
    Err(Failure::not_sent(Reason::BadRequest, message))
}

/// Turns `GET http://host/path` into `GET /path` for that host (RFC 9112 §3.2.2). Every other target stays as it is.
pub(super) fn origin_form(head: &mut Parts) -> Result<(), Failure> {
    if head.method == Method::CONNECT {
        return Err(Failure::not_sent(Reason::BadRequest, "CONNECT is for forward proxies: this node only passes requests on to its app"));
    }
    if head.uri.path() == "*" && head.method != Method::OPTIONS {
        return Err(Failure::not_sent(Reason::BadRequest, "only OPTIONS is asked of a server as a whole, by * (RFC 9112 §3.2.4)"));
    }
    let Some(authority) = head.uri.authority() else { return Ok(()) };
    let Some(target) = head.uri.path_and_query().filter(|_| head.uri.scheme().is_some()) else {
        return Err(Failure::not_sent(Reason::BadRequest, "the request target is neither a path nor a URL"));
    };
    if authority.as_str().contains('@') {
        // It is there to look like a host (RFC 9110 §4.2.4).
        return Err(Failure::not_sent(Reason::BadRequest, "the request target names a user before its host (RFC 9110 §4.2.4)"));
    }
    let host = Some(authority.as_str()).filter(|host| is_host(host.as_bytes())).and_then(|host| HeaderValue::from_str(host).ok());
    let host = host.ok_or_else(|| Failure::not_sent(Reason::BadRequest, "the request target names no usable host"))?;
    head.headers.insert(HOST, host);
    // The path of a URL that has none, or only a fragment, is written as nothing once it stands alone.
    head.uri = if target.as_str() == "/" { Uri::from_static("/") } else { Uri::from(target.clone()) };
    Ok(())
}
