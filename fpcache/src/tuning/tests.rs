//! Tests that the choice follows from the keys, the fabric, the budget and what is forced.

use std::collections::BTreeSet;

use super::*;
use crate::fingerprint::FingerprintWidth;
use crate::key_space::{ByteKeys, KeySpace, U64Keys};
use crate::plan::FabricCosts;

fn mixed(n: u64) -> u64 {
    let x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 27
}

/// `count` keys, anywhere.
fn scattered(count: usize) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..count as u64).map(mixed).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// `count` keys, in gaps of all sizes: no line is near many of them.
fn uneven(count: usize) -> Vec<u64> {
    let gap = |n: u64| 1 + (1 << (mixed(n / 50) % 24)) + mixed(n) % (1 << (mixed(n) % 24));
    (0..count as u64)
        .scan(0, |key, n| {
            *key += gap(n);
            Some(*key)
        })
        .collect()
}

fn sample(keys: &[u64]) -> KeySample<U64Keys> {
    KeySample::of(keys.len(), |at| keys[at])
}

fn lookups(costs: FabricCosts, budget: Option<u64>) -> Lookups {
    Lookups { costs, budget, theta: 0.0, negative: 0.0 }
}

const SHAPE: RecordShape = RecordShape::fixed(8, 8);

fn tuned(keys: &[u64], lookups: &Lookups, forced: Forced) -> Tuned {
    tune(&sample(keys), SHAPE, lookups, 0.1, &forced).expect("a choice")
}

#[test]
fn groups_are_chosen_where_round_trips_are_dear_and_none_where_memory_is_mapped() {
    let keys = uneven(30_000);
    for costs in [FabricCosts::RDMA, FabricCosts::TCP] {
        let tuned = tuned(&keys, &lookups(costs, None), Forced::default());
        let chosen = tuned.chosen();
        assert!(chosen.parameters.groups.is_some(), "{tuned}");
        assert!(chosen.split.way.round_trips < 1.05, "{tuned}");
        assert_eq!(tuned.others().count(), 3);
        assert!(tuned.others().all(|other| other.split.ns * CLOSE >= chosen.split.ns), "{tuned}");
        let text = tuned.to_string();
        assert!(text.contains("round trips") && text.contains("groups none, epsilon "), "{text}");
    }
    let mapped = tuned(&keys, &lookups(FabricCosts::MAPPED_MEMORY, None), Forced::default());
    assert_eq!(mapped.chosen().parameters.groups, None, "{mapped}");
}

#[test]
fn of_times_within_a_twentieth_the_fewest_bytes_win_and_of_equal_bytes_the_least_time() {
    let chosen = |options: &[(bool, f64, f64)]| cheapest(options.iter().copied());
    // A twentieth more time is given for fewer bytes, and no more than that.
    assert_eq!(chosen(&[(true, 100.0, 6.0), (true, 104.0, 1.0), (true, 106.0, 0.5)]), Some(1));
    assert_eq!(chosen(&[(true, 102.0, 1.0), (true, 101.0, 1.0), (true, 103.0, 1.0)]), Some(1));
    assert_eq!(chosen(&[(false, 1.0, 1.0), (true, 9.0, 9.0)]), Some(1));
    assert_eq!(chosen(&[(false, 1.0, 1.0)]), None);
}

#[test]
fn no_choice_is_slower_than_another_of_as_many_bytes() {
    // Models of several epsilons are as many.
    let forced = Forced { groups: Some(None), ..Forced::default() };
    let tuned = tuned(&scattered(100_000), &lookups(FabricCosts::RDMA, None), forced);
    let chosen = tuned.chosen();
    let better = |one: &&Considered| one.split.bytes <= chosen.split.bytes && one.split.ns < chosen.split.ns;
    let better: Vec<_> = tuned.considered.iter().filter(better).collect();
    assert!(better.is_empty(), "{tuned}: {better:?}");
}

