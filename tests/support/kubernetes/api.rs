//! The API server's HTTP side: who may do what, which request means what, and the watches.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::objects::{Objects, Reply, status};

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What the server is made of, apart from its sockets.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) rules: Mutex<Rules>,
    objects: Mutex<Objects>,
    /// Sees a new number with each change of an object, and each time that watches are to end.
    changed: watch::Sender<u64>,
    /// The server's threads stand still while it is set.
    pub(crate) frozen: (Mutex<bool>, Condvar),
}

/// Who may do what, and what the server does instead of its work.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Users by their tokens.
    pub(crate) tokens: HashMap<String, String>,
    /// The verbs that each user may use on leases.
    pub(crate) verbs: HashMap<String, Vec<String>>,
    /// Answers everything with this.
    pub(crate) instead: Option<(u16, String)>,
    /// How long a watch lasts.
    pub(crate) watch_for: Duration,
    /// Raised to end all watches, as a server does from time to time.
    pub(crate) epoch: u64,
    /// Requests so far, as `VERB by USER`.
    pub(crate) requests: Vec<String>,
}

impl State {
    pub(crate) fn new(namespace: &str) -> Self {
        let mut objects = Objects::default();
        objects.namespaces.insert(namespace.to_owned());
        // A cluster has a past.
        objects.tick(1_000);
        let rules = Rules {
            tokens: HashMap::new(),
            verbs: HashMap::new(),
            instead: None,
            watch_for: Duration::from_secs(300),
            epoch: 0,
            requests: Vec::new(),
        };
        Self { rules: Mutex::new(rules), objects: Mutex::new(objects), changed: watch::Sender::new(0), frozen: Default::default() }
    }

    pub(crate) fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the objects, and tells the watches.
    pub(crate) fn objects<R>(&self, act: impl FnOnce(&mut Objects) -> R) -> R {
        let done = act(&mut self.objects.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|number| *number += 1);
        done
    }

