//! Counters of what was written to a table and rebuilt.

use std::time::Duration;

/// Counts since the memory node began.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Operations that changed a record.
    pub(crate) writes: u64,
    /// Operations that made one.
    pub(crate) inserts: u64,
    /// Segments replaced by segments.
    pub(crate) rebuilds: u64,
    /// Of those, the ones that an insert waited for.
    pub(crate) window_full_waits: u64,
    /// Records that were copied.
    pub(crate) copies: u64,
    /// Writes that were refused because of a damaged record.
    pub(crate) damaged_writes: u64,
    /// Damaged records that snapshots met.
    pub(crate) damaged_copies: u64,
    /// Times that a segment was left as it is because of one.
    pub(crate) damaged_passed_by: u64,
    /// Lookups that were refused because of one.
    pub(crate) damaged_lookups: u64,
    pub(crate) rebuild_ns: u64,
    pub(crate) rebuild_ns_max: u64,
    rebuild_times: Histogram,
}

impl Counters {
    pub(crate) fn rebuilt(&mut self, copies: u64, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.rebuilds += 1;
        self.copies += copies;
        self.rebuild_ns += ns;
        self.rebuild_ns_max = self.rebuild_ns_max.max(ns);
        self.rebuild_times.add(ns);
    }

    /// Nanoseconds that 99 of 100 rebuilds did not exceed, to an eighth.
    pub(crate) fn rebuild_ns_p99(&self) -> u64 {
        self.rebuild_times.at_most(0.99).min(self.rebuild_ns_max)
    }
}

/// Counts of values, eight to every doubling.
#[derive(Debug)]
struct Histogram {
    counts: Box<[u64; 64 * 8]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; 64 * 8]), total: 0 }
    }
}

impl Histogram {
    fn bucket(value: u64) -> usize {
        let value = value.max(8);
        let log = value.ilog2();
        log as usize * 8 + (value >> (log - 3)) as usize % 8
    }

    fn add(&mut self, value: u64) {
        self.counts[Self::bucket(value)] += 1;
        self.total += 1;
    }

    /// The least bucket end that `share` of the values do not exceed.
    fn at_most(&self, share: f64) -> u64 {
        let wanted = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                let (log, eighth) = ((bucket / 8) as u32, bucket as u128 % 8);
                return u64::try_from(((9 + eighth) << log) / 8).unwrap_or(u64::MAX) - 1;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_right_to_an_eighth() {
        let mut counters = Counters::default();
        for us in 1..=1000 {
            counters.rebuilt(1, Duration::from_micros(us));
        }
        let p99 = counters.rebuild_ns_p99();
        assert!((990_000..=990_000 * 9 / 8).contains(&p99), "{p99}");
        assert_eq!((counters.rebuilds, counters.rebuild_ns_max), (1000, 1_000_000));
        assert_eq!(Counters::default().rebuild_ns_p99(), 0);
    }
}
