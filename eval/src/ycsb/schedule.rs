//! The schedule of an open loop, whose operations are due whether the store keeps up or not.

use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;

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
