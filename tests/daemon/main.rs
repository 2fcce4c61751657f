//! Whole daemons on real sockets: three nodes, their apps, their clients and a real store that fails.

#[path = "../support/mod.rs"]
mod support;

mod failover;
