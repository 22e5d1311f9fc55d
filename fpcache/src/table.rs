//! A table as a compute node reads it: models, plans and hot cache within one budget.

use fpcache_fabric::Endpoint;

use crate::cache::{CacheConfig, CacheStats, HotCache, NoCache, Shape};
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
    /// [`OpenError::Memory`] if the hot cache's memory cannot be had.
    pub fn open<E: Endpoint>(endpoint: &mut E, options: &TableOptions) -> Result<Self, OpenError> {
        let snapshot = match options.cache {
            None => Snapshot::open(endpoint)?,
            Some(CacheConfig { budget, .. }) => {
                let mut beside = 0;
                let opened = Snapshot::open_beside(endpoint, |stride| {
                    beside = Self::beside_models(stride);
                    for_models(budget, beside)
                });
                opened.map_err(|error| match error {
                    OpenError::Budget { least, .. } => {
                        OpenError::Budget { budget, least: budget_for_models(least, beside) }
                    }
                    other => other,
                })?
            }
        };
        Self::over(snapshot, options)
    }

    /// A table over models that were fetched before. What the budget leaves beside them, or beside what they may grow
    /// into as pages are fetched, is the hot cache's.
    ///
    /// # Errors
    /// [`OpenError::Budget`] if the models have been allowed more than the budget, [`OpenError::Memory`] if the hot
    /// cache's memory cannot be had. A budget with no room for a hot cache is no error: then there is none.
    pub fn over(snapshot: Snapshot<K>, options: &TableOptions) -> Result<Self, OpenError> {
        let record = snapshot.record();
        let at_home = record.at_home as f64 / record.keys.max(1) as f64;
        let on_conflict = options.cache.map(|config| config.on_conflict).unwrap_or_default();
        let planner = Planner::new(options.plan, &options.costs, snapshot.geometry(), at_home.min(1.0))
            .with_on_conflict(on_conflict);
        let cache = match &options.cache {
            None => None,
            Some(config) => Self::hot_cache(&snapshot, config)?,
        };
        Ok(Self { snapshot, planner, cache, config: options.cache })
    }

    /// A hot cache in what the budget leaves, if that is enough for one.
    fn hot_cache(snapshot: &Snapshot<K>, config: &CacheConfig) -> Result<Option<HotCache>, OpenError> {
        let others =
            Self::beside_models(snapshot.stride().heap_bytes()) + snapshot.models().most_bytes() as u64;
        let Some(left) = config.budget.checked_sub(others) else {
            return Err(OpenError::Budget { budget: config.budget, least: others });
        };
        let shape = Shape {
            variant: config.variant,
            policy: config.policy,
            epsilon: snapshot.record().parameters.epsilon,
            segments: snapshot.record().segments,
            keys: snapshot.keys(),
        };
        // It counts itself, though this structure has room for it already.
        let bytes = left.saturating_add(size_of::<HotCache>() as u64);
        match HotCache::new(usize::try_from(bytes).unwrap_or(usize::MAX), &shape) {
            Ok(cache) => Ok(Some(cache)),
            Err(NoCache::TooSmall(_)) => Ok(None),
            Err(no_memory @ NoCache::Memory(_)) => Err(OpenError::Memory(no_memory)),
        }
    }

    /// Bytes of everything but the models and what the hot cache allocates. Models count themselves.
    const fn beside_models(stride: usize) -> u64 {
        (size_of::<Self>() - size_of::<Models<K>>() + stride) as u64
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
        let model_bytes = self.snapshot.model_bytes() as u64;
        let hot = self.cache.as_ref();
        let hot_heap_bytes = hot.map_or(0, |hot| hot.heap_bytes() as u64);
        let counts = hot.map(HotCache::counts).unwrap_or_default();
        Some(CacheStats {
            budget: config.budget,
            used: Self::beside_models(self.snapshot.stride().heap_bytes()) + model_bytes + hot_heap_bytes,
            model_bytes,
            hot_bytes: hot.map_or(0, |hot| hot.size_in_bytes() as u64),
            paged: self.snapshot.models().paged().is_some(),
            capacity: hot.map_or(0, HotCache::capacity),
            entries: hot.map_or(0, HotCache::entries),
            hits: counts.hits,
            misses: counts.misses,
            conflicts: counts.conflicts,
        })
    }
}

/// The models' share of a budget: seven eighths of what is left `beside` them.
const fn for_models(budget: u64, beside: u64) -> u64 {
    (budget.saturating_sub(beside) as u128 * 7 / 8) as u64
}

/// The least budget whose share for models is `bytes`.
const fn budget_for_models(bytes: u64, beside: u64) -> u64 {
    bytes.saturating_mul(8).div_ceil(7).saturating_add(beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_budget_is_enough_and_a_byte_less_is_not() {
        for bytes in [1, 7, 8, 9, 1000, 4097, 123_456_789] {
            for beside in [0, 500, 20_000] {
                let least = budget_for_models(bytes, beside);
                assert!(for_models(least, beside) >= bytes, "{bytes}");
                assert!(for_models(least - 1, beside) < bytes, "{bytes}");
            }
        }
    }
}
