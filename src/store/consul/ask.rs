//! What is asked of Consul: one request of its HTTP API, which can be sent to any agent, and more than once.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;

use super::failure::Failure;
use crate::node::Address;
use crate::store::Secret;

const TOKEN: &str = "x-consul-token";

/// A request, apart from where it goes and who sends it. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    /// Path and query. Made of names that need no escaping.
    target: String,
    body: Bytes,
}

impl Ask {
    pub(super) fn get(target: String) -> Self {
        Self { method: Method::GET, target, body: Bytes::new() }
    }

    pub(super) fn put(target: String, body: &serde_json::Value) -> Self {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        Self { method: Method::PUT, target, body }
    }

    /// The request as it is sent to `agent`.
    ///
    /// # Errors
    /// [`Failure::Refused`] when the token is none.
    pub(super) fn to(&self, agent: &Address, token: Option<&Secret>) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.target)
            .header(HOST, agent.as_str())
            .header(USER_AGENT, concat!("bellwether/", env!("CARGO_PKG_VERSION")));
        if !self.body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = token {
            let value = HeaderValue::from_str(token.expose());
            let mut value =
                value.map_err(|_| Failure::refused(agent, "not asked, for the token has characters that no header can carry"))?;
            value.set_sensitive(true);
            request = request.header(TOKEN, value);
        }
        Ok(request.body(Full::new(self.body.clone())).expect("names, numbers and UUIDs make a request"))
    }
}
