//! What came back, and whether it can have come from Consul at all.
//!
//! Between us and an agent there may be a proxy, or at its address something else. An answer decides nothing about the
//! lock unless it has what only Consul sends: the index with everything that is read, JSON with everything that is done.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;

use super::failure::Failure;
use crate::node::Address;

const INDEX: &str = "x-consul-index";

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Consul's index of what was read; never 0.
    pub(super) index: Option<u64>,
    is_json: bool,
    body: Bytes,
}

impl Answer {
    pub(super) fn new(answer: Response<Bytes>) -> Self {
        let (head, body) = answer.into_parts();
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        let index = text(INDEX).and_then(|index| index.parse().ok()).filter(|index| *index > 0);
        let is_json = text(CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with("application/json"));
        Self { status: head.status, index, is_json, body }
    }

    /// Lets through what decides something: 200, 404 and 409, as Consul gives them.
    pub(super) fn judge(self, method: &Method, agent: &Address) -> Result<Self, Failure> {
        match self.status {
            StatusCode::OK if self.is_json && (self.index.is_some() || method == Method::PUT) => Ok(self),
            StatusCode::NOT_FOUND if method == Method::GET && self.index.is_some() => Ok(self),
            StatusCode::NOT_FOUND if method == Method::PUT && self.body.starts_with(b"Session id") => Ok(self),
            // Of a transaction, Consul says there as well that we may not do it.
            StatusCode::CONFLICT if self.is_json && Failure::is_refusal(&self.said()) => Err(Failure::refused(agent, &self.said())),
            StatusCode::CONFLICT if self.is_json => Ok(self),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Failure::refused(agent, &self.said())),
            _ if self.body.starts_with(b"Invalid Session TTL") => Err(Failure::ttl(agent, &self.said())),
            status => Err(Failure::unanswered(agent, format!("answered {status}, which decides nothing: {}", self.said()))),
        }
    }

    /// The body as this kind of JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|_| Failure::Undecided("the agent's JSON is not what Consul answers here"))
    }

    /// The body for people, shortened to a line.
    fn said(&self) -> String {
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(1_000)]);
        let words = text.split(|letter: char| letter.is_whitespace() || letter.is_control()).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join(" ").chars().take(160).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(method: &Method, status: u16, headers: &[(&str, &str)], body: &'static str) -> Result<Answer, Failure> {
        let mut response = http::Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        Answer::new(response.body(Bytes::from_static(body.as_bytes())).unwrap()).judge(method, &"h:8500".parse().unwrap())
    }

    #[test]
    fn what_consul_answers_is_let_through() {
        let (json, index) = (("content-type", "application/json"), ("x-consul-index", "7"));
        judged(&Method::GET, 200, &[json, index], "[]").unwrap();
        assert_eq!(judged(&Method::GET, 404, &[index], "").unwrap().index, Some(7));
        judged(&Method::PUT, 200, &[json], "true").unwrap();
        judged(&Method::PUT, 404, &[("content-type", "text/plain")], "Session id 'x' not found").unwrap();
        judged(&Method::PUT, 409, &[json], "{}").unwrap();
    }

    #[test]
    fn what_others_answer_decides_nothing() {
        let (json, html) = (("content-type", "application/json"), ("content-type", "text/html"));
        for (method, status, headers, body) in [
            (Method::GET, 200, &[json][..], "[]"),
            (Method::GET, 200, &[json, ("x-consul-index", "0")], "[]"),
            (Method::GET, 404, &[html], "not here"),
            (Method::PUT, 200, &[html], "<html>sign in</html>"),
            (Method::PUT, 404, &[html], "/v1/session/renew/x: not found"),
            (Method::PUT, 204, &[], ""),
            (Method::GET, 301, &[("location", "https://elsewhere/")], ""),
            (Method::GET, 429, &[json], "{}"),
            (Method::PUT, 500, &[], "No cluster leader"),
            (Method::GET, 502, &[html], "bad gateway"),
        ] {
            let failure = judged(&method, status, headers, body).unwrap_err();
            assert!(matches!(failure, Failure::Unanswered { .. }), "{status} {body}: {failure:?}");
        }
        for status in [401, 403] {
            let failure = judged(&Method::PUT, status, &[], "Permission denied").unwrap_err();
            assert!(matches!(failure, Failure::Refused { .. }), "{status}: {failure:?}");
        }
    }

    #[test]
    fn what_was_said_is_one_short_line() {
        let failure = judged(&Method::GET, 500, &[], "rpc error:\n  \u{7}\tNo path to datacenter").unwrap_err();
        let error = failure.into_store_error("acquire", "p/s/leader", std::time::Duration::from_secs(10)).to_string();
        assert!(error.contains("h:8500") && error.ends_with("rpc error: No path to datacenter"), "{error}");
    }
}
