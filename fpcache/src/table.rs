//! A table as a compute node reads it: models, plans and hot cache within one budget.

use fpcache_fabric::Endpoint;

use crate::cache::{CacheConfig, CacheStats, HotCache, Shape};
use crate::key_space::KeySpace;
use crate::models::Models;
use crate::read::{FabricCosts, PlanChoice, Planner};
use crate::snapshot::{OpenError, Snapshot};

/// How a compute node reads a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableOptions {
    /// Which plan lookups use.
    pub plan: PlanChoice,
    /// What the fabric charges.
    pub costs: FabricCosts,
    /// What may be kept here; `None`: all models, and no hot cache.
    pub cache: Option<CacheConfig>,
}

impl TableOptions {
    /// One way to read, over mapped memory, without a hot cache.
    pub fn plan(plan: PlanChoice) -> Self {
        Self { plan, costs: FabricCosts::MAPPED_MEMORY, cache: None }
    }
}

/// A table as a compute node reads it.
#[derive(Debug)]
pub struct Table<K: KeySpace> {
    snapshot: Snapshot<K>,
    planner: Planner,
    cache: Option<HotCache>,
    config: Option<CacheConfig>,
}

impl<K: KeySpace> Table<K> {
    /// Fetches a table, and of its models what the budget has room for; see [`Snapshot::open_within`] for the cost.
    ///
    /// # Errors
    /// As for [`Snapshot::open_within`]; [`OpenError::Budget`] names the least budget that would do.
    pub fn open<E: Endpoint>(endpoint: &mut E, options: &TableOptions) -> Result<Self, OpenError> {
        let snapshot = match options.cache {
            None => Snapshot::open(endpoint),
            Some(CacheConfig { budget, .. }) => {
                let opened = Snapshot::open_within(endpoint, Self::for_models(budget));
                opened.map_err(|error| match error {
                    OpenError::Budget { least, .. } => {
                        OpenError::Budget { budget, least: Self::budget_for_models(least) }
                    }
                    other => other,
                })
            }
        };
        Ok(Self::over(snapshot?, options))
    }

    /// A table over models that were fetched before. What the budget leaves beside them is the hot cache's.
    pub fn over(snapshot: Snapshot<K>, options: &TableOptions) -> Self {
        let record = snapshot.record();
        let at_home = record.at_home as f64 / record.keys.max(1) as f64;
        let on_conflict = options.cache.map(|config| config.on_conflict).unwrap_or_default();
        let planner = Planner::new(options.plan, &options.costs, snapshot.geometry(), at_home.min(1.0))
            .with_on_conflict(on_conflict);
        let cache = options.cache.and_then(|config| {
            let models = match snapshot.models() {
                Models::Resident(_) => snapshot.model_bytes() as u64,
                // They grow into their share as pages are fetched.
                Models::Paged(_) => Self::for_models(config.budget),
            };
            let left = config.budget.saturating_sub(size_of::<Self>() as u64 + models);
            let shape = Shape {
                variant: config.variant,
                policy: config.policy,
                epsilon: record.parameters.epsilon,
                segments: record.segments,
            };
            HotCache::new(usize::try_from(left).unwrap_or(usize::MAX), &shape)
        });
        Self { snapshot, planner, cache, config: options.cache }
    }

    /// The models' share of a budget: seven eighths of what this structure leaves.
    const fn for_models(budget: u64) -> u64 {
        let rest = budget.saturating_sub(size_of::<Self>() as u64);
        (rest as u128 * 7 / 8) as u64
    }

    /// The least budget whose share for models is `bytes`.
    const fn budget_for_models(bytes: u64) -> u64 {
        bytes.saturating_mul(8).div_ceil(7).saturating_add(size_of::<Self>() as u64)
    }

    /// Models and parameters.
    #[inline]
    pub fn snapshot(&self) -> &Snapshot<K> {
        &self.snapshot
    }

    /// What chooses plans.
    #[inline]
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// The hot cache, if there is a budget and it has room for one.
    #[inline]
    pub fn cache(&self) -> Option<&HotCache> {
        self.cache.as_ref()
    }

    /// What is kept within the budget; `None` without one. Counts the entries: tens of microseconds per MiB.
    pub fn cache_stats(&self) -> Option<CacheStats> {
        let config = self.config?;
        let model_bytes = (size_of::<Self>() + self.snapshot.model_bytes()) as u64;
        let hot = self.cache.as_ref();
        let hot_bytes = hot.map_or(0, |hot| hot.size_in_bytes() as u64);
        let counts = hot.map(HotCache::counts).unwrap_or_default();
        Some(CacheStats {
            budget: config.budget,
            used: model_bytes + hot_bytes,
            model_bytes,
            hot_bytes,
            paged: self.snapshot.models().paged().is_some(),
            capacity: hot.map_or(0, HotCache::capacity),
            entries: hot.map_or(0, HotCache::entries),
            hits: counts.hits,
            misses: counts.misses,
            conflicts: counts.conflicts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::U64Keys;

    #[test]
    fn the_least_budget_is_enough_and_a_byte_less_is_not() {
        for bytes in [1, 7, 8, 9, 1000, 4097, 123_456_789] {
            let least = Table::<U64Keys>::budget_for_models(bytes);
            assert!(Table::<U64Keys>::for_models(least) >= bytes, "{bytes}");
            assert!(Table::<U64Keys>::for_models(least - 1) < bytes, "{bytes}");
        }
    }
}
