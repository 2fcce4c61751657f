//! Whole daemons on real sockets: three nodes, their apps, their clients, and a real store that fails.
//!
//! Each test starts its own processes on free ports and ends them by their ids. What users are promised is read from the
//! outside alone: from the clients' answers, from the app's ledger, and from what the nodes say of themselves.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod access_held;
mod browser;
mod cases;
mod clock;
mod consul;
mod crash;
mod databases;
mod demo;
mod departure;
mod docker;
mod docs;
mod early;
mod errors;
mod expect;
mod flood;
mod foresight;
mod forward;
mod goaway;
mod h2_clients;
mod h2spec;
mod headers;
mod heads;
mod interim;
mod interop;
mod kubernetes;
mod malice;
mod many_clients;
mod names;
mod outage;
mod partition;
mod planned;
mod redirect;
mod scenario;
mod slow;
mod slow_clients;
mod slow_readers;
mod stale;
mod start;
mod steady;
mod stream;
mod stream_http2;
mod tls_app;
mod tls_client;
mod tls_hop;
mod tls_reload;
mod tunnel;
mod untouched;
mod volume;
mod websocket;
mod websocket_http2;
mod zookeeper;
