//! The way to the ensemble: one session, on a connection to one member at a time, and the move to the next member when
//! it does not answer. The session moves along, and with it whatever lies in it.
//!
//! Nothing is opened before the first call, and nothing is said to the servers but what calls say: whoever stops calling
//! lets the session run out. That is why no client crate is used: they keep a session alive by themselves.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::connection::{Connection, Session, Wire, open};
use super::failure::Failure;
use crate::clock;
use crate::node::Address;
use crate::store::tls::{self, Tls};
use crate::store::{Cause, OpenError, Secret, StoreError, StoreOptions, credentials};

/// Whom we take for a server, and what we show it of us. Has no `Debug`: it holds the password.
pub(super) struct Access {
    /// TLS is spoken where `cacert` says whom to trust.
    tls: Option<Tls>,
    login: Option<Login>,
}

/// The user that the servers shall know us as.
struct Login {
    user: String,
    password: Secret,
}

impl Access {
    /// Reads the password and the certificates.
    pub(super) fn new(given: &StoreOptions) -> Result<Self, OpenError> {
        let login = match (given.username(), given.password_file()) {
            (Some(user), Some(file)) => Some(Login { user: user.to_owned(), password: Secret::read(file)? }),
            _ => None,
        };
        Ok(Self { tls: credentials::tls(given, None)?, login })
    }

    /// Whether what we create can belong to a user.
    pub(super) fn has_user(&self) -> bool {
        self.login.is_some()
    }
}

/// All members, our session, and the connection to the present one.
pub(super) struct Ensemble {
    way: Arc<Way>,
    /// For error messages.
    place: String,
    /// A connection that is being made. It outlives the call that began it, so that a slow one is made in the end.
    underway: tokio::sync::Mutex<Option<Dialling>>,
}

/// All that it takes to make a connection.
struct Way {
    members: Vec<Address>,
    access: Access,
    /// What is asked of the servers.
    ttl: Duration,
    /// How long the caller lets one call take, and we one member.
    patience: Duration,
    present: Mutex<Present>,
}

struct Present {
    member: usize,
    session: Option<Session>,
    connection: Option<Arc<Connection>>,
}

type Dialling = Pin<Box<dyn Future<Output = Result<Arc<Connection>, StoreFailure>> + Send>>;

/// A failure to reach any member, and which one was tried last.
type StoreFailure = (Failure, Address);

impl Ensemble {
    pub(super) fn new(members: &[Address], access: Access, place: String, ttl: Duration, call_timeout: Duration) -> Self {
        let present = Mutex::new(Present { member: 0, session: None, connection: None });
        let way = Way { members: members.to_vec(), access, ttl, patience: call_timeout, present };
        Self { way: Arc::new(way), place, underway: tokio::sync::Mutex::new(None) }
    }

    /// How long a member may be silent before another one is tried.
    pub(super) fn patience(&self) -> Duration {
        self.way.patience
    }

