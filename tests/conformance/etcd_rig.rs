//! What the tests of the etcd driver alone have in common: eyes on the keys, and a hand of their own.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions};

use crate::etcd_server::Etcd;
use crate::rig::KEY;

/// A client of the tests' own.
pub(crate) async fn client(etcd: &Etcd) -> Client {
    let patience = ConnectOptions::new().with_timeout(Duration::from_secs(20));
    Client::connect([etcd.client(0).to_string()], Some(patience)).await.expect("connect to etcd")
}

/// One key as `etcdctl` sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) lease: u64,
    pub(crate) created: u64,
}

/// All keys of the election, oldest first.
pub(crate) async fn keys(etcd: &Etcd) -> Vec<Key> {
    let place = format!("{KEY}/");
    let fields = etcd.etcdctl(&["get", "--prefix", &place, "--sort-by=CREATE", "--order=ASCEND", "--write-out=fields"]).await;
    let mut keys = Vec::new();
    let mut key = Key { name: String::new(), value: String::new(), lease: 0, created: 0 };
    for line in fields.lines() {
        let Some((field, value)) = line.split_once(" : ") else { continue };
        let (text, number) = (value.trim_matches('"').to_owned(), value.parse().unwrap_or(0));
        match field.trim_matches('"') {
            "Key" => key.name = text,
            "Value" => key.value = text,
            "CreateRevision" => key.created = number,
            "Lease" => {
                key.lease = number;
                keys.push(key.clone());
            }
            _ => {}
        }
    }
    keys
}

/// Deletes a key as an operator would.
pub(crate) async fn delete(etcd: &Etcd, key: &str) {
    assert_eq!(etcd.etcdctl(&["del", key]).await.trim(), "1", "{key} was there");
}
