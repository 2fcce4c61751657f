//! The demo's app: three copies, one record of what they did.
//!
//! The copies share a [`Ledger`] as real ones would share a database. It shows what the epoch is for: whatever arrives
//! under a lower epoch than one already seen comes from a primary whose time is over, and is refused. Each request takes
//! a moment, so that some are always running when a node dies.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Who sent a request, so that a second execution of it would show.
pub(super) const REQUEST_ID: &str = "request-id";
/// Half of the time that a request takes, before and after it counts as executed.
const HALF_THE_WORK: Duration = Duration::from_millis(10);
/// Orders are short; the app keeps nothing of a longer body.
const LONGEST_ORDER: usize = 64 * 1024;

/// What the copies of the app did, in one place.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    highest_epoch: u64,
    answered_under: BTreeMap<u64, u64>,
    orders: HashMap<String, u32>,
}

/// A request under an epoch that is over.
#[derive(Debug)]
struct Late {
    seen: u64,
}

impl Ledger {
    /// How often the order with this id was executed.
    pub(super) fn executions(&self, id: &str) -> u32 {
        self.lock().orders.get(id).copied().unwrap_or(0)
    }

    /// How many orders were executed more than once.
    pub(super) fn executed_twice(&self) -> usize {
        self.lock().orders.values().filter(|times| **times > 1).count()
    }

    /// The epochs under which requests were served, and how many under each.
    pub(super) fn epochs(&self) -> BTreeMap<u64, u64> {
        self.lock().answered_under.clone()
    }

    /// Whether a request under `epoch` may still be served; from now on no lower one may.
    fn admit(&self, epoch: u64) -> Result<(), Late> {
        Self::admitted(&mut self.lock(), epoch)
    }

    /// Executes one request, unless its epoch is over by now. Returns how many orders there are.
    fn execute(&self, epoch: u64, order: Option<&str>) -> Result<usize, Late> {
        let mut records = self.lock();
        Self::admitted(&mut records, epoch)?;
        *records.answered_under.entry(epoch).or_default() += 1;
        if let Some(id) = order {
            *records.orders.entry(id.to_owned()).or_default() += 1;
        }
        Ok(records.orders.len())
    }

    fn admitted(records: &mut Records, epoch: u64) -> Result<(), Late> {
        if epoch < records.highest_epoch {
            return Err(Late { seen: records.highest_epoch });
        }
        records.highest_epoch = epoch;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One copy of the app, serving until it is dropped.
pub(super) struct App {
    address: SocketAddr,
    _serving: JoinSet<()>,
}

impl App {
    /// Serves a copy called `name` on a free loopback port.
    pub(super) async fn start(name: String, ledger: Arc<Ledger>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, name.into(), ledger));
        Ok(Self { address, _serving: serving })
    }

    /// Where its node reaches it.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(listener: TcpListener, name: Arc<str>, ledger: Arc<Ledger>) {
    let mut connections = JoinSet::new();
    loop {
        // An accept that fails concerns one connection, or passes: its node tries again.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(HALF_THE_WORK).await;
            continue;
        };
        let (name, ledger) = (Arc::clone(&name), Arc::clone(&ledger));
        let service = service_fn(move |request| {
            let (name, ledger) = (Arc::clone(&name), Arc::clone(&ledger));
            async move { Ok::<_, Infallible>(answer(&name, &ledger, request).await) }
        });
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(name: &str, ledger: &Ledger, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let epoch = number(&head.headers, "bellwether-epoch");
    let order = (head.method == Method::POST).then(|| id(&head.headers));
    let Ok(body) = Limited::new(body, LONGEST_ORDER).collect().await else {
        return json(StatusCode::PAYLOAD_TOO_LARGE, &json!({ "message": "an order has at most 64 KiB" }));
    };
    match work(ledger, epoch, order.as_deref()).await {
        Ok(orders) => {
            json(StatusCode::OK, &json!({ "app": name, "epoch": epoch, "orders": orders, "order": order, "bytes": body.to_bytes().len() }))
        }
        Err(Late { seen }) => json(
            StatusCode::CONFLICT,
            &json!({ "message": format!("epoch {epoch} is over: this app has seen {seen}"), "app": name, "epoch": seen }),
        ),
    }
}

async fn work(ledger: &Ledger, epoch: u64, order: Option<&str>) -> Result<usize, Late> {
    ledger.admit(epoch)?;
    tokio::time::sleep(HALF_THE_WORK).await;
    let orders = ledger.execute(epoch, order)?;
    tokio::time::sleep(HALF_THE_WORK).await;
    Ok(orders)
}

fn json(status: StatusCode, body: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

fn number(headers: &HeaderMap, name: &str) -> u64 {
    headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0)
}

/// The client's own name for an order, or one of ours where it gave none.
fn id(headers: &HeaderMap) -> String {
    match headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()) {
        Some(id) => id.to_owned(),
        None => format!("unnamed-{:016x}", fastrand::u64(..)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_that_is_over_is_refused_and_changes_nothing() {
        let ledger = Ledger::default();
        assert_eq!(ledger.execute(7, Some("first")).unwrap(), 1);
        assert_eq!(ledger.execute(9, Some("second")).unwrap(), 2);
        assert_eq!(ledger.execute(7, Some("late")).unwrap_err().seen, 9);
        assert_eq!(ledger.executions("late"), 0);
        assert_eq!(ledger.epochs().into_iter().collect::<Vec<_>>(), [(7, 1), (9, 1)]);
    }

    #[test]
    fn an_order_executed_twice_shows() {
        let ledger = Ledger::default();
        ledger.execute(1, Some("once")).unwrap();
        assert_eq!(ledger.executed_twice(), 0);
        ledger.execute(1, Some("again")).unwrap();
        ledger.execute(1, Some("again")).unwrap();
        assert_eq!((ledger.executed_twice(), ledger.executions("again")), (1, 2));
    }
}