    /// Makes `attempt` over the present connection and, where that fails, over a new one once. Attempts must be harmless
    /// to repeat: a failed one may have taken effect.
    ///
    /// # Cancel safety
    /// May be dropped at any time. If the member had not answered for a while by then, the next call goes to the next one.
    pub(super) async fn call<T, A, F>(&self, operation: &'static str, attempt: A) -> Result<T, StoreError>
    where
        A: Fn(Arc<Connection>) -> F,
        F: Future<Output = Result<T, Failure>>,
    {
        let mut may_repeat = true;
        loop {
            let reached = self.connection().await;
            let connection = reached.map_err(|(failure, member)| failure.into_store_error(operation, member.as_str(), &self.place))?;
            let turn = Turn { way: &self.way, connection: &connection, began: clock::now(), open: true };
            let outcome = attempt(Arc::clone(&connection)).await;
            turn.ended();
            let failure = match outcome {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            let is_of_the_way = failure.is_of_the_way();
            let error = failure.into_store_error(operation, connection.member.as_str(), &self.place);
            if is_of_the_way {
                self.leave(&connection, &error.to_string());
            }
            if !is_of_the_way || !may_repeat {
                return Err(error);
            }
            may_repeat = false;
            debug!(%error, "trying ZooKeeper again over a new connection");
        }
    }

    /// Gives up a connection that fell silent, and the member for now.
    pub(super) fn leave(&self, connection: &Arc<Connection>, why: &str) {
        self.way.leave(connection, why);
    }

    async fn connection(&self) -> Result<Arc<Connection>, StoreFailure> {
        if let Some(connection) = self.way.present().open_connection() {
            return Ok(connection);
        }
        let mut underway = self.underway.lock().await;
        // Somebody else's call may have made it meanwhile.
        if let Some(connection) = self.way.present().open_connection() {
            return Ok(connection);
        }
        if let Some(inherited) = underway.as_mut() {
            let outcome = inherited.await;
            *underway = None;
            // Its time may have run out while nobody was calling: that says nothing about the members now.
            if outcome.is_ok() {
                return outcome;
            }
        }
        let outcome = underway.insert(Box::pin(Arc::clone(&self.way).dial())).await;
        *underway = None;
        outcome
    }
}

impl Way {
    fn leave(&self, connection: &Arc<Connection>, why: &str) {
        connection.close(why);
        let mut present = self.present();
        if present.connection.as_ref().is_some_and(|other| Arc::ptr_eq(other, connection)) {
            present.hang_up();
            present.member = (present.member + 1) % self.members.len();
        }
    }

    /// Tries every member once, the present one first.
    async fn dial(self: Arc<Self>) -> Result<Arc<Connection>, StoreFailure> {
        let mut untried = self.members.len();
        loop {
            let member = self.members[self.present().member].clone();
            let failure = match timeout(self.patience, self.connect(&member)).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::way(format!("no connection within {:?}", self.patience)),
            };
            let mut present = self.present();
            present.member = (present.member + 1) % self.members.len();
            untried -= 1;
            if untried == 0 {
                return Err((failure, member));
            }
            debug!(%member, ?failure, "ZooKeeper member does not let us in, trying the next one");
        }
    }

    /// Connects to one member with the session that we have or, where that is over, with a new one.
    async fn connect(&self, member: &Address) -> Result<Arc<Connection>, Failure> {
        let mut session = self.present().session.clone();
        loop {
            let mut stream = self.wire(member).await.map_err(|error| Failure::way(error.to_string()))?;
            match (open(&mut stream, session.as_ref(), self.ttl).await?, session.take()) {
                (Some(opened), _) => return Ok(self.adopt(stream, member, opened)),
                (None, Some(over)) => {
                    debug!(%member, session = format!("{:#x}", over.id), "ZooKeeper session is over, asking for a new one");
                    self.present().session = None;
                }
                (None, None) => return Err(Failure::Undecided("ZooKeeper granted no session")),
            }
        }
    }

    async fn wire(&self, member: &Address) -> Result<Wire, Cause> {
        let stream = TcpStream::connect((member.host(), member.port())).await?;
        tls::over(stream, self.access.tls.as_ref().map(|tls| (tls, member.host()))).await
    }

    fn adopt(&self, stream: Wire, member: &Address, session: Session) -> Arc<Connection> {
        let connection = Arc::new(Connection::start(stream, member.clone(), &session));
        if let Some(Login { user, password }) = &self.access.login {
            connection.log_in(&format!("{user}:{}", password.expose()));
        }
        let mut present = self.present();
        (present.session, present.connection) = (Some(session), Some(Arc::clone(&connection)));
        connection
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().expect("no holder of this lock can panic")
    }
}

impl Present {
    fn open_connection(&mut self) -> Option<Arc<Connection>> {
        let connection = self.connection.clone()?;
        if connection.is_open() {
            return Some(connection);
        }
        self.hang_up();
        None
    }

    /// Keeps what the connection has shown of its session.
    fn hang_up(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if let Some(session) = self.session.as_mut().filter(|session| session.id == connection.session) {
            (session.heard, session.zxid) = connection.seen();
        }
    }
}

impl fmt::Debug for Ensemble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(&self.way.members).finish()
    }
}

/// One call's use of the connection. Dropped while open, because the caller's patience ended, it moves on.
struct Turn<'a> {
    way: &'a Way,
    connection: &'a Arc<Connection>,
    began: Instant,
    open: bool,
}

impl Turn<'_> {
    fn ended(mut self) {
        self.open = false;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let (heard, _) = self.connection.seen();
        // A wait that is given up for another reason accuses nobody.
        if self.open && clock::now() - heard.max(self.began) >= self.way.patience * 9 / 10 {
            debug!(member = %self.connection.member, "ZooKeeper member does not answer, the next call goes to the next one");
            self.way.leave(self.connection, "the member did not answer in time");
        }
    }
}
