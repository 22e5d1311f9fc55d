//! Statistics of all memory nodes of a table, and of this compute node, added up.

use std::time::Duration;

use fpcache::cache::CacheStats;
use fpcache::key_space::BuildKeys;
use fpcache::message::NodeStats;
use fpcache::plan::Expected;
use fpcache::table_view::OpenError;

use super::Pool;
use crate::counters::Counters;
use crate::direct::{Direct, with_direct};
use crate::empty::or_of_empty;
use crate::error::ClientError;
use crate::session::TableStats;

impl<K: BuildKeys> Pool<K> {
    /// The memory nodes' counters, together.
    pub(crate) fn stats(&self, within: Duration) -> Result<NodeStats, ClientError> {
        let all = self.each(within, |_, core, left| with_direct!(core, core => core.stats(left)))?;
        Ok(all.into_iter().reduce(|a, b| sum(&a, &b)).unwrap_or_default())
    }

    /// The table as this compute node has it.
    pub(crate) fn table_stats(&self, within: Duration) -> Result<TableStats, ClientError> {
        let all =
            self.each_filled(within, |core, left| with_direct!(core, core => core.table_stats(left)))?;
        let add = |mut a: TableStats, b: TableStats| {
            a.model_bytes += b.model_bytes;
            a.group_bytes += b.group_bytes;
            a.group_parts += b.group_parts;
            a.bytes += b.bytes;
            a.record.keys += b.record.keys;
            a.record.segments += b.record.segments;
            a.record.used += b.record.used;
            a.record.at_home += b.record.at_home;
            a
        };
        all.into_iter().reduce(add).ok_or(ClientError::Open(OpenError::Empty))
    }

    /// The expected cost of a call with this many keys of one range: that of the slowest range.
    pub(crate) fn expected(&self, keys: usize, within: Duration) -> Result<Expected, ClientError> {
        let all =
            self.each_filled(within, |core, left| with_direct!(core, core => core.expected(keys, left)))?;
        let longest = all.into_iter().max_by(|a, b| a.round_trip.total_cmp(&b.round_trip));
        longest.ok_or(ClientError::Open(OpenError::Empty))
    }

    /// As [`each`](Self::each), of the ranges that have parameters.
    fn each_filled<R>(
        &self,
        within: Duration,
        mut of: impl FnMut(&Direct<K>, Duration) -> Result<R, ClientError>,
    ) -> Result<Vec<R>, ClientError> {
        let all = self.each(within, |_, core, left| or_of_empty(of(core, left).map(Some), None))?;
        Ok(all.into_iter().flatten().collect())
    }

    /// What is kept within the budget, if there is one.
    pub(crate) fn cache_stats(&self, within: Duration) -> Result<Option<CacheStats>, ClientError> {
        let add = |mut a: CacheStats, b: CacheStats| {
            a.budget = a.budget.saturating_add(b.budget);
            a.used += b.used;
            a.model_bytes += b.model_bytes;
            a.group_bytes += b.group_bytes;
            a.hot_bytes += b.hot_bytes;
            a.paged |= b.paged;
            a.capacity += b.capacity;
            a.entries += b.entries;
            a.hits += b.hits;
            a.misses += b.misses;
            a.conflicts += b.conflicts;
            a
        };
        let all = self.each(within, |_, core, left| with_direct!(core, core => core.cache_stats(left)))?;
        Ok(all.into_iter().flatten().reduce(add))
    }

    /// Empties the hot caches.
    pub(crate) fn clear_cache(&self) {
        for core in self.ranges().cores() {
            with_direct!(core, core => core.clear_cache());
        }
    }

    /// Takes ranges that were lost for the empty ones they are now.
    pub(crate) fn accept_loss(&self) {
        for core in self.ranges().cores() {
            with_direct!(core, core => core.accept_loss());
        }
    }

    /// What was done besides plain lookups and requests.
    pub(crate) fn counters(&self) -> Counters {
        let mut all = Counters::default();
        for core in self.ranges().cores() {
            let counters = with_direct!(core, core => core.counters());
            all.refreshes += counters.refreshes;
            all.reopens += counters.reopens;
            all.server_side += counters.server_side;
            all.retries += counters.retries;
            all.reconnects += counters.reconnects;
            all.resent += counters.resent;
        }
        all
    }

    /// Bytes of all regions that this process has mapped in huge pages.
    pub(crate) fn huge_bytes(&self) -> Option<u64> {
        self.ranges().cores().filter_map(Direct::huge_bytes).reduce(|a, b| a + b)
    }
}

/// Counters of two memory nodes together: sums, and of durations and numbers of progress the
/// greater.
fn sum(a: &NodeStats, b: &NodeStats) -> NodeStats {
    NodeStats {
        incarnation: a.incarnation ^ b.incarnation,
        region_bytes: a.region_bytes.saturating_add(b.region_bytes),
        used_bytes: a.used_bytes + b.used_bytes,
        keys: a.keys + b.keys,
        segments: a.segments + b.segments,
        clients: a.clients.max(b.clients),
        requests: a.requests + b.requests,
        uptime_ms: a.uptime_ms.min(b.uptime_ms),
        writes: a.writes + b.writes,
        inserts: a.inserts + b.inserts,
        rebuilds: a.rebuilds + b.rebuilds,
        window_full_waits: a.window_full_waits + b.window_full_waits,
        copies: a.copies + b.copies,
        rebuild_ns: a.rebuild_ns + b.rebuild_ns,
        rebuild_ns_max: a.rebuild_ns_max.max(b.rebuild_ns_max),
        rebuild_ns_p99: a.rebuild_ns_p99.max(b.rebuild_ns_p99),
        quarantined_bytes: a.quarantined_bytes + b.quarantined_bytes,
        external_values: a.external_values + b.external_values,
        external_bytes: a.external_bytes + b.external_bytes,
        damaged_writes: a.damaged_writes + b.damaged_writes,
        damaged_copies: a.damaged_copies + b.damaged_copies,
        damaged_passed_by: a.damaged_passed_by + b.damaged_passed_by,
        damaged_lookups: a.damaged_lookups + b.damaged_lookups,
        logged: a.logged + b.logged,
        synced: a.synced + b.synced,
        log_errors: a.log_errors + b.log_errors,
        log_fails: a.log_fails.max(b.log_fails),
        release: a.release.min(b.release),
        ..*a
    }
}
