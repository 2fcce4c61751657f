//! WebSocket over a stream (RFC 8441): turned into the upgrade that an app in HTTP/1.1 knows, and its answer back.

use std::rc::Rc;

use http::header::{CONNECTION, HOST, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use tokio_util::task::TaskTracker;
use tracing::trace;

use super::watch::Reset;
use super::{Channel, WEBSOCKET};
use crate::api::body::ResponseBody;
use crate::api::error::{Failure, Reason};
use crate::api::page::Taste;
use crate::api::session::{Next, Session};
use crate::api::tunnel::Parting;

/// A request for a WebSocket that was turned into an upgrade.
pub(super) struct Asked(OnUpgrade);

impl Asked {
    /// Turns an extended CONNECT for a WebSocket into an upgrade; every other request stays as it is.
    pub(super) fn turn(request: &mut Request<Incoming>) -> Option<Self> {
        let is_websocket = request.extensions().get::<Protocol>().is_some_and(|protocol| protocol.as_str() == WEBSOCKET);
        if *request.method() != Method::CONNECT || !is_websocket {
            return None;
        }
        let host = request.uri().authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok())?;
        let asked = Self(hyper::upgrade::on(&mut *request));
        *request.method_mut() = Method::GET;
        *request.version_mut() = Version::HTTP_11;
        let headers = request.headers_mut();
        // One that says something else is for whoever looks at requests to refuse.
        headers.entry(HOST).or_insert(host);
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
        headers.insert(SEC_WEBSOCKET_KEY, key());
        Some(asked)
    }

    /// Turns the agreement of the app back, and passes bytes from then on. A refusal stays as it is, but for a success that
    /// agrees to nothing: here it would mean that it does.
    pub(super) fn turn_back(self, answer: &mut Response<ResponseBody>, session: &Rc<Session>, tasks: &TaskTracker) {
        let Some(Next::Tunnel(tunnel)) = session.next() else {
            if answer.status().is_success() {
                let failure = Failure::maybe_executed(Reason::UpstreamFailed, "the app did not agree to a WebSocket");
                *answer = failure.into_response(&session.core.standing(), Taste::Json).map(ResponseBody::Whole);
            }
            return;
        };
        *answer.status_mut() = StatusCode::OK;
        for about_the_upgrade in [CONNECTION, UPGRADE, SEC_WEBSOCKET_ACCEPT] {
            answer.headers_mut().remove(about_the_upgrade);
        }
        let reset = Reset::of_this_stream();
        tasks.spawn_local(async move {
            match self.0.await {
                Ok(client) => {
                    let (from, to) = tokio::io::split(Channel::new(client));
                    if tunnel.pass(from, to).await == Parting::Cut {
                        reset.at_once();
                    }
                }
                Err(error) => trace!(%error, "a stream broke before it became a tunnel"),
            }
        });
    }
}

/// What an upgrade must bring along: sixteen bytes in base64 that nobody will check (RFC 6455 §4.1).
fn key() -> HeaderValue {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut key = [b'='; 24];
    key[..21].fill_with(|| DIGITS[fastrand::usize(..64)]);
    // The last digit stands for two bits.
    key[21] = DIGITS[fastrand::usize(..4) * 16];
    HeaderValue::from_bytes(&key).expect("digits are visible ASCII")
}
