//! Our own lease at etcd: granted, kept alive, and given back.
//!
//! One lease carries one candidacy. Whatever ends the candidacy ends the lease, so that those behind us in the line can
//! see that it is over; a lease that etcd no longer knows is never asked for again.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use etcd_client::{LeaseGrantOptions, LeaseKeepAliveStream, LeaseKeeper};

use super::endpoints::Connection;
use super::failure::Failure;

/// The upper 16 bits of every lease of a bellwether node (`bw` in ASCII): its key is named `…/leader/6277…`.
const MARK: i64 = 0x6277;
const MARK_SHIFT: u32 = 48;

/// Whether `lease` is a bellwether node's, this one's or another's. Of such a lease it is known that it ends with the
/// candidacy; others that follow the recipe resign by deleting their key alone.
pub(super) fn is_of_a_node(lease: i64) -> bool {
    lease >> MARK_SHIFT == MARK
}

/// A lease's time as etcd tells it: none for a lease that there is not, and never more than etcd itself would grant.
pub(super) fn granted_time(seconds: i64) -> Option<Duration> {
    const MOST: u64 = 9_000_000_000;
    u64::try_from(seconds).ok().filter(|&seconds| seconds > 0).map(|seconds| Duration::from_secs(seconds.min(MOST)))
}

/// A number for a new lease. Two that are alike would have to live at the same time to do harm, and etcd refuses that.
fn draw() -> i64 {
    MARK << MARK_SHIFT | fastrand::i64(0..1 << MARK_SHIFT)
}

#[derive(Default, Debug)]
pub(super) struct Session {
    state: Mutex<State>,
    /// Taken out for each beat and put back after its answer, so that a stream that was left halfway is never used again.
    stream: Mutex<Option<Stream>>,
}

#[derive(Default, Debug)]
struct State {
    lease: Option<Granted>,
    /// Whether the present lease's key has been seen in the line.
    has_place: bool,
    /// The term of etcd's own leader when it was last read.
    term: Option<u64>,
    /// Leases that carried an earlier candidacy, until etcd has confirmed their end.
    spent: Vec<i64>,
}

/// A lease as etcd granted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Granted {
    pub(super) lease: i64,
    /// At least what was asked, often more.
    pub(super) ttl: Duration,
}

#[derive(Debug)]
struct Stream {
    lease: i64,
    /// The connection that it was opened on.
    serial: u64,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

/// What etcd answered to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beat {
    /// The lease lives. The term of the leader that the answering member believed in, where that is known.
    Alive { term: Option<u64> },
    /// There is no such lease, or no longer.
    Gone,
}

impl Session {
    pub(super) fn lease(&self) -> Option<Granted> {
        self.state().lease
    }

    /// Whether the present lease's key has been seen in the line: it is then not to be created again.
    pub(super) fn has_place(&self) -> bool {
        self.state().has_place
    }

    /// The key of `lease` is in the line.
    pub(super) fn found_place(&self, lease: i64) {
        let mut state = self.state();
        state.has_place = state.lease.is_some_and(|granted| granted.lease == lease);
    }

    /// Checks a beat against the `term` of a read in the same call. Heartbeats do not go through etcd's log: a leader
    /// that was replaced without its knowledge confirms one just the same. A read cannot be had from such a leader, and
    /// shows by its term whether there was a change.
    pub(super) fn agree(&self, beat: Beat, term: u64) -> Result<(), Failure> {
        self.state().term = Some(term);
        match beat {
            Beat::Alive { term: Some(then) } if then != term => Err(Failure::Undecided("etcd changed its own leader during the call")),
            Beat::Alive { .. } | Beat::Gone => Ok(()),
        }
    }

    /// Asks for a lease of `ttl`, rounded up to the whole seconds that etcd counts in.
    pub(super) async fn grant(&self, connection: &Connection, ttl: Duration) -> Result<Granted, Failure> {
        let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let asked = i64::try_from(whole).unwrap_or(i64::MAX);
        let answer = connection.client.lease_client().grant(asked, Some(LeaseGrantOptions::new().with_id(draw()))).await?;
        let ttl = granted_time(answer.ttl()).ok_or(Failure::Undecided("etcd granted a lease of no time"))?;
        let granted = Granted { lease: answer.id(), ttl };
        let mut state = self.state();
        (state.lease, state.has_place) = (Some(granted), false);
        Ok(granted)
    }

