//! One suite of promises, run unchanged against every store; see `suite.rs` for what a store promises the election.

mod harness;
mod suite;

mod etcd;
mod etcd_server;
mod memory;
