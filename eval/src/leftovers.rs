//! What goes with this program when a signal ends it: child processes and folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// How long child processes may take to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// How soon after a signal another one belongs to it: `timeout` sends its own twice.
const AGAIN: Duration = Duration::from_millis(300);
/// How often a folder is removed in which a memory node of this process still makes files.
const TRIES: u32 = 3;

struct Leftovers {
    folders: Vec<PathBuf>,
    children: Vec<LeftChild>,
}

/// A child process that has not been waited for.
#[derive(Clone, Copy)]
struct LeftChild {
    pid: Pid,
    kind: ChildKind,
}

/// What becomes of a child process that outlives a request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildKind {
    /// It ends with this process, once it gets on, and removes what it made: it is left to that.
    EndsWithParent,
    /// It is killed.
    Foreign,
}

impl Leftovers {
    fn has(&self, pid: Pid) -> bool {
        self.children.iter().any(|child| child.pid == pid)
    }
}

static LEFTOVERS: Mutex<Leftovers> = Mutex::new(Leftovers { folders: Vec::new(), children: Vec::new() });

fn leftovers() -> MutexGuard<'static, Leftovers> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has Ctrl-C and SIGTERM end this process after they have removed what it would leave; a second
/// one ends it at once. Signals that are ignored at present stay so, such as Ctrl-C by what a script
/// has started in the background.
pub fn remove_at_signals() -> anyhow::Result<()> {
    let ignored = ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    let heeded: Vec<i32> =
        [SIGINT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect();
    let is_ending = Arc::new(AtomicBool::new(false));
    for signal in &heeded {
        register_conditional_default(*signal, Arc::clone(&is_ending))
            .context("installing signal handlers")?;
    }
    let mut signals = Signals::new(heeded).context("installing signal handlers")?;
    let wait = move || {
        let Some(signal) = signals.forever().next() else { return };
        let arm = move || {
            thread::sleep(AGAIN);
            is_ending.store(true, Ordering::SeqCst);
        };
        let _ = thread::Builder::new().spawn(arm);
        // Nothing is added any more, and what is dropped waits for the end of this process.
        let left = leftovers();
        let tell = |child: &LeftChild, signal| _ = kill_process(child.pid, signal);
        left.children.iter().for_each(|child| tell(child, Signal::TERM));
        let until = Instant::now() + PATIENCE;
        let mut stay: Vec<&LeftChild> =
            left.children.iter().filter(|child| !ends(child.pid, until)).collect();
        stay.retain(|child| child.kind == ChildKind::Foreign);
        stay.iter().for_each(|child| tell(child, Signal::KILL));
        // None of them makes files in a folder that is being removed.
        let until = Instant::now() + PATIENCE;
        stay.iter().for_each(|child| _ = ends(child.pid, until));
        left.folders.iter().for_each(|folder| remove(folder));
        let _ = emulate_default_handler(signal);
    };
    thread::Builder::new()
        .name("eval-signals".into())
        .spawn(wait)
        .context("starting a thread for signals")?;
    Ok(())
}

/// The signals that a process ignores, by what its `status` says: a bit each, from signal 1.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether a child process ends until then; it can still be waited for.
fn ends(child: Pid, until: Instant) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(child), options), Ok(None)) {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

fn remove(folder: &Path) {
    // What cannot be removed stays where the options said.
    let _ = (0..TRIES).any(|_| fs::remove_dir_all(folder).is_ok() || !folder.exists());
}

/// A folder that is removed with this handle, or by a signal.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// The folder, which need not exist yet and belongs to this process.
    pub fn new(path: PathBuf) -> Self {
        leftovers().folders.push(path.clone());
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        remove(&self.0);
        leftovers().folders.retain(|folder| *folder != self.0);
    }
}

/// A child process that a signal to this one ends; killed with this handle, if it has not ended.
#[derive(Debug)]
pub struct EndedChild(Child);

impl EndedChild {
    /// Starts it; a signal meanwhile waits, and ends it too.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(command: &mut Command, kind: ChildKind) -> io::Result<Self> {
        let mut left = leftovers();
        let child = command.spawn()?;
        left.children.push(LeftChild { pid: Pid::from_child(&child), kind });
        Ok(Self(child))
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Its standard output, once, if that is a pipe.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// Asks it to end, if it has not.
    pub fn terminate(&self) {
        let (left, pid) = (leftovers(), Pid::from_child(&self.0));
        if left.has(pid) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// If the operating system does not tell.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        // Once it is waited for, its number may be another's, which no signal is to end.
        let (mut left, pid) = (leftovers(), Pid::from_child(&self.0));
        let status = self.0.try_wait();
        if !matches!(status, Ok(None)) {
            left.children.retain(|child| child.pid != pid);
        }
        status
    }

    /// How it ends; `None` if it does not in time.
    ///
    /// # Errors
    /// As for [`try_wait`](Self::try_wait).
    pub fn ends_within(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let begun = Instant::now();
        loop {
            let status = self.try_wait()?;
            if status.is_some() || begun.elapsed() > limit {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for EndedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.ends_within(Duration::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_ignored_are_told_apart() {
        let ignored =
            ignored("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001002\nSigCgt:\t0000000000004000\n");
        assert_eq!((ignored, super::ignored("")), (1 << (SIGINT - 1) | 1 << 12, 0));
    }

    /// Its number stayed among those that a signal ends when it had been waited for.
    #[test]
    fn what_was_waited_for_is_told_nothing() {
        let mut child =
            EndedChild::spawn(&mut Command::new("true"), ChildKind::Foreign).expect("it is there");
        let pid = Pid::from_child(&child.0);
        assert!(leftovers().has(pid));
        let status = child.ends_within(Duration::MAX).expect("a child").expect("it ends");
        assert!(status.success() && !leftovers().has(pid));
        child.terminate();
    }
}
