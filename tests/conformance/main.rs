//! One suite of promises, run unchanged against every store; see `suite` for what a store promises the election.

mod harness;
mod suite;

mod etcd;
mod etcd_interop;
mod etcd_members;
mod etcd_reports;
mod etcd_rig;
mod etcd_secured;
mod etcd_server;
mod memory;
mod sqlite;
mod sqlite_file;
#[path = "../support/wire.rs"]
mod wire;

#[path = "../support/kazoo.rs"]
mod kazoo;
#[path = "../support/port.rs"]
mod port;
mod zookeeper;
mod zookeeper_interop;
mod zookeeper_members;
mod zookeeper_reports;
mod zookeeper_secured;
#[path = "../support/zookeeper.rs"]
mod zookeeper_server;
