//! Who is at a leader's address: it is asked before the first request of a tenure, and again when the leader's name stands for
//! another address, so that a wrong `--advertise` never delivers requests to a stranger (B80) or to ourselves (B67).

use std::io;

use http::header::{HOST, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;

use crate::api::feed::RequestBody;
use crate::api::handshake::is_refusal_of_plain_http;
use crate::api::pool::Greeting;
use crate::api::primary::because;
use crate::api::worker::Core;
use crate::tls::Untrusted;

/// The longest self-description of a node that is read.
const INTRODUCTION: usize = 16 * 1024;

/// What of a node's `/_bellwether/leader` says who it is.
#[derive(Deserialize)]
pub(super) struct Introduction {
    service: String,
    id: String,
    #[serde(default)]
    pub(super) role: String,
    #[serde(default)]
    pub(super) epoch: u64,
}

/// Who answers at a leader's address instead of the leader.
#[derive(Debug, thiserror::Error)]
pub(in crate::api) enum Stranger {
    /// Something else, or a node of another election.
    #[error("is not a node of election {0}: check its --advertise")]
    Other(String),
    /// This very node.
    #[error("is this node itself, which is not the primary")]
    Ourselves,
    /// A node that was started with other flags.
    #[error("speaks TLS, and this node does not: start all nodes with --tls, or none")]
    SpeaksTls,
    /// Somebody whose certificate is not the leader's, or who has none.
    #[error("is not believed to be the leader: {0}")]
    Untrusted(Untrusted),
}

impl Stranger {
    /// Who it is that an attempt to connect came upon, if it came upon anybody.
    pub(super) fn behind(error: io::Error) -> Result<Self, io::Error> {
        error.downcast::<Self>().or_else(|error| error.downcast::<Untrusted>().map(Self::Untrusted))
    }
}

/// Asks whoever is at the other end of a new connection to `host` who it is.
///
/// # Errors
/// With a [`Stranger`] inside where it is not a node of this election.
pub(super) async fn meet(leader: &mut Greeting<'_>, host: &HeaderValue, core: &Core) -> io::Result<Introduction> {
    let service = &core.shared.service;
    let mut question = Request::new(RequestBody::Empty);
    *question.method_mut() = Method::GET;
    *question.uri_mut() = Uri::from_static("/_bellwether/leader");
    question.headers_mut().insert(HOST, host.clone());
    let answer = leader.ask(question).await.map_err(|error| io::Error::other(because(&error)))?;
    let status = answer.status();
    let introduction = Limited::new(answer.into_body(), INTRODUCTION).collect().await.map_err(io::Error::other)?.to_bytes();
    let somebody = match serde_json::from_slice::<Introduction>(&introduction) {
        Ok(somebody) if somebody.service == *service && somebody.id == core.boot.to_string() => {
            return Err(io::Error::other(Stranger::Ourselves));
        }
        Ok(somebody) if somebody.service == *service => somebody,
        Err(_) if is_refusal_of_plain_http(status, &introduction) => return Err(io::Error::other(Stranger::SpeaksTls)),
        Ok(_) | Err(_) => return Err(io::Error::other(Stranger::Other(service.clone()))),
    };
    leader.settle().await.map_err(io::Error::other)?;
    Ok(somebody)
}
