//! What a primary serves: the app behind this node.
//!
//! So far that is one address per app; instances, balancing and health build on it. The bytes travel through the `api`
//! room, which dials what is named here.

mod upstream;

pub use upstream::{Upstream, UpstreamError};
