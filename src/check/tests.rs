//! Stores that break one promise each, over the one in memory, in paused time: each defect is found, and by its name.

use std::sync::Arc;

use async_trait::async_trait;

use super::*;
use crate::node::Node;
use crate::store::{Attempt, Epoch, Leader, Lease, Lock, Memory, Renewal, StoreError, StoreOptions, StoreUrl};

/// What is wrong with a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Defect {
    None,
    /// Every node is given the lock.
    Shared,
    /// A lease ends long before its TTL, also when it is renewed.
    TtlCut,
    /// A lease never ends.
    TtlIgnored,
    /// A renewal is confirmed and extends nothing.
    RenewalIgnored,
    /// A renewal is always confirmed.
    LossUnsaid,
    /// A release frees nothing.
    ReleaseIgnored,
    /// Neither does a withdrawal.
    WithdrawalIgnored,
    /// A lost lease that is released takes the next one with it.
    ReleaseTooFar,
    /// Each epoch is less than the one before.
    EpochsFall,
    /// A process with the same address is taken for the same.
    TwinsAreOne,
    /// Nobody is told of a change.
    Silent,
    /// Everybody is told of a change all the time.
    Noisy,
    /// Some leader is named who is none.
    Misnamed,
    /// Calls take longer than the TTL allows.
    Slow,
    /// Nothing answers.
    Down,
}

struct Store {
    defect: Defect,
    memory: Memory,
}

impl Store {
    fn lock(&self, node: Node, ttl: Duration) -> Arc<dyn Lock> {
        let memory = if self.defect == Defect::Shared { Memory::new(0) } else { self.memory.clone() };
        let kept = match self.defect {
            Defect::TtlCut => ttl / 4,
            Defect::TtlIgnored => ttl * 1_000,
            _ => ttl,
        };
        let node = match self.defect {
            Defect::TwinsAreOne => Node { boot: "1".parse().unwrap(), ..node },
            _ => node,
        };
        match self.defect {
            Defect::Slow => self.memory.faults(&node).delay(Duration::from_millis(1_200)..Duration::from_millis(1_300)),
            Defect::Down => self.memory.stop(),
            _ => {}
        }
        Arc::new(Defective { defect: self.defect, lock: memory.lock(&node, kept), memory, ttl })
    }
}

#[derive(Debug)]
struct Defective<L> {
    defect: Defect,
    lock: L,
    memory: Memory,
    ttl: Duration,
}

impl<L> Defective<L> {
    fn epoch(&self, epoch: Epoch) -> Epoch {
        if self.defect == Defect::EpochsFall { Epoch(1_000 - epoch.0) } else { epoch }
    }
}

#[async_trait]
impl Lock for Defective<Arc<dyn Lock>> {
    async fn acquire(&self) -> Result<Attempt, StoreError> {
        Ok(match self.lock.acquire().await? {
            Attempt::Held(lock) => {
                let (memory, ttl) = (self.memory.clone(), self.ttl);
                Attempt::Held(Box::new(Defective { defect: self.defect, lock, memory, ttl }))
            }
            taken @ Attempt::Taken(_) => taken,
        })
    }

    async fn withdraw(&self) -> Result<(), StoreError> {
        if self.defect == Defect::WithdrawalIgnored { Ok(()) } else { self.lock.withdraw().await }
    }

    async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        let leader = self.lock.leader().await?;
        Ok(leader.map(|leader| match self.defect {
            Defect::Misnamed => Leader { epoch: Epoch(leader.epoch.0 - 1), ..leader },
            _ => Leader { epoch: self.epoch(leader.epoch), ..leader },
        }))
    }

    async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        match self.defect {
            Defect::Silent => std::future::pending().await,
            Defect::Noisy => Ok(()),
            _ => {
                let seen = seen.map(|leader| Leader { epoch: self.epoch(leader.epoch), ..leader.clone() });
                self.lock.changed(seen.as_ref()).await
            }
        }
    }
}

