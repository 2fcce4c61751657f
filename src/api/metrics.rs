//! `/_bellwether/metrics`: the numbers for Prometheus, read from where they are kept when somebody asks.
//!
//! Nothing is counted here: a collector turns the ledger's and the election's own counters into samples.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::ledger::Histogram;
use super::local::LocalConfig;
use super::status::Status;
use crate::replication::Role;
use crate::tls::Tls;

/// What the OpenMetrics format is called in `Accept` and `Content-Type`.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// The registry that every scrape is encoded from.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
}

impl Metrics {
    pub(super) fn new(status: Arc<Status>, config: &LocalConfig) -> Self {
        let mut registry = Registry::with_prefix("bellwether");
        registry.register_collector(Box::new(Samples {
            status,
            tls: config.tls.clone(),
            limit: config.max_connections as u64,
            lines_lost: config.lines_lost.clone(),
            log_lines_lost: Arc::clone(&config.log_lines_lost),
        }));
        Self { registry }
    }

    /// The content type and the page, in OpenMetrics where `accept` asks for that, else as Prometheus's own text.
    pub(super) fn page(&self, accept: &str) -> Result<(&'static str, String), fmt::Error> {
        let mut page = String::with_capacity(8 * 1024);
        if accept.contains(OPEN_METRICS) {
            text::encode(&mut page, &self.registry)?;
            Ok(("application/openmetrics-text; version=1.0.0; charset=utf-8", page))
        } else {
            prometheus_text::encode(&mut page, &self.registry)?;
            Ok((prometheus_text::CONTENT_TYPE, page))
        }
    }
}

#[derive(Debug)]
struct Samples {
    status: Arc<Status>,
    tls: Option<Tls>,
    limit: u64,
    lines_lost: Option<Arc<AtomicU64>>,
    log_lines_lost: Arc<AtomicU64>,
}

impl Collector for Samples {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        self.election(&mut out)?;
        self.requests(&mut out)?;
        self.tls(&mut out)
    }
}

impl Samples {
    fn election(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.status.snapshot();
        let mut roles = out.encode_descriptor("role", "What this node is: 1 for the present role", None, MetricType::Gauge)?;
        for name in Role::NAMES {
            roles.encode_family(&[("role", name)])?.encode_gauge(&i64::from(name == snapshot.role.name()))?;
        }
        gauge(out, "epoch", "The epoch this node serves under or follows, 0 while none is known", snapshot.epoch)?;

        let counters = self.status.counters();
        let changes = counters.map_or(0, |counters| counters.role_changes());
        counter(out, "role_changes", "How often the role has changed", changes)?;
        let Some(counters) = counters else { return Ok(()) };

        if let Some(margin) = counters.lease_margin().filter(|_| snapshot.role.tenure().is_some()) {
            let help = "The least time that was left of the lease when a renewal was confirmed, in this tenure";
            out.encode_descriptor("lease_margin_seconds", help, None, MetricType::Gauge)?.encode_gauge(&margin.as_secs_f64())?;
        }
        let silence = counters.store().silent_for.as_secs_f64();
        out.encode_descriptor("store_silent_seconds", "How long ago the store last answered", None, MetricType::Gauge)?
            .encode_gauge(&silence)?;
        let mut calls = out.encode_descriptor("store_calls", "Calls to the store", None, MetricType::Counter)?;
        for (operation, result, count) in counters.store_calls() {
            calls.encode_family(&[("op", operation), ("result", result)])?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }

    fn requests(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let totals = self.status.ledger().totals();
        counter(out, "requests_accepted", "Requests whose head was read, those for the node itself among them", totals.accepted)?;
        let help = "Requests that ended, by how; with those held and running they add up to the accepted ones";
        let mut outcomes = out.encode_descriptor("requests", help, None, MetricType::Counter)?;
        for (outcome, count) in &totals.outcomes {
            outcomes.encode_family(&[("outcome", *outcome)])?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        gauge(out, "held_requests", "Requests that wait for a primary now", totals.held)?;
        gauge(out, "running_requests", "Requests that are being served or forwarded now", totals.running)?;
        gauge(out, "connections", "Client connections open now", totals.connections)?;
        gauge(out, "connections_limit", "How many there may be, without those in reserve for other nodes", self.limit)?;
        let help = "Client connections that a limit has ended, by which";
        let mut closed = out.encode_descriptor("connections_closed", help, None, MetricType::Counter)?;
        for (limit, count) in &totals.closings {
            closed.encode_family(&[("reason", *limit)])?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        if let Some(lost) = &self.lines_lost {
            counter(out, "access_log_lost_lines", "Lines of the access log for which there was no room", lost.load(Ordering::Relaxed))?;
        }
        let help = "Lines of the node's own log for which there was no room";
        counter(out, "log_lost_lines", help, self.log_lines_lost.load(Ordering::Relaxed))?;
        let bounds = Histogram::BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets = bounds.zip(totals.hold.counts).collect::<Vec<_>>();
        let count = totals.hold.counts.iter().sum();
        out.encode_descriptor("hold_seconds", "How long requests waited for a primary", None, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(totals.hold.sum.as_secs_f64(), count, &buckets, None)
    }
}

impl Samples {
    fn tls(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(tls) = &self.tls else { return Ok(()) };
        let help = "When the TLS certificate in use runs out, in seconds since 1970";
        gauge(out, "tls_certificate_expiry_timestamp_seconds", help, tls.life().until)?;
        let help = "TLS handshakes of clients and other nodes, by how they ended";
        let mut ends = out.encode_descriptor("tls_handshakes", help, None, MetricType::Counter)?;
        for (end, count) in self.status.ledger().totals().handshakes {
            ends.encode_family(&[("result", end)])?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }
}

fn counter(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    out.encode_descriptor(name, help, None, MetricType::Counter)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

fn gauge(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    out.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
}
