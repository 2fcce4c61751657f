//! The way to the cluster: one client for one member at a time, and the move to the next one when it does not answer.
//!
//! etcd-client can balance over several members itself, but goes on sending to dead ones; so each client here knows one
//! member only. Connections are lazy: nothing is opened before the first call.

use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tokio::time::Instant;
use tracing::debug;

use super::access::Access;
use super::failure::{Blame, Failure};
use super::line::Place;
use crate::clock;
use crate::store::StoreError;

/// etcd hangs up on a client that pings more often than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// All members, and the connection to the present one.
pub(super) struct Endpoints {
    members: Vec<String>,
    options: ConnectOptions,
    /// For error messages.
    place: Place,
    /// How long a member must have been silent in a call before the call's being dropped is held against it.
    patience: Duration,
    present: Mutex<Present>,
}

struct Present {
    member: usize,
    /// Numbers the connections, so that a stream or a late complaint is known to belong to an earlier one.
    serial: u64,
    client: Option<Client>,
}

/// A connection to one member. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    /// Which connection it is; a stream is used on the one it was opened on.
    pub(super) serial: u64,
    /// Which member is at its other end.
    pub(super) member: usize,
}

impl Endpoints {
    /// `call_timeout` is how long the caller lets one call take.
    pub(super) fn new(access: Access, place: Place, call_timeout: Duration) -> Self {
        let options = access
            .options
            .with_connect_timeout(call_timeout)
            .with_keep_alive(PING_EVERY, PING_TIMEOUT)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        let present = Mutex::new(Present { member: 0, serial: 0, client: None });
        Self { members: access.members, options, place, patience: call_timeout * 9 / 10, present }
    }

    /// Makes `attempt` at the present member and, where the way to it fails, at each of the others once. Attempts must
    /// be harmless to repeat: a failed one may have taken effect.
    ///
    /// # Cancel safety
    /// May be dropped at any time. If the member had not answered for a while by then, the next call goes to the next one.
    pub(super) async fn call<T, A, F>(&self, operation: &'static str, attempt: A) -> Result<T, StoreError>
    where
        A: Fn(Connection) -> F,
        F: Future<Output = Result<T, Failure>>,
    {
        let mut untried = self.members.len() - 1;
        // What we were signed in as may have run out, or been given more rights: a refusal counts after signing in anew.
        let mut may_sign_in = true;
        loop {
            let mut turn = self.turn();
            let signed_in_before = turn.client.is_some();
            let outcome = match self.connect(&mut turn).await {
                // Boxed: the client nests deeply, and a store call is rare.
                Ok(connection) => Box::pin(attempt(connection)).await,
                Err(failure) => Err(failure),
            };
            let failure = match outcome {
                Ok(value) => {
                    turn.answered();
                    return Ok(value);
                }
                Err(failure) => failure,
            };
            let blame = failure.blame();
            let error = failure.into_store_error(operation, turn.endpoint(), self.place.as_str());
            turn.failed(blame);
            match blame {
                Blame::Way if untried > 0 => untried -= 1,
                Blame::Credentials if may_sign_in && signed_in_before => may_sign_in = false,
                Blame::Way | Blame::Credentials | Blame::Nobody => return Err(error),
            }
            debug!(%error, "trying etcd again: the next endpoint, or signed in anew");
        }
    }

    /// What the candidate is told of a failure of a stream to `member`.
    pub(super) fn error(&self, operation: &'static str, member: usize, failure: Failure) -> StoreError {
        failure.into_store_error(operation, &self.members[member], self.place.as_str())
    }

    /// Reports that a stream of connection `serial` broke.
    pub(super) fn suspect(&self, serial: u64) {
        let mut present = self.present();
        if present.serial == serial {
            present.member = (present.member + 1) % self.members.len();
            present.renew();
        }
    }

    /// Closes connection `serial` without a doubt about its member, so that the next call signs in again.
    pub(super) fn reconnect(&self, serial: u64) {
        let mut present = self.present();
        if present.serial == serial {
            present.renew();
        }
    }

    async fn connect(&self, turn: &mut Turn<'_>) -> Result<Connection, Failure> {
        if let Some(client) = turn.client.clone() {
            return Ok(Connection { client, serial: turn.serial, member: turn.member });
        }
        let client = Client::connect([turn.endpoint()], Some(self.options.clone())).await?;
        // Where there is a user, the member has just let us in.
        turn.heard = clock::now();
        let mut present = self.present();
        if present.serial == turn.serial {
            present.client = Some(client.clone());
        }
        Ok(Connection { client, serial: turn.serial, member: turn.member })
    }

    fn turn(&self) -> Turn<'_> {
        let present = self.present();
        let (member, serial, client) = (present.member, present.serial, present.client.clone());
        Turn { endpoints: self, member, serial, client, heard: clock::now(), open: true }
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().expect("no holder of this lock can panic")
    }
}

impl Present {
    fn renew(&mut self) {
        self.serial += 1;
        self.client = None;
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(&self.members).finish()
    }
}

/// One call's use of the present member. Dropped while open, because the caller's patience ended, it moves on.
struct Turn<'a> {
    endpoints: &'a Endpoints,
    member: usize,
    serial: u64,
    client: Option<Client>,
    /// When the call began, or the member last said something in it.
    heard: Instant,
    open: bool,
}

impl Turn<'_> {
    fn endpoint(&self) -> &str {
        &self.endpoints.members[self.member]
    }

    fn answered(mut self) {
        self.open = false;
    }

    fn failed(mut self, blame: Blame) {
        self.open = false;
        match blame {
            Blame::Way => self.endpoints.suspect(self.serial),
            Blame::Credentials => self.endpoints.reconnect(self.serial),
            Blame::Nobody => {}
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.open && clock::now() - self.heard >= self.endpoints.patience {
            debug!(endpoint = self.endpoint(), "etcd endpoint does not answer, the next call goes to the next one");
            self.endpoints.suspect(self.serial);
        }
    }
}
