//! The connection on which the beginnings and ends of tenures are heard.

use futures_util::future::BoxFuture;
use sqlx::postgres::PgListener;
use tokio::sync::Mutex;

use super::session::Session;

/// Opened by the first wait. Nothing is ever sent on it, so it may have been dead for long without anybody noticing.
#[derive(Default)]
pub(super) struct Listening {
    slot: Mutex<Slot>,
}

/// Opening survives the wait that began it, as it may take longer than one.
#[derive(Default)]
enum Slot {
    #[default]
    Closed,
    Opening(BoxFuture<'static, Option<PgListener>>),
    Open(PgListener),
}

impl Listening {
    /// Returns at the next notice about `component`, or once notices can come at all: what changed before was announced
    /// to nobody.
    ///
    /// # Cancel safety
    /// May be dropped at any point: what has arrived is kept for the next call.
    pub(super) async fn notice(&self, session: &Session, component: &str) {
        let mut slot = self.slot.lock().await;
        loop {
            match &mut *slot {
                Slot::Closed => *slot = Slot::Opening(session.listen()),
                Slot::Opening(opening) => {
                    let Some(listener) = opening.await else {
                        *slot = Slot::Closed;
                        continue;
                    };
                    *slot = Slot::Open(listener);
                    return;
                }
                Slot::Open(listener) => match listener.try_recv().await {
                    Ok(Some(notice)) if notice.payload() == component => return,
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => *slot = Slot::Closed,
                },
            }
        }
    }

    /// Closes the connection, if there is one.
    pub(super) async fn close(&self) {
        *self.slot.lock().await = Slot::Closed;
    }
}
