//! Tests of divisions, and of what lookups take by them.

use super::*;
use crate::plan::FabricCosts;
use crate::tuning::cost::tests::CANDIDATE;

fn asked(budget: u64, theta: f64) -> Lookups {
    Lookups { costs: FabricCosts::RDMA, budget: Some(budget), theta, negative: 0.0 }
}

#[test]
fn keys_of_segments_without_a_table_are_read_by_their_window_alone() {
    let half = Candidate { tabled: 0.5, one_read: (0.5, 0.5), ..CANDIDATE };
    let split = Split::of(&half, &Lookups { budget: None, ..asked(0, 0.0) });
    // A range READ in this fabric, for those without; a table's READ for the others, and nothing
    // after it.
    assert_eq!((split.way.round_trips, split.way.requests, split.way.tables), (1.0, 1.0, 0.5));
    assert_eq!(split.way.bytes, 0.5 * 240.0 + 0.5 * 257.0 * 24.0);
    let absent = Split::of(&half, &Lookups { budget: None, negative: 1.0, ..asked(0, 0.0) });
    assert_eq!(absent.way, split.way);
}

#[test]
fn what_a_tables_read_does_not_settle_is_read_by_its_window_after_it() {
    let split = Split::of(&CANDIDATE, &Lookups { budget: None, ..asked(0, 0.0) });
    assert!((split.way.round_trips - 1.001).abs() < 1e-9, "{split:?}");
    assert!((split.way.bytes - (240.0 + 0.001 * 257.0 * 24.0)).abs() < 1e-6, "{split:?}");
    assert_eq!((split.tables, split.entries, split.way.tables), (1.0, 0.0, 1.0));
}

#[test]
fn a_budget_keeps_as_many_tables_as_compute_nodes_do() {
    let room = CANDIDATE.table_room;
    let models = CANDIDATE.model_bytes * 9.0 / 8.0 + CANDIDATE.beside() as f64;
    // Of what is kept a fifth is room for tables to come, which others have until they do.
    for (left, kept) in [(room, 1.0), (room * 0.8, 0.6), (room / 10.0, 0.075), (room / 20.0, 0.0)] {
        let split = Split::of(&CANDIDATE, &asked((models + left).ceil() as u64, 0.0));
        assert!((split.tables - f64::min(1.25 * kept, 1.0)).abs() < 0.03, "{left}: {split:?}");
        assert!((split.hot_bytes - (left - kept * room)).abs() < 2.0, "{left}: {split:?}");
        assert!(split.bytes <= models + left + 1.0);
    }
}

#[test]
fn entries_serve_the_keys_alone_that_tables_do_not_settle() {
    // And the first of each segment to be looked up, which are hot keys if any are.
    for (theta, first) in [(0.0, 0.0005..0.0007), (0.99, 0.2..0.4)] {
        let plenty = asked(100 << 20, theta);
        let split = Split::of(&CANDIDATE, &plenty);
        assert!(split.tables == 1.0 && (split.entries - 1600.0).abs() < 1e-3, "{split:?}");
        assert!(first.contains(&(split.by_entry - 0.001)), "{split:?}");
        let bytes = 240.0 - split.by_entry * (240.0 - 24.0);
        assert!((split.way.bytes - bytes).abs() < 0.1, "{split:?}");
        // Twice as many places as there may be keys, of four bytes, and not one for each key.
        assert!((0.5e6..0.6e6).contains(&split.hot_bytes), "{split:?}");
        let bytes = CANDIDATE.model_bytes + CANDIDATE.table_bytes + split.hot_bytes;
        assert!((split.bytes - bytes).abs() < 1.0, "{split:?}");
        let without =
            Candidate { table_bytes: 0.0, table_room: 0.0, tabled: 0.0, one_read: (0.0, 0.0), ..CANDIDATE };
        let split = Split::of(&without, &plenty);
        assert!(split.entries > 0.999e6 && split.by_entry > 0.999 && split.way.bytes < 30.0, "{split:?}");
        assert!((8e6..8.2e6).contains(&split.hot_bytes), "{split:?}");
    }
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
    // But that an entry's slot is shorter than a group, where the last tables come in place of
    // entries.
    for theta in [0.0, 0.5, 0.99] {
        let times: Vec<f64> =
            (0..40).map(|n| Split::of(&CANDIDATE, &asked(60_000 + n * 50_000, theta)).ns).collect();
        assert!(times.is_sorted_by(|a, b| a * 1.001 >= *b), "{theta}: {times:?}");
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

#[test]
fn a_hot_cache_answers_less_than_the_best_set_and_as_much_where_all_keys_are_alike() {
    let hits = |theta, part| Ranks { keys: 20e6, theta }.hits(part);
    // docs of `Policy`: heat, by zipf 0.99 and 0.8, of 20 M keys.
    for (theta, part, measured) in
        [(0.99, 0.005, 0.642), (0.99, 0.05, 0.787), (0.8, 0.05, 0.483), (0.0, 0.05, 0.049)]
    {
        let told = hits(theta, part);
        assert!((told - measured).abs() < 0.015, "{theta}, {part}: {told}, measured {measured}");
    }
    assert!(hits(0.0, 0.3) - 0.3 < 1e-9 && hits(0.99, 1.0) == 1.0 && hits(0.99, 0.0) == 0.0);
}
