//! Reading the files again: now and then, and when asked. A set of files that does not fit together is kept out, and the
//! one in use stays in use; so the files may be replaced one after the other, in any order and at any pace.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use super::file::{Contents, TlsError};
use super::identity::Age;
use super::{Present, Tls};

/// How often the files are looked at. They are compared by what is in them: links, folders that are swapped and clocks
/// that stand still make times of change useless.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What a look at the files came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// They are as they were.
    Same,
    /// What is in them is in use now.
    Replaced,
    /// They cannot be used.
    Refused(TlsError),
}

impl Tls {
    /// Has the files read now, and the log say what came of it.
    pub fn read_again(&self) {
        self.0.asked.notify_one();
    }

    /// Keeps what is in use in line with the files, for as long as it is polled. Says each trouble once.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn keep_up(&self) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut refused, mut age) = (None, Age::Young);
        loop {
            let asked = tokio::select! {
                () = self.0.asked.notified() => true,
                _ = ticks.tick() => false,
            };
            let tls = self.clone();
            // Files may lie on a disk that hangs, and this thread has an election to attend to.
            let Ok(look) = tokio::task::spawn_blocking(move || tls.look()).await else { continue };
            match look {
                Look::Same if asked || refused.is_some() => info!("The TLS files are the ones in use"),
                Look::Same => {}
                Look::Replaced => info!(expires = %self.life().end(), "TLS files replaced: new handshakes use the new ones"),
                Look::Refused(ref error) if asked || refused.as_ref() != Some(error) => {
                    warn!(%error, "cannot use the TLS files as they are now: those read before stay in use");
                }
                Look::Refused(_) => {}
            }
            refused = if let Look::Refused(error) = look { Some(error) } else { None };
            self.watch_age(&mut age);
        }
    }

    /// Looks at the files once, and uses what is in them if it is new and good.
    pub(super) fn look(&self) -> Look {
        let read = Contents::read(&self.0.terms);
        let contents = match read {
            Ok(contents) if contents == self.0.present.load().contents => return Look::Same,
            Ok(contents) => contents,
            Err(error) => return Look::Refused(error),
        };
        match Present::new(&self.0.terms, contents) {
            Ok(present) => {
                self.0.present.store(Arc::new(present));
                Look::Replaced
            }
            Err(error) => Look::Refused(error),
        }
    }

    /// Says once that the certificate in use is old, and once that it is over.
    fn watch_age(&self, seen: &mut Age) {
        let life = self.life();
        let age = life.age();
        if age != std::mem::replace(seen, age) {
            match age {
                Age::Young => {}
                Age::Old => warn!(expires = %life.end(), "the TLS certificate in use runs out soon: replace its files"),
                Age::Over => error!(expired = %life.end(), "the TLS certificate in use has run out: replace its files"),
            }
        }
    }
}
