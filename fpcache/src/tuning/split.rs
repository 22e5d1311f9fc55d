//! The division of a budget, and the cost of a lookup with it.

use super::{Candidate, Lookups, Way};
use crate::cache::{CacheShape, HotCache, Policy, Variant};
use crate::table::{for_group_tables, keys_for_entries, share_of_tables};

/// Bytes of the hot cache for a place, and places of a bucket, in the variant that is the default.
const PLACE_BYTES: f64 = 4.0;
const BUCKET: u32 = 16;

/// How a budget is divided, and what a lookup costs then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Whether the models have room.
    pub fits: bool,
    /// The share of tables that are here.
    pub tables: f64,
    /// Entries of the hot cache: of keys that the tables which are here do not settle, and of those
    /// that were the first of their segment to be looked up, before its table was here.
    pub entries: f64,
    /// The share of lookups of present keys that these answer.
    pub by_entry: f64,
    /// The mean lookup.
    pub way: Way,
    /// Its time, in nanoseconds.
    pub ns: f64,
    /// All bytes that are used.
    pub bytes: f64,
    /// Those of them that the hot cache takes.
    pub hot_bytes: f64,
}

impl Split {
    /// Divides a budget as compute nodes do: models first, without which nothing is found; then all
    /// tables, or as many as have room in a part of what is left; and a hot cache in the rest, for
    /// the keys that these do not settle. Without a budget, all tables, if lookups use them, and no
    /// hot cache.
    #[must_use]
    pub fn of(candidate: &Candidate, asked: &Lookups) -> Self {
        let uses_tables = candidate.uses_tables(asked.costs);
        let Some(budget) = asked.budget else {
            return Self::with(candidate, asked, (f64::from(u8::from(uses_tables)), f64::INFINITY), 0.0);
        };
        let (left, room) = (candidate.left_of(budget as f64), candidate.table_room);
        let kept = if uses_tables { for_group_tables(left as u64, room as u64) } else { 0 };
        let tables = candidate.tables_within(kept);
        let most = most_hot_bytes(candidate, share_of_tables(kept, room as u64));
        Self::with(candidate, asked, (tables, kept as f64), (left - kept as f64).clamp(0.0, most))
    }

    /// The share of present keys that tables do not settle, and entries are for.
    pub(super) fn unsettled(&self, candidate: &Candidate) -> f64 {
        unsettled(candidate, self.tables)
    }

    /// The division with this share of tables, in `room` bytes at most, and a hot cache of
    /// `hot_bytes` bytes.
    fn with(candidate: &Candidate, asked: &Lookups, (tables, room): (f64, f64), hot_bytes: f64) -> Self {
        let (present, absent) = candidate.by_window(asked.costs);
        let first = candidate.first_read();
        let settled = tables * candidate.one_read.0;
        let unsettled = unsettled(candidate, tables);
        // Tables' READs that lead nowhere come before the others.
        let astray = tables * (candidate.tabled - candidate.one_read.0).max(0.0);
        let missed = present.then(astray / unsettled.max(1e-12), first);
        let keys = candidate.keys * unsettled;
        let places = hot_bytes / PLACE_BYTES;
        let ranks = Ranks { keys: candidate.keys.max(1.0), theta: asked.theta };
        let hits = ranks.hits(held(places, keys) / keys.max(1e-9));
        // A segment's first lookup asks for its table, and finds its key without.
        let first_asked = tables * candidate.segments;
        let most = ranks.hits(held(places, candidate.keys) / candidate.keys.max(1.0));
        let early = ranks.first_of(candidate.segments).min(most);
        let cached = Way::reads(1.0, candidate.slot_bytes);
        let present = cached.or(early, first).or(settled, cached.or(hits, missed));
        let absent = Way::default()
            .then(tables * candidate.tabled, first)
            .then(1.0 - tables * candidate.one_read.1, absent);
        let way = absent.or(asked.negative, present);
        // Every lookup asks a hot cache that there is.
        let way = Way { probes: f64::from(u8::from(hot_bytes > 0.0)), ..way };
        Self {
            fits: asked.budget.is_none_or(|budget| candidate.is_kept(budget)),
            tables,
            entries: held(places, keys + first_asked),
            by_entry: unsettled * hits + settled * early,
            way,
            ns: way.ns(&asked.costs),
            bytes: candidate.model_bytes + (tables * candidate.table_bytes).min(room) + hot_bytes,
            hot_bytes,
        }
    }
}

