//! The routes that every node answers itself, in every role and whatever the store does.
//!
//! Nothing here waits, except for a verb that somebody had the right to ask for, and now and then a ping for what the
//! engine says of itself.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};

use super::admin::{self, Token};
use super::engine::Engine;
use super::error::{Complaint, Verdict};
use super::metrics::Metrics;
use super::page::Taste;
use super::route::{LocalRoutes, Route};
use super::status::Status;
use super::verb::{Undone, Verb, Verbs};
use super::{LocalApi, Right, info};
use crate::node::Address;
use crate::replication::{CandidateHandle, Role};
use crate::tls::Tls;

/// Everything that a node answers itself.
#[derive(Debug)]
pub struct Local {
    routes: LocalRoutes,
    status: Arc<Status>,
    engine: Arc<Engine>,
    metrics: Metrics,
    verbs: Verbs,
    token: Option<Token>,
    retry_after: Duration,
}

/// What the local routes are to be.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Which paths outside `/_bellwether/` the node answers.
    pub routes: LocalRoutes,
    /// What is known of the Docker engine that is served, if it is one.
    pub engine: Arc<Engine>,
    /// What gives the right to act on any listener.
    pub token: Option<Token>,
    /// How long a verb may take.
    pub verb_limit: Duration,
    /// When whoever gets a 503 is to come again.
    pub retry_after: Duration,
    /// What the node speaks on its TCP addresses, to tell about it.
    pub tls: Option<Tls>,
    /// How many clients may be connected, to tell about it.
    pub max_connections: usize,
    /// How many lines of the access log were lost, where there is one.
    pub lines_lost: Option<Arc<AtomicU64>>,
    /// How many lines of the node's own log were lost.
    pub log_lines_lost: Arc<AtomicU64>,
}

impl Local {
    /// The local routes of a node that reads from `status` and acts through `candidate`.
    pub fn new(status: Arc<Status>, candidate: Option<CandidateHandle>, config: LocalConfig) -> Self {
        Self {
            metrics: Metrics::new(Arc::clone(&status), &config),
            routes: config.routes,
            engine: config.engine,
            verbs: Verbs::new(Arc::clone(&status), candidate, config.verb_limit),
            token: config.token,
            retry_after: config.retry_after,
            status,
        }
    }

    async fn respond(&self, route: Route, request: &Parts, right: Right) -> Response<Bytes> {
        if !route.allows(&request.method) {
            let message = format!("{} is not for {}, use {}", request.uri.path(), request.method, route.allowed());
            let mut response = self.refuse(request, StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", &message);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(route.allowed()));
            return response;
        }
        match route {
            Route::Ping => self.ping().await,
            Route::Info => page(StatusCode::OK, &info::page(&self.status)),
            Route::Status => page(StatusCode::OK, &self.status.describe()),
            Route::Leader => page(StatusCode::OK, &self.status.introduce()),
            Route::Primary => self.role_is(|role| matches!(role, Role::Primary { .. })),
            Route::Replica => self.role_is(|role| matches!(role, Role::Replica(_))),
            Route::Live => page(StatusCode::OK, &json!({ "live": true })),
            Route::Ready => self.ready(),
            Route::Metrics => self.metrics(request),
            Route::Resign => self.act(Verb::Resign, request, right).await,
            Route::Later => {
                let version = env!("CARGO_PKG_VERSION");
                let message = format!("{} is not in this version ({version}) yet", request.uri.path());
                self.refuse(request, StatusCode::NOT_IMPLEMENTED, "not-in-this-version", &message)
            }
            Route::Unknown => {
                let message = format!("a node has no {}; its own routes are in the documentation of the HTTP API", request.uri.path());
                self.refuse(request, StatusCode::NOT_FOUND, "not-found", &message)
            }
        }
    }

    /// 200 whatever is known of the engine, and wherever it is.
    async fn ping(&self) -> Response<Bytes> {
        let mut response = response(StatusCode::OK, "text/plain; charset=utf-8", Bytes::from_static(b"OK"));
        self.engine.describe().await.write(response.headers_mut());
        response
    }

    /// What a load balancer polls: 200 while this node is that, else 503.
    fn role_is(&self, wanted: impl Fn(&Role) -> bool) -> Response<Bytes> {
        let snapshot = self.status.snapshot();
        let status = if wanted(&snapshot.role) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let primary = snapshot.primary.as_ref().map_or("", Address::as_str);
        page(status, &json!({ "role": snapshot.role.name(), "primary": primary, "epoch": snapshot.epoch }))
    }

    fn ready(&self) -> Response<Bytes> {
        match self.status.unready() {
            None => page(StatusCode::OK, &json!({ "ready": true })),
            Some(why) => page(StatusCode::SERVICE_UNAVAILABLE, &json!({ "ready": false, "message": why })),
        }
    }

    fn metrics(&self, request: &Parts) -> Response<Bytes> {
        let accept = request.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
        match self.metrics.page(accept) {
            Ok((content_type, text)) => response(StatusCode::OK, content_type, text.into()),
            Err(_) => self.refuse(request, StatusCode::INTERNAL_SERVER_ERROR, "failed", "the numbers could not be written as text"),
        }
    }

    async fn act(&self, verb: Verb, request: &Parts, right: Right) -> Response<Bytes> {
        if !admin::may_act(right, &request.headers, self.token.as_ref()) {
            let message =
                "acting on a node takes its admin listener (--admin), its token (--admin-token-file), or a certificate under --tlsverify";
            return self.refuse(request, StatusCode::FORBIDDEN, "forbidden", message);
        }
        match self.verbs.perform(verb).await {
            Ok(done) => page(StatusCode::OK, &done),
            Err(Undone { status, reason, verdict, message }) => self.complain(request, status, reason, verdict, &message),
        }
    }

    /// One of our own errors, in the shape that all of them have. The app has no part in it, and to whoever stands before this
    /// node it is one of an intermediary (RFC 9209): what it answers by itself.
    fn refuse(&self, request: &Parts, status: StatusCode, reason: &str, message: &str) -> Response<Bytes> {
        self.complain(request, status, reason, Verdict::NotSent, message)
    }

    fn complain(&self, request: &Parts, status: StatusCode, reason: &str, verdict: Verdict, message: &str) -> Response<Bytes> {
        let proxy_error = match status {
            StatusCode::FORBIDDEN => "http_request_denied",
            StatusCode::INTERNAL_SERVER_ERROR => "proxy_internal_error",
            _ => "proxy_internal_response",
        };
        let complaint = Complaint { status, reason, verdict, message, proxy_error };
        complaint.into_response(&self.status.standing(self.retry_after), Taste::of(&request.headers))
    }
}

#[async_trait]
impl LocalApi for Local {
    fn claims(&self, _method: &Method, path: &str) -> bool {
        self.routes.find(path).is_some()
    }

    async fn answer(&self, request: &Parts, right: Right) -> Response<Bytes> {
        // On the admin listener every path comes here, claimed or not.
        let route = self.routes.find(request.uri.path()).unwrap_or(Route::Unknown);
        let mut response = self.respond(route, request, right).await;
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if request.method == Method::HEAD {
            let length = response.body().len().into();
            response.headers_mut().insert(CONTENT_LENGTH, length);
            *response.body_mut() = Bytes::new();
        }
        response
    }
}

fn page(status: StatusCode, body: &Value) -> Response<Bytes> {
    response(status, "application/json", format!("{body}\n").into())
}

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
