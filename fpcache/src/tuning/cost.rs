//! The cost of a lookup by a form of tables, and the memory these take.

use super::Counts;
use super::counts::TABLE_PLACE_BYTES;
use crate::group_tables::GroupTables;
use crate::layout::TableParameters;
use crate::plan::{FabricCosts, Plan, Sums};
use crate::table::{MODELS_GROW, beside_models, budget_for_models, for_models};

/// The lookups to tune for, and the means for them.
///
/// ```
/// # use fpcache::{plan::FabricCosts, tuning::Lookups};
/// let lookups = Lookups::over(FabricCosts::TCP).with_budget(1 << 20).with_theta(0.99);
/// assert_eq!(lookups.budget, Some(1 << 20));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Lookups {
    /// The costs of the fabric.
    pub costs: FabricCosts,
    /// Bytes of the compute node; without a bound, as many as are of use.
    pub budget: Option<u64>,
    /// Exponent of the lookups' distribution over keys.
    pub theta: f64,
    /// Share of lookups of keys that are absent.
    pub negative: f64,
}

impl Lookups {
    /// Lookups of keys that are all present and equally popular, without a budget.
    #[must_use]
    pub const fn over(costs: FabricCosts) -> Self {
        Self { costs, budget: None, theta: 0.0, negative: 0.0 }
    }

    /// The same with another budget, or without one.
    #[must_use]
    pub fn with_budget(self, budget: impl Into<Option<u64>>) -> Self {
        Self { budget: budget.into(), ..self }
    }

    /// The same with another distribution over keys.
    #[must_use]
    pub const fn with_theta(self, theta: f64) -> Self {
        Self { theta, ..self }
    }

    /// The same with another share of absent keys.
    #[must_use]
    pub const fn with_negative(self, negative: f64) -> Self {
        Self { negative, ..self }
    }
}

