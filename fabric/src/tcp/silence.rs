//! The time for which a memory node has been silent, over all sockets of a client.
//!
//! A call ends with its own deadline, and leaves the socket that it waited for: no one wait need be
//! as long as the patience with which a memory node counts as gone. So waits in vain are added up
//! until anything comes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::lock::lock;

/// The silence over all sockets of a client.
#[derive(Debug)]
pub(super) struct SilenceTimer {
    patience: Duration,
    /// Whether nothing has come since the last wait in vain.
    is_silent: AtomicBool,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    silence: Duration,
    /// Up to when they were added up: several threads may wait at once.
    until: Option<Instant>,
}

impl SilenceTimer {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, is_silent: AtomicBool::new(false), waits: Mutex::default() }
    }

    /// How long the memory node may be silent.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Something has come of the memory node. Only loads what others write seldom, if it has not
    /// been silent.
    #[inline]
    pub(super) fn note_received(&self) {
        if self.is_silent.load(Ordering::Relaxed) {
            self.is_silent.store(false, Ordering::Relaxed);
        }
    }

    /// Whether nothing has come over any socket since a wait was last noted.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Notes that a wait begins, so that what comes from here on is noticed. What others have waited
    /// in vain is left to be added up.
    pub(super) fn begins(&self, at: Instant) {
        let mut waits = lock(&self.waits);
        if !self.is_silent.swap(true, Ordering::Relaxed) {
            *waits = Waits { silence: Duration::ZERO, until: Some(at) };
        }
    }

    /// Adds a wait in which nothing came over its socket, and says whether the memory node counts
    /// as gone.
    pub(super) fn waited(&self, from: Instant, to: Instant) -> bool {
        let mut waits = lock(&self.waits);
        if !self.is_silent.swap(true, Ordering::Relaxed) {
            *waits = Waits::default();
        }
        let begun = waits.until.map_or(from, |until| until.max(from));
        waits.silence += to.saturating_duration_since(begun);
        waits.until = Some(waits.until.map_or(to, |until| until.max(to)));
        waits.silence >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_in_vain_are_added_up_each_moment_once_until_something_comes() {
        let (silence, begin) = (SilenceTimer::new(Duration::from_millis(1000)), Instant::now());
        let waited =
            |from, to| silence.waited(begin + Duration::from_millis(from), begin + Duration::from_millis(to));
        assert!(!waited(0, 400) && !waited(100, 400) && !waited(0, 500));
        // No caller waited meanwhile.
        assert!(!waited(5000, 5400));
        assert!(waited(5300, 5500));
        silence.note_received();
        assert!(!waited(5500, 6400));
        assert!(waited(6400, 6500));
    }

    /// A wait that began anew again and again kept others' from being added up.
    #[test]
    fn a_wait_that_begins_takes_nothing_from_those_under_way() {
        let (silence, begin) = (SilenceTimer::new(Duration::from_millis(1000)), Instant::now());
        let after = |millis| begin + Duration::from_millis(millis);
        assert!(!silence.waited(after(0), after(100)));
        silence.begins(after(900));
        assert!(silence.waited(after(0), after(1000)));
    }
}
