//! What a run gave: rates, latencies, and the bytes that a system took.

use super::tally::Tally;
use crate::nic::{Bound, Usage};

/// Bytes that a system takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Footprint {
    /// On the fullest compute node, as the system's authors count: what its budget is for.
    pub cached: u64,
    /// On a compute node besides, which their accounting leaves out.
    pub beside: u64,
    /// On the memory nodes together.
    pub memory_nodes: u64,
}

/// What hot caches did, and what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HotCache {
    /// Lookups that they answered, on all compute nodes.
    pub hits: u64,
    /// Lookups of keys that are there that they were asked about and did not answer.
    pub misses: u64,
    /// Entries on the fullest compute node.
    pub entries: u64,
    /// Entries that there is room for on that one.
    pub capacity: u64,
}

impl HotCache {
    /// The same, of which the hits and misses are those since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        // One that was opened anew began with none.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Self { hits: since(self.hits, before.hits), misses: since(self.misses, before.misses), ..self }
    }

    /// The share of hits; `None` if it was not asked.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        let asked = self.hits + self.misses;
        (asked > 0).then(|| self.hits as f64 / asked as f64)
    }

    /// Whether it has room for many more entries than it has: what it misses then are keys that are
    /// asked for the first time.
    #[must_use]
    pub fn is_far_from_full(&self) -> bool {
        self.entries * 10 < self.capacity * 9
    }
}

/// What a run gave.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// Operations per second of virtual time.
    pub per_second: f64,
    /// What they took.
    pub tally: Tally,
    /// Percentiles 50, 95, 99 and 99.9 of an operation's latency, in microseconds.
    pub latency_us: [f64; 4],
    /// What was busy.
    pub usage: Usage,
    /// What binds.
    pub bound: Bound,
    /// Share of the operations that took a single round trip.
    pub one_trip: f64,
    /// Bytes it took in the end.
    pub footprint: Footprint,
    /// Bytes that the fullest compute node kept when the measured operations began.
    pub cached_before: u64,
    /// Its hot caches, if it has any: what they did during the measured operations, and what they
    /// had in the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_cache: Option<HotCache>,
    /// Answers that were wrong.
    pub wrong: u64,
    /// The first of them.
    pub first_wrong: Option<String>,
    /// Operations per second of each window, where windows were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<f64>,
}

impl Measured {
    /// Whether what compute nodes keep grew by more than a twentieth during the measured
    /// operations: with more to fill caches it would have been faster. Inserts alone make less of
    /// it. Of hot caches [their room](HotCache::is_far_from_full) says it.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.hot_cache.is_none() && self.footprint.cached * 20 > self.cached_before * 21
    }
}
