//! Virtual time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Virtual time.
#[derive(Debug)]
pub(crate) struct Time {
    /// Nanoseconds since `base`.
    now: AtomicU64,
    pub(crate) base: Instant,
    /// Whether a memory node's code runs: it may look at the clock but no other thread can have a
    /// turn meanwhile.
    pub(crate) in_service: AtomicBool,
}

impl Time {
    pub(crate) fn new(base: Instant) -> Self {
        Self { now: AtomicU64::new(0), base, in_service: AtomicBool::new(false) }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Lets time pass and returns the new time.
    pub(crate) fn pass(&self, nanos: u64) -> u64 {
        self.now.fetch_add(nanos, Ordering::Relaxed).saturating_add(nanos)
    }

    /// Moves on to this time, unless it has passed.
    pub(crate) fn reach(&self, at: u64) {
        self.now.fetch_max(at, Ordering::Relaxed);
    }

    /// The virtual time of an instant.
    pub(crate) fn nanos(&self, instant: Instant) -> u64 {
        nanos(instant.saturating_duration_since(self.base))
    }
}

/// A duration in nanoseconds.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
