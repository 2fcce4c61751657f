//! Members of a ZooKeeper ensemble that were frozen, and how they become an ensemble again.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::zookeeper_server::{ANSWER, START, ZooKeeper, ask};

/// How long frozen members get to become an ensemble again by themselves.
const THAW: Duration = Duration::from_secs(10);

impl ZooKeeper {
    /// Brings members back that were frozen, and waits until each of them serves and decides. What becomes of ZooKeeper's
    /// own ensemble is not what is tested here, so one that does not heal by itself, as happens now and then, is helped: by
    /// a restart of the member that stands in the way.
    ///
    /// That all members serve is not enough. Followers that lost their leader and are back before it has noticed may never
    /// acknowledge what it proposed in between: it leads on, they follow, all of them answer reads, and no transaction is
    /// ever committed again (seen with 3.8.0).
    pub(crate) async fn thaw(&mut self, members: &[usize]) {
        members.iter().for_each(|&member| self.signal(member, Signal::CONT));
        let mut within = THAW;
        for _ in 0..=self.members.len() {
            let Some(member) = self.hindrance(within).await else { return };
            eprintln!("ZooKeeper's ensemble does not heal by itself, restarting member {member}");
            self.stop(member);
            self.spawn(member);
            within = START;
        }
        panic!("ZooKeeper's ensemble decides nothing although its members were restarted");
    }

    /// Waits until every member serves and decides; if that takes too long, says which one stands in the way.
    async fn hindrance(&self, within: Duration) -> Option<usize> {
        let until = Instant::now() + within;
        loop {
            let hindrance = self.first_idle().await?;
            if Instant::now() >= until {
                return Some(hindrance);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// A member that does not serve or, where all do, decides nothing; the leading one first, on whom the others depend.
    async fn first_idle(&self) -> Option<usize> {
        let mut serving = Vec::new();
        for member in 0..self.members.len() {
            match timeout(ANSWER, ask(self.address(member))).await {
                Ok(Ok(told)) if told.contains("Mode: ") => serving.push((!told.contains("Mode: leader"), member)),
                _ => return Some(member),
            }
        }
        serving.sort_unstable();
        for (_, member) in serving {
            if !matches!(timeout(ANSWER, open_session(self.address(member))).await, Ok(Ok(()))) {
                return Some(member);
            }
        }
        None
    }
}

/// Has a member open a session and close it again, which takes a transaction of the whole ensemble.
async fn open_session(server: SocketAddr) -> std::io::Result<()> {
    /// A new session of four seconds: its length, version 0, no transaction seen, no number and no password yet.
    const HELLO: [u8; 48] = {
        let mut hello = [0; 48];
        (hello[3], hello[18], hello[19], hello[31]) = (44, 0x0f, 0xa0, 16);
        hello
    };
    /// Its length, number 1, and the code of an end, which is -11.
    const CLOSE: [u8; 12] = [0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5];
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&HELLO).await?;
    let mut welcome = [0; 40];
    stream.read_exact(&mut welcome).await?;
    stream.write_all(&CLOSE).await
}
