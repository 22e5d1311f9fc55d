//! The measured time of a round trip over a connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A new time moves what is known by this part of the difference.
const PART: u64 = 8;

/// The smoothed time of round trips: a new one counts an eighth. One that took more than twice as
/// long as is known counts as twice: a thread that was not run for some milliseconds says nothing
/// of the network, and a network that has become slower says so again and again.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    /// 0 before the first.
    nanoseconds: AtomicU64,
}

impl RoundTrip {
    /// Takes the time of one.
    pub(super) fn record(&self, took: Duration) {
        self.smooth(took, |_| true);
    }

    /// Takes a time that one takes at most, such as that of a longer batch. If it is less than is
    /// known, that is too much: what was once measured to be long would stay so where all batches
    /// are longer than those that are measured.
    pub(super) fn record_at_most(&self, most: Duration) {
        // A clock that stands still has measured nothing.
        self.smooth(most, |known| most > Duration::ZERO && most.as_nanos() < u128::from(known));
    }

    /// Moves what is known towards a time, if that `counts` beside it. Of threads that do so at
    /// once each counts.
    fn smooth(&self, took: Duration, counts: impl Fn(u64) -> bool) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).clamp(1, 1 << 40);
        let smoothed = |known| {
            counts(known).then(|| match known {
                0 => took,
                _ => (known * (PART - 1) + took.min(2 * known)).div_ceil(PART),
            })
        };
        // `Err` where it does not count.
        let _ = self.nanoseconds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, smoothed);
    }

    /// The time as known; `None` before the first.
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

    #[test]
    fn a_longer_batch_that_took_less_shows_that_too_much_is_known() {
        let (trip, us) = (RoundTrip::default(), Duration::from_micros);
        trip.record_at_most(us(900));
        assert_eq!(trip.known(), None, "how much less a round trip takes is not known");
        trip.record(us(5_000));
        for most in [us(5_000), us(8_000), Duration::MAX, Duration::ZERO] {
            trip.record_at_most(most);
        }
        assert_eq!(trip.known(), Some(us(5_000)));
        (0..50).for_each(|_| trip.record_at_most(us(300)));
        assert!(trip.known() >= Some(us(300)) && trip.known() < Some(us(310)));
    }

    #[test]
    fn threads_that_measure_at_once_never_leave_more_than_one_of_them_measured() {
        let (trip, us) = (RoundTrip::default(), Duration::from_micros);
        trip.record(us(5_000));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| trip.record_at_most(us(300))));
            }
        });
        assert!(trip.known() >= Some(us(300)) && trip.known() < Some(us(310)));
    }
}
