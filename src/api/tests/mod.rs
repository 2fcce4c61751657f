//! The data plane as clients and apps see it: nodes in this process, on real sockets, with roles that the test decides.

mod access;
mod alpn;
mod ending;
mod expect;
mod extended_connect;
mod failover;
pub(super) mod fuzz;
mod holding;
mod http2;
mod http2_apps;
mod http2_limits;
mod keepalive;
mod late;
mod leaders;
mod leaving;
mod limits;
mod malice;
mod passing;
mod redirect;
mod resets;
pub(super) mod rig;
mod secured;
mod sharing;
mod switching;
mod tunnels;
mod unshared;
