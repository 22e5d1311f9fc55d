//! Tests that plans are the cheapest by their sums.

use super::*;
use crate::fingerprint::{FingerprintWidth, WidthChoice};
use crate::layout::{GroupChoice, GroupForm, Grouping, RecordShape, TableParameters};

const COSTS: FabricCosts = FabricCosts {
    round_trip: 2000.0,
    byte: 0.1,
    request: 20.0,
    overlap: 8.0,
    probe: 15.0,
    table: 60.0,
    node_lookup: FabricCosts::TCP.node_lookup,
};

fn geometry(slot_bytes: usize, width: FingerprintWidth) -> SegmentGeometry {
    let geometry = SegmentGeometry::new(width, RecordShape::fixed(8, slot_bytes as u32 - 16));
    assert_eq!(geometry.slot_bytes, slot_bytes);
    geometry
}

fn planner(choice: PlanChoice, slot: usize, at_home: f64) -> Planner {
    Planner::new(choice, &COSTS, &geometry(slot, FingerprintWidth::Bits64), at_home)
}

#[test]
fn fixed_choices_ignore_the_window() {
    for plan in [Plan::TwoStage, Plan::Range, Plan::Speculative] {
        let planner = planner(PlanChoice::Fixed(plan), 24, 0.5);
        for rule in [*planner.single(), planner.group(32)] {
            assert!([1, 65, 5000].into_iter().all(|n| rule.choose(n) == plan && rule.asks(n)));
        }
    }
}

#[test]
fn tables_without_fingerprints_are_read_by_groups_or_slots_whatever_is_asked_for() {
    let fixed = [Plan::TwoStage, Plan::Range, Plan::Cached, Plan::Speculative, Plan::Groups, Plan::AtNode];
    let choices = fixed.map(PlanChoice::Fixed).into_iter().chain([PlanChoice::Auto]);
    for choice in choices {
        for costs in [COSTS, FabricCosts::MAPPED_MEMORY, FabricCosts::TCP, FabricCosts::RDMA] {
            for groups in [None, Some(Grouping::plain(9, 10))] {
                let stored = geometry(24, FingerprintWidth::Bits16);
                let geometry = SegmentGeometry { groups, stores_fingerprints: false, ..stored };
                let planner = Planner::new(choice, &costs, &geometry, 0.5).with_epsilon(128);
                let by_conflict = planner.with_on_conflict(OnConflict::Cheapest);
                for rule in [*planner.single(), planner.group(32)] {
                    let both = |slots| [rule.choose(slots), by_conflict.after_conflict(&rule, slots)];
                    assert!((1..6_000).all(|slots| both(slots) == [Plan::Range; 2]), "{choice:?}");
                    assert!(!rule.is_two_stage() && rule.serves_window(257));
                    let is_asked_by_groups = groups.is_some() && choice != PlanChoice::Fixed(Plan::Range);
                    assert_eq!(rule.by_groups(257), is_asked_by_groups, "{choice:?} {costs:?}");
                }
                let expected = planner.expect(1, &PlanOptions::default());
                assert_eq!((expected.plan, expected.own_plan), (Plan::Range, Plan::Range));
            }
        }
    }
}

/// The sums as the documentation of the plans states them, for groups of ten slots.
fn sums(c: &FabricCosts, trip: f64, slot: f64, width: f64, n: f64, at_home: f64) -> [(Plan, f64); 5] {
    let second = trip + slot * c.byte + c.request;
    [
        (Plan::Groups, trip + 10.0 * slot * c.byte + c.request + c.table),
        (Plan::Cached, trip + slot * c.byte + c.request + c.probe),
        (Plan::Range, trip + n * slot * c.byte + c.request),
        (Plan::TwoStage, 2.0 * trip + (n * width + slot) * c.byte + 2.0 * c.request),
        (Plan::Speculative, trip + (n * width + slot) * c.byte + 2.0 * c.request + (1.0 - at_home) * second),
    ]
}