    /// Keeps `lease` alive once, over the stream of the last time where that still stands.
    pub(super) async fn beat(&self, connection: &Connection, lease: i64) -> Result<Beat, Failure> {
        let kept = self.stream().take().filter(|stream| stream.lease == lease && stream.serial == connection.serial);
        if let Some(mut stream) = kept {
            // A stream that broke says nothing about the lease: a new one will.
            if let Ok(beat) = stream.beat().await {
                self.keep(stream, beat);
                return Ok(beat);
            }
        }
        // The client keeps the first answer to itself, and with it the term: what was last read stands in for it.
        let term = self.state().term;
        match connection.client.lease_client().keep_alive(lease).await {
            Ok((keeper, answers)) => {
                let beat = Beat::Alive { term };
                self.keep(Stream { lease, serial: connection.serial, keeper, answers }, beat);
                Ok(beat)
            }
            // In that answer the client has seen that there is no such lease.
            Err(etcd_client::Error::LeaseKeepAliveError(_)) => Ok(Beat::Gone),
            Err(error) => Err(error.into()),
        }
    }

    /// The lease is known to have ended by itself.
    pub(super) fn forget(&self, lease: i64) {
        let mut state = self.state();
        state.lease = state.lease.filter(|granted| granted.lease != lease);
    }

    /// The candidacy under `lease`, or under the present one, is over: the next [`settle`](Self::settle) gives it back.
    pub(super) fn spend(&self, lease: Option<i64>) {
        let mut state = self.state();
        let ours = |granted: &mut Granted| lease.is_none_or(|lease| lease == granted.lease);
        if let Some(spent) = state.lease.take_if(ours) {
            state.spent.push(spent.lease);
        }
    }

    /// Gives back every lease of an earlier candidacy.
    pub(super) async fn settle(&self, connection: &Connection) -> Result<(), Failure> {
        let spent = self.state().spent.clone();
        for lease in spent {
            match connection.client.lease_client().revoke(lease).await.map_err(Failure::from) {
                Ok(_) => {}
                Err(failure) if failure.is_not_found() => {}
                Err(failure) => return Err(failure),
            }
            self.state().spent.retain(|&other| other != lease);
        }
        Ok(())
    }

    fn keep(&self, stream: Stream, beat: Beat) {
        if beat != Beat::Gone {
            *self.stream() = Some(stream);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }

    fn stream(&self) -> MutexGuard<'_, Option<Stream>> {
        self.stream.lock().expect("no holder of this lock can panic")
    }
}

impl Stream {
    async fn beat(&mut self) -> Result<Beat, Failure> {
        self.keeper.keep_alive().await?;
        let answer = self.answers.message().await?.ok_or(Failure::Undecided("etcd ended the stream of heartbeats"))?;
        // Of a lease that ended, etcd says so by the time that is left of it.
        if answer.ttl() <= 0 {
            return Ok(Beat::Gone);
        }
        let header = answer.header().ok_or(Failure::Undecided("the answer has no term"))?;
        Ok(Beat::Alive { term: Some(header.raft_term()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leases_of_nodes_are_told_from_those_that_etcd_numbers() {
        for _ in 0..1_000 {
            let lease = draw();
            assert!(lease > 0 && is_of_a_node(lease), "{lease:x}");
            assert!(format!("{lease:x}").starts_with("6277"), "{lease:x}");
        }
        assert!(!is_of_a_node(0x7d7b_a228_272f_0307));
    }

    #[test]
    fn a_beat_confirmed_by_a_replaced_leader_confirms_nothing() {
        let session = Session::default();
        let beat = |term| Beat::Alive { term };
        assert!(session.agree(beat(Some(7)), 7).is_ok());
        assert!(matches!(session.agree(beat(Some(7)), 8), Err(Failure::Undecided(_))));
        // A stream's first beat stands under the term that was read before it.
        assert_eq!(session.state().term, Some(8));
        assert!(session.agree(beat(None), 8).is_ok());
    }
}
