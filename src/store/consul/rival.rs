//! The node that held the key before, and may not know yet that it is free.
//!
//! A node that gives the key back empties it, and one whose session ended is known by that. But when a person deletes the
//! key or frees it, its owner still serves until it hears of it: whoever saw it lead must first see its session end. The
//! owner ends it as soon as it has let go; the session of a frozen one runs out. In no case is it waited for longer than
//! the last tenure that it can have confirmed. Others than our nodes may keep a session for more than one lock, so their
//! sessions tell nothing.

use std::time::Duration;

use tokio::time::Instant;

use super::session::{Info, SessionId};

/// What the name of every node's session begins with.
pub(super) const MARK: &str = "bellwether ";

#[derive(Default, Debug)]
pub(super) struct Rival {
    known: Option<Known>,
}

#[derive(Debug)]
struct Known {
    session: SessionId,
    holds_key: bool,
    /// Set once its session was seen to have outlived its hold on the key: when its tenure is over all the same.
    over_by: Option<Instant>,
}

impl Rival {
    /// `session`, which is not ours, holds the key.
    pub(super) fn leads(&mut self, session: &SessionId) {
        self.known = Some(Known { session: session.clone(), holds_key: true, over_by: None });
    }

    /// Nobody holds the key, and nobody has given it back.
    pub(super) fn lost_key(&mut self) {
        if let Some(known) = &mut self.known {
            known.holds_key = false;
        }
    }

    /// The key was given back, or is ours: whoever held it before leads no more.
    pub(super) fn is_over(&mut self) {
        self.known = None;
    }

    /// Whose session must be asked after before the key is taken.
    pub(super) fn to_see_out(&self) -> Option<SessionId> {
        self.known.as_ref().filter(|known| !known.holds_key).map(|known| known.session.clone())
    }

    /// Notes what Consul knows of `session`, which held the key and does so no longer. True while its owner may still
    /// think that it leads.
    pub(super) fn judge(&mut self, session: &SessionId, info: Option<&Info>, now: Instant) -> bool {
        let Some(known) = self.known.as_mut().filter(|known| known.session == *session && !known.holds_key) else { return false };
        let ttl = info.filter(|info| info.name.starts_with(MARK)).and_then(Info::ttl);
        let lingers = ttl.is_some_and(|ttl: Duration| now < *known.over_by.get_or_insert(now + ttl));
        if !lingers {
            self.is_over();
        }
        lingers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(digit: char) -> SessionId {
        SessionId::try_from(digit.to_string().repeat(36)).unwrap()
    }

    fn info(name: &str) -> Info {
        serde_json::from_value(serde_json::json!({"ID": "a".repeat(36), "Name": name, "TTL": "10000ms"})).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_waited_for_until_its_session_ends_or_its_last_tenure_must_be_over() {
        let (start, ttl, ours) = (Instant::now(), Duration::from_secs(10), info("bellwether p/s 10.0.0.1:4000"));
        let mut rival = Rival::default();
        rival.lost_key();
        assert_eq!(rival.to_see_out(), None, "nobody was seen to lead");
        rival.leads(&session('a'));
        assert_eq!(rival.to_see_out(), None, "it leads");
        rival.lost_key();
        assert_eq!(rival.to_see_out(), Some(session('a')));
        assert!(!rival.judge(&session('b'), Some(&ours), start), "an answer about an earlier one");
        assert!(rival.judge(&session('a'), Some(&ours), start));
        assert!(rival.judge(&session('a'), Some(&ours), start + ttl - Duration::from_millis(1)));
        assert!(!rival.judge(&session('a'), Some(&ours), start + ttl));
        assert_eq!(rival.to_see_out(), None, "it is asked after no more");

        rival.leads(&session('a'));
        rival.judge(&session('a'), Some(&ours), start);
        rival.lost_key();
        assert!(rival.judge(&session('a'), Some(&ours), start + ttl), "it was asked after while it still led");
        assert!(!rival.judge(&session('a'), None, start + ttl), "its session has ended");
    }

    #[test]
    fn a_rival_of_another_make_is_not_waited_for() {
        let mut rival = Rival::default();
        rival.leads(&session('a'));
        rival.lost_key();
        assert!(!rival.judge(&session('a'), Some(&info("Consul API Lock")), crate::clock::now()));
    }
}