#[test]
fn other_forms_are_shown_as_they_would_be_chosen_alone() {
    let keys = uneven(20_000);
    let rdma = lookups(FabricCosts::RDMA, None);
    let all = tuned(&keys, &rdma, Forced::default());
    for other in all.others() {
        let groups = other.parameters.groups.map(Grouping::name);
        let alone =
            tuned(&keys, &rdma, Forced { groups: Some(groups.map(GroupChoice::Fixed)), ..Forced::default() });
        assert_eq!(alone.chosen().split, other.split, "{}", other.form());
        let line = format!("\ngroups {}, epsilon {}: ", other.form(), alone.chosen().parameters.epsilon);
        assert!(all.to_string().contains(&line), "{all}");
    }
}

#[test]
fn fingerprints_that_groups_make_worthless_are_offered_to_be_left_out() {
    let keys = uneven(30_000);
    let rdma = lookups(FabricCosts::RDMA, None);
    let with_groups = tuned(&keys, &rdma, Forced::default());
    let worth = with_groups.fingerprints.expect("there are some");
    assert!(worth.is_nothing() && worth.times >= 1.0, "{worth:?}");
    // Of a slot of 24 bytes, beside its share of a table.
    let stored = f64::from(with_groups.chosen().parameters.fingerprint_bits()) / 8.0;
    assert!((worth.share - stored / (24.0 + stored)).abs() < 0.01, "{worth:?}");
    assert!(with_groups.to_string().contains("--fingerprint-bits none"), "{with_groups}");
    // Long slots without groups are found by them alone, at a fraction of the window's bytes.
    let forced = Forced { groups: Some(None), epsilon: Some(64), ..Forced::default() };
    let slow = lookups(FabricCosts { byte: 1.0, ..FabricCosts::RDMA }, None);
    let long = RecordShape::fixed(8, 128);
    let by_windows = tune(&sample(&keys), long, &slow, 0.1, &forced).expect("a choice");
    let worth = by_windows.fingerprints.expect("there are some");
    assert!(!worth.is_nothing() && worth.times > 1.5, "{worth:?}");
    assert!(!by_windows.to_string().contains("--fingerprint-bits"), "{by_windows}");
    let without = tuned(&keys, &rdma, Forced { width: Some(WidthChoice::None), ..Forced::default() });
    assert_eq!((without.fingerprints, without.chosen().parameters.fingerprint_bits()), (None, 0));
    assert!(without.to_string().contains("no fingerprints"), "{without}");
}

#[test]
fn what_is_forced_is_all_that_is_compared() {
    let keys = scattered(20_000);
    let lookups = lookups(FabricCosts::RDMA, None);
    for groups in [None].into_iter().chain(GroupForm::ALL.map(Some)) {
        let width = Some(WidthChoice::Fixed(FingerprintWidth::Bits32));
        let forced = Forced {
            groups: Some(groups.map(GroupChoice::Fixed)),
            epsilon: Some(48),
            fill: Some(0.7),
            width,
        };
        let tuned = tuned(&keys, &lookups, forced);
        let [Considered { parameters, .. }] = tuned.considered[..] else { panic!("{tuned:?}") };
        assert_eq!(parameters.groups.map(Grouping::name), groups);
        assert_eq!((parameters.epsilon, parameters.fill), (48, 0.7));
        assert_eq!(parameters.width, FingerprintWidth::Bits32);
    }
    let forced = Forced { fill: Some(1.5), ..Forced::default() };
    let error = tune(&sample(&keys), SHAPE, &lookups, 0.0, &forced).expect_err("no fill");
    assert!(matches!(error, TuneError::Parameters(ParameterError::Fill(_))), "{error}");
}

#[test]
fn blocks_of_pilots_are_as_long_as_is_forced_and_told() {
    let groups = Some(Some(GroupChoice::Pilots(16)));
    let forced = Forced { groups, epsilon: Some(64), ..Forced::default() };
    let tuned = tuned(&scattered(20_000), &lookups(FabricCosts::RDMA, None), forced);
    assert_eq!(tuned.chosen().parameters.groups, Some(Grouping::by_pilots(16)));
    assert!(tuned.to_string().starts_with("groups pilots:16, epsilon 64"), "{tuned}");
}

