//! What came back, and whether it can have come from an API server at all.
//!
//! Between us and the API server there may be a proxy, or at its address something else. What is no JSON object of
//! Kubernetes decides nothing: a proxy's 404 is no free lock.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::failure::Failure;
use super::record::Record;

/// What an API server decided.
#[derive(Debug)]
pub(super) enum Answer {
    /// The object as it is now.
    Object(Record),
    /// The object as it is now, which was not there before.
    Created(Record),
    /// There is no such object, or no longer.
    Absent,
    /// The object is not what the request took it for: somebody was faster.
    Conflict,
}

/// Whom the answer came from, and what was asked, for people.
pub(super) struct Asked<'a> {
    pub(super) server: &'a str,
    pub(super) namespace: &'a str,
    pub(super) credential: &'a str,
    /// The rights that it takes.
    pub(super) rights: &'static str,
}

/// The rights of an election, and of whoever tidies up after one.
pub(super) const RIGHTS: &str = "get, watch, create and update";
pub(super) const RIGHTS_TO_ERASE: &str = "get, watch, create, update and delete";

impl Answer {
    /// # Errors
    /// [`Failure`] where nothing was decided.
    pub(super) fn judge(status: StatusCode, body: &Bytes, asked: &Asked<'_>) -> Result<Self, Failure> {
        let server = || asked.server.to_owned();
        let nonsense =
            |what: &str| Failure::Unanswered { server: server(), why: format!("answered {status} with {what}: {}", brief(body)) };
        let object: Value = serde_json::from_slice(body).map_err(|_| nonsense("no JSON"))?;
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        if text("kind") != "Status" {
            let record = || Some(&object).filter(|_| ["Lease", ""].contains(&text("kind"))).cloned().and_then(Record::read);
            return match status {
                StatusCode::OK => record().map(Self::Object),
                StatusCode::CREATED => record().map(Self::Created),
                _ => None,
            }
            .ok_or_else(|| nonsense("no Lease"));
        }
        let said = one_line(text("message"));
        match status {
            // Of a deletion.
            StatusCode::OK => Ok(Self::Absent),
            StatusCode::NOT_FOUND if object["details"]["kind"] == "namespaces" => {
                Err(Failure::Refused(format!("{said}: make the namespace {}, or name another one", asked.namespace)))
            }
            // Of an API that it does not have, a server gives no details but the empty ones.
            StatusCode::NOT_FOUND if text("reason") == "NotFound" && object["details"] != json!({}) => Ok(Self::Absent),
            StatusCode::NOT_FOUND => Err(Failure::Refused(format!("{} serves no coordination.k8s.io/v1: {said}", asked.server))),
            StatusCode::CONFLICT => Ok(Self::Conflict),
            StatusCode::UNAUTHORIZED => Err(Failure::Unknown { server: server(), credential: asked.credential.to_owned(), said }),
            StatusCode::FORBIDDEN => Err(Failure::Forbidden { said, rights: asked.rights, namespace: asked.namespace.to_owned() }),
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => Err(Failure::Busy { server: server(), said }),
            status => Err(Failure::Refused(format!("{} answered {status}: {said}", asked.server))),
        }
    }
}

/// The beginning of a body, in one line.
fn brief(body: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(&body[..body.len().min(1_000)]))
}

fn one_line(text: &str) -> String {
    let words = text.split(|letter: char| letter.is_whitespace() || letter.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, body: &str) -> Result<Answer, Failure> {
        let asked = Asked { server: "https://h:6443", namespace: "shop", credential: "the token", rights: RIGHTS };
        Answer::judge(StatusCode::from_u16(status).unwrap(), &Bytes::copy_from_slice(body.as_bytes()), &asked)
    }

    fn status(code: u16, reason: &str, details: &Value) -> String {
        json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": format!("it says {reason}"), "details": details})
            .to_string()
    }

    #[test]
    fn what_an_api_server_decides_is_let_through() {
        let lease = json!({"kind": "Lease", "metadata": {"uid": "u", "resourceVersion": "7"}}).to_string();
        assert!(matches!(judged(200, &lease), Ok(Answer::Object(record)) if record.version() == 7));
        assert!(matches!(judged(201, &lease), Ok(Answer::Created(_))));
        let named = json!({"name": "n", "kind": "leases"});
        assert!(matches!(judged(404, &status(404, "NotFound", &named)), Ok(Answer::Absent)));
        assert!(matches!(judged(409, &status(409, "Conflict", &named)), Ok(Answer::Conflict)));
        assert!(matches!(judged(200, &json!({"kind": "Status", "status": "Success"}).to_string()), Ok(Answer::Absent)));
    }

    #[test]
    fn a_stranger_in_between_decides_nothing() {
        for (code, body) in [
            (404, "<html>not here</html>"),
            (404, "{}"),
            (409, "{}"),
            (200, "{}"),
            (200, "<html>sign in</html>"),
            (200, "{\"kind\":\"Pod\",\"metadata\":{\"resourceVersion\":\"1\"}}"),
            (200, "{\"kind\":\"Lease\",\"metadata\":{\"resourceVersion\":\"x\"}}"),
            (502, "bad gateway"),
        ] {
            assert!(matches!(judged(code, body), Err(Failure::Unanswered { .. })), "{code} {body}");
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        let none = Value::Null;
        assert!(matches!(judged(401, &status(401, "Unauthorized", &none)), Err(Failure::Unknown { .. })));
        assert!(matches!(judged(403, &status(403, "Forbidden", &none)), Err(Failure::Forbidden { .. })));
        for code in [429, 500, 503, 504] {
            assert!(matches!(judged(code, &status(code, "x", &none)), Err(Failure::Busy { .. })), "{code}");
        }
        let missing = judged(404, &status(404, "NotFound", &json!({"name": "shop", "kind": "namespaces"}))).unwrap_err().to_string();
        assert!(missing.contains("make the namespace shop"), "{missing}");
        let unserved = judged(404, &status(404, "NotFound", &json!({}))).unwrap_err().to_string();
        assert!(unserved.contains("serves no coordination.k8s.io/v1"), "{unserved}");
        assert!(matches!(judged(422, &status(422, "Invalid", &none)), Err(Failure::Refused(_))));
    }
}