/// Entries in `places` places, of `keys` keys that want one: their hashes do not spread them evenly
/// over buckets.
fn held(places: f64, keys: f64) -> f64 {
    if places < 1.0 {
        return 0.0;
    }
    let mean = f64::from(BUCKET) * keys / places;
    // Buckets have k keys with the shares of a Poisson distribution; their other places are free.
    let (mut share, mut free) = ((-mean).exp(), 0.0);
    for k in 0..BUCKET {
        free += share * f64::from(BUCKET - k);
        share *= mean / f64::from(k + 1);
    }
    (places * (1.0 - free / f64::from(BUCKET))).clamp(0.0, keys)
}

fn unsettled(candidate: &Candidate, tables: f64) -> f64 {
    1.0 - tables * candidate.one_read.0
}

/// Bytes that a compute node's hot cache has at most, beside this share of the tables.
fn most_hot_bytes(candidate: &Candidate, tables: f64) -> f64 {
    let shape = CacheShape {
        variant: Variant::default(),
        policy: Policy::default(),
        epsilon: 0,
        segments: candidate.segments as u64,
        keys: keys_for_entries(candidate.keys as u64, tables),
    };
    HotCache::most_bytes(&shape) as f64
}

/// Lookups over keys by rank, as often as the rank to the power of -theta says.
#[derive(Clone, Copy, Debug)]
struct Ranks {
    keys: f64,
    theta: f64,
}

impl Ranks {
    /// The sum of the weights of the first `count` ranks, by integral beyond the first few.
    fn weight(self, count: f64) -> f64 {
        const FEW: f64 = 64.0;
        let few = count.min(FEW).floor();
        let sum: f64 = (1..=few as u32).map(|rank| f64::from(rank).powf(-self.theta)).sum();
        let (from, to) = (few + 0.5, count + 0.5);
        let rest = if (self.theta - 1.0).abs() < 1e-9 {
            (to / from).ln()
        } else {
            (to.powf(1.0 - self.theta) - from.powf(1.0 - self.theta)) / (1.0 - self.theta)
        };
        sum + rest.max(0.0)
    }

    /// The share of lookups of the first `count` ranks.
    fn share(self, count: f64) -> f64 {
        (self.weight(count.min(self.keys)) / self.weight(self.keys)).clamp(0.0, 1.0)
    }

    /// The share of lookups that are of the keys which were the first of their segments to be
    /// looked up, of `segments` segments: each was so likely, before all others of its segment, as
    /// its share of the segment's lookups.
    fn first_of(self, segments: f64) -> f64 {
        /// Ranks within this factor are taken together.
        const STEP: f64 = 1.05;
        let (all, others) = (self.weight(self.keys), 1.0 / segments.max(1.0));
        let (mut rank, mut sum) = (1.0f64, 0.0);
        while rank <= self.keys {
            let next = (rank * STEP).floor().max(rank + 1.0).min(self.keys + 1.0);
            let each = ((rank + next - 1.0) / 2.0).powf(-self.theta) / all;
            sum += (next - rank) * each * each / (each + others);
            rank = next;
        }
        sum.min(1.0)
    }

    /// The share of lookups that a hot cache answers which has entries for this part of the keys.
    ///
    /// The best set of entries is that of the first ranks, but a cache does not know them. Of what
    /// that set answers more than any other, `heat` and `frequency` lose about a fifth of the share
    /// that it misses: at most two in a hundred lookups from what
    /// `fpcache/tests/reads/hot_cache_rates.rs` measures.
    fn hits(self, part: f64) -> f64 {
        const LOST: f64 = 0.2;
        let part = part.clamp(0.0, 1.0);
        let best = self.share(part * self.keys);
        best - LOST * (best - part).max(0.0) * (1.0 - best)
    }
}

#[cfg(test)]
mod tests;
