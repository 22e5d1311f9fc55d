//! The planner, which chooses a plan by its cost.

use std::time::Duration;

use super::sums::Sums;
use super::{FabricCosts, MOST_KEYS, Plan, PlanChoice};
use crate::cache::OnConflict;
use crate::layout::SegmentGeometry;

/// The expected time of a lookup without a hot cache, by each way that is open to it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Expected {
    /// Keys of the call.
    pub keys: usize,
    /// Nanoseconds of a round trip, which the keys share.
    pub round_trip: f64,
    /// Whether that was measured over this connection; else it is what such fabrics take.
    pub is_measured: bool,
    /// The plan of the call, where keys have windows of the table's epsilon.
    pub plan: Plan,
    /// The plan for looking keys up by READs, and nanoseconds for each key by it.
    pub own_plan: Plan,
    /// Nanoseconds for each key by `own_plan`.
    pub own: f64,
    /// Nanoseconds for each key if the memory node looks it up; `None` where it does not.
    pub at_node: Option<f64>,
}

/// The ways that lookups can choose among, beside models.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlanOptions {
    /// The memory node looks keys up: see [`Endpoint::answers`](fpcache_fabric::Endpoint::answers).
    pub answers: bool,
    /// The measured time of a round trip.
    pub round_trip: Option<Duration>,
    /// Tables of groups.
    pub has_groups: bool,
    /// A hot cache.
    pub has_cache: bool,
}

/// Chooses between plans by cost = round trips · L + bytes · b + requests · r (see `Sums`).
///
/// The costs of the plans differ by terms that grow with the window, so a choice is one comparison
/// of the window's length with a bound.
#[derive(Clone, Copy, Debug)]
pub struct Planner {
    choice: PlanChoice,
    on_conflict: OnConflict,
    costs: FabricCosts,
    geometry: SegmentGeometry,
    /// Slots of a window of the table's epsilon.
    window: u32,
    /// Share of the records that lie in the slot their prediction names.
    at_home: f64,
    single: Rule,
}

/// The choices for windows of one table, for groups of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Windows of fewer slots are read as a range.
    range_below: u32,
    /// The plan for all others.
    otherwise: Plan,
    /// The hot cache keeps keys with windows of at least this many slots.
    cached_from: u32,
    /// Whether it is asked for them.
    asks: bool,
    /// Windows of more slots than a READ of a group are looked at by groups; all ones: none are.
    by_groups_above: u32,
}

impl Rule {
    /// The plan for a window of `slots` slots for a key that the hot cache does not know.
    #[inline]
    pub fn choose(&self, slots: u32) -> Plan {
        if self.reads_range(slots) { Plan::Range } else { self.otherwise }
    }

    /// Whether such windows are read as a range.
    #[inline(always)]
    pub(crate) fn reads_range(&self, slots: u32) -> bool {
        slots < self.range_below
    }

    /// The plan for windows that are not read as a range.
    #[inline(always)]
    pub(crate) fn otherwise(&self) -> Plan {
        self.otherwise
    }

    /// Whether windows are read in two stages, but for short ones.
    pub(crate) fn is_two_stage(&self) -> bool {
        self.otherwise == Plan::TwoStage && !self.uses_groups()
    }

    /// Whether the hot cache is for such windows: reading a single slot saves more than asking for
    /// it costs.
    #[inline]
    pub fn serves_window(&self, slots: u32) -> bool {
        slots >= self.cached_from
    }

    /// Whether the hot cache is asked for such windows.
    #[inline]
    pub fn asks(&self, slots: u32) -> bool {
        self.asks && self.serves_window(slots)
    }

    /// One plan for all windows.
    const fn only(plan: Plan) -> Self {
        let range_below = if matches!(plan, Plan::Range) { u32::MAX } else { 0 };
        Self { range_below, otherwise: plan, cached_from: 0, asks: true, by_groups_above: u32::MAX }
    }

