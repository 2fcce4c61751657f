//! Whether `--advertise` leads back to this node, asked once at start.
//!
//! A wrong address is found by the others when this node is already primary; a warning now is found by whoever made it.
//! Not being able to tell proves nothing: behind a port mapping a node may not reach itself the way the others do.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;
use tracing::{debug, warn};

use crate::api::client::{Target, With};
use crate::node::Node;
use crate::tls;

/// More than a node on the other side of the world needs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks whoever is at `node`'s address who it is, and warns when it is somebody else.
pub(crate) async fn check(node: Node, tls: Option<tls::Client>) {
    let target = Target::Tcp(node.address.clone());
    match target.ask(Method::GET, "/_bellwether/leader", With { tls: tls.as_ref(), ..With::default() }, PATIENCE).await {
        Ok(answer) => {
            let said = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
            let id = said["id"].as_str().filter(|_| answer.status == StatusCode::OK);
            if id != Some(node.boot.to_string().as_str()) {
                let who = if id.is_some() { "another node" } else { "no node" };
                warn!(advertise = %node.address, "--advertise leads to {who}: give the address at which the others reach this one");
            }
        }
        Err(error) => debug!(%error, advertise = %node.address, "cannot tell whether --advertise leads here"),
    }
}
