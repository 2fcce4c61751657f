//! What the tests of the database drivers have in common: locks, whole candidates, and words that errors must have.

use std::sync::Arc;
use std::time::Duration;

use bellwether::node::Node;
use bellwether::store::{Lock, LockConfig, OpenError, StoreOption, StoreOptions, StoreUrl};

/// The lock of `node` at `url`, with these store options.
pub(crate) fn lock_at(url: &str, options: &[String], node: &Node, ttl: Duration) -> Result<Arc<dyn Lock>, OpenError> {
    let url: StoreUrl = url.parse().expect("a store URL");
    let options = options.iter().map(|option| option.parse::<StoreOption>().expect("a store option"));
    let options = StoreOptions::new(options).expect("options that come once");
    let election = url.election("default").expect("a service's name");
    url.open(&options, LockConfig { election, node: node.clone(), ttl, call_timeout: ttl / 6 })
}