#[test]
fn a_table_of_one_key_that_would_come_late_is_loaded_with_it() {
    let late = (1..).find(|key| U64Keys::hash(key) >> 32 < 1 << 24).expect("a low hash");
    let tuned = tuned(&[late], &lookups(FabricCosts::RDMA, None), Forced::default());
    assert_eq!(tuned.chosen().candidate.keys, 1.0);
}

#[test]
fn long_slots_are_found_by_pilots_and_in_no_groups_of_several() {
    let keys = uneven(60_000);
    let long = RecordShape::fixed(8, 128);
    let lookups = lookups(FabricCosts::RDMA, None);
    let tuned = tune(&sample(&keys), long, &lookups, 0.0, &Forced::default()).expect("a choice");
    let forms: BTreeSet<&str> = tuned.considered.iter().map(Considered::form).collect();
    assert_eq!(forms, BTreeSet::from(["none", "pilots"]));
    let chosen = tuned.chosen();
    assert_eq!(chosen.form(), "pilots", "{tuned}");
    assert!(chosen.split.way.round_trips < 1.1 && chosen.split.way.bytes < 2.0 * 144.0, "{tuned}");
    let forced = Forced { groups: Some(Some(GroupChoice::Fixed(GroupForm::Plain))), ..Forced::default() };
    let error = tune(&sample(&keys), long, &lookups, 0.1, &forced).expect_err("too long");
    assert_eq!(error, TuneError::TooLong { slot_bytes: 144 });
}

#[test]
fn a_budget_is_kept_and_one_too_small_is_told_what_would_do() {
    let keys = uneven(20_000);
    let least =
        |forced| match tune(&sample(&keys), SHAPE, &lookups(FabricCosts::RDMA, Some(10)), 0.1, &forced) {
            Err(TuneError::Budget { budget: 10, least, .. }) => least,
            other => panic!("{other:?}"),
        };
    let budget = least(Forced::default());
    let tuned = tuned(&keys, &lookups(FabricCosts::RDMA, Some(budget + 1)), Forced::default());
    assert!(tuned.chosen().split.bytes <= (budget + 2) as f64, "{tuned}");
    assert!(least(Forced { epsilon: Some(8), ..Forced::default() }) > budget);
}

#[test]
fn lines_are_short_and_tell_what_is_kept_from_what_is_read() {
    let keys = uneven(20_000);
    let lines = |budget, forced| {
        let text = tuned(&keys, &lookups(FabricCosts::RDMA, budget), forced).to_string();
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        text
    };
    let forced = |form: Option<GroupForm>| Forced {
        groups: Some(form.map(GroupChoice::Fixed)),
        epsilon: Some(64),
        ..Forced::default()
    };
    let all = lines(None, Forced { epsilon: Some(64), ..Forced::default() });
    let beside = |line: &&str| line.starts_with("groups ") && line.ends_with(" times the bytes kept");
    assert_eq!(all.lines().filter(beside).count(), 3, "{all}");
    let grouped = lines(None, forced(Some(GroupForm::Plain)));
    assert!(grouped.contains(": models ") && grouped.contains(", tables "), "{grouped}");
    assert!(grouped.contains("round trips and reads ") && !grouped.contains("hot cache"), "{grouped}");
    let plenty = lines(Some(1 << 20), forced(None));
    assert!(plenty.contains(", hot cache 8."), "{plenty}");
    assert!(plenty.contains("room for an entry of every key\n") && !plenty.contains("tables"), "{plenty}");
    let scarce = lines(Some(60_000), forced(None));
    assert!(scarce.contains("room for entries of ") && scarce.contains(" % of the keys\n"), "{scarce}");
}

