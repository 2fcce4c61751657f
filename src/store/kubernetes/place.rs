//! The Lease of one election at the API server: the five things that can be done with it, one request each.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::access::Access;
use super::answer::Answer;
use super::channel::{Ask, Channel};
use super::failure::Failure;
use super::lines::Lines;
use super::record::Record;
use super::view::View;
use crate::store::LockConfig;

/// Where the election is, and what is known of it.
#[derive(Debug)]
pub(super) struct Place {
    namespace: String,
    name: String,
    channel: Channel,
    pub(super) view: Arc<View>,
}

/// What came of a write.
#[derive(Debug)]
pub(super) enum Written {
    /// The object is now this.
    Done(Arc<Record>),
    /// Somebody was faster, or the object is gone.
    Passed,
}

impl Place {
    pub(super) fn new(access: Access, namespace: &str, name: String, config: &LockConfig) -> Self {
        let channel = Channel::new(access, namespace, config.call_timeout);
        Self { namespace: namespace.to_owned(), name, channel, view: Arc::new(View::new()) }
    }

    /// For people.
    pub(super) fn words(&self) -> String {
        format!("the Lease {}/{}", self.namespace, self.name)
    }

    /// Reads the object, if there is one.
    pub(super) async fn look(&self) -> Result<Option<Arc<Record>>, Failure> {
        match self.ask(Method::GET, self.object(), None).await? {
            Answer::Object(record) => Ok(Some(self.view.note(record))),
            Answer::Absent => {
                self.view.note_absence();
                Ok(None)
            }
            Answer::Created(_) | Answer::Conflict => Err(self.channel.unanswered("answered a look like a write")),
        }
    }

    /// Makes an object that nobody holds, where there is none.
    pub(super) async fn create(&self) -> Result<Written, Failure> {
        let object = Record::unheld(&self.name, &self.namespace);
        match self.ask(Method::POST, self.collection(), Some(&object)).await? {
            Answer::Object(record) | Answer::Created(record) => Ok(Written::Done(self.view.note(record))),
            Answer::Conflict | Answer::Absent => Ok(Written::Passed),
        }
    }

    /// Writes `object`, which was made of `from`, if the store still has `from`.
    ///
    /// The object's `uid` and `resourceVersion` say so to the server. One that ignores the first makes a deleted object anew (it
    /// answers 201); that one is given up again at once, or a late renewal would bring a tenure back that an operator has ended.
    pub(super) async fn replace(&self, from: &Record, object: &Value) -> Result<Written, Failure> {
        match self.ask(Method::PUT, self.object(), Some(object)).await? {
            // A server that found nothing to change has not renewed anything, and nobody has seen it.
            Answer::Object(record) if record.version() == from.version() => Ok(Written::Passed),
            Answer::Object(record) => Ok(Written::Done(self.view.note(record))),
            Answer::Created(revived) => {
                self.ask(Method::PUT, self.object(), Some(&revived.released())).await?;
                Ok(Written::Passed)
            }
            Answer::Conflict | Answer::Absent => Ok(Written::Passed),
        }
    }

    /// Deletes the object if it is still `from`. Needs a right that an election does without.
    pub(super) async fn delete(&self, from: &Record) -> Result<Written, Failure> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": from.uid(), "resourceVersion": from.version().to_string() },
        });
        match self.ask(Method::DELETE, self.object(), Some(&options)).await? {
            Answer::Conflict => Ok(Written::Passed),
            Answer::Object(_) | Answer::Created(_) | Answer::Absent => {
                self.view.note_absence();
                Ok(Written::Passed)
            }
        }
    }

    /// Is told of all changes after `from`, or of the present state and all changes after it.
    pub(super) async fn watch(&self, from: Option<&Record>) -> Result<Lines, Failure> {
        let after = from.map(|record| format!("&resourceVersion={}", record.version())).unwrap_or_default();
        let target = format!("{}?watch=1&fieldSelector=metadata.name%3D{}{after}", self.collection(), self.name);
        let ask = Ask { method: Method::GET, target, body: bytes::Bytes::new() };
        let lines = self.channel.listen(&ask).await?;
        if lines.status.is_success() {
            return Ok(lines);
        }
        let status = lines.status;
        let body = lines.rest().await.map_err(|error| self.channel.unanswered(error))?;
        match self.channel.judge(status, &body) {
            Err(failure) => Err(failure),
            Ok(_) => Err(self.channel.unanswered(format!("answered {status} to a watch"))),
        }
    }

    pub(super) fn unanswered(&self, why: impl std::fmt::Display) -> Failure {
        self.channel.unanswered(why)
    }

    /// What a write has done is known also to whoever no longer waits for it: the next one starts from there.
    async fn ask(&self, method: Method, target: String, body: Option<&Value>) -> Result<Answer, Failure> {
        let view = Arc::clone(&self.view);
        let is_write = method == Method::PUT;
        let ask = Ask { method, target, body: body.map(|body| body.to_string().into()).unwrap_or_default() };
        let note = move |answer: &Answer| {
            if let (true, Answer::Object(record)) = (is_write, answer) {
                view.note_late(record.clone());
            }
        };
        self.channel.ask(ask, note).await
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn object(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}
