//! The line of candidates as a server shows it: the children of the election's folder, in the order of their numbers.

use crate::node::BootId;

/// What stands before the number in the name of a candidate: of ours and Curator's `LeaderLatch`, of Curator's and
/// docker/leadership's locks, and of Kazoo's. All of them let the lowest number lead.
const MARKS: [&str; 3] = ["-latch-", "-lock-", "__lock__"];

/// Where an election lies: the folder `/PREFIX/SERVICE/leader`, and in it one node for each candidate.
#[derive(Clone, Debug)]
pub(super) struct Place {
    folder: String,
    /// What the names of our own candidates begin with.
    own: String,
}

impl Place {
    /// `key` is the election's, without a slash at its ends.
    pub(super) fn new(key: &str, boot: BootId) -> Self {
        // A UUID, as Curator has it: 16 digits for this run of the process, and 16 for this lock.
        let id = format!("{boot}{:016x}", fastrand::u64(..));
        let [one, two, three, four, five] = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]];
        Self { folder: format!("/{key}"), own: format!("_c_{one}-{two}-{three}-{four}-{five}-latch-") }
    }

    pub(super) fn folder(&self) -> &str {
        &self.folder
    }

    /// The folder and all those above it, outermost first.
    pub(super) fn folders(&self) -> impl DoubleEndedIterator<Item = &str> {
        let ends = self.folder.match_indices('/').map(|(at, _)| at).skip(1).chain([self.folder.len()]).collect::<Vec<_>>();
        ends.into_iter().map(|end| &self.folder[..end])
    }

    /// What to ask for: the server adds the number.
    pub(super) fn new_candidate(&self) -> String {
        self.path(&self.own)
    }

    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// The name of a node of this folder.
    pub(super) fn name<'a>(&self, path: &'a str) -> &'a str {
        path.rsplit_once('/').map_or(path, |(_, name)| name)
    }

    pub(super) fn is_own(&self, name: &str) -> bool {
        name.starts_with(&self.own)
    }
}

/// All candidates, the leader first, and what else lies in their folder.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Line {
    names: Vec<String>,
    /// Names that no candidate has, fit to be printed.
    pub(super) strangers: Vec<String>,
}

impl Line {
    pub(super) fn new(children: Vec<String>) -> Self {
        let mut candidates = Vec::new();
        let mut strangers = Vec::new();
        for name in children {
            match number(&name) {
                Some(number) => candidates.push((number, name)),
                None => strangers.push(name.escape_debug().take(128).collect()),
            }
        }
        candidates.sort();
        Self { names: candidates.into_iter().map(|(_, name)| name).collect(), strangers }
    }

    /// Who leads.
    pub(super) fn first(&self) -> Option<&str> {
        self.names.first().map(String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|other| other == name)
    }

    /// The one before `name`, if both are in the line.
    pub(super) fn before(&self, name: &str) -> Option<&str> {
        let at = self.names.iter().position(|other| other == name)?;
        at.checked_sub(1).map(|before| self.names[before].as_str())
    }

    /// The names of our own nodes.
    pub(super) fn own<'a>(&'a self, place: &Place) -> impl Iterator<Item = &'a str> {
        self.names.iter().map(String::as_str).filter(|name| place.is_own(name))
    }
}

/// A candidate's place in the line: the number at the end of its name, which has ten digits or more.
fn number(name: &str) -> Option<u64> {
    let start = name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    let (before, digits) = name.split_at(start);
    if digits.len() < 10 || !MARKS.iter().any(|mark| before.ends_with(mark)) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(names: &[&str]) -> Line {
        Line::new(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn candidates_of_every_make_stand_in_one_line() {
        let kazoo = "9f2c0e0a1d5b4c2f8d0f2f6a3c1b5e77__lock__0000000002";
        let curator = "_c_0b9e2c1e-7d5c-4f0e-9d2a-2f6a3c1b5e77-latch-0000000001";
        let docker = "_c_0b9e2c1e7d5c4f0e9d2a2f6a3c1b5e77-lock-0000000010";
        let line = line(&[docker, kazoo, "latch-", "x-latch-12", "config", "0000000000", curator]);
        assert_eq!(line.first(), Some(curator));
        assert_eq!((line.before(docker), line.before(kazoo), line.before(curator)), (Some(kazoo), Some(curator), None));
        assert_eq!(line.strangers, ["latch-", "x-latch-12", "config", "0000000000"]);
        assert_eq!(line.before("config"), None);
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        assert_eq!(line(&["a-latch-10000000000", "b-latch-9999999999"]).first(), Some("b-latch-9999999999"));
        assert_eq!(number("a-latch-99999999999999999999999"), None);
        assert_eq!(number("ü-latch-0000000007"), Some(7));
    }

    #[test]
    fn a_lock_knows_its_own_candidates_from_all_others() {
        let boot = "00000000deadbeef".parse().expect("a boot id");
        let (place, twin) = (Place::new("a/b/leader", boot), Place::new("a/b/leader", boot));
        let path = place.new_candidate();
        assert!(path.starts_with("/a/b/leader/_c_00000000-dead-beef-") && path.ends_with("-latch-"), "{path}");
        let name = format!("{}0000000003", place.name(&path));
        assert!(place.is_own(&name) && !twin.is_own(&name));
        assert_eq!(line(&[&name]).first(), Some(name.as_str()));
        assert_eq!(place.folders().collect::<Vec<_>>(), ["/a", "/a/b", "/a/b/leader"]);
    }
}
