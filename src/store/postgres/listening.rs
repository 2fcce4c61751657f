//! The connection on which the beginnings and ends of tenures are heard.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Postgres;
use super::statement::CHANNEL;
use crate::store::Takeover;
use crate::store::contract::Cause;
use crate::store::server::Access;
use crate::store::sql::Notices;

/// Opened by the first wait. Nothing is ever sent on it, so it may have been dead for long without anybody noticing.
pub(super) struct Listening {
    ear: Ear,
    component: String,
    slot: Mutex<Slot>,
}

/// Opening survives the wait that began it, as it may take longer than one.
enum Slot {
    Closed,
    Opening(BoxFuture<'static, Option<PgListener>>),
    Open(PgListener),
}

impl Listening {
    /// Listens by `ear` for what becomes of `component`.
    pub(super) fn new(ear: Ear, component: &str) -> Self {
        Self { ear, component: component.to_owned(), slot: Mutex::new(Slot::Closed) }
    }

    /// Returns at the next notice about our row, or once notices can come at all: what changed before was announced
    /// to nobody.
    ///
    /// # Cancel safety
    /// May be dropped at any point: what has arrived is kept for the next call.
    async fn notice(&self) {
        let mut slot = self.slot.lock().await;
        loop {
            match &mut *slot {
                Slot::Closed => *slot = Slot::Opening(Box::pin(self.ear.clone().listen())),
                Slot::Opening(opening) => {
                    let Some(listener) = opening.await else {
                        *slot = Slot::Closed;
                        continue;
                    };
                    *slot = Slot::Open(listener);
                    return;
                }
                Slot::Open(listener) => match listener.try_recv().await {
                    Ok(Some(notice)) if notice.payload() == self.component => return,
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => *slot = Slot::Closed,
                },
            }
        }
    }
}

#[async_trait]
impl Notices for Listening {
    /// Much less often than where nothing is announced.
    fn next_look(&self, ttl: Duration) -> Duration {
        Takeover::next_look(ttl) * 5
    }

    async fn hint(&self, pause: Duration) -> bool {
        tokio::time::timeout(pause, self.notice()).await.is_ok()
    }

    /// The connection has been deaf, so the next wait shall open another.
    async fn unannounced(&self) {
        *self.slot.lock().await = Slot::Closed;
    }
}

/// How a connection that listens is opened.
#[derive(Clone)]
pub(super) struct Ear {
    pub(super) driver: Postgres,
    pub(super) access: Access,
    pub(super) call_timeout: Duration,
}

impl Ear {
    /// Opens a connection that listens; nothing where that cannot be had for now, which takes a TTL to find out, so that it
    /// is not tried with every look at the row.
    async fn listen(self) -> Option<PgListener> {
        let until = Instant::now() + self.call_timeout * 3;
        match timeout_at(until, self.try_listen()).await {
            Ok(Ok(listener)) => Some(listener),
            Ok(Err(_)) | Err(_) => {
                sleep_until(until).await;
                None
            }
        }
    }

    async fn try_listen(&self) -> Result<PgListener, Cause> {
        let password = self.access.password().await?;
        let options = self.driver.connect_options(&self.access, password.as_ref());
        // A pool of one: the library has no other way to listen.
        let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false).idle_timeout(None).max_lifetime(None);
        // That a network is slow is no news of its own.
        let pool = pool.acquire_slow_threshold(Duration::MAX);
        let mut listener = PgListener::connect_with(&pool.connect_lazy_with(options)).await?;
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok(listener)
    }
}
