//! A system's server: a process that the experiment starts and stops.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::time::ClockId;
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::leftovers::{ChildKind, EndedChild, TemporaryFolder};

/// How long a server may take to listen, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server's process, which ends with this handle, and a folder for its socket, which goes then.
#[derive(Debug)]
pub struct Server {
    child: EndedChild,
    folder: PathBuf,
    _removed: TemporaryFolder,
}

impl Server {
    /// Starts a program with the words that `words` makes of a new folder of its own, and waits
    /// until `is_up` says that it answers. `label` tells the servers of this process apart.
    ///
    /// # Errors
    /// If it cannot be started, ends at once, or does not answer within ten seconds.
    pub fn start(
        program: &str,
        label: &str,
        words: impl FnOnce(&Path) -> Vec<String>,
        is_up: impl Fn(&Path) -> bool,
    ) -> anyhow::Result<Self> {
        Self::start_as(program, Path::new(program), label, words, is_up)
    }

    /// As [`start`](Self::start), a program that is called something else here.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_as(
        name: &str,
        program: &Path,
        label: &str,
        words: impl FnOnce(&Path) -> Vec<String>,
        is_up: impl Fn(&Path) -> bool,
    ) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("fpcache-eval-{name}-{}-{label}", std::process::id()));
        // Of a process before that had this one's number.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).with_context(|| format!("making the folder {}", folder.display()))?;
        let removed = TemporaryFolder::new(folder.clone());
        let mut command = Command::new(program);
        command.args(words(&folder)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = EndedChild::spawn(&mut command, ChildKind::Foreign)
            .with_context(|| format!("starting {name}"))?;
        let mut server = Self { child, folder, _removed: removed };
        let begun = Instant::now();
        while !is_up(&server.folder) {
            if let Some(status) = server.child.try_wait().context("looking after a server")? {
                bail!("{name} ended before it answered ({status}): start it by hand to see why");
            }
            if begun.elapsed() > PATIENCE {
                bail!("{name} did not answer within {} s", PATIENCE.as_secs());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killed if it does not end so.
        self.child.terminate();
        let _ = self.child.ends_within(PATIENCE);
    }
}

/// A port of this machine's own that is free at present.
pub fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(ReservedPort::new()?.address)
}

/// A port of this machine's own at which nobody listens, and which nobody is given who asks for
/// any: only who asks for this one, and lets it be used again, can listen there.
#[derive(Debug)]
pub struct ReservedPort {
    pub address: SocketAddr,
    _socket: OwnedFd,
}

impl ReservedPort {
    pub fn new() -> anyhow::Result<Self> {
        let reserve = || -> Result<Self, Errno> {
            let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
            let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
            net::sockopt::set_socket_reuseaddr(&socket, true)?;
            net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
            Ok(Self { address: net::getsockname(&socket)?.try_into()?, _socket: socket })
        };
        reserve().context("looking for a free port")
    }
}

/// What an installed program says its version is: the first word of its output that begins with a
/// digit; `None` if it is not installed.
pub fn version_of(program: &str, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = |word: &str| {
        let word = word.trim_start_matches("v=");
        word.starts_with(|c: char| c.is_ascii_digit()).then(|| word.to_owned())
    };
    text.split_whitespace().find_map(version)
}

/// Processor time that a process has had so far, that of threads that have ended included; `None`
/// if there is no such process.
pub fn cpu_time(process_id: u32) -> Option<Duration> {
    let process = Pid::from_raw(i32::try_from(process_id).ok()?);
    let clock = ClockId::pid_cpu_clock_id(process).ok()?;
    clock.now().ok().map(Duration::from)
}

/// The same of several processes together; `None` if there are none.
pub fn cpu_time_of(process_ids: &[u32]) -> Option<Duration> {
    let times: Option<Vec<Duration>> = process_ids.iter().map(|id| cpu_time(*id)).collect();
    times.filter(|times| !times.is_empty()).map(|times| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_a_busy_process_grows_and_of_none_there_is_none() {
        let busy = Duration::from_millis(20);
        let before = cpu_time(std::process::id()).unwrap();
        thread::spawn(move || while thread_time() < busy {}).join().unwrap();
        let used = cpu_time(std::process::id()).unwrap() - before;
        assert!(used >= busy, "a thread that has ended had {busy:?}, the process only {used:?}");
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        assert_eq!(cpu_time(ended.id()), None);
        assert_eq!(cpu_time(u32::MAX), None);
    }

    fn thread_time() -> Duration {
        Duration::from(ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap())
    }

    #[test]
    fn a_program_that_is_not_installed_has_no_version() {
        assert_eq!(version_of("no-such-program-here", "--version"), None);
    }
}
