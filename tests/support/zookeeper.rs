//! Real ZooKeeper servers on loopback: one, or the members of an ensemble, and what befalls them.
//!
//! Data lies in a temporary folder; the processes end with their value. A missing one fails the test and names the Debian
//! package that has it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::port;
use super::wait::wait_for;

/// How long a server may take to start on a busy machine.
pub(crate) const START: Duration = Duration::from_secs(60);
/// How long a member may take for one answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// In each member's settings. The short tick makes short sessions, quick elections and an exact expiry; what is written
/// need not survive the machine. The user `super` with the password `root` may do everything.
const SETTINGS: &str = "tickTime=200
initLimit=50
syncLimit=10
minSessionTimeout=1000
maxSessionTimeout=120000
maxClientCnxns=0
forceSync=no
admin.enableServer=false
4lw.commands.whitelist=srvr
DigestAuthenticationProvider.superDigest=super:zUZ0bpqYS7FucDXsnUgxOWTto1s=
";

const JAR: &str = "/usr/share/java/zookeeper.jar";
/// With what Debian's own class path leaves out, and TLS needs.
const CLASSES: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar:\
                       /usr/share/java/netty-transport-native-unix-common.jar";

/// An ensemble of one or more members.
#[derive(Debug)]
pub(crate) struct ZooKeeper {
    pub(crate) members: Vec<Member>,
    settings: String,
    folder: TempDir,
}

#[derive(Debug)]
pub(crate) struct Member {
    client: SocketAddr,
    peer: SocketAddr,
    election: SocketAddr,
    child: Option<Child>,
}

impl ZooKeeper {
    /// An empty ensemble of `size`, whose members have these further settings, each on a line.
    pub(crate) async fn start(size: usize, settings: &str) -> Self {
        let member = |_| Member { client: port::free(), peer: port::free(), election: port::free(), child: None };
        let members = (0..size).map(member).collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut servers = Self { members, settings: format!("{SETTINGS}{settings}"), folder };
        for number in 0..size {
            servers.spawn(number);
        }
        for number in 0..size {
            servers.serves(number).await;
        }
        servers
    }

    /// The store as `manage` takes it.
    pub(crate) fn url(&self) -> String {
        let members = self.members.iter().map(|member| member.client.to_string()).collect::<Vec<_>>();
        format!("zk://{}", members.join(","))
    }

    /// Where clients reach a member.
    pub(crate) fn address(&self, member: usize) -> SocketAddr {
        self.members[member].client
    }

    /// Lends its folder to files that belong to the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends a member as a crash does.
    pub(crate) fn stop(&mut self, member: usize) {
        self.members[member].end();
    }

    /// Starts a stopped member again with its data.
    pub(crate) async fn restart(&mut self, member: usize) {
        self.spawn(member);
        self.serves(member).await;
    }

    /// Forgets all that a stopped member knew.
    pub(crate) fn wipe(&self, member: usize) {
        std::fs::remove_dir_all(self.data(member)).expect("remove ZooKeeper's data");
    }

    /// Freezes a member, or lets it go on.
    pub(crate) fn signal(&self, member: usize, signal: Signal) {
        let id = self.members[member].child.as_ref().expect("a running member").id();
        let pid = Pid::from_raw(id.try_into().expect("a process id")).expect("a process id");
        kill_process(pid, signal).expect("signal ZooKeeper");
    }

    /// Which member leads the ensemble, once every running one has its place in it: another fault before that would be
    /// one too many for a quorum.
    pub(crate) async fn leading_member(&self) -> usize {
        let running = (0..self.members.len()).filter(|number| self.members[*number].child.is_some()).collect::<Vec<_>>();
        wait_for("one member to lead and the others to follow", START, async || {
            let mut told = Vec::new();
            for &number in &running {
                told.push(self.serves(number).await);
            }
            let leading = (0..told.len()).filter(|&number| told[number].contains("Mode: leader")).collect::<Vec<_>>();
            let following = told.iter().filter(|member| member.contains("Mode: follower")).count();
            match leading[..] {
                [leader] if following == running.len() - 1 => Ok(running[leader]),
                _ => Err(told),
            }
        })
        .await
    }

    pub(crate) fn spawn(&mut self, number: usize) {
        let data = self.data(number);
        std::fs::create_dir_all(&data).expect("a folder for ZooKeeper's data");
        let mut settings = format!("{}dataDir={}\n", self.settings, data.display());
        if let [alone] = self.members.as_slice() {
            settings += &format!("clientPort={}\nclientPortAddress={}\n", alone.client.port(), alone.client.ip());
        } else {
            for (number, Member { client, peer, election, .. }) in self.members.iter().enumerate() {
                settings += &format!("server.{}={peer}:{}:participant;{client}\n", number + 1, election.port());
            }
            std::fs::write(data.join("myid"), (number + 1).to_string()).expect("write a member's number");
        }
        let file = self.folder.path().join(format!("member-{number}.cfg"));
        std::fs::write(&file, settings).expect("write ZooKeeper's settings");
        // One short-lived, small server: what makes it start sooner matters, what makes it fast later does not.
        let child = Command::new("java")
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", CLASSES])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("start java for ZooKeeper, of the Debian package zookeeper: {error}"));
        self.members[number].child = Some(child);
    }

    /// Waits until a member has its place in the ensemble, and says what it tells of itself.
    async fn serves(&self, member: usize) -> String {
        let until = Instant::now() + START;
        loop {
            let told = match timeout(ANSWER, ask(self.address(member))).await {
                Ok(Ok(told)) if told.contains("Mode: ") => return told,
                other => format!("{other:?}"),
            };
            let jar = Path::new(JAR);
            assert!(jar.exists(), "there is no {}, of the Debian package zookeeper", jar.display());
            assert!(Instant::now() < until, "ZooKeeper did not start within {START:?}: {told}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn data(&self, member: usize) -> PathBuf {
        self.folder.path().join(format!("member-{member}"))
    }
}

pub(crate) async fn ask(server: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(b"srvr").await?;
    let mut told = String::new();
    stream.read_to_string(&mut told).await?;
    Ok(told)
}

impl Member {
    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            child.kill().ok();
            child.wait().expect("a child's status");
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.end();
    }
}