/// A lookup's average use of the fabric.
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
    pub(super) const fn reads(count: f64, bytes: f64) -> Self {
        Self { round_trips: count, requests: count, bytes, probes: 0.0, tables: 0.0 }
    }

    /// Its time, alone, in nanoseconds.
    #[must_use]
    pub fn ns(&self, costs: &FabricCosts) -> f64 {
        self.round_trips * costs.round_trip
            + self.requests * costs.request
            + self.bytes * costs.byte
            + self.probes * costs.probe
            + self.tables * costs.table
    }

    /// This, and that for a share of lookups on top.
    pub(super) fn then(self, share: f64, next: Self) -> Self {
        Self {
            round_trips: self.round_trips + share * next.round_trips,
            requests: self.requests + share * next.requests,
            bytes: self.bytes + share * next.bytes,
            probes: self.probes + share * next.probes,
            tables: self.tables + share * next.tables,
        }
    }

    /// This for a share of lookups, that for the others.
    pub(super) fn or(self, share: f64, other: Self) -> Self {
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
    /// Bytes that a compute node sets aside for all tables where it has a budget.
    pub table_room: f64,
    /// Slots of a READ by a table of the form; 0 of a form without.
    pub reach: f64,
    /// Slots of a window of the table's ε, which those of keys in groups have at least.
    pub least_window: f64,
    /// The share of keys that lie in the slot their prediction names.
    pub at_home: f64,
    /// Segments of the table.
    pub segments: f64,
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
    /// The candidate of a table with these parameters, by the segments counted.
    #[must_use]
    pub fn of(counts: &Counts, parameters: &TableParameters) -> Self {
        let keys = counts.keys.max(1) as f64;
        let mean_cap = counts.slots as f64 / counts.segments.max(1) as f64;
        let half_window = counts.half_windows as f64 / keys;
        let has_tables = counts.table_bytes > 0;
        let share = |count: u64, of: u64| if has_tables { count as f64 / of.max(1) as f64 } else { 0.0 };
        let room = |grouping| GroupTables::bytes_for(grouping, counts.segments, counts.slots) as f64;
        Self {
            keys: counts.keys as f64,
            model_bytes: counts.directory_bytes as f64,
            table_bytes: counts.table_bytes as f64,
            table_room: parameters.groups.map_or(0.0, room),
            reach: parameters.groups.map_or(0.0, |groups| groups.reach.into()),
            least_window: f64::from(2 * parameters.epsilon + 1),
            at_home: (counts.at_home as f64 / keys).min(1.0),
            segments: counts.segments as f64,
            tabled: share(counts.keys - counts.without_table, counts.keys),
            one_read: (
                share(counts.present_one_read, counts.keys),
                share(counts.absent_one_read, counts.absent),
            ),
            slots_read: counts.slots_read as f64 / (counts.keys - counts.without_table).max(1) as f64,
            window: (2.0 * half_window + 1.0).min(mean_cap).max(1.0),
            slots: counts.slots as f64,
            slot_bytes: parameters.geometry().slot_bytes as f64,
            fingerprint_bits: parameters.fingerprint_bits(),
        }
    }

    /// The least budget with which a compute node keeps all models.
    #[must_use]
    pub fn least_budget(&self) -> u64 {
        budget_for_models(self.model_bytes.ceil() as u64, self.beside())
    }

    /// Whether a compute node keeps all models.
    pub(super) fn is_kept(&self, budget: u64) -> bool {
        for_models(budget, self.beside()) as f64 >= self.model_bytes
    }

    /// The bytes of a budget beside the models, to which compute nodes leave some room to grow.
    pub(super) fn left_of(&self, budget: f64) -> f64 {
        let models = self.model_bytes * (1.0 + 1.0 / MODELS_GROW as f64);
        (budget - self.beside() as f64 - models).max(0.0)
    }

    /// Bytes of a table that are neither models nor any of what the rest is divided between.
    pub(super) fn beside(&self) -> u64 {
        beside_models(self.slot_bytes as usize)
    }

    /// Bytes of the region for a record.
    #[must_use]
    pub fn region_bytes_per_key(&self) -> f64 {
        let each = self.slot_bytes + f64::from(self.fingerprint_bits) / 8.0;
        // In the region separators are distances of 16 bits, which are little more.
        (self.slots * each + self.table_bytes) / self.keys.max(1.0)
    }

    /// The sums that a compute node chooses plans by.
    fn sums(&self, costs: FabricCosts) -> Sums {
        let bits = self.fingerprint_bits;
        let fingerprint_bytes = (bits > 0).then(|| f64::from(bits) / 8.0);
        Sums::of(costs, self.slot_bytes, fingerprint_bytes, self.at_home)
    }

    /// A present and an absent key by their window, as the plan reads it that is the cheapest for
    /// it.
    pub(super) fn by_window(&self, costs: FabricCosts) -> (Way, Way) {
        let sums = self.sums(costs);
        let wrong = self.window / f64::from(self.fingerprint_bits).exp2();
        let fingerprints = Way::reads(1.0, self.window * f64::from(self.fingerprint_bits) / 8.0);
        let candidates = Way { requests: 1.0 + wrong, ..Way::reads(1.0, (1.0 + wrong) * self.slot_bytes) };
        let doubt = Way::reads(1.0, self.slot_bytes);
        match sums.by_window(self.window) {
            Plan::Range => {
                let range = Way::reads(1.0, self.window * self.slot_bytes);
                (range, range)
            }
            Plan::Speculative => {
                let first = fingerprints.then(1.0, Way { round_trips: 0.0, ..doubt });
                (first.then(1.0 - self.at_home, candidates), first.then(wrong.min(1.0), doubt))
            }
            _ => (fingerprints.then(1.0, candidates), fingerprints.then(wrong.min(1.0), doubt)),
        }
    }

    /// The cost of a table's READ.
    pub(super) fn first_read(&self) -> Way {
        Way { tables: 1.0, ..Way::reads(1.0, self.slots_read * self.slot_bytes) }
    }

    /// The share of tables that have room in `bytes` of the bytes that are set aside for all.
    pub(super) fn tables_within(&self, bytes: u64) -> f64 {
        let (segments, all) = (self.segments as u64, self.table_room as u64);
        match bytes {
            0 => 0.0,
            _ if bytes >= all => 1.0,
            _ => {
                let in_log =
                    self.table_bytes - (TABLE_PLACE_BYTES - GroupTables::NAME_BYTES) as f64 * self.segments;
                GroupTables::share_within(segments, all, bytes, in_log)
            }
        }
    }

    /// Whether compute nodes keep tables and look keys up by them.
    pub(super) fn uses_tables(&self, costs: FabricCosts) -> bool {
        self.table_bytes > 0.0 && self.sums(costs).by_groups_above(self.reach).floor() < self.least_window
    }
}

#[cfg(test)]
pub(super) mod tests;
