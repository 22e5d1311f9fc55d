//! What a lookup costs by a form of tables within a budget.

use super::Counts;
use crate::group_tables::GroupTables;
use crate::layout::Grouping;
use crate::plan::FabricCosts;
use crate::table::{MODELS_GROW, beside_models, budget_for_models, for_group_tables, for_models};

/// Bytes of the hot cache for an entry that it holds, with its empty places.
const ENTRY_BYTES: f64 = 4.5;

/// What lookups are like, and what they are to be done with.
#[derive(Clone, Copy, Debug)]
pub struct Lookups {
    /// What the fabric charges.
    pub costs: FabricCosts,
    /// Bytes of the compute node; as many as there is use for, if there is no bound.
    pub budget: Option<u64>,
    /// Exponent of the lookups' distribution over keys.
    pub theta: f64,
    /// Share of lookups of keys that are absent.
    pub negative: f64,
}

/// What a lookup takes of the fabric, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Way {
    /// Round trips.
    pub round_trips: f64,
    /// READs.
    pub requests: f64,
    /// Bytes READ.
    pub bytes: f64,
    /// Questions of the hot cache.
    pub probes: f64,
    /// Questions of tables of groups.
    pub tables: f64,
}

impl Way {
    const fn reads(count: f64, bytes: f64) -> Self {
        Self { round_trips: count, requests: count, bytes, probes: 0.0, tables: 0.0 }
    }

    /// What it takes, alone, in nanoseconds.
    #[must_use]
    pub fn ns(&self, costs: &FabricCosts) -> f64 {
        self.round_trips * costs.round_trip
            + self.requests * costs.request
            + self.bytes * costs.byte
            + self.probes * costs.probe
            + self.tables * costs.table
    }

    /// This, and that for a share of lookups on top.
    fn then(self, share: f64, next: Self) -> Self {
        Self {
            round_trips: self.round_trips + share * next.round_trips,
            requests: self.requests + share * next.requests,
            bytes: self.bytes + share * next.bytes,
            probes: self.probes + share * next.probes,
            tables: self.tables + share * next.tables,
        }
    }

    /// This for a share of lookups, that for the others.
    fn or(self, share: f64, other: Self) -> Self {
        Self::default().then(share, self).then(1.0 - share, other)
    }
}

/// A form and ε over a data set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Keys of the table.
    pub keys: f64,
    /// Bytes of the directory with its models, and of what its segments share.
    pub model_bytes: f64,
    /// Bytes of all tables; 0 of a form without.
    pub table_bytes: f64,
    /// Bytes that a compute node sets aside for all tables where it has a budget; `None` of forms that no memory node builds, which
    /// take what they have.
    pub table_room: Option<f64>,
    /// The share of keys whose segment has a table.
    pub tabled: f64,
    /// Shares of present and absent keys that a table's READ settles.
    pub one_read: (f64, f64),
    /// Slots of that READ, on average over keys that have a table.
    pub slots_read: f64,
    /// Slots of a window, on average.
    pub window: f64,
    /// Slots of all segments.
    pub slots: f64,
    /// Bytes of a slot.
    pub slot_bytes: f64,
    /// Bits of a fingerprint; 0 of a table that stores none.
    pub fingerprint_bits: u32,
}

impl Candidate {
    /// Of segments that were counted, for slots of so many bytes and fingerprints of so many bits.
    #[must_use]
    pub fn of(counts: &Counts, slot_bytes: usize, fingerprint_bits: u32) -> Self {
        let keys = counts.keys.max(1) as f64;
        let mean_cap = counts.slots as f64 / counts.segments.max(1) as f64;
        let half_window = counts.half_windows as f64 / keys;
        let has_tables = counts.table_bytes > 0;
        let share = |count: u64, of: u64| if has_tables { count as f64 / of.max(1) as f64 } else { 0.0 };
        Self {
            keys: counts.keys as f64,
            model_bytes: counts.directory_bytes as f64,
            table_bytes: counts.table_bytes as f64,
            table_room: None,
            tabled: share(counts.keys - counts.without_table, counts.keys),
            one_read: (
                share(counts.present_one_read, counts.keys),
                share(counts.absent_one_read, counts.absent),
            ),
            slots_read: counts.slots_read as f64 / (counts.keys - counts.without_table).max(1) as f64,
            window: (2.0 * half_window + 1.0).min(mean_cap).max(1.0),
            slots: counts.slots as f64,
            slot_bytes: slot_bytes as f64,
            fingerprint_bits,
        }
    }