#[async_trait]
impl Lease for Defective<Box<dyn Lease>> {
    fn epoch(&self) -> Epoch {
        self.epoch(self.lock.epoch())
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    async fn renew(&mut self) -> Result<Renewal, StoreError> {
        match self.defect {
            Defect::RenewalIgnored => Ok(Renewal::Held),
            Defect::LossUnsaid => self.lock.renew().await.map(|_| Renewal::Held),
            _ => self.lock.renew().await,
        }
    }

    async fn release(&mut self) -> Result<(), StoreError> {
        match self.defect {
            Defect::ReleaseIgnored => {}
            Defect::ReleaseTooFar => self.memory.delete_record(),
            _ => self.lock.release().await?,
        }
        Ok(())
    }
}

/// All that a check of a store with this defect found, and whether an election would be safe there.
async fn check(defect: Defect) -> (Vec<Finding>, bool) {
    let store = Store { defect, memory: Memory::new(0) };
    let scratch = Scratch::with("memory".to_owned(), move |node, ttl| Ok(store.lock(node, ttl)));
    let takeover = "memory:".parse::<StoreUrl>().unwrap().takeover(&StoreOptions::default());
    let mut findings = Vec::new();
    let wanted = Timing::new(Duration::from_secs(3)).unwrap();
    let safe = Check::new(&scratch, takeover, wanted).run(|finding| findings.push(finding.clone())).await;
    (findings, safe)
}

#[tokio::test(start_paused = true)]
async fn a_sound_store_keeps_every_promise() {
    let (findings, safe) = check(Defect::None).await;
    assert!(safe && findings.iter().all(|finding| finding.verdict == Verdict::Kept), "{findings:#?}");
    let promises = findings.iter().map(|finding| finding.promise).collect::<Vec<_>>();
    assert_eq!(
        promises,
        [
            "answers",
            "smallest TTL",
            "wanted TTL",
            "compare-and-set",
            "identity",
            "epochs",
            "renewal",
            "expiry",
            "loss signal",
            "release",
            "watch",
            "round-trip time",
            "clock source",
            "clean-up"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn each_defect_is_found_by_the_promise_that_it_breaks() {
    for (defect, promise, words) in [
        (Defect::Shared, "compare-and-set", "8 of 8 nodes"),
        (Defect::TtlCut, "renewal", "was lost after"),
        (Defect::TtlCut, "expiry", "two primaries could serve at once"),
        (Defect::TtlIgnored, "expiry", "nobody would follow a primary that crashed"),
        (Defect::RenewalIgnored, "renewal", "given once more"),
        (Defect::LossUnsaid, "loss signal", "two primaries would serve at once"),
        (Defect::ReleaseIgnored, "release", "was not free"),
        (Defect::WithdrawalIgnored, "clean-up", "is still named as leader"),
        (Defect::ReleaseTooFar, "loss signal", "took the next holder's with it"),
        (Defect::EpochsFall, "epochs", "came after"),
        (Defect::TwinsAreOne, "identity", "at the same address"),
        (Defect::Silent, "watch", "nothing was heard"),
        (Defect::Misnamed, "compare-and-set", "another is told of"),
        (Defect::Slow, "round-trip time", "use a TTL of 4s or more"),
        (Defect::Down, "answers", "connection refused"),
    ] {
        let (findings, safe) = check(defect).await;
        let found = findings.iter().find(|finding| finding.promise == promise).expect("every promise is tried");
        assert!(!safe && found.verdict == Verdict::Broken && found.detail.contains(words), "{defect:?}: {findings:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hints_all_the_time_is_odd_and_safe() {
    let (findings, safe) = check(Defect::Noisy).await;
    let odd = findings.iter().filter(|finding| finding.verdict == Verdict::Odd).map(|finding| finding.promise).collect::<Vec<_>>();
    assert!(safe && odd == ["watch"], "{findings:#?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_reached_is_said_once() {
    let (findings, _) = check(Defect::Down).await;
    let promises = findings.iter().map(|finding| finding.promise).collect::<Vec<_>>();
    assert_eq!(promises, ["answers"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_only_asked_for_its_ttl_is_left_empty() {
    let memory = Memory::new(0);
    let asked = memory.clone();
    let scratch = Scratch::with("memory".to_owned(), move |node, ttl| Ok(asked.lock(&node, ttl)));
    assert_eq!(scratch.ask(Duration::from_secs(3)).await.unwrap(), Duration::from_secs(3));
    assert_eq!(memory.holder(), None);
}
