//! What the process asks of the machine it runs on.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The machine's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The machine's memory in bytes.
pub fn memory() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram * u64::from(system.mem_unit)
}

/// How many files the process may open once [`raise_open_files`] has been called, where there is a limit.
pub fn most_open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Lets the process open as many files as its user may: a held request keeps its connection. Returns how many that is,
/// where there is a limit.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // A refusal leaves the limit that was.
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}