    /// The same where memory nodes group records so, in these segments.
    #[must_use]
    pub fn grouped_by(self, grouping: Option<Grouping>, counts: &Counts) -> Self {
        let room = |grouping| GroupTables::bytes_for(grouping, counts.segments, counts.slots) as f64;
        Self { table_room: grouping.map(room), ..self }
    }

    /// The least budget with which a compute node keeps all models.
    #[must_use]
    pub fn least_budget(&self) -> u64 {
        budget_for_models(self.model_bytes.ceil() as u64, self.beside())
    }

    /// Whether a compute node keeps all models.
    fn is_kept(&self, budget: u64) -> bool {
        for_models(budget, self.beside()) as f64 >= self.model_bytes
    }

    /// What a budget leaves beside the models, to which compute nodes leave some room to grow.
    fn left_of(&self, budget: f64) -> f64 {
        let models = self.model_bytes * (1.0 + 1.0 / MODELS_GROW as f64);
        (budget - self.beside() as f64 - models).max(0.0)
    }

    /// Bytes of a table that are neither models nor any of what the rest is divided between.
    fn beside(&self) -> u64 {
        beside_models(self.slot_bytes as usize)
    }

    /// Bytes of the region for a record.
    #[must_use]
    pub fn region_bytes_per_key(&self) -> f64 {
        let each = self.slot_bytes + f64::from(self.fingerprint_bits) / 8.0;
        // In the region separators are distances of 16 bits, which are little more.
        (self.slots * each + self.table_bytes) / self.keys.max(1.0)
    }

    /// A present and an absent key by their window, the cheaper of a READ of fingerprints, if there are any, and one of slots.
    fn by_window(&self, asked: &Lookups) -> (Way, Way) {
        let range = Way::reads(1.0, self.window * self.slot_bytes);
        if self.fingerprint_bits == 0 {
            return (range, range);
        }
        let wrong = self.window / f64::from(self.fingerprint_bits).exp2();
        let fingerprints = self.window * f64::from(self.fingerprint_bits) / 8.0;
        let present = Way {
            requests: 2.0 + wrong,
            bytes: fingerprints + (1.0 + wrong) * self.slot_bytes,
            ..Way::reads(2.0, 0.0)
        };
        let absent = Way::reads(1.0, fingerprints).then(wrong.min(1.0), Way::reads(1.0, self.slot_bytes));
        if range.ns(&asked.costs) < present.ns(&asked.costs) { (range, range) } else { (present, absent) }
    }

    /// The same by its table, and by the window where that does not settle it, or there is none.
    fn by_table(&self, asked: &Lookups) -> (Way, Way) {
        let first = Way { tables: 1.0, ..Way::reads(1.0, self.slots_read * self.slot_bytes) };
        let first = Way::default().then(self.tabled, first);
        let (present, absent) = self.by_window(asked);
        (first.then(1.0 - self.one_read.0, present), first.then(1.0 - self.one_read.1, absent))
    }

    /// Whether the mean lookup takes less by tables.
    fn tables_pay(&self, asked: &Lookups) -> bool {
        let mean = |(present, absent): (Way, Way)| absent.or(asked.negative, present).ns(&asked.costs);
        self.table_bytes > 0.0 && mean(self.by_table(asked)) < mean(self.by_window(asked))
    }
}

/// What a table's fingerprints are worth to its lookups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FingerprintWorth {
    /// The share of the memory node's bytes that they take.
    pub share: f64,
    /// How many times the time a lookup takes without them.
    pub times: f64,
}

impl FingerprintWorth {
    /// Those of a candidate; `None` if it has none.
    #[must_use]
    pub fn of(candidate: &Candidate, asked: &Lookups) -> Option<Self> {
        if candidate.fingerprint_bits == 0 {
            return None;
        }
        let without = Candidate { fingerprint_bits: 0, ..*candidate };
        let share = 1.0 - without.region_bytes_per_key() / candidate.region_bytes_per_key().max(1e-9);
        let times = Split::of(&without, asked).ns / Split::of(candidate, asked).ns.max(1e-9);
        Some(Self { share, times })
    }

    /// Whether lookups are as good as no slower without them.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        const HARDLY: f64 = 1.01;
        self.times <= HARDLY
    }
}

/// Offers to leave them out, with the figures.
impl std::fmt::Display for FingerprintWorth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { share, times } = self;
        write!(
            f,
            "fingerprints take {:.1} % of the memory node's bytes, and without them a lookup takes {times:.3} times the time: \
             --fingerprint-bits none leaves them out",
            100.0 * share
        )
    }
}

