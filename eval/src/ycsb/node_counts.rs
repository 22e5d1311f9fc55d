//! Counts of what the memory node did during a workload.

use std::ops::AddAssign;

use anyhow::Context;
use fpcache::message::NodeStats;
use fpcache_client::{BuildKeys, TableClient};
use serde::Serialize;

use super::store::refreshes;

/// The memory node's counters at an instant, and the client's.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The memory node's.
    pub node: NodeStats,
    refreshes: Option<u64>,
}

impl Reading {
    /// Asks for them.
    pub fn of<K: BuildKeys>(client: &TableClient<K>) -> anyhow::Result<Self> {
        let node = client.stats().context("asking the memory node for its counters")?;
        Ok(Self { node, refreshes: refreshes(client) })
    }

    /// What happened since an earlier reading.
    pub fn since(&self, earlier: &Self) -> NodeCounts {
        let (now, then) = (&self.node, &earlier.node);
        NodeCounts {
            inserts: now.inserts.saturating_sub(then.inserts),
            writes: now.writes.saturating_sub(then.writes),
            rebuilds: now.rebuilds.saturating_sub(then.rebuilds),
            rebuild_ns: now.rebuild_ns.saturating_sub(then.rebuild_ns),
            window_full_waits: now.window_full_waits.saturating_sub(then.window_full_waits),
            copies: now.copies.saturating_sub(then.copies),
            refreshes: self.refreshes.zip(earlier.refreshes).map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// What the memory node did between two readings: in a pass, its warm-up, and the pauses in which
/// operations of a pass that ends by time are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeCounts {
    /// Operations that changed a record.
    pub writes: u64,
    /// Operations that made one.
    pub inserts: u64,
    /// Segments replaced by segments.
    pub rebuilds: u64,
    /// Nanoseconds of these together.
    pub rebuild_ns: u64,
    /// Rebuilds that an insert waited for.
    pub window_full_waits: u64,
    /// Records copied by rebuilds.
    pub copies: u64,
    /// Times that the client brought its models up to date; `None` where it does not count them.
    pub refreshes: Option<u64>,
}

impl NodeCounts {
    /// Records copied by rebuilds per record made; `None` without inserts.
    pub fn copies_per_insert(&self) -> Option<f64> {
        (self.inserts > 0).then(|| self.copies as f64 / self.inserts as f64)
    }

    /// Milliseconds of a rebuild on average; `None` without any.
    pub fn rebuild_ms_mean(&self) -> Option<f64> {
        (self.rebuilds > 0).then(|| milliseconds(self.rebuild_ns) / self.rebuilds as f64)
    }
}

impl AddAssign for NodeCounts {
    fn add_assign(&mut self, other: Self) {
        self.writes += other.writes;
        self.inserts += other.inserts;
        self.rebuilds += other.rebuilds;
        self.rebuild_ns += other.rebuild_ns;
        self.window_full_waits += other.window_full_waits;
        self.copies += other.copies;
        self.refreshes = match (self.refreshes, other.refreshes) {
            (Some(sum), Some(more)) => Some(sum + more),
            (sum, more) => sum.or(more),
        };
    }
}

/// Nanoseconds as milliseconds.
pub fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_differences_and_add_up() {
        let reading = |inserts, copies, refreshes| Reading {
            node: NodeStats { inserts, copies, ..NodeStats::default() },
            refreshes,
        };
        let mut counts = reading(15, 90, Some(3)).since(&reading(5, 50, Some(1)));
        assert_eq!((counts.inserts, counts.refreshes, counts.copies_per_insert()), (10, Some(2), Some(4.0)));
        counts += reading(20, 100, None).since(&reading(15, 90, None));
        assert_eq!((counts.inserts, counts.copies, counts.refreshes), (15, 50, Some(2)));
        assert_eq!(NodeCounts::default().copies_per_insert(), None);
    }

    #[test]
    fn the_time_of_rebuilds_is_that_of_the_rebuilds_between_two_readings() {
        let reading = |rebuilds, rebuild_ns| Reading {
            node: NodeStats { rebuilds, rebuild_ns, rebuild_ns_max: 9_000_000, ..NodeStats::default() },
            refreshes: None,
        };
        let mut counts = reading(4, 20_000_000).since(&reading(4, 20_000_000));
        assert_eq!(counts.rebuild_ms_mean(), None);
        counts += reading(6, 23_000_000).since(&reading(4, 20_000_000));
        assert_eq!(counts.rebuild_ms_mean(), Some(1.5));
    }
}