    /// Whether keys are read by groups, where their windows are so long that it pays.
    #[inline(always)]
    pub(crate) fn uses_groups(&self) -> bool {
        self.by_groups_above < u32::MAX
    }

    /// Whether a key with such a window is read by its group.
    #[inline(always)]
    pub(crate) fn by_groups(&self, slots: u32) -> bool {
        slots > self.by_groups_above
    }
}

impl Planner {
    /// A planner for a table's geometry. `at_home` is the share of records that lie in the slot
    /// their prediction names.
    pub fn new(choice: PlanChoice, costs: &FabricCosts, geometry: &SegmentGeometry, at_home: f64) -> Self {
        let (single, on_conflict) = (Rule::only(Plan::TwoStage), OnConflict::default());
        let (costs, geometry, window) = (*costs, *geometry, 1);
        let mut planner = Self { choice, on_conflict, costs, geometry, window, at_home, single };
        planner.single = planner.rule(costs.round_trip);
        planner
    }

    /// The same planner with another way to go on after a conflict.
    #[must_use]
    pub fn with_on_conflict(self, on_conflict: OnConflict) -> Self {
        Self { on_conflict, ..self }
    }

    /// The same planner for a table with this epsilon.
    #[must_use]
    pub fn with_epsilon(self, epsilon: u32) -> Self {
        let planner = Self { window: 2 * epsilon + 1, ..self };
        Self { single: planner.rule(planner.costs.round_trip), ..planner }
    }

    /// The choices for a key on its own.
    #[inline]
    pub fn single(&self) -> &Rule {
        &self.single
    }

    /// The choices for keys of a group of `keys`, which share their round trips.
    #[inline]
    pub fn group(&self, keys: usize) -> Rule {
        match keys {
            0 | 1 => self.single,
            _ => self.rule(self.share(keys, None)),
        }
    }

    /// The same where a round trip was measured, if it was.
    #[inline]
    pub fn group_over(&self, keys: usize, round_trip: Option<Duration>) -> Rule {
        match round_trip {
            None => self.group(keys),
            measured => self.rule(self.share(keys, measured)),
        }
    }

    /// The cost of a round trip to each of `keys` keys.
    fn share(&self, keys: usize, round_trip: Option<Duration>) -> f64 {
        let round_trip = round_trip.map_or(self.costs.round_trip, |measured| measured.as_nanos() as f64);
        round_trip / (keys.max(1) as f64).min(self.costs.overlap)
    }

    /// Whether `keys` keys are looked up by the memory node.
    #[inline]
    pub fn asks_node(&self, keys: usize, ways: &PlanOptions) -> bool {
        ways.answers
            && match self.choice {
                PlanChoice::Fixed(plan) => plan == Plan::AtNode && keys <= MOST_KEYS,
                PlanChoice::Auto => self.expect(keys, ways).plan == Plan::AtNode,
            }
    }

    /// The expected time of a call for `keys` keys, and its plan.
    ///
    /// A question is one round trip, as a READ is that brings all that may matter: it is for keys
    /// that would take two, or many bytes. It is not chosen where groups bring a key with one READ,
    /// nor beside a hot cache: what that knows is one round trip, and it learns only from lookups
    /// that are made here.
    pub fn expect(&self, keys: usize, ways: &PlanOptions) -> Expected {
        let FabricCosts { byte, request, node_lookup, .. } = self.costs;
        let trip = self.share(keys, ways.round_trip);
        let rule = self.rule(trip);
        let by_groups = ways.has_groups && rule.by_groups(self.window);
        let own_plan = if by_groups { Plan::Groups } else { rule.choose(self.window) };
        let reach = self.geometry.groups.map_or(0, |groups| groups.reach);
        let own = self.sums(trip).ns(own_plan, self.window.into(), reach.into());
        let slot = self.geometry.slot_bytes as f64 * byte;
        let by_node = trip + slot + request / keys.max(1) as f64 + node_lookup;
        let at_node = (ways.answers && keys <= MOST_KEYS).then_some(by_node);
        let plan = match self.choice {
            PlanChoice::Fixed(Plan::AtNode) if at_node.is_some() => Plan::AtNode,
            PlanChoice::Auto if !by_groups && !ways.has_cache && at_node.is_some_and(|ns| ns < own) => {
                Plan::AtNode
            }
            _ => own_plan,
        };
        // Less than 2^53.
        let (round_trip, is_measured) = (self.share(1, ways.round_trip), ways.round_trip.is_some());
        Expected { keys, round_trip, is_measured, plan, own_plan, own, at_node }
    }

