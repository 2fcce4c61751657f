//! How requests, handshakes and connections end, as metrics and logs name it.

use crate::api::error::Reason;

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The app's answer was passed on to its end, or its tunnel closed.
    Answered,
    /// This node answered it by itself: a local route.
    Local,
    /// Its client went away first.
    Left,
    /// The app's answer or the tunnel broke half-way, and the client's connection was cut to show it.
    Cut,
    /// Its client took nothing of its answer for too long, and was cut off.
    Stalled,
    /// Its client was sent to the primary.
    Redirected,
    /// It got one of our own errors.
    Failed(Reason),
}

impl Outcome {
    /// Every outcome with its name in metrics, in the order of the counters.
    pub(super) const ALL: [(Self, &'static str); 18] = [
        (Self::Answered, "answered"),
        (Self::Local, "local"),
        (Self::Left, "left"),
        (Self::Cut, "failed_cut"),
        (Self::Stalled, "stalled"),
        (Self::Redirected, "redirected"),
        (Self::Failed(Reason::BadRequest), "failed_bad_request"),
        (Self::Failed(Reason::Forbidden), "failed_forbidden"),
        (Self::Failed(Reason::TooLarge), "failed_too_large"),
        (Self::Failed(Reason::UpstreamFailed), "failed_upstream_failed"),
        (Self::Failed(Reason::NoPrimary), "failed_no_primary"),
        (Self::Failed(Reason::HoldFull), "failed_hold_full"),
        (Self::Failed(Reason::NoUpstream), "failed_no_upstream"),
        (Self::Failed(Reason::Superseded), "failed_superseded"),
        (Self::Failed(Reason::UpstreamTimeout), "failed_upstream_timeout"),
        (Self::Failed(Reason::Loop), "failed_loop"),
        (Self::Failed(Reason::RequestTimeout), "failed_request_timeout"),
        (Self::Failed(Reason::TooManyConnections), "failed_too_many_connections"),
    ];

    /// Its place among them.
    pub(super) fn index(self) -> usize {
        match self {
            Self::Answered => 0,
            Self::Local => 1,
            Self::Left => 2,
            Self::Cut => 3,
            Self::Stalled => 4,
            Self::Redirected => 5,
            Self::Failed(reason) => 6 + reason as usize,
        }
    }

    /// As metrics and logs name it.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self.index()].1
    }
}

/// How a TLS handshake of a client ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handshake {
    /// With a connection.
    Done,
    /// One side did not believe the other, or they have no version or cipher in common, or the client broke it off.
    Failed,
    /// Not in time.
    Late,
    /// It was none: the client spoke something else, such as plain HTTP.
    Plain,
}

impl Handshake {
    /// Their names in metrics, in the order of the counters.
    pub(super) const NAMES: [&'static str; 4] = ["done", "failed", "late", "plain"];
}

/// By which limit this node ended a client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// No request began for as long as a connection may idle.
    Idle,
    /// A head began, and did not end in time.
    SlowHead,
    /// The client took nothing of what it was sent.
    Stalled,
    /// There were as many as there may be, the reserve included.
    Refused,
    /// Over HTTP/2, the client asked for too much that leads to nothing.
    Flood,
}

impl Closing {
    /// Their names in metrics, in the order of the counters.
    pub(super) const NAMES: [&'static str; 5] = ["idle", "slow_head", "stalled", "refused", "flood"];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_own_counter() {
        for (index, (outcome, name)) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome.index(), index, "{name}");
        }
    }
}