#[test]
fn auto_picks_the_cheapest_sum_for_every_window_and_group() {
    let fast = FabricCosts {
        round_trip: 60.0,
        byte: 0.1,
        request: 5.0,
        overlap: 4.0,
        probe: 15.0,
        table: 60.0,
        node_lookup: FabricCosts::TCP.node_lookup,
    };
    for costs in [COSTS, fast] {
        for (slot, width, at_home) in [
            (24usize, FingerprintWidth::Bits64, 0.5),
            (24, FingerprintWidth::Bits8, 0.02),
            (136, FingerprintWidth::Bits64, 0.02),
            (1040, FingerprintWidth::Bits16, 0.2),
            (1040, FingerprintWidth::Bits64, 0.9),
        ] {
            let planner = Planner::new(PlanChoice::Auto, &costs, &geometry(slot, width), at_home);
            for keys in [1usize, 2, 4, 32] {
                let (rule, trip) = (planner.group(keys), costs.round_trip / (keys as f64).min(costs.overlap));
                for n in [1u32, 2, 3, 9, 17, 33, 65, 129, 513, 2000] {
                    let [_, cached, plans @ ..] =
                        sums(&costs, trip, slot as f64, width.bytes() as f64, f64::from(n), at_home);
                    let best = plans.iter().map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min);
                    let chosen = plans.iter().find(|(plan, _)| *plan == rule.choose(n)).expect("a plan");
                    assert!(chosen.1 <= best + 1e-6, "{n} slots of {slot} bytes: {chosen:?} but {plans:?}");
                    let worth = cached.1 < best;
                    let close = (cached.1 - best).abs() < 1e-6;
                    assert!(close || rule.asks(n) == worth, "{n} slots of {slot} bytes: {rule:?} {plans:?}");
                }
            }
        }
    }
}

#[test]
fn auto_reads_groups_where_their_sum_is_the_least_for_the_windows_of_its_table() {
    let of_cards = FabricCosts::RDMA.at_concurrency(64);
    let mut chosen = [0, 0];
    for costs in [COSTS, FabricCosts::MAPPED_MEMORY, FabricCosts::TCP, FabricCosts::RDMA, of_cards] {
        for (slot, width) in
            [(24, FingerprintWidth::Bits16), (24, FingerprintWidth::Bits64), (40, FingerprintWidth::Bits8)]
        {
            let geometry = SegmentGeometry { groups: Some(Grouping::plain(9, 10)), ..geometry(slot, width) };
            for (epsilon, at_home) in
                [8, 32, 128, 256, 1024, 4096].into_iter().flat_map(|e| [(e, 0.05), (e, 0.9)])
            {
                let planner =
                    Planner::new(PlanChoice::Auto, &costs, &geometry, at_home).with_epsilon(epsilon);
                for keys in [1usize, 4, 64] {
                    let (rule, trip) =
                        (planner.group(keys), costs.round_trip / (keys as f64).min(costs.overlap));
                    let all =
                        |n: u32| sums(&costs, trip, slot as f64, width.bytes() as f64, n.into(), at_home);
                    let is_least = |n| {
                        let [(_, groups), _, others @ ..] = all(n);
                        others.iter().all(|(_, ns)| groups < *ns)
                    };
                    let own = 2 * epsilon + 1;
                    assert_eq!(
                        rule.uses_groups(),
                        is_least(own),
                        "{slot} {width:?} {epsilon} {costs:?} {:?}",
                        all(own)
                    );
                    chosen[usize::from(rule.uses_groups())] += 1;
                    for n in [1, 9, 10, 11, 42, 65, own, own + 1, own + 40]
                        .into_iter()
                        .filter(|_| rule.uses_groups())
                    {
                        assert_eq!(rule.by_groups(n), is_least(n), "{n} slots: {rule:?} {:?}", all(n));
                    }
                }
            }
        }
    }
    assert!(chosen.iter().all(|count| *count > 20), "{chosen:?}");
}

#[test]
fn tables_over_mapped_memory_with_the_fingerprints_that_suit_them_are_not_read_by_groups() {
    // Measured: 740 ns by groups and 330 in two stages, of fb:16M.
    for form in GroupForm::ALL {
        for epsilon in [8, 32, 64, 128, 256] {
            let parameters = TableParameters { epsilon, ..TableParameters::default() };
            let parameters = parameters.with_groups(GroupChoice::Fixed(form)).with_width(WidthChoice::Auto);
            for at_home in [0.0, 0.3, 0.9] {
                let costs = &FabricCosts::MAPPED_MEMORY;
                let planner = Planner::new(PlanChoice::Auto, costs, &parameters.geometry(), at_home);
                let planner = planner.with_epsilon(epsilon);
                assert!(
                    !planner.single().uses_groups() && !planner.group(64).uses_groups(),
                    "{parameters:?}"
                );
            }
        }
    }
}