/// How a budget is divided, and what a lookup costs then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Whether the models have room.
    pub fits: bool,
    /// The share of tables that are here.
    pub tables: f64,
    /// Entries of the hot cache.
    pub entries: f64,
    /// The share of lookups of present keys that these answer.
    pub by_entry: f64,
    /// The mean lookup.
    pub way: Way,
    /// What it takes, in nanoseconds.
    pub ns: f64,
    /// All bytes that are used.
    pub bytes: f64,
}

impl Split {
    /// Bytes of the entries.
    #[must_use]
    pub fn entry_bytes(&self) -> f64 {
        self.entries * ENTRY_BYTES
    }

    /// Divides a budget, models first, without which nothing is found; the rest between tables and entries of the keys that are looked
    /// up most: as compute nodes do, or, for forms that these do not have, so that the mean lookup takes the least time. Without a
    /// budget, all tables, if they save anything, and no entries.
    #[must_use]
    pub fn of(candidate: &Candidate, asked: &Lookups) -> Self {
        /// Divisions that are tried, closer together where there are few entries.
        const TRIED: u32 = 400;
        let Some(budget) = asked.budget else { return Self::with_entries(candidate, asked, 0.0) };
        if let Some(room) = candidate.table_room {
            return Self::as_kept(candidate, asked, (budget as f64, room));
        }
        let room = candidate.left_of(budget as f64);
        let most = (room / ENTRY_BYTES).min(candidate.keys);
        let entries = (0..=TRIED).map(|n| most * (f64::from(n) / f64::from(TRIED)).powi(3));
        let splits = entries.map(|entries| Self::with_entries(candidate, asked, entries));
        let best = splits.min_by(|a, b| a.ns.total_cmp(&b.ns));
        best.unwrap_or_else(|| Self::with_entries(candidate, asked, 0.0))
    }

    /// As a compute node divides a budget when all tables take `room`: all of them, or as many as have room in a part of what is
    /// left, and entries in the rest.
    fn as_kept(candidate: &Candidate, asked: &Lookups, (budget, room): (f64, f64)) -> Self {
        let left = candidate.left_of(budget);
        let kept =
            if candidate.tables_pay(asked) { for_group_tables(left as u64, room as u64) as f64 } else { 0.0 };
        let entries = ((left - kept) / ENTRY_BYTES).clamp(0.0, candidate.keys);
        Self::with(candidate, asked, entries, (kept / room.max(1.0), kept))
    }

    /// With so many entries, and as many tables as have room beside them.
    fn with_entries(candidate: &Candidate, asked: &Lookups, entries: f64) -> Self {
        let budget = asked.budget.map_or(f64::INFINITY, |budget| budget as f64);
        let all = if candidate.tables_pay(asked) { candidate.table_bytes } else { 0.0 };
        let room = (candidate.left_of(budget) - entries * ENTRY_BYTES).max(0.0);
        let table_bytes = all.min(room);
        let tables = if all > 0.0 { table_bytes / all } else { 0.0 };
        Self::with(candidate, asked, entries, (tables, table_bytes))
    }

    /// With so many entries, and this share of tables in so many bytes.
    fn with(candidate: &Candidate, asked: &Lookups, entries: f64, (tables, table_bytes): (f64, f64)) -> Self {
        let (without, with) = (candidate.by_window(asked), candidate.by_table(asked));
        let by_entry = Ranks { keys: candidate.keys.max(1.0), theta: asked.theta }.share(entries);
        // Every lookup asks a hot cache that there is.
        let probes = f64::from(u8::from(entries > 0.0));
        let cached = Way::reads(1.0, candidate.slot_bytes);
        let (present, absent) = (with.0.or(tables, without.0), with.1.or(tables, without.1));
        let way = absent.or(asked.negative, cached.or(by_entry, present));
        let way = Way { probes, ..way };
        Self {
            fits: asked.budget.is_none_or(|budget| candidate.is_kept(budget)),
            tables,
            entries,
            by_entry,
            way,
            ns: way.ns(&asked.costs),
            bytes: candidate.model_bytes + table_bytes + entries * ENTRY_BYTES,
        }
    }
}

/// Lookups over keys by rank, as often as the rank to the power of -theta says.
#[derive(Clone, Copy, Debug)]
struct Ranks {
    keys: f64,
    theta: f64,
}

impl Ranks {
    /// The sum of the first so many ranks' weights, by integral beyond the first few.
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

    /// The share of lookups of the first so many.
    fn share(self, count: f64) -> f64 {
        (self.weight(count.min(self.keys)) / self.weight(self.keys)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests;
