//! The schedule of an open loop, whose operations are due whether the store keeps up or not.

use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use hdrhistogram::Histogram;

use crate::machine::split_mix;

/// How instants are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// At random: gaps are exponential, as those of many independent users
    #[default]
    Poisson,
    /// One after the other at equal distance
    Fixed,
}

impl Arrivals {
    /// As options and reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poisson => "poisson",
            Self::Fixed => "fixed",
        }
    }
}

/// The instants of one thread's operations, in nanoseconds since the start.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    gap_ns: f64,
    next_ns: f64,
    state: u64,
}

impl Schedule {
    /// For the `thread`-th of `threads` that together do `rate` operations per second.
    pub fn new(arrivals: Arrivals, rate: f64, thread: usize, threads: usize, seed: u64) -> Self {
        let gap_ns = 1e9 * threads.max(1) as f64 / rate.max(1e-3);
        // Threads with equal gaps take turns rather than all at once.
        let next_ns = gap_ns * thread as f64 / threads.max(1) as f64;
        let mut state = seed.wrapping_add(thread as u64);
        state = split_mix(&mut state);
        Self { arrivals, gap_ns, next_ns, state }
    }

    /// When the next operation is due.
    #[inline]
    pub fn next(&mut self) -> u64 {
        let due = self.next_ns;
        self.next_ns += match self.arrivals {
            Arrivals::Fixed => self.gap_ns,
            Arrivals::Poisson => {
                // In (0, 1]: 53 random bits and one more.
                let fraction = ((split_mix(&mut self.state) >> 11) + 1) as f64 / (1u64 << 53) as f64;
                -fraction.ln() * self.gap_ns
            }
        };
        due as u64
    }
}

impl Schedule {
    /// Records the operations that are due before the end, from the next one on, as if they had
    /// ended with it: who waited for one of them waited at least until then. Histograms get their
    /// shares of them. Returns how many there are.
    ///
    /// They are spread evenly, whatever the arrivals, so that a second of ten million takes no
    /// longer than one of a thousand.
    pub fn record_overdue<'h>(
        &self,
        end: Duration,
        latencies: impl Iterator<Item = (&'h mut Histogram<u64>, f64)>,
    ) -> u64 {
        const STEPS: u64 = 1_000;
        let late_ns = end.as_nanos() as f64 - self.next_ns;
        let overdue = (late_ns / self.gap_ns).ceil().max(0.0);
        for (latencies, share) in latencies {
            let count = (overdue * share).round();
            let up_to = |step: u64| (count * step as f64 / STEPS as f64) as u64;
            for step in 0..STEPS {
                let waited = late_ns * (1.0 - (step as f64 + 0.5) / STEPS as f64);
                latencies.saturating_record_n(waited.max(1.0) as u64, up_to(step + 1) - up_to(step));
            }
        }
        overdue as u64
    }
}

/// Waits for an instant: sleeps while it is far off, then gives way to others, since the memory
/// node may need the core.
pub fn wait_until(due: Instant) {
    const FAR: Duration = Duration::from_micros(200);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > FAR { thread::sleep(left - FAR) } else { thread::yield_now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_ascend_at_the_rate_asked_for() {
        for arrivals in [Arrivals::Fixed, Arrivals::Poisson] {
            let mut schedule = Schedule::new(arrivals, 2e6, 0, 2, 7);
            let dues: Vec<u64> = (0..20_000).map(|_| schedule.next()).collect();
            assert!(dues.is_sorted());
            // Half of two million a second: 20,000 take 20 ms; a sum of as many gaps is within 3 %
            // of that.
            let last = dues.last().copied().unwrap_or(0);
            assert!(last.abs_diff(20_000_000) < 600_000, "{arrivals:?} {last}");
        }
    }

    #[test]
    fn what_is_due_and_not_begun_has_waited_until_the_end() {
        let mut latencies = crate::run::measure::new_histogram().unwrap();
        let mut schedule = Schedule::new(Arrivals::Fixed, 1_000.0, 0, 1, 7);
        schedule.next();
        let ends = [(1, 0), (1_000_000, 0), (1_000_001, 1), (4_500_000, 4)];
        for (end_ns, due) in ends {
            assert_eq!(schedule.record_overdue(Duration::from_nanos(end_ns), std::iter::empty()), due);
        }
        let second = Duration::from_secs(1);
        assert_eq!(schedule.record_overdue(second, [(&mut latencies, 0.5)].into_iter()), 999);
        assert_eq!(latencies.len(), 500);
        let median = latencies.value_at_quantile(0.5);
        assert!(median.abs_diff(500_000_000) < 5_000_000 && latencies.max() > 990_000_000, "{median}");
        let mut schedule = Schedule::new(Arrivals::Poisson, 1e6, 0, 1, 7);
        let expected = schedule.record_overdue(Duration::from_millis(20), std::iter::empty());
        let counted = (0..).take_while(|_| schedule.next() < 20_000_000).count() as u64;
        assert!(expected.abs_diff(counted) < 600, "{expected} {counted}");
    }

    #[test]
    fn threads_take_turns_or_draw_their_own() {
        let first = |arrivals, thread| {
            let mut schedule = Schedule::new(arrivals, 1_000.0, thread, 4, 7);
            [schedule.next(), schedule.next()]
        };
        assert_eq!(first(Arrivals::Fixed, 0), [0, 4_000_000]);
        assert_eq!(first(Arrivals::Fixed, 3), [3_000_000, 7_000_000]);
        let gap = |thread| first(Arrivals::Poisson, thread)[1] - first(Arrivals::Poisson, thread)[0];
        assert_ne!(gap(0), gap(1));
    }

    #[test]
    fn nobody_goes_before_the_instant() {
        let due = Instant::now() + Duration::from_millis(1);
        wait_until(due);
        assert!(Instant::now() >= due);
        wait_until(due);
    }
}
