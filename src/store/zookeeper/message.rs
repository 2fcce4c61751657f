//! The few of ZooKeeper's requests that an election needs, and their answers.

use super::failure::Failure;
use super::jute::{Garbled, Reader, Writer};

/// Numbers of answers that no request asked for, or that are not told apart.
pub(super) mod xid {
    pub(in super::super) const EVENT: i32 = -1;
    pub(in super::super) const PING: i32 = -2;
    pub(in super::super) const LOGIN: i32 = -4;
}

/// What kind of request it is.
mod operation {
    pub(super) const DELETE: i32 = 2;
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const GET_CHILDREN: i32 = 8;
    pub(super) const PING: i32 = 11;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE: i32 = 15;
    pub(super) const LOGIN: i32 = 100;
}

/// The server's word for what went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Code(pub(super) i32);

impl Code {
    pub(super) const OK: Self = Self(0);
    pub(super) const NO_NODE: Self = Self(-101);
    pub(super) const NO_AUTH: Self = Self(-102);
    pub(super) const BAD_VERSION: Self = Self(-103);
    pub(super) const NO_CHILDREN_FOR_EPHEMERALS: Self = Self(-108);
    pub(super) const NODE_EXISTS: Self = Self(-110);
    pub(super) const NOT_EMPTY: Self = Self(-111);
    pub(super) const SESSION_EXPIRED: Self = Self(-112);
    pub(super) const INVALID_ACL: Self = Self(-114);
    pub(super) const AUTH_FAILED: Self = Self(-115);
    pub(super) const SESSION_MOVED: Self = Self(-118);
    pub(super) const QUOTA_EXCEEDED: Self = Self(-125);
}

/// How a node comes to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Stays until it is deleted.
    Folder,
    /// Goes with its session; its name gets the next number of its folder.
    Candidate,
}

/// Who may do what with a node that we create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rights {
    /// Everybody everything.
    Open,
    /// We everything, the others read.
    Ours,
}

/// A request, ready to be numbered and sent.
#[derive(Clone, Debug)]
pub(super) struct Request {
    operation: i32,
    body: Vec<u8>,
}

impl Request {
    pub(super) fn create(path: &str, data: &[u8], kind: Kind, rights: Rights) -> Self {
        const READ: i32 = 1;
        const ALL: i32 = 31;
        let body = Writer::default().text(path).buffer(data);
        let body = match rights {
            Rights::Open => body.int(1).int(ALL).text("world").text("anyone"),
            Rights::Ours => body.int(2).int(ALL).text("auth").text("").int(READ).text("world").text("anyone"),
        };
        let flags = match kind {
            Kind::Folder => 0,
            Kind::Candidate => 3,
        };
        Self { operation: operation::CREATE, body: body.int(flags).bytes() }
    }

    pub(super) fn delete(path: &str) -> Self {
        const ANY_VERSION: i32 = -1;
        Self { operation: operation::DELETE, body: Writer::default().text(path).int(ANY_VERSION).bytes() }
    }

    /// A watch on it fires when the node is created, changed or deleted.
    pub(super) fn exists(path: &str, watch: bool) -> Self {
        Self { operation: operation::EXISTS, body: Writer::default().text(path).flag(watch).bytes() }
    }

    /// A watch on it fires when the node is changed or deleted.
    pub(super) fn data(path: &str, watch: bool) -> Self {
        Self { operation: operation::GET_DATA, body: Writer::default().text(path).flag(watch).bytes() }
    }

    /// A watch on it fires when a child comes or goes.
    pub(super) fn children(path: &str, watch: bool) -> Self {
        Self { operation: operation::GET_CHILDREN, body: Writer::default().text(path).flag(watch).bytes() }
    }

    /// A transaction that changes nothing: it is agreed upon by the quorum if the node is there with its first data.
    pub(super) fn check(path: &str) -> Self {
        const AS_CREATED: i32 = 0;
        let body = Writer::default().int(operation::CHECK).flag(false).int(-1).text(path).int(AS_CREATED);
        Self { operation: operation::MULTI, body: body.int(-1).flag(true).int(-1).bytes() }
    }