#[test]
fn what_is_no_number_is_told_by_its_name_and_not_as_a_budget() {
    let keys = scattered(1_000);
    let good = lookups(FabricCosts::RDMA, None);
    let costs = FabricCosts { request: f64::NAN, ..FabricCosts::RDMA };
    for (bad, growth, named) in [
        (Lookups { costs, ..good }, 0.0, "the cost of a request is NaN"),
        (Lookups { theta: f64::INFINITY, ..good }, 0.0, "theta is inf"),
        (Lookups { negative: 1.5, ..good }, 0.0, "the share of absent keys is 1.5"),
        (good, f64::NAN, "growth is NaN"),
    ] {
        let error = tune(&sample(&keys), SHAPE, &bad, growth, &Forced::default()).expect_err(named);
        assert!(error.to_string().starts_with(named), "{error}");
    }
}

#[test]
fn shares_are_those_that_memory_nodes_come_to() {
    // docs/design.md: evenly spread keys at fill 0.8, loaded and with a tenth inserted.
    let keys = scattered(40_000);
    let lookups = lookups(FabricCosts::RDMA, None);
    let forced = Forced {
        groups: Some(Some(GroupChoice::Fixed(GroupForm::Plain))),
        epsilon: Some(128),
        fill: Some(0.8),
        width: None,
    };
    let shares = |growth| {
        let tuned = tune(&sample(&keys), SHAPE, &lookups, growth, &forced).expect("a choice");
        tuned.chosen().candidate.one_read
    };
    let (present, absent) = shares(0.0);
    assert!(present > 0.999 && absent > 0.999, "{present}, {absent}");
    let (present, absent) = shares(0.1);
    assert!((0.99..0.999).contains(&present) && (0.94..0.985).contains(&absent), "{present}, {absent}");
}

#[test]
fn a_sample_stands_for_all_keys() {
    let keys = uneven(300_000);
    let (whole, part) =
        (KeySample::<U64Keys> { runs: vec![keys.clone()], keys: keys.len() as u64 }, sample(&keys));
    assert_eq!(part.runs.iter().map(Vec::len).sum::<usize>(), 8 << 14);
    let parameters =
        TableParameters { epsilon: 64, ..TableParameters::default() }.with_groups(GroupChoice::Auto);
    let of = |sample: &KeySample<U64Keys>| {
        let counts = sample.count(&parameters, &(), 0.1).expect("in order");
        Candidate::of(&counts, &parameters)
    };
    let (whole, part) = (of(&whole), of(&part));
    assert_eq!(whole.keys, part.keys);
    for (a, b, within) in [
        (whole.table_bytes, part.table_bytes, 0.05),
        (whole.model_bytes, part.model_bytes, 0.3),
        (whole.one_read.0, part.one_read.0, 0.002),
        (whole.window, part.window, 0.1),
    ] {
        assert!((a / b - 1.0).abs() < within, "{whole:?}, {part:?}");
    }
}

#[test]
fn byte_strings_are_tuned_by_their_coordinates() {
    let mut keys: Vec<Vec<u8>> =
        (0..10_000u64).map(|n| format!("user/{:012}", mixed(n) % 1_000_000_000_000).into_bytes()).collect();
    keys.sort();
    keys.dedup();
    let sample = KeySample::<ByteKeys>::of(keys.len(), |at| keys[at].clone());
    let shape = RecordShape::fixed(17, 8);
    let lookups = lookups(FabricCosts::RDMA, None);
    for form in GroupForm::ALL {
        let forced =
            Forced { groups: Some(Some(GroupChoice::Fixed(form))), epsilon: Some(64), ..Forced::default() };
        let tuned = tune(&sample, shape, &lookups, 0.0, &forced).expect("a choice");
        let (present, absent) = tuned.chosen().candidate.one_read;
        assert!(present > 0.99 && absent > 0.97, "{form}: {present}, {absent}");
    }
    let backwards = KeySample::<ByteKeys>::of(keys.len(), |at| keys[keys.len() - 1 - at].clone());
    let error = tune(&backwards, shape, &lookups, 0.1, &Forced::default());
    assert!(matches!(error, Err(TuneError::Order(_))), "{error:?}");
}
