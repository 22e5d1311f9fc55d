//! Statistics of all memory nodes of a table, and of this compute node, added up.

use std::time::Duration;

use fpcache::cache::CacheStats;
use fpcache::key_space::BuildKeys;
use fpcache::layout::TableParameters;
use fpcache::message::NodeStats;
use fpcache::plan::Expected;
use fpcache::table_view::OpenError;

use super::Pool;
use crate::counters::Counters;
use crate::empty_tables::or_if_empty;
use crate::error::ClientError;
use crate::one_node::{SharedCore, with_direct};
use crate::session::TableStats;

impl<K: BuildKeys> Pool<K> {
    /// The memory nodes' counters, together.
    pub(crate) fn stats(&self, within: Duration) -> Result<NodeStats, ClientError> {
        let all = self.each(within, |_, core, left| with_direct!(core, core => core.stats(left)))?;
        Ok(all.into_iter().reduce(|a, b| a.together(&b)).unwrap_or_default())
    }

    /// The time until the slowest memory node has answered.
    pub(crate) fn ping(&self, within: Duration) -> Result<Duration, ClientError> {
        let all = self.each(within, |_, core, left| with_direct!(core, core => core.ping(left)))?;
        Ok(all.into_iter().max().unwrap_or_default())
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
            // These are what memory nodes say.
            a.record.keys = a.record.keys.saturating_add(b.record.keys);
            a.record.segments = a.record.segments.saturating_add(b.record.segments);
            a.record.used = a.record.used.saturating_add(b.record.used);
            a.record.at_home = a.record.at_home.saturating_add(b.record.at_home);
            a
        };
        all.into_iter().reduce(add).ok_or(ClientError::Open(OpenError::Empty))
    }

    /// Whether all ranges have these parameters.
    pub(crate) fn has_everywhere(
        &self,
        parameters: TableParameters,
        within: Duration,
    ) -> Result<bool, ClientError> {
        let stored = Some(parameters.as_stored());
        let all = self.each(within, |_, core, left| with_direct!(core, core => core.parameters(left)))?;
        Ok(all.into_iter().all(|has| has == stored))
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
        mut of: impl FnMut(&SharedCore<K>, Duration) -> Result<R, ClientError>,
    ) -> Result<Vec<R>, ClientError> {
        let all = self.each(within, |_, core, left| or_if_empty(of(core, left).map(Some), None))?;
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
        self.ranges().cores().filter_map(SharedCore::huge_bytes).reduce(|a, b| a + b)
    }
}
