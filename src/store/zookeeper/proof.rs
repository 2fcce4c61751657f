//! What it takes to be sure that a candidate of ours is there: agreement of the quorum, and then a look.
//!
//! A server answers reads from what it knows, also for a while after it was cut off from the others, when they may have
//! ended our session already. So the proof is a transaction. It changes nothing: it checks that the node is there, with
//! the data that it was created with. Right behind it, in the order that ZooKeeper keeps for one session, comes a read of
//! whose node it is.

use super::connection::Connection;
use super::failure::Failure;
use super::message::{Code, Reply, Request, Stat};
use super::{Candidate, Shared};

/// The answer to a request that was sent.
pub(super) type Answer = std::pin::Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

/// Both questions, sent; the answers are still to come.
pub(super) struct Proof {
    check: Answer,
    look: Answer,
}

impl Shared {
    /// Asks for the proof, and lets more be asked before it is here.
    pub(super) fn ask_for_proof(&self, connection: &Connection, candidate: &Candidate) -> Proof {
        let path = self.place.path(&candidate.name);
        let check = Box::pin(connection.send(&Request::check(&path)));
        Proof { check, look: Box::pin(connection.send(&Request::exists(&path, false))) }
    }
}

impl Proof {
    /// Whether `candidate` is there as it was created, and under its session.
    pub(super) async fn holds(self, candidate: &Candidate) -> Result<bool, Failure> {
        match self.check.await?.checked() {
            Ok(()) => {}
            Err(Failure::Refused(Code::NO_NODE | Code::BAD_VERSION)) => return Ok(false),
            Err(failure) => return Err(failure),
        }
        match self.look.await?.stat() {
            Ok(Stat { created, owner, version: 0 }) => Ok(created == candidate.created && owner == candidate.session),
            Ok(_) => Ok(false),
            Err(failure) if failure.is_no_node() => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}
