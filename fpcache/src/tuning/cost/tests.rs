//! Tests of the sums, and of when tables pay.

use super::*;
use crate::fingerprint::{FingerprintWidth, WidthChoice};
use crate::layout::{GroupChoice, GroupForm, RecordShape};
use crate::plan::{PlanChoice, Planner};

/// A million keys of which a table's READ settles nearly all.
pub(in crate::tuning) const CANDIDATE: Candidate = Candidate {
    keys: 1e6,
    model_bytes: 56e3,
    table_bytes: 210e3,
    table_room: 300e3,
    reach: 10.0,
    least_window: 257.0,
    at_home: 0.0,
    segments: 600.0,
    tabled: 1.0,
    one_read: (0.999, 0.998),
    slots_read: 10.0,
    window: 257.0,
    slots: 1.25e6,
    slot_bytes: 24.0,
    fingerprint_bits: 16,
};

#[test]
fn the_sums_are_those_of_the_reads() {
    let costs = FabricCosts::RDMA;
    let range = CANDIDATE.by_window(costs).0;
    assert_eq!(range, Way::reads(1.0, 257.0 * 24.0), "a round trip is dearer than so many bytes");
    let long = Candidate { slot_bytes: 264.0, ..CANDIDATE };
    assert_eq!(long.by_window(costs).0.round_trips, 2.0);
    let dear = FabricCosts { byte: 1.0, ..costs };
    let (present, absent) = CANDIDATE.by_window(dear);
    let wrong = 257.0 / 65536.0;
    assert!((present.round_trips, present.requests) == (2.0, 2.0 + wrong));
    assert!((present.bytes - (514.0 + 24.0 * (1.0 + wrong))).abs() < 1e-9);
    assert!((absent.round_trips - (1.0 + wrong)).abs() < 1e-9);
    // Guesses of which a third are right spare as many second round trips.
    let (present, absent) = Candidate { at_home: 1.0 / 3.0, ..CANDIDATE }.by_window(dear);
    assert!((present.round_trips - 5.0 / 3.0).abs() < 1e-9 && present.requests > 2.6, "{present:?}");
    assert!((present.bytes - (514.0 + 24.0 + 16.0 * (1.0 + wrong))).abs() < 1e-9);
    assert!((absent.requests - 2.0 - wrong).abs() < 1e-9 && (absent.bytes - 538.0) < 1.0, "{absent:?}");
}

#[test]
fn tables_are_used_where_the_planner_of_a_compute_node_keeps_them() {
    let forms = [None].into_iter().chain(GroupForm::ALL.map(Some));
    let widths = [WidthChoice::Auto, WidthChoice::None, WidthChoice::Fixed(FingerprintWidth::Bits64)];
    let cards = FabricCosts::RDMA.at_concurrency(64);
    let mut seen = [0, 0];
    for (form, epsilon) in forms.flat_map(|form| [8, 16, 20, 21, 32, 128, 256, 512].map(|e| (form, e))) {
        for (width, costs) in widths.into_iter().flat_map(|width| {
            [FabricCosts::MAPPED_MEMORY, FabricCosts::TCP, FabricCosts::RDMA, cards]
                .map(|costs| (width, costs))
        }) {
            let shape = RecordShape::fixed(8, 8);
            let parameters = TableParameters { epsilon, shape, ..TableParameters::default() };
            let parameters = match form {
                Some(form) => parameters.with_groups(GroupChoice::Fixed(form)),
                None => parameters,
            };
            let parameters = parameters.with_width(width);
            let table_bytes = if form.is_some() { 1000 } else { 0 };
            for at_home in [0, 50, 900] {
                let counts = Counts {
                    keys: 1000,
                    at_home,
                    table_bytes,
                    half_windows: 40 + u64::from(epsilon) * 1000,
                    slots: 1250,
                    segments: 1,
                    ..Counts::default()
                };
                let candidate = Candidate::of(&counts, &parameters);
                let share = at_home as f64 / 1000.0;
                let planner = Planner::new(PlanChoice::Auto, &costs, &parameters.geometry(), share);
                let kept = planner.with_epsilon(epsilon).single().uses_groups();
                assert_eq!(candidate.uses_tables(costs), kept, "{parameters:?} {costs:?} {share}");
                seen[usize::from(kept)] += 1;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
}
