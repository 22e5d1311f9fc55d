//! A lock that is waited for until a deadline.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fpcache_fabric::{Clock, Deadline};

/// A lock that is waited for no longer than a deadline.
#[derive(Debug, Default)]
pub(crate) struct TimedLock {
    taken: Mutex<bool>,
    free: Condvar,
}

/// A turn that was taken; dropping it lets the next thread have its own.
#[derive(Debug)]
#[must_use]
pub(crate) struct TimedLockGuard<'t>(&'t TimedLock);

impl TimedLock {
    /// Waits for the turn; `None` once the deadline has passed.
    pub(crate) fn take(&self, deadline: Deadline, clock: &dyn Clock) -> Option<TimedLockGuard<'_>> {
        let mut taken = self.taken();
        while *taken {
            taken = match deadline.remaining(clock.now()) {
                None => self.free.wait(taken).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return None,
                Some(left) => self.free.wait_timeout(taken, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        *taken = true;
        Some(TimedLockGuard(self))
    }

    fn taken(&self) -> MutexGuard<'_, bool> {
        // Nothing panics while it is held.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TimedLockGuard<'_> {
    fn drop(&mut self) {
        *self.0.taken() = false;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use fpcache_fabric::SystemClock;

    use super::*;

    #[test]
    fn a_turn_is_one_threads_and_the_next_waits_no_longer_than_its_deadline() {
        let turn = TimedLock::default();
        let first = turn.take(Deadline::NONE, &SystemClock).expect("nobody has it");
        let begun = Instant::now();
        assert!(turn.take(Deadline::after(Duration::from_millis(20)), &SystemClock).is_none());
        assert!(begun.elapsed() >= Duration::from_millis(20));
        thread::scope(|scope| {
            let next = scope.spawn(|| turn.take(Deadline::NONE, &SystemClock).is_some());
            drop(first);
            assert!(next.join().expect("no panic"));
        });
        assert!(turn.take(Deadline::after(Duration::ZERO), &SystemClock).is_some(), "free again");
    }
}
