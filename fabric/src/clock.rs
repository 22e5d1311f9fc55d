//! Time, real or simulated.

use std::fmt;
use std::time::{Duration, Instant};

/// What waiting code needs of time.
///
/// What may run in a simulated world goes through this trait, so that a test or the simulator can
/// move time by hand. Fabrics that block in the kernel go by the machine's.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present instant.
    fn now(&self) -> Instant;
    /// Lets `duration` pass.
    fn sleep(&self, duration: Duration);
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// The instant by which a call must have ended, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Never passes.
    pub const NONE: Deadline = Deadline(None);

    /// Passes `duration` from now by the machine's clock; a duration that reaches past the end of
    /// time never does.
    #[must_use]
    pub fn after(duration: Duration) -> Self {
        Self(Instant::now().checked_add(duration))
    }

    /// Passes `duration` after the present instant of `clock`.
    #[must_use]
    pub fn after_on(clock: &dyn Clock, duration: Duration) -> Self {
        Self(clock.now().checked_add(duration))
    }

    /// Passes at `instant`.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// The instant, if there is one.
    #[must_use]
    pub const fn instant(self) -> Option<Instant> {
        self.0
    }

    /// Whether the deadline has passed at `now`.
    #[must_use]
    pub fn has_passed(self, now: Instant) -> bool {
        self.0.is_some_and(|at| now >= at)
    }

    /// The time left at `now`: `None` without a deadline, zero once it has passed.
    #[must_use]
    pub fn remaining(self, now: Instant) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(now))
    }

    /// Passes when the first of `count` attempts has used its share of the time left.
    #[must_use]
    pub(crate) fn shared_by(self, count: usize) -> Self {
        let now = Instant::now();
        let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        self.remaining(now).map_or(Self::NONE, |left| Self::at(now + left / count))
    }

    /// The earlier of the two.
    #[must_use]
    pub fn earlier(self, other: Deadline) -> Deadline {
        match (self.0, other.0) {
            (Some(a), Some(b)) => Deadline(Some(a.min(b))),
            (a, b) => Deadline(a.or(b)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_passes_at_its_instant_and_none_never_does() {
        let now = Instant::now();
        let deadline = Deadline::at(now + Duration::from_secs(1));
        assert!(!deadline.has_passed(now));
        assert!(deadline.has_passed(now + Duration::from_secs(1)));
        assert_eq!(deadline.remaining(now), Some(Duration::from_secs(1)));
        assert_eq!(deadline.remaining(now + Duration::from_secs(5)), Some(Duration::ZERO));
        assert!(!Deadline::NONE.has_passed(now + Duration::from_secs(1 << 30)));
        assert_eq!(Deadline::after(Duration::MAX), Deadline::NONE);
        assert_eq!(Deadline::NONE.earlier(deadline), deadline);
        assert_eq!(deadline.earlier(Deadline::at(now)), Deadline::at(now));
    }
}
