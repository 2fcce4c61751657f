//! Inputs that nobody thought of: made from a corpus by chance, tried against what must hold for every input.
//!
//! `make test` tries a few with a fixed seed; `make fuzz` tries fresh ones for `FUZZ_SECONDS` a target. An input that fails is
//! printed and kept in `target/fuzz`; put into `tests/corpus/TARGET`, it is tried first from then on.

mod forwarded;
mod heads;
mod reference;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

/// How much of an input is looked at.
const LONGEST: usize = 8 * 1024;

/// The inputs of one target.
pub(in crate::api) struct Fuzz {
    target: &'static str,
    seed: u64,
    random: fastrand::Rng,
    corpus: Vec<Vec<u8>>,
    words: &'static [&'static [u8]],
    /// How many are tried where nobody says for how long.
    few: usize,
    until: Option<Instant>,
    tried: usize,
}

/// One input, which is kept should the test fail that tries it.
pub(in crate::api) struct Case {
    target: &'static str,
    seed: u64,
    pub(in crate::api) number: usize,
    pub(in crate::api) input: Vec<u8>,
}

impl Fuzz {
    /// The inputs of `target`, which are put together of its corpus and of `words`: all of the corpus, and then `few` or for
    /// as long as `FUZZ_SECONDS` says.
    pub(in crate::api) fn of(target: &'static str, words: &'static [&'static [u8]], few: usize) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(target);
        let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let corpus: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        assert!(!corpus.is_empty(), "no corpus in {}", folder.display());
        let seconds = std::env::var("FUZZ_SECONDS").ok().map(|seconds| seconds.parse().expect("FUZZ_SECONDS is a number"));
        let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let seed = if until.is_some() { fastrand::u64(..) } else { 1 };
        Self { target, seed, random: fastrand::Rng::with_seed(seed), corpus, words, few, until, tried: 0 }
    }

    /// The next input; `None` when there were enough.
    pub(in crate::api) fn next_case(&mut self) -> Option<Case> {
        let number = self.tried;
        let over = match self.until {
            Some(until) => Instant::now() >= until,
            None => number >= self.corpus.len() + self.few,
        };
        if over && number >= self.corpus.len() {
            return None;
        }
        self.tried += 1;
        let input = self.corpus.get(number).cloned().unwrap_or_else(|| self.mutated());
        Some(Case { target: self.target, seed: self.seed, number, input })
    }

    fn mutated(&mut self) -> Vec<u8> {
        let mut input = self.any_of_corpus();
        for _ in 0..self.random.usize(1..6) {
            self.mutate(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn any_of_corpus(&mut self) -> Vec<u8> {
        let index = self.random.usize(..self.corpus.len());
        self.corpus[index].clone()
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let (from, to) = self.span(input.len(), 24);
        match self.random.u8(..9) {
            0 => drop(input.drain(from..to)),
            1 => {
                let copy = input[from..to].to_vec();
                let at = self.random.usize(..=input.len());
                input.splice(at..at, copy);
            }
            2 => {
                let word = self.words[self.random.usize(..self.words.len())];
                input.splice(from..from, word.iter().copied());
            }
            3 => {
                let word = self.words[self.random.usize(..self.words.len())];
                input.splice(from..to, word.iter().copied());
            }
            4 => {
                const STRANGE: &[u8] = b"\0\t\r\n :;,=/?#%\"\\\x7f\x80\xff";
                input.splice(from..from, [STRANGE[self.random.usize(..STRANGE.len())]]);
            }
            5 if !input.is_empty() => input[from.min(to.saturating_sub(1))] ^= 1 << self.random.u8(..8),
            6 => {
                let other = self.any_of_corpus();
                let (begin, end) = self.span(other.len(), other.len());
                input.splice(from..to, other[begin..end].iter().copied());
            }
            7 => self.repeat_line(input),
            _ => input.truncate(from),
        }
    }

    /// A line that is there twice is a field that is there twice.
    fn repeat_line(&mut self, input: &mut Vec<u8>) {
        let lines: Vec<Vec<u8>> = input.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        if lines.len() > 1 {
            let (line, at) = (self.random.usize(1..lines.len()), self.random.usize(1..lines.len()));
            let mut copy = lines[line].clone();
            if self.random.bool() {
                copy.make_ascii_uppercase();
            }
            let offset: usize = lines[..at].iter().map(Vec::len).sum();
            input.splice(offset..offset, copy);
        }
    }

    /// A part of something so long, no longer than `most`.
    fn span(&mut self, length: usize, most: usize) -> (usize, usize) {
        let from = self.random.usize(..=length);
        (from, self.random.usize(from..=length.min(from + most)))
    }
}

impl Drop for Fuzz {
    fn drop(&mut self) {
        eprintln!("{}: {} inputs with seed {}", self.target, self.tried, self.seed);
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fuzz");
            let file = folder.join(format!("{}-{}-{}", self.target, self.seed, self.number));
            let kept = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, &self.input));
            eprintln!("{} fails with {:?}\nkept in {}: {kept:?}", self.target, String::from_utf8_lossy(&self.input), file.display());
        }
    }
}
