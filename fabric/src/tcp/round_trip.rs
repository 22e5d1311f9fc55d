//! What a round trip over a connection takes, as measured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A new time moves what is known by this part of the difference.
const PART: u64 = 8;

/// The smoothed time of round trips: a new one counts an eighth. One that took more than twice as long
/// as is known counts as twice: a thread that was not run for some milliseconds says nothing of the
/// network, and a network that has become slower says so again and again.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    /// 0 before the first.
    nanoseconds: AtomicU64,
}

impl RoundTrip {
    /// Takes the time of one. Threads that do so at once may lose one another's.
    pub(super) fn record(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).clamp(1, 1 << 40);
        let smoothed = match self.nanoseconds.load(Ordering::Relaxed) {
            0 => took,
            known => (known * (PART - 1) + took.min(2 * known)).div_ceil(PART),
        };
        self.nanoseconds.store(smoothed, Ordering::Relaxed);
    }

    /// What is known; `None` before the first.
    pub(super) fn known(&self) -> Option<Duration> {
        match self.nanoseconds.load(Ordering::Relaxed) {
            0 => None,
            known => Some(Duration::from_nanos(known)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_reply_says_little_and_many_say_what_is_so() {
        let trip = RoundTrip::default();
        assert_eq!(trip.known(), None);
        let us = Duration::from_micros;
        trip.record(us(16));
        assert_eq!(trip.known(), Some(us(16)));
        trip.record(us(50_000));
        assert_eq!(trip.known(), Some(us(18)));
        (0..50).for_each(|_| trip.record(us(1000)));
        assert!(trip.known() > Some(us(950)) && trip.known() <= Some(us(1001)));
        (0..50).for_each(|_| trip.record(us(50)));
        assert!(trip.known() < Some(us(60)) && trip.known() >= Some(us(50)));
        trip.record(Duration::MAX);
        assert!(trip.known() < Some(us(70)));
    }
}