    /// The plan after an entry of the hot cache that led to another key's slot.
    #[inline]
    pub fn after_conflict(&self, rule: &Rule, slots: u32) -> Plan {
        match self.on_conflict {
            OnConflict::Range => Plan::Range,
            OnConflict::Cheapest => rule.choose(slots),
        }
    }

    /// The choices where a key pays `round_trip` for a dependent round trip.
    fn rule(&self, round_trip: f64) -> Rule {
        match self.choice {
            _ if !self.geometry.stores_fingerprints => self.without_fingerprints(round_trip),
            PlanChoice::Fixed(plan @ (Plan::Range | Plan::TwoStage | Plan::Speculative)) => Rule::only(plan),
            PlanChoice::Fixed(Plan::Groups) => Rule {
                by_groups_above: self.geometry.groups.map_or(u32::MAX, |_| 0),
                ..Rule::only(Plan::TwoStage)
            },
            // Where there is an entry it is used in any case.
            PlanChoice::Auto | PlanChoice::Fixed(Plan::Cached | Plan::AtNode | Plan::ServerSide) => {
                self.cheapest(round_trip)
            }
        }
    }

    /// The costs of the plans where a key pays `round_trip` for a dependent round trip.
    fn sums(&self, round_trip: f64) -> Sums {
        let geometry = &self.geometry;
        let fingerprint = geometry.stores_fingerprints.then(|| geometry.fingerprint_bytes(1) as f64);
        let costs = FabricCosts { round_trip, ..self.costs };
        Sums::of(costs, geometry.slot_bytes as f64, fingerprint, self.at_home)
    }

    /// The choices of a table without fingerprints, whatever plan is asked for: groups, where their
    /// slots are fewer than the window's, and else its slots.
    fn without_fingerprints(&self, round_trip: f64) -> Rule {
        let by_groups_above = match (self.choice, self.geometry.groups) {
            (_, None) | (PlanChoice::Fixed(Plan::Range), _) => u32::MAX,
            (PlanChoice::Fixed(Plan::Groups), _) => 0,
            (_, Some(_)) => self.by_groups_above(round_trip),
        };
        let cached_from = self.sums(round_trip).cached_from().ceil() as u32;
        Rule { cached_from, by_groups_above, ..Rule::only(Plan::Range) }
    }

    /// The choices by the least of the [sums](Sums).
    fn cheapest(&self, round_trip: f64) -> Rule {
        let sums = self.sums(round_trip);
        Rule {
            range_below: sums.range_below().ceil() as u32,
            otherwise: sums.by_fingerprints().0,
            cached_from: sums.cached_from().ceil().max(0.0) as u32,
            asks: true,
            by_groups_above: self.by_groups_above(round_trip),
        }
    }

    /// Windows of more slots are read by groups. None are, nor are tables of groups kept, where
    /// groups do not pay for windows of the table's epsilon, which those of keys in groups have at
    /// least.
    fn by_groups_above(&self, round_trip: f64) -> u32 {
        let Some(groups) = self.geometry.groups else { return u32::MAX };
        let above = self.sums(round_trip).by_groups_above(groups.reach.into()).floor() as u32;
        if above < self.window { above } else { u32::MAX }
    }
}

#[cfg(test)]
mod tests;
