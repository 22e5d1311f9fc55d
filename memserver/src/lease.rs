//! The lease of the reuse sequence: how long memory waits between readers being told of its reuse
//! and being handed out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache_fabric::{Clock, SystemClock};

/// For how long readers may believe the reuse sequence that they have READ, where they read by
/// network cards ([`Export::with_lease`](fpcache_fabric::Export::with_lease)). By default for no
/// time at all: others look at it after their READs, and memory need not wait.
#[derive(Clone, Debug)]
pub struct Lease {
    length: Duration,
    clock: Arc<dyn Clock>,
    /// When all readers know of what was last raised.
    ends: Option<Instant>,
}

impl Default for Lease {
    fn default() -> Self {
        Self::new(Duration::ZERO, Arc::new(SystemClock))
    }
}

impl Lease {
    /// A lease of this length, by this clock.
    pub fn new(length: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { length, clock, ends: None }
    }

    /// How long it is. Zero: no lease.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Begins anew: everybody can see by now what was raised.
    pub(crate) fn begin(&mut self) {
        self.ends = self.clock.now().checked_add(self.length);
    }

    /// When it ends, if that is yet to come.
    pub(crate) fn ends_at(&mut self) -> Option<Instant> {
        if self.ends.is_some_and(|ends| self.clock.now() >= ends) {
            self.ends = None;
        }
        self.ends
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) {
        while let Some(ends) = self.ends_at() {
            self.clock.sleep(ends.saturating_duration_since(self.clock.now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A clock that moves when a thread sleeps, and wakes it early.
    #[derive(Debug)]
    struct Hands(Mutex<Instant>);

    impl Clock for Hands {
        fn now(&self) -> Instant {
            *self.0.lock().expect("nobody panics")
        }

        fn sleep(&self, duration: Duration) {
            *self.0.lock().expect("nobody panics") += (duration / 2).max(Duration::from_nanos(1));
        }
    }

    #[test]
    fn who_waits_for_the_end_wakes_after_it() {
        let begin = Instant::now();
        let clock = Arc::new(Hands(Mutex::new(begin)));
        let length = Duration::from_millis(1);
        let mut lease = Lease::new(length, clock.clone());
        assert_eq!(lease.ends_at(), None);
        lease.begin();
        assert_eq!(lease.ends_at(), Some(begin + length));
        lease.wait();
        assert!(clock.now() >= begin + length);
        assert_eq!(lease.ends_at(), None);
    }
}
