//! The division of a budget between models, tables of groups and the hot cache.

use crate::cache::{CacheConfig, CacheShape, HotCache, NoCache};
use crate::group_tables::GroupTables;
use crate::key_space::KeySpace;
use crate::plan::Planner;
use crate::table_view::{OpenError, TableView};

/// Tables of groups have room at first for those of at least this many segments, of `SLOTS_OF_FEW`
/// slots, where there is no budget.
pub(super) const FEW_SEGMENTS: u64 = 64;
const SLOTS_OF_FEW: u64 = 4096;

/// Bytes before a hot cache that is shared: the two counts of those who share it, and what aligns
/// it after them.
pub(super) const COUNTS_BYTES: u64 = {
    let (counts, align) = (2 * size_of::<usize>(), align_of::<HotCache>());
    (if counts > align { counts } else { align }) as u64
};

/// Tables of groups, and the share of all that these have room for.
pub(super) struct TableShare {
    pub tables: GroupTables,
    pub share: f64,
}

/// Room for the tables of all groups, if lookups use them and the budget has it, and for those of
/// tables that grow, a quarter more. Where it has not, most of what there is: a byte of a table
/// spares second round trips of many more lookups than a byte of an entry of the hot cache does,
/// which takes as much for one key as a table for a dozen. But the keys that are looked up most are
/// to have their entries. What a table takes beside its models, `beside_models`, comes first.
pub(super) fn group_tables<K: KeySpace>(
    view: &TableView<K>,
    planner: &Planner,
    config: Option<&CacheConfig>,
    beside_models: u64,
) -> Option<TableShare> {
    let grouping = view.geometry().groups?;
    // Keys of a group use them no sooner: the other plans' second round trips are cheaper for them.
    if !planner.single().uses_groups() {
        return None;
    }
    let (mut segments, mut slots) = match view.models().resident() {
        Some(directory) => {
            let slots = directory.iter().map(|(_, segment)| u64::from(segment.model().cap)).sum();
            (directory.len() as u64, slots)
        }
        // What a region claims; a budget bounds it.
        None => (view.segments(), (view.keys() as f64 / view.record().parameters.fill) as u64),
    };
    let fill = view.keys() as f64 / slots.max(1) as f64;
    if config.is_none() {
        // A table that begins grows to this before it is opened anew.
        (segments, slots) = (segments.max(FEW_SEGMENTS), slots.max(FEW_SEGMENTS * SLOTS_OF_FEW));
    }
    let bytes = GroupTables::bytes_for(grouping, segments, slots);
    if let Some(config) = config {
        let others = beside_models + COUNTS_BYTES;
        let models = view.most_model_bytes() as u64;
        let left = config.budget.saturating_sub(others + models + headroom(view));
        let part = for_group_tables(left, bytes);
        if part < bytes {
            let some = || GroupTables::some_of(grouping, segments, bytes, part);
            let tables = (part > 0).then(some).flatten()?;
            return Some(TableShare { tables: tables.of_fill(fill), share: share_of_tables(part, bytes) });
        }
    }
    let tables = GroupTables::new(grouping, segments, bytes)?;
    Some(TableShare { tables: tables.of_fill(fill), share: 1.0 })
}

/// The bytes that models that are all here get on top of what they take now, so that it is long
/// before they must be opened anew.
fn headroom<K: KeySpace>(view: &TableView<K>) -> u64 {
    if view.models().resident().is_some() { view.most_model_bytes() as u64 / MODELS_GROW } else { 0 }
}

/// A hot cache in what the budget leaves, if that is enough for one. Models that change grow: those
/// that are all here get an eighth on top of what they take now, so that it is long before they
/// must be opened anew. What a table takes beside its models comes first, and the tables of groups,
/// which leave fewer keys to learn.
pub(super) fn hot_cache<K: KeySpace>(
    view: &TableView<K>,
    config: &CacheConfig,
    beside_models: u64,
    groups: Option<&TableShare>,
) -> Result<Option<HotCache>, OpenError> {
    let models = view.most_model_bytes() as u64;
    let others = beside_models + models;
    let Some(left) = config.budget.checked_sub(others) else {
        return Err(OpenError::Budget { budget: config.budget, least: others });
    };
    let headroom = headroom(view) + groups.map_or(0, |kept| kept.tables.most_bytes() + COUNTS_BYTES);
    let shape = CacheShape {
        variant: config.variant,
        policy: config.policy,
        epsilon: match view.geometry().groups {
            Some(grouping) => grouping.most_epsilon(view.record().parameters.epsilon),
            None => view.record().parameters.epsilon,
        },
        segments: view.segments(),
        keys: keys_for_entries(view.keys(), groups.map_or(0.0, |kept| kept.share)),
    };
    let bytes = left.saturating_sub(headroom).saturating_sub(COUNTS_BYTES);
    match HotCache::new(usize::try_from(bytes).unwrap_or(usize::MAX), &shape) {
        Ok(cache) => Ok(Some(cache)),
        Err(NoCache::TooSmall(_)) => Ok(None),
        Err(no_memory @ NoCache::Memory(_)) => Err(OpenError::Memory(no_memory)),
    }
}

/// Models that are all here get one part in this many on top of what they take.
pub(crate) const MODELS_GROW: u64 = 8;

/// The share of tables of groups in what is `left` of a budget beside the models, where all of them
/// take `all` bytes: all, or three quarters of what is left, unless that is too little to be worth
/// it.
pub(crate) const fn for_group_tables(left: u64, all: u64) -> u64 {
    /// One table in this many is the fewest to be kept.
    const LEAST_PART: u64 = 16;
    match left / 4 * 3 {
        _ if left >= all => all,
        part if part >= all / LEAST_PART => part,
        _ => 0,
    }
}

/// The share of tables of groups that have room in `kept` bytes, where all of them, and a quarter
/// more, take `all` bytes.
pub(crate) fn share_of_tables(kept: u64, all: u64) -> f64 {
    (1.25 * kept as f64 / all.max(1) as f64).min(1.0)
}

/// Keys that a hot cache has room for beside this share of the tables of groups: it learns of those
/// alone that tables do not settle, where there are some, because once a table has grown some find
/// their group full.
pub(crate) fn keys_for_entries(keys: u64, tables: f64) -> u64 {
    const LATER: u64 = 16;
    let others = (keys as f64 * (1.0 - tables)).ceil() as u64;
    others.saturating_add(keys / LATER).min(keys)
}

/// The models' share of a budget: seven eighths of what is left `beside` them.
pub(crate) const fn for_models(budget: u64, beside: u64) -> u64 {
    (budget.saturating_sub(beside) as u128 * 7 / 8) as u64
}

/// The least budget whose share for models is `bytes`.
pub(crate) const fn budget_for_models(bytes: u64, beside: u64) -> u64 {
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
