//! Sums and divisions.

use super::*;

/// A million keys of which a table's READ settles nearly all.
const CANDIDATE: Candidate = Candidate {
    keys: 1e6,
    model_bytes: 56e3,
    table_bytes: 210e3,
    table_room: None,
    tabled: 1.0,
    one_read: (0.999, 0.998),
    slots_read: 10.0,
    window: 257.0,
    slots: 1.25e6,
    slot_bytes: 24.0,
    fingerprint_bits: 16,
};

fn asked(budget: u64, theta: f64) -> Lookups {
    Lookups { costs: FabricCosts::RDMA, budget: Some(budget), theta, negative: 0.0 }
}

#[test]
fn the_sums_are_those_of_the_reads() {
    let costs = FabricCosts::RDMA;
    let range = CANDIDATE.by_window(&asked(0, 0.0)).0;
    assert_eq!(range, Way::reads(1.0, 257.0 * 24.0), "a round trip is dearer than so many bytes");
    let long = Candidate { slot_bytes: 264.0, ..CANDIDATE };
    assert_eq!(long.by_window(&asked(0, 0.0)).0.round_trips, 2.0);
    let dear = Lookups { costs: FabricCosts { byte: 1.0, ..costs }, ..asked(0, 0.0) };
    let (present, absent) = CANDIDATE.by_window(&dear);
    let wrong = 257.0 / 65536.0;
    assert!((present.round_trips, present.requests) == (2.0, 2.0 + wrong));
    assert!((present.bytes - (514.0 + 24.0 * (1.0 + wrong))).abs() < 1e-9);
    assert!((absent.round_trips - (1.0 + wrong)).abs() < 1e-9);
    let (by_table, _) = CANDIDATE.by_table(&dear);
    assert!((by_table.round_trips - 1.002).abs() < 1e-9, "{by_table:?}");
    let ns = 1.002 * costs.round_trip + by_table.requests * costs.request + by_table.bytes + costs.table;
    assert!((by_table.ns(&dear.costs) - ns).abs() < 1e-6);
}

#[test]
fn keys_of_segments_without_a_table_are_read_by_their_window_alone() {
    let half = Candidate { tabled: 0.5, one_read: (0.5, 0.5), ..CANDIDATE };
    let (present, absent) = half.by_table(&asked(0, 0.0));
    // A range READ in this fabric, for those without; a table's READ for the others, and nothing after it.
    assert_eq!((present.round_trips, present.requests), (1.0, 1.0));
    assert_eq!(present.bytes, 0.5 * 240.0 + 0.5 * 257.0 * 24.0);
    assert_eq!(absent, present);
}

#[test]
fn a_budget_keeps_as_many_tables_as_compute_nodes_do() {
    let room = 300e3;
    let candidate = Candidate { table_room: Some(room), ..CANDIDATE };
    let models = candidate.model_bytes * 9.0 / 8.0 + candidate.beside() as f64;
    for (left, tables) in [(room, 1.0), (room * 0.8, 0.6), (room / 10.0, 0.075), (room / 20.0, 0.0)] {
        let split = Split::of(&candidate, &asked((models + left).ceil() as u64, 0.0));
        assert!((split.tables - tables).abs() < 1e-3, "{left}: {split:?}");
        let entries = (left - tables * room) / ENTRY_BYTES;
        assert!((split.entries - entries).abs() < 2.0, "{left}: {split:?}");
        assert!(split.bytes <= models + left + 1.0);
    }
}

#[test]
fn tables_come_before_entries_of_keys_that_are_all_as_hot_and_after_those_of_the_hottest() {
    let budget = 168_000 + CANDIDATE.beside();
    let uniform = Split::of(&CANDIDATE, &asked(budget, 0.0));
    assert!(uniform.fits && (uniform.tables - 0.5).abs() < 1e-9 && uniform.entries == 0.0, "{uniform:?}");
    let skewed = Split::of(&CANDIDATE, &asked(budget, 1.2));
    assert!(skewed.entries > 10.0 && skewed.tables < 0.5 && skewed.bytes <= 161_001.0, "{skewed:?}");
    assert!(skewed.ns < uniform.ns);
    let none = Split::of(&CANDIDATE, &asked(50_000, 0.0));
    assert!(!none.fits && none.tables == 0.0);
}

#[test]
fn models_have_room_where_compute_nodes_keep_them() {
    let fits = |budget| Split::of(&CANDIDATE, &asked(budget, 0.0)).fits;
    assert!(!fits((CANDIDATE.model_bytes * 1.05) as u64));
    let least = CANDIDATE.least_budget();
    assert!(least >= 64_000 + CANDIDATE.beside() && fits(least) && !fits(least - 1), "{least}");
}

#[test]
fn more_bytes_never_cost_more_time() {
    for theta in [0.0, 0.5, 0.99, 1.0, 1.5] {
        let times: Vec<f64> =
            (0..40).map(|n| Split::of(&CANDIDATE, &asked(60_000 + n * 50_000, theta)).ns).collect();
        assert!(times.is_sorted_by(|a, b| a + 1e-9 >= *b), "{theta}: {times:?}");
    }
}

#[test]
fn no_division_does_better_than_the_one_that_is_chosen() {
    for theta in [0.0, 0.7, 0.99, 1.3] {
        let asked = asked(200_000, theta);
        let chosen = Split::of(&CANDIDATE, &asked);
        let room = CANDIDATE.left_of(200_000.0);
        for part in 0..=100 {
            let entries = room * f64::from(part) / 100.0 / ENTRY_BYTES;
            let other = Split::with_entries(&CANDIDATE, &asked, entries);
            assert!(other.bytes <= 200_001.0);
            assert!(chosen.ns <= other.ns * 1.0001, "{theta}, {part} %: {chosen:?}, {other:?}");
        }
    }
}

#[test]
fn shares_of_ranks_are_those_of_their_sums() {
    for theta in [0.0, 0.5, 0.99, 1.0, 2.0] {
        let ranks = Ranks { keys: 10_000.0, theta };
        let sum = |count: u32| (1..=count).map(|rank| f64::from(rank).powf(-theta)).sum::<f64>();
        for count in [1, 10, 100, 5000, 10_000] {
            let share = sum(count) / sum(10_000);
            assert!((ranks.share(count.into()) - share).abs() < 1e-3, "{theta}, {count}");
        }
    }
}
