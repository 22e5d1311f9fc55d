//! Processes that hold what this one waits for: which they are, and whether they are about to end.
//!
//! A process that was killed has its locks and its sockets until the kernel has taken it down,
//! which takes as long as freeing its memory does. It gives them up after its last store: every
//! thread lets go of the memory before it lets go of the files, and a lock ends with the last of
//! them. So the process that gets the lock need not fear that another still writes.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::Stat;

/// How long something is waited for that is another's who lives, or whose owner is not known: a
/// child that its former owner forked, and that has yet to execute its program, has it a moment
/// longer.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long one is waited for that is ending.
const PATIENCE_WITH_THE_ENDING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Waiting for what another process has.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    began: Instant,
    /// With others than those that are ending.
    patience: Duration,
    /// Whether who was in the way last was ending.
    was_ending: bool,
}

impl Wait {
    /// Begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self::with_patience(PATIENCE)
    }

    /// Begins now, with this patience for an unknown process.
    pub(crate) fn with_patience(patience: Duration) -> Self {
        Self { began: Instant::now(), patience, was_ending: false }
    }

    /// Waits a little, and says whether it was worth it: ten seconds for a process that is ending,
    /// half a second for another one, or an unknown one. Once a process that was ending is gone,
    /// what it held is about to be free.
    #[must_use]
    pub fn goes_on(&mut self, holder: Option<u32>) -> bool {
        self.was_ending = holder.map_or(self.was_ending, is_ending);
        let patience = if self.was_ending { PATIENCE_WITH_THE_ENDING } else { self.patience };
        let goes_on = self.began.elapsed() < patience;
        if goes_on {
            std::thread::sleep(PAUSE);
        }
        goes_on
    }
}

/// Whether a process has ended, or is being ended and runs no more of its program: it was killed,
/// or is past its end. A process that is stopped is not.
#[must_use]
pub fn is_ending(process: u32) -> bool {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}"));
    let (stat, status) = match (read("stat"), read("status")) {
        (Ok(stat), Ok(status)) => (stat, status),
        (Err(error), _) | (_, Err(error)) => return error.kind() == std::io::ErrorKind::NotFound,
    };
    says_exiting(&stat) || says_killed(&status)
}

/// Lines read `12 (name) R 1 12 12 0 -1 4194560 ...`: state, and seven fields on the kernel's
/// flags.
fn says_exiting(stat: &str) -> bool {
    /// `PF_EXITING`.
    const EXITING: u64 = 0x4;
    // The name may hold anything, blanks and parentheses included.
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let state = fields.first().copied().unwrap_or_default();
    let flags = fields.get(6).and_then(|flags| flags.parse::<u64>().ok()).unwrap_or(0);
    matches!(state, "Z" | "X") || flags & EXITING != 0
}

/// Lines read `SigPnd:\t0000000000000100`: signals that are on their way to the thread, and to the
/// process.
fn says_killed(status: &str) -> bool {
    const KILL: u64 = 1 << 8;
    status.lines().any(|line| {
        let pending = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        pending.is_some_and(|set| u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set & KILL != 0))
    })
}

/// The process that has locked an open file (flock(2)), if the kernel's list of locks names it:
/// file systems that number files otherwise there, and other containers' processes, stay unknown.
#[must_use]
pub fn lock_holder(file: impl AsFd) -> Option<u32> {
    let stat = rustix::fs::fstat(file).ok()?;
    holder_in(&std::fs::read_to_string("/proc/locks").ok()?, &device_and_inode(&stat))
}

/// A file as the list of locks writes it.
fn device_and_inode(stat: &Stat) -> String {
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    format!("{major:02x}:{minor:02x}:{}", stat.st_ino)
}

/// Lines read `1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF`.
fn holder_in(locks: &str, which: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        // A process that waits for a lock has an arrow here.
        let is_held = fields.next()? == "FLOCK";
        let holder: u32 = fields.nth(2)?.parse().ok()?;
        (is_held && holder > 0 && fields.next()? == which).then_some(holder)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_holder_is_found_in_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fd:01:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fd:01:78 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 14 fd:01:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fd:01:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 fd:01:79 0 EOF\n\
                     rubbish\n5: FLOCK\n";
        let of = |which| holder_in(locks, which);
        assert_eq!(of("fd:01:78"), Some(12));
        assert_eq!(of("fd:01:77"), Some(13), "neither a range's lock nor a waiter");
        assert_eq!(of("fd:01:79"), None, "a process of another container");
        assert_eq!(of("fd:01:80"), None);
    }

    #[test]
    fn the_kernels_words_are_understood() {
        assert!(!says_exiting("12 (a) b) R) S 1 12 12 0 -1 4194560 100 0"));
        assert!(says_exiting("12 (a) R 1 12 12 0 -1 4194308 100 0"));
        assert!(says_exiting("12 (a) Z 1 12 12 0 -1 0 100 0"));
        assert!(!says_exiting("rubbish") && !says_exiting("12 (a) R"));
        let status =
            |thread, process| format!("Name:\ta\nSigPnd:\t{thread}\nShdPnd:\t{process}\nSigBlk:\t0100\n");
        assert!(!says_killed(&status("0000000000000000", "0000000000004000")));
        assert!(says_killed(&status("0000000000000100", "0000000000000000")));
        assert!(says_killed(&status("0000000000000000", "0000000000000100")));
    }

    #[test]
    fn a_process_is_ending_once_it_was_killed_and_not_while_it_is_stopped() {
        use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
        assert!(!is_ending(std::process::id()));
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("a process");
        let (id, pid) = (child.id(), Pid::from_child(&child));
        assert!(!is_ending(id));
        kill_process(pid, Signal::STOP).expect("it is there");
        waitpid(Some(pid), WaitOptions::UNTRACED).expect("a child");
        assert!(!is_ending(id), "it may go on");
        child.kill().expect("it is there");
        let began = Instant::now();
        while !is_ending(id) {
            assert!(began.elapsed() < Duration::from_secs(10));
        }
        child.wait().expect("a child");
        assert!(is_ending(id), "it is gone");
    }
}