    /// Stands still for as long as the server is frozen.
    pub(crate) fn stand_still(&self) {
        let (frozen, thawed) = &self.frozen;
        let frozen = frozen.lock().unwrap_or_else(PoisonError::into_inner);
        drop(thawed.wait_while(frozen, |frozen| *frozen).unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>, certified: Option<String>) -> Response<Body> {
        self.stand_still();
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let header = |name: http::HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let instead = self.rules().instead.clone();
        if let Some((code, text)) = instead {
            return respond(code, "application/json", text);
        }
        let token = header(AUTHORIZATION).strip_prefix("Bearer ");
        let user = match token {
            Some(token) => self.rules().tokens.get(token).cloned(),
            None => certified,
        };
        let Some(user) = user else { return json(status(401, "Unauthorized", "Unauthorized", &Value::Null)) };
        let path = head.uri.path().to_owned();
        let Some(target) = path.strip_prefix("/apis/coordination.k8s.io/v1/namespaces/") else { return discovery(&path) };
        let (namespace, name) = match target.split('/').collect::<Vec<_>>()[..] {
            [namespace, "leases"] => (namespace, None),
            [namespace, "leases", name] => (namespace, Some(name)),
            _ => return json(status(404, "NotFound", "the server could not find the requested resource", &json!({}))),
        };
        let query = Query::read(head.uri.query().unwrap_or_default());
        let verb = match (&head.method, name) {
            (&Method::GET, Some(_)) => "get",
            (&Method::GET, None) if query.is_watch => "watch",
            (&Method::GET, None) => "list",
            (&Method::POST, None) => "create",
            (&Method::PUT, Some(_)) => "update",
            (&Method::PATCH, Some(_)) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            _ => {
                return json(status(
                    405,
                    "MethodNotAllowed",
                    "the server does not allow this method on the requested resource",
                    &json!({}),
                ));
            }
        };
        self.rules().requests.push(format!("{verb} by {user}"));
        if self.rules().verbs.get(&user).is_some_and(|verbs| !verbs.iter().any(|granted| granted == verb)) {
            let what = name.map(|name| format!(" \"{name}\"")).unwrap_or_default();
            let message = format!(
                "leases.coordination.k8s.io{what} is forbidden: User \"{user}\" cannot {verb} resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"{namespace}\""
            );
            return json(status(403, "Forbidden", &message, &json!({"kind": "leases", "group": "coordination.k8s.io", "name": name})));
        }
        let object = || serde_json::from_slice::<Value>(&body);
        let reply = match (verb, name, object()) {
            ("get", Some(name), _) => self.objects(|objects| objects.read(namespace, name)),
            ("list", _, _) => self.objects(|objects| objects.list(namespace, query.name.as_deref())),
            ("watch", _, _) => return self.watch(namespace, query),
            ("create", _, Ok(lease)) => self.objects(|objects| objects.create(namespace, lease)),
            ("update", Some(name), Ok(lease)) => self.objects(|objects| objects.replace(namespace, name, lease)),
            ("patch", Some(name), Ok(patch)) if header(CONTENT_TYPE).starts_with("application/merge-patch+json") => {
                self.objects(|objects| objects.patch(namespace, name, &patch))
            }
            ("patch", _, _) => status(415, "UnsupportedMediaType", "the body of the request was in an unknown format", &json!({})),
            ("delete", Some(name), options) => {
                let preconditions = options.map(|options| options["preconditions"].clone()).unwrap_or_default();
                self.objects(|objects| objects.delete(namespace, name, &preconditions))
            }
            (_, _, _) => status(400, "BadRequest", "the object provided is unrecognized", &Value::Null),
        };
        json(reply)
    }

    /// An answer of one JSON object a line, for as long as the server likes.
    fn watch(self: Arc<Self>, namespace: &str, query: Query) -> Response<Body> {
        let Some(name) = query.name else {
            return json(status(400, "BadRequest", "this server watches one object at a time", &Value::Null));
        };
        let newest = self.objects(|objects| objects.version());
        let (mut first, from) = match query.version {
            None | Some(0) => (self.objects(|objects| objects.lease(namespace, &name).cloned()), newest),
            Some(version) if version > newest => {
                let message = format!("Too large resource version: {version}, current: {newest}");
                return json(status(504, "Timeout", &message, &json!({"causes": [{"reason": "ResourceVersionTooLarge"}]})));
            }
            Some(version) => (None, version),
        };
        let epoch = self.rules().epoch;
        let until = Instant::now() + self.rules().watch_for;
        let changed = self.changed.subscribe();
        let start = (self, namespace.to_owned(), from, changed, false);
        let lines = stream::unfold(start, move |(state, namespace, from, mut changed, is_over)| {
            let (name, first) = (name.clone(), first.take());
            async move {
                if is_over {
                    return None;
                }
                if let Some(object) = first {
                    return Some((line("ADDED", &object), (state, namespace, from, changed, false)));
                }
                loop {
                    changed.mark_unchanged();
                    if state.rules().epoch != epoch {
                        return None;
                    }
                    let next = state.objects.lock().unwrap_or_else(PoisonError::into_inner).change_after(from, &namespace, &name);
                    match next {
                        Ok(Some(change)) => {
                            return Some((line(change.kind, &change.object), (state, namespace, change.version, changed, false)));
                        }
                        Ok(None) => {}
                        Err((_, expired)) => return Some((line("ERROR", &expired), (state, namespace, from, changed, true))),
                    }
                    match timeout_at(until, changed.changed()).await {
                        Ok(Ok(())) => state.stand_still(),
                        Ok(Err(_)) | Err(_) => return None,
                    }
                }
            }
        });
        let mut response = Response::new(StreamBody::new(lines).boxed_unsync());
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        response
    }
}

fn line(kind: &str, object: &Value) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(format!("{}\n", json!({"type": kind, "object": object})).into()))
}

/// What a request on the collection asks for.
#[derive(Debug, Default)]
struct Query {
    is_watch: bool,
    name: Option<String>,
    version: Option<u64>,
}

impl Query {
    fn read(text: &str) -> Self {
        let mut query = Self::default();
        for (key, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
            match key {
                "watch" => query.is_watch = value == "1" || value == "true",
                "fieldSelector" => query.name = value.replace("%3D", "=").strip_prefix("metadata.name=").map(str::to_owned),
                "resourceVersion" => query.version = value.parse().ok(),
                _ => {}
            }
        }
        query
    }
}

/// As much of the API's description as kubectl asks for.
fn discovery(path: &str) -> Response<Body> {
    let lease = json!({"name": "leases", "singularName": "lease", "namespaced": true, "kind": "Lease",
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]});
    let version = json!({"groupVersion": "coordination.k8s.io/v1", "version": "v1"});
    json(match path {
        "/api" => (200, json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/api/v1" => (200, json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": []})),
        "/apis" => {
            let group = json!({"name": "coordination.k8s.io", "versions": [version], "preferredVersion": version});
            (200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}))
        }
        "/apis/coordination.k8s.io/v1" => {
            (200, json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "coordination.k8s.io/v1", "resources": [lease]}))
        }
        "/version" => (200, json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0"})),
        _ => status(404, "NotFound", "the server could not find the requested resource", &json!({})),
    })
}

fn json((code, object): Reply) -> Response<Body> {
    respond(code, "application/json", object.to_string())
}

fn respond(code: u16, kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    *response.status_mut() = http::StatusCode::from_u16(code).expect("a status");
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
