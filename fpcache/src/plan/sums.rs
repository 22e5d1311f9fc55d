//! The cost of a present key by each plan: the sums by which plans are chosen, and tables tuned.

use super::{FabricCosts, Plan};

/// The sums for the windows of one table, in nanoseconds.
///
/// - cached: L + s·b + r, and the probe
/// - range of n slots: L + n·s·b + r
/// - two-stage: 2·L + (n·w + s)·b + 2·r
/// - groups of g slots: L + g·s·b + r, and the table
/// - speculative: the same as two-stage, without the second trip if the guess is right, which
///   otherwise is spent on top
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums {
    /// The costs of the fabric; of a round trip the part that a key pays.
    costs: FabricCosts,
    /// For the bytes of a slot.
    slot: f64,
    /// For those of a fingerprint, if there are any.
    fingerprint: Option<f64>,
    /// Share of the records that lie in the slot their prediction names.
    at_home: f64,
}

impl Sums {
    /// For slots and fingerprints of these sizes.
    pub(crate) fn of(
        costs: FabricCosts,
        slot_bytes: f64,
        fingerprint_bytes: Option<f64>,
        at_home: f64,
    ) -> Self {
        let fingerprint = fingerprint_bytes.map(|bytes| bytes * costs.byte);
        Self { costs, slot: slot_bytes * costs.byte, fingerprint, at_home }
    }

    /// A READ of one slot: what a cached key takes, but for the probe.
    fn one_slot(&self) -> f64 {
        self.costs.round_trip + self.slot + self.costs.request
    }

    /// A key by a plan that READs, where its window has `window` slots, and its group `reach`.
    pub(crate) fn ns(&self, plan: Plan, window: f64, reach: f64) -> f64 {
        let FabricCosts { round_trip, request, table, .. } = self.costs;
        match plan {
            Plan::Range => round_trip + window * self.slot + request,
            Plan::Groups => round_trip + reach * self.slot + request + table,
            Plan::Speculative => self.first_stage(window) + self.speculative(),
            Plan::TwoStage | Plan::Cached | Plan::AtNode | Plan::ServerSide => {
                self.first_stage(window) + self.one_slot()
            }
        }
    }

    /// A READ of a window's fingerprints.
    fn first_stage(&self, window: f64) -> f64 {
        self.costs.round_trip + window * self.fingerprint.unwrap_or_default() + self.costs.request
    }

    /// The cost of a guess beside the fingerprints.
    fn speculative(&self) -> f64 {
        self.slot + self.costs.request + (1.0 - self.at_home) * self.one_slot()
    }

    /// The cheaper plan of those that READ fingerprints, and what it pays beside them. Range, if
    /// there are none.
    pub(crate) fn by_fingerprints(&self) -> (Plan, f64) {
        let (two_stage, speculative) = (self.one_slot(), self.speculative());
        match self.fingerprint {
            None => (Plan::Range, f64::INFINITY),
            Some(_) if speculative < two_stage => (Plan::Speculative, speculative),
            Some(_) => (Plan::TwoStage, two_stage),
        }
    }

    /// Windows of fewer slots are cheapest as a range: the first trip is common to all, n·(s − w)·b
    /// is what a range READ pays on top.
    pub(crate) fn range_below(&self) -> f64 {
        let fingerprint = self.fingerprint.unwrap_or_default();
        self.by_fingerprints().1 / (self.slot - fingerprint)
    }

    /// The cheapest plan for a window of `window` slots, without groups and hot cache.
    pub(crate) fn by_window(&self, window: f64) -> Plan {
        if window < self.range_below() { Plan::Range } else { self.by_fingerprints().0 }
    }

    /// The slots of a window from which on a key is cheaper by a cached slot: over it a range READ
    /// pays (n − 1)·s·b, the others n·w·b and what they pay beside fingerprints, less s·b.
    pub(crate) fn cached_from(&self) -> f64 {
        let (probe, range_below) = (self.costs.probe, self.range_below());
        let range_from = 1.0 + probe / self.slot;
        match self.fingerprint {
            Some(fingerprint) if range_from >= range_below => {
                ((probe + self.slot - self.by_fingerprints().1) / fingerprint).max(range_below)
            }
            _ => range_from,
        }
    }

    /// The slots of a window above which a key is cheaper by a group of `reach` slots: more than
    /// what a range READ pays, and than what the others do.
    pub(crate) fn by_groups_above(&self, reach: f64) -> f64 {
        let group = reach * self.slot + self.costs.table;
        let over_range = group / self.slot;
        match self.fingerprint {
            Some(fingerprint) => over_range.max((group - self.by_fingerprints().1) / fingerprint),
            None => over_range,
        }
    }
}
