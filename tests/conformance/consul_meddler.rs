//! Something between a node and Consul that lets requests through, or answers in Consul's place.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// An answer of its own to a request with this method and target; nothing to let it through.
type Rule = Box<dyn FnMut(&Method, &str) -> Option<Response<String>> + Send>;

/// It ends with its value.
pub(crate) struct Meddler {
    address: SocketAddr,
    rule: Arc<Mutex<Rule>>,
    _serving: JoinSet<()>,
}

impl Meddler {
    /// Stands before the agent at `consul` and lets everything through.
    pub(crate) async fn before(consul: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("listen on loopback");
        let address = listener.local_addr().expect("the address of a listener");
        let rule: Arc<Mutex<Rule>> = Arc::new(Mutex::new(Box::new(|_, _| None)));
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, consul, Arc::clone(&rule)));
        Self { address, rule, _serving: serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("consul://{}", self.address)
    }

    /// From now on does as `rule` says.
    pub(crate) fn meddle(&self, rule: impl FnMut(&Method, &str) -> Option<Response<String>> + Send + 'static) {
        *self.rule.lock().expect("no panic in a rule") = Box::new(rule);
    }

    /// From now on lets everything through.
    pub(crate) fn pass(&self) {
        self.meddle(|_, _| None);
    }
}

/// An answer with this status and body, and nothing else.
pub(crate) fn answer(status: u16, body: &str) -> Response<String> {
    Response::builder().status(status).body(body.to_owned()).expect("a response")
}

/// What Consul's agents answer while its servers have no leader.
pub(crate) fn no_leader() -> Response<String> {
    answer(500, "No cluster leader")
}

async fn accept(listener: TcpListener, consul: SocketAddr, rule: Arc<Mutex<Rule>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let rule = Arc::clone(&rule);
        connections.spawn(async move {
            let service = service_fn(|request| {
                let rule = Arc::clone(&rule);
                async move { Ok::<_, Infallible>(handle(request, consul, &rule).await) }
            });
            // A node that hangs up is part of some tests.
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}

async fn handle(request: Request<Incoming>, consul: SocketAddr, rule: &Mutex<Rule>) -> Response<Full<Bytes>> {
    let target = request.uri().path_and_query().expect("a target").as_str().to_owned();
    let own = rule.lock().expect("no panic in a rule")(request.method(), &target);
    match own {
        Some(answer) => answer.map(|body| Full::new(body.into())),
        None => passed(request, consul).await.unwrap_or_else(|error| answer(502, &error).map(|body| Full::new(body.into()))),
    }
}

async fn passed(request: Request<Incoming>, consul: SocketAddr) -> Result<Response<Full<Bytes>>, String> {
    let stream = TcpStream::connect(consul).await.map_err(|error| error.to_string())?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let exchange = async {
        let (head, body) = sender.send_request(request).await.map_err(|error| error.to_string())?.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        Ok(Response::from_parts(head, Full::new(body)))
    };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => return answer,
        _ = connection => {}
    }
    exchange.await
}
