//! The line of candidates as the store shows it at one revision.

use etcd_client::{GetOptions, KeyValue, ResponseHeader, SortOrder, SortTarget, TxnOp};

/// Where an election lies: `PREFIX/SERVICE/leader`, and below it one key for each candidate.
#[derive(Clone, Debug)]
pub(super) struct Place {
    key: String,
}

impl Place {
    pub(super) fn new(key: String) -> Self {
        Self { key }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.key
    }

    /// What every candidate's key begins with. Closed by a slash, so that `…/leader2` is no part of it.
    pub(super) fn prefix(&self) -> String {
        format!("{}/", self.key)
    }

    /// The key of the candidate that holds `lease`.
    pub(super) fn key_of(&self, lease: i64) -> String {
        format!("{}/{lease:x}", self.key)
    }
}

/// One candidate in the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    /// The lease that its key lives under, and is named after.
    pub(super) lease: i64,
    /// The revision that created the key: its place in the line, and its epoch once it leads.
    pub(super) created: i64,
}

/// All candidates, oldest first, and what else lies in their place.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) candidates: Vec<Candidate>,
    /// Keys that no candidate would write, fit to be printed.
    pub(super) strangers: Vec<String>,
    /// The oldest key of all, whosever it is, with its value.
    pub(super) oldest: Option<KeyValue>,
    /// The store's revision at which all this was so.
    pub(super) revision: i64,
    /// The term of the store's own leader at that time.
    pub(super) term: u64,
}

impl Line {
    /// What to ask for: all keys, without their values, which may be junk of any size; and the oldest with its value.
    pub(super) fn reads(place: &Place) -> [TxnOp; 2] {
        let all = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
        [TxnOp::get(place.prefix(), Some(all.clone().with_keys_only())), TxnOp::get(place.prefix(), Some(all.with_limit(1)))]
    }

    /// Makes a line of the answers to [`reads`](Self::reads).
    pub(super) fn read(place: &Place, header: &ResponseHeader, records: &[KeyValue], oldest: &[KeyValue]) -> Self {
        let (revision, term) = (header.revision(), header.raft_term());
        let mut line = Self { candidates: Vec::new(), strangers: Vec::new(), oldest: oldest.first().cloned(), revision, term };
        for record in records {
            match candidate(place, record) {
                Some(candidate) => line.candidates.push(candidate),
                None => line.strangers.push(printable(record.key())),
            }
        }
        line
    }

    /// Who leads.
    pub(super) fn first(&self) -> Option<Candidate> {
        self.candidates.first().copied()
    }

    /// The candidates before the one that holds `lease`; all of them where it has no place in the line.
    pub(super) fn ahead_of(&self, lease: Option<i64>) -> &[Candidate] {
        let place = self.candidates.iter().position(|candidate| Some(candidate.lease) == lease);
        &self.candidates[..place.unwrap_or(self.candidates.len())]
    }

    pub(super) fn has(&self, lease: i64) -> bool {
        self.candidates.iter().any(|candidate| candidate.lease == lease)
    }
}

/// A candidate's key is named after the lease it lives under. One that is not was written by hand, and would not go
/// away with its writer.
fn candidate(place: &Place, record: &KeyValue) -> Option<Candidate> {
    let lease = record.lease();
    let named_after_its_lease = lease != 0 && record.key() == place.key_of(lease).as_bytes();
    named_after_its_lease.then(|| Candidate { lease, created: record.create_revision() })
}

fn printable(key: &[u8]) -> String {
    let shown = String::from_utf8_lossy(key).chars().take(128).collect::<String>();
    shown.escape_debug().to_string()
}
