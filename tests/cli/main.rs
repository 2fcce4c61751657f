//! The `bellwether` command as a user meets it: the real binary, its sentences, its statuses, and the routes that a node
//! answers itself.

mod access;
#[path = "../support/certificates.rs"]
mod certificates;
mod help;
mod local;
mod node;
mod observe;
mod plan;
#[path = "../support/port.rs"]
mod port;
mod precedence;
mod signals;
mod store;
mod tls;
mod unread;
mod usage;
mod verbs;
mod wait;
mod warnings;
