//! `bellwether` keeps exactly one copy of an HTTP service active and makes every copy answer.
//!
//! Four rooms: [`store`] keeps a lock, [`replication`] decides who is primary, [`cluster`] is what the primary serves, and
//! [`api`] answers HTTP. [`app`] puts them together; the `bellwether` binary is a thin command line on top.

mod advertise;
pub mod api;
pub mod app;
pub mod backoff;
pub mod check;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod demo;
mod duration;
pub mod machine;
pub mod node;
pub mod replication;
pub mod shutdown;
pub mod store;
pub mod telemetry;
pub mod tls;
mod wall;
