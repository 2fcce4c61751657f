//! One suite of promises, run unchanged against every store; see `suite` for what a store promises the election.

mod harness;
mod suite;

#[path = "../support/account.rs"]
mod account;
#[path = "../support/certificates.rs"]
mod certificates;
mod consul;
mod consul_agents;
mod consul_interop;
mod consul_meddler;
mod consul_reports;
mod consul_rig;
mod consul_secured;
#[path = "../support/consul.rs"]
mod consul_server;
#[path = "../support/database.rs"]
mod database;
mod etcd;
mod etcd_interop;
mod etcd_members;
mod etcd_reports;
mod etcd_rig;
mod etcd_secured;
mod etcd_server;
mod kubernetes;
mod kubernetes_interop;
mod kubernetes_reports;
mod kubernetes_rig;
mod kubernetes_secured;
#[path = "../support/kubernetes/mod.rs"]
mod kubernetes_server;
#[path = "../support/mariadb.rs"]
mod mariadb_server;
mod memory;
mod mysql;
mod papers;
#[path = "../support/port.rs"]
mod port;
mod postgres;
mod postgres_members;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod rig;
mod sql_access;
mod sql_reports;
mod sql_rig;
mod sql_table;
mod sql_words;
mod sqlite;
mod sqlite_file;
#[path = "../support/wait.rs"]
mod wait;
#[path = "../support/wire.rs"]
mod wire;

#[path = "../support/kazoo.rs"]
mod kazoo;
mod zookeeper;
mod zookeeper_interop;
mod zookeeper_members;
mod zookeeper_reports;
mod zookeeper_secured;
#[path = "../support/zookeeper.rs"]
mod zookeeper_server;
mod zookeeper_thaw;
