//! Counters of what operations cost the network.

use std::ops::{Add, AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::verbs::Tally;

/// The running counts of one endpoint.
///
/// The endpoint's owner is the only writer and pays plain loads and stores, no read-modify-write;
/// any thread may take a [`snapshot`](Meter::snapshot). Payload bytes are counted, not headers: a
/// READ of n bytes is n from the memory node, a WRITE n to it, a compare-and-swap 16 to it and 8
/// from it. A batch counts when it is executed, also when one of its requests fails.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Meter {
    round_trips: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    compare_swaps: AtomicU64,
    bytes_to: AtomicU64,
    bytes_from: AtomicU64,
}

impl Meter {
    /// A meter at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one doorbell and its requests. Only the endpoint's owner may call it: two writers
    /// lose counts.
    #[inline]
    pub fn record(&self, tally: &Tally) {
        bump(&self.round_trips, 1);
        bump(&self.reads, u64::from(tally.reads));
        bump(&self.bytes_from, tally.bytes_from);
        if tally.bytes_to != 0 || tally.changes() != 0 {
            bump(&self.writes, u64::from(tally.writes));
            bump(&self.compare_swaps, u64::from(tally.compare_swaps));
            bump(&self.bytes_to, tally.bytes_to);
        }
    }

    /// Counts one doorbell with a single READ, as [`record`](Self::record) would.
    #[inline]
    pub fn record_read(&self, bytes: u64) {
        bump(&self.round_trips, 1);
        bump(&self.reads, 1);
        bump(&self.bytes_from, bytes);
    }

    /// Counts doorbells that carried nothing but READs.
    #[inline(always)]
    pub fn record_reads(&self, round_trips: u32, reads: u32, bytes: u64) {
        bump(&self.round_trips, u64::from(round_trips));
        bump(&self.reads, u64::from(reads));
        bump(&self.bytes_from, bytes);
    }

    /// The counts now. Each count is exact; counts of a batch that is being recorded meanwhile may
    /// be missing in part.
    #[must_use]
    pub fn snapshot(&self) -> MeterSnapshot {
        MeterSnapshot {
            round_trips: self.round_trips.load(Relaxed),
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            compare_swaps: self.compare_swaps.load(Relaxed),
            bytes_to: self.bytes_to.load(Relaxed),
            bytes_from: self.bytes_from.load(Relaxed),
        }
    }
}

#[inline]
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

/// Counts at one instant, or the difference of two: the cost of an operation is `after - before`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MeterSnapshot {
    /// Dependent round trips: doorbells rung.
    pub round_trips: u64,
    /// READ requests.
    pub reads: u64,
    /// WRITE requests.
    pub writes: u64,
    /// Compare-and-swap requests.
    pub compare_swaps: u64,
    /// Payload bytes to the memory node.
    pub bytes_to: u64,
    /// Payload bytes from the memory node.
    pub bytes_from: u64,
}

impl MeterSnapshot {
    /// Requests of all verbs.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.compare_swaps
    }

    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            round_trips: f(self.round_trips, other.round_trips),
            reads: f(self.reads, other.reads),
            writes: f(self.writes, other.writes),
            compare_swaps: f(self.compare_swaps, other.compare_swaps),
            bytes_to: f(self.bytes_to, other.bytes_to),
            bytes_from: f(self.bytes_from, other.bytes_from),
        }
    }
}

impl Add for MeterSnapshot {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }
}

impl AddAssign for MeterSnapshot {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for MeterSnapshot {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        self.zip(earlier, u64::wrapping_sub)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_an_operation_is_the_difference_of_two_snapshots() {
        let meter = Meter::new();
        let read = Tally { reads: 2, bytes_from: 544, ..Tally::default() };
        let swap = Tally { compare_swaps: 1, bytes_to: 16, bytes_from: 8, ..Tally::default() };
        meter.record(&read);
        let before = meter.snapshot();
        meter.record(&swap);
        meter.record(&read);
        let cost = meter.snapshot() - before;
        assert_eq!((cost.round_trips, cost.requests()), (2, 3));
        assert_eq!((cost.bytes_to, cost.bytes_from), (16, 552));
        assert_eq!(before + cost, meter.snapshot());
    }
}
