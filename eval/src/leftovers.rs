//! What goes with this program when a signal ends it: child processes and folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// How long child processes may take to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often a folder is removed in which a memory node of this process still makes files.
const TRIES: u32 = 3;

struct Leftovers {
    folders: Vec<PathBuf>,
    children: Vec<Pid>,
}

static LEFTOVERS: Mutex<Leftovers> = Mutex::new(Leftovers { folders: Vec::new(), children: Vec::new() });

fn leftovers() -> MutexGuard<'static, Leftovers> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has Ctrl-C and SIGTERM end this process after they have removed what it would leave.
pub fn remove_at_signals() -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("installing signal handlers")?;
    let wait = move || {
        let Some(signal) = signals.forever().next() else { return };
        // Nothing is added any more, and what is dropped waits for the end of this process.
        let left = leftovers();
        let tell = |child: &Pid, signal| _ = kill_process(*child, signal);
        left.children.iter().for_each(|child| tell(child, Signal::TERM));
        let until = Instant::now() + PATIENCE;
        left.children
            .iter()
            .filter(|child| !ends(**child, until))
            .for_each(|child| tell(child, Signal::KILL));
        left.folders.iter().for_each(|folder| remove(folder));
        let _ = emulate_default_handler(signal);
    };
    thread::Builder::new()
        .name("eval-signals".into())
        .spawn(wait)
        .context("starting a thread for signals")?;
    Ok(())
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

/// A child process that a signal to this one ends, as long as this handle is there, which goes
/// before it is waited for.
#[derive(Debug)]
pub struct EndedChild(Pid);

impl EndedChild {
    pub fn new(child: &Child) -> Self {
        let pid = Pid::from_child(child);
        leftovers().children.push(pid);
        Self(pid)
    }
}

impl Drop for EndedChild {
    fn drop(&mut self) {
        leftovers().children.retain(|pid| *pid != self.0);
    }
}
