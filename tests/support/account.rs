//! Servers that refuse to run as root are started as the user that their Debian package made for them.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};

/// Whose process a server becomes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// The user and group to change to; nothing where the tests themselves are run by somebody who may not.
    ids: Option<(u32, u32)>,
}

impl Account {
    /// The user `name`, which `package` makes.
    pub(crate) fn new(name: &str, package: &str) -> Self {
        if !geteuid().is_root() {
            return Self { ids: None };
        }
        let users = std::fs::read_to_string("/etc/passwd").expect("read the users of this machine");
        let user = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|user| user[0] == name);
        let user = user.unwrap_or_else(|| panic!("there is no user {name}, of the Debian package {package}"));
        let id = |field: &str| field.parse().expect("a number of a user");
        Self { ids: Some((id(user[2]), id(user[3]))) }
    }

    /// Gives `path` to the user.
    pub(crate) fn own(self, path: &Path) {
        if let Some((user, group)) = self.ids {
            chown(path, Some(user), Some(group)).expect("give a folder away");
        }
    }

    /// `program` as the user, silent.
    pub(crate) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.ids {
            command.uid(user).gid(group);
        }
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// A server's process. Dropping it ends the server, gently first: a server that is killed may leave helpers behind.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    last: Signal,
}

impl Process {
    /// Starts a server of `package` that ends at once, and with all its helpers, when it gets the signal `last`.
    pub(crate) fn start(command: &mut Command, package: &str, last: Signal) -> Self {
        let child = command.spawn().unwrap_or_else(|error| panic!("start a server of the Debian package {package}: {error}"));
        Self { child, last }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a process id")).expect("a process id");
        kill_process(pid, signal).expect("signal a server");
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child's status")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            // It may be frozen.
            self.signal(Signal::CONT);
            self.signal(self.last);
        }
        for _ in 0..500 {
            if self.ended().is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