    pub(super) fn ping() -> Self {
        Self { operation: operation::PING, body: Vec::new() }
    }

    /// `login` is `USER:PASSWORD`.
    pub(super) fn login(login: &str) -> Self {
        Self { operation: operation::LOGIN, body: Writer::default().int(0).text("digest").text(login).bytes() }
    }

    /// As it goes over the wire.
    pub(super) fn frame(&self, xid: i32) -> Vec<u8> {
        Writer::default().int(xid).int(self.operation).raw(&self.body).frame()
    }
}

/// What the server keeps about a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stat {
    /// The transaction that created it.
    pub(super) created: i64,
    /// How often its data was changed.
    pub(super) version: i32,
    /// The session that it goes with; 0 for none.
    pub(super) owner: i64,
}

impl Stat {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Garbled> {
        let created = reader.long()?;
        let (_changed, _created_at, _changed_at) = (reader.long()?, reader.long()?, reader.long()?);
        let version = reader.int()?;
        let (_children_version, _rights_version) = (reader.int()?, reader.int()?);
        Ok(Self { created, version, owner: reader.long()? })
    }
}

/// One message from the server.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) xid: i32,
    /// The last transaction that the server knew of.
    pub(super) zxid: i64,
    code: Code,
    body: Vec<u8>,
}

impl Reply {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Garbled> {
        let mut reader = Reader::new(bytes);
        let (xid, zxid, code) = (reader.int()?, reader.long()?, Code(reader.int()?));
        Ok(Self { xid, zxid, code, body: reader.rest().to_vec() })
    }

    pub(super) fn is_refusal(&self) -> bool {
        self.code != Code::OK
    }

    /// Whether the request was carried out.
    pub(super) fn done(self) -> Result<(), Failure> {
        self.body().map(drop)
    }

    /// The path and the record of a node that was created.
    pub(super) fn created(self) -> Result<(String, Stat), Failure> {
        let mut reader = self.body()?;
        let path = reader.text()?.to_owned();
        Ok((path, Stat::read(&mut reader)?))
    }

    pub(super) fn stat(self) -> Result<Stat, Failure> {
        Ok(Stat::read(&mut self.body()?)?)
    }

    pub(super) fn data(self) -> Result<(Vec<u8>, Stat), Failure> {
        let mut reader = self.body()?;
        let data = reader.buffer()?.to_vec();
        Ok((data, Stat::read(&mut reader)?))
    }

    pub(super) fn children(self) -> Result<Vec<String>, Failure> {
        let mut reader = self.body()?;
        let mut names = Vec::new();
        for _ in 0..reader.int()? {
            names.push(reader.text()?.to_owned());
        }
        Ok(names)
    }

    /// Whether a [`Request::check`] was agreed upon.
    pub(super) fn checked(self) -> Result<(), Failure> {
        let mut reader = self.body()?;
        let (operation, _last, _code) = (reader.int()?, reader.flag()?, reader.int()?);
        match operation {
            operation::CHECK => Ok(()),
            _ => Err(Failure::Refused(Code(reader.int()?))),
        }
    }

    fn body(&self) -> Result<Reader<'_>, Failure> {
        match self.code {
            Code::OK => Ok(Reader::new(&self.body)),
            code => Err(Failure::Refused(code)),
        }
    }
}

/// What opens a connection: who we are, or that we are new.
pub(super) fn hello(zxid: i64, timeout_millis: i32, session: i64, password: &[u8]) -> Vec<u8> {
    const VERSION: i32 = 0;
    let hello = Writer::default().int(VERSION).long(zxid).int(timeout_millis).long(session).buffer(password);
    // Servers that are cut off from the quorum are of no use to us.
    hello.flag(false).frame()
}

/// The server's answer to [`hello`].
#[derive(Debug)]
pub(super) struct Welcome {
    /// In milliseconds, as granted.
    pub(super) timeout: i32,
    /// 0 where the session that was asked for is over.
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
}

impl Welcome {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Garbled> {
        let mut reader = Reader::new(bytes);
        let (_version, timeout, session) = (reader.int()?, reader.int()?, reader.long()?);
        Ok(Self { timeout, session, password: reader.buffer()?.to_vec() })
    }
}
