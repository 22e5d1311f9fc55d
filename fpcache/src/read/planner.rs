//! Choosing a plan by its cost.

use super::{Plan, PlanChoice};
use crate::layout::SegmentGeometry;

/// What a fabric charges, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FabricCosts {
    /// For a dependent round trip.
    pub round_trip: f64,
    /// For a byte read, its handling on the compute node included.
    pub byte: f64,
    /// For a request.
    pub request: f64,
}

impl FabricCosts {
    /// Memory of this machine: a round trip is a cache miss and a byte its share of a streamed line.
    pub const MAPPED_MEMORY: Self = Self { round_trip: 60.0, byte: 0.1, request: 5.0 };
}

/// Chooses between plans by cost = round trips · L + bytes / B + requests / IOPS.
#[derive(Clone, Copy, Debug)]
pub struct Planner {
    /// Windows of fewer slots are read as a range.
    range_below: u32,
}

impl Planner {
    /// A planner for a table's geometry. The costs of the two plans differ by a term that grows with the window, so
    /// the choice is one comparison with the length at which they are equal.
    pub fn new(choice: PlanChoice, costs: &FabricCosts, geometry: &SegmentGeometry) -> Self {
        match choice {
            PlanChoice::Fixed(plan) => Self::fixed(plan),
            PlanChoice::Auto => {
                let (slot, fingerprint) = (geometry.slot_bytes as f64, geometry.width.bytes() as f64);
                let saved = costs.round_trip + costs.request + slot * costs.byte;
                Self { range_below: (saved / ((slot - fingerprint) * costs.byte)).ceil() as u32 }
            }
        }
    }

    /// A planner that always chooses `plan`.
    pub fn fixed(plan: Plan) -> Self {
        Self { range_below: if plan == Plan::Range { u32::MAX } else { 0 } }
    }

    /// The plan for a window of `slots` slots.
    #[inline]
    pub fn choose(&self, slots: u32) -> Plan {
        if slots < self.range_below { Plan::Range } else { Plan::TwoStage }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::FingerprintWidth;

    fn geometry(slot_bytes: usize) -> SegmentGeometry {
        SegmentGeometry { width: FingerprintWidth::Bits64, slot_bytes }
    }

    #[test]
    fn fixed_choices_ignore_the_window() {
        for plan in [Plan::TwoStage, Plan::Range] {
            let p = Planner::new(PlanChoice::Fixed(plan), &FabricCosts::MAPPED_MEMORY, &geometry(24));
            assert!([1, 65, 5000].into_iter().all(|n| p.choose(n) == plan));
        }
    }

    #[test]
    fn auto_picks_the_cheaper_sum() {
        let costs = FabricCosts { round_trip: 2000.0, byte: 0.1, request: 20.0 };
        for slot in [24usize, 136, 1040] {
            let planner = Planner::new(PlanChoice::Auto, &costs, &geometry(slot));
            for n in [1u32, 3, 17, 65, 129, 513, 2000] {
                let (n_f, s) = (f64::from(n), slot as f64);
                let two = 2.0 * costs.round_trip + (n_f * 8.0 + s) * costs.byte + 2.0 * costs.request;
                let range = costs.round_trip + n_f * s * costs.byte + costs.request;
                let best = if range < two { Plan::Range } else { Plan::TwoStage };
                assert_eq!(planner.choose(n), best, "{n} slots of {slot} bytes");
            }
        }
    }
}