#[test]
fn many_lookups_that_share_a_network_spare_bytes_and_few_spare_round_trips() {
    let of = |concurrency| {
        let costs = FabricCosts::RDMA.at_concurrency(concurrency);
        let rule =
            *Planner::new(PlanChoice::Auto, &costs, &geometry(264, FingerprintWidth::Bits16), 0.02).single();
        [9, 65].map(|slots| rule.choose(slots))
    };
    assert_eq!(of(0), of(1));
    assert_eq!((of(1), of(384)), ([Plan::Range, Plan::Range], [Plan::TwoStage, Plan::TwoStage]));
}

const MEASURED: [u64; 4] = [2, 60, 120, 1100];

fn over(us: u64) -> PlanOptions {
    PlanOptions { answers: true, round_trip: Some(Duration::from_micros(us)), ..PlanOptions::default() }
}

fn at_node_planner(epsilon: u32) -> Planner {
    let geometry = geometry(40, FingerprintWidth::Bits8);
    Planner::new(PlanChoice::Auto, &FabricCosts::TCP, &geometry, 0.1).with_epsilon(epsilon)
}

#[test]
fn the_memory_node_is_asked_where_a_round_trip_or_bytes_are_saved_for_its_time() {
    let planner = at_node_planner(32);
    for us in MEASURED {
        let alone = planner.expect(1, &over(us));
        assert_eq!((alone.plan, alone.is_measured, alone.round_trip), (Plan::AtNode, true, us as f64 * 1e3));
    }
    let of_64: Vec<Plan> = MEASURED.iter().map(|us| planner.expect(64, &over(*us)).plan).collect();
    assert_eq!(of_64[0], Plan::TwoStage, "a trip that 64 keys share is cheaper than the node's time");
    assert_eq!(of_64[2..], [Plan::AtNode; 2], "a long one is not");
    assert_ne!(planner.expect(65, &over(1100)).plan, Plan::AtNode, "not in a question");
    // Whatever it is, it is the cheaper.
    for (us, keys) in MEASURED.into_iter().flat_map(|us| [1, 2, 8, 64].map(|keys| (us, keys))) {
        let expected = planner.expect(keys, &over(us));
        let by_node = expected.at_node.expect("it answers");
        assert_eq!(expected.plan == Plan::AtNode, by_node < expected.own, "{expected:?}");
        assert_eq!(planner.asks_node(keys, &over(us)), expected.plan == Plan::AtNode);
    }
}

#[test]
fn the_memory_node_is_not_asked_where_one_read_does_or_a_cache_learns() {
    let planner = at_node_planner(32);
    assert!(!planner.asks_node(1, &PlanOptions { answers: false, ..over(1000) }));
    assert!(!planner.asks_node(1, &PlanOptions { has_cache: true, ..over(1000) }));
    // Windows of a slot or three are one READ.
    assert!(!at_node_planner(0).asks_node(1, &over(1000)) && !at_node_planner(1).asks_node(64, &over(1000)));
    let grouping = Grouping::plain(4, 8);
    let geometry = SegmentGeometry { groups: Some(grouping), ..geometry(40, FingerprintWidth::Bits8) };
    let planner = Planner::new(PlanChoice::Auto, &FabricCosts::TCP, &geometry, 0.1).with_epsilon(32);
    let with_groups = PlanOptions { has_groups: true, ..over(1000) };
    assert_eq!(planner.expect(1, &with_groups).plan, Plan::Groups);
    assert!(!planner.asks_node(1, &with_groups) && !planner.asks_node(64, &with_groups));
    assert!(planner.asks_node(1, &over(1000)), "their tables find no room here");
}

#[test]
fn a_long_measured_round_trip_makes_windows_ranges() {
    let planner =
        Planner::new(PlanChoice::Auto, &FabricCosts::TCP, &geometry(40, FingerprintWidth::Bits8), 0.1);
    let plan = |us| planner.group_over(64, Some(Duration::from_micros(us))).choose(65);
    assert_eq!((plan(15), plan(1000)), (Plan::TwoStage, Plan::Range));
    assert_eq!(planner.group_over(64, None), planner.group(64));
}

#[test]
fn a_conflict_is_followed_by_the_plan_the_option_names() {
    let auto = planner(PlanChoice::Auto, 1040, 0.0);
    let wide = 2000;
    assert_eq!(auto.after_conflict(auto.single(), wide), Plan::TwoStage);
    assert_eq!(auto.with_on_conflict(OnConflict::Range).after_conflict(auto.single(), wide), Plan::Range);
}
