//! Plans of rebuilds hold every key in its window and cover their range, whatever the keys, ages
//! and options.

use fpcache_memserver::rebuild::plan::{Facts, Gather, Gathered, Planned, RebuildOptions, neighbours, plan};
use proptest::prelude::*;

/// Checks what the memory node and its readers rely on.
fn check(gathered: &Gathered<'_>, options: &RebuildOptions) -> Vec<Planned> {
    let planned = plan(gathered, options);
    let (mut low, mut key, mut slots) = (Some(gathered.first_x), 0, 0);
    for segment in &planned {
        assert_eq!(Some(segment.first_x), low, "a gap or an overlap");
        assert!(segment.first_x <= segment.last_x);
        low = segment.last_x.checked_add(1);
        assert_eq!(segment.keys.start, key);
        key = segment.keys.end;
        let (model, xs) = (segment.model, &gathered.xs[segment.keys.clone()]);
        assert_eq!(segment.slots.len(), xs.len());
        assert!(model.cap > 0 && model.cap <= options.max_slots.max(16));
        assert!(u32::from(model.epsilon) <= options.epsilon);
        let mut taken = vec![false; usize::from(model.cap)];
        for (x, slot) in xs.iter().zip(&segment.slots) {
            assert!((segment.first_x..=segment.last_x).contains(x));
            assert!(model.window(*x).contains(u32::from(*slot)));
            assert!(!std::mem::replace(&mut taken[usize::from(*slot)], true), "a slot for two");
        }
        // Whatever comes later has a window too, and windows ascend with the keys.
        let ends = [segment.first_x, segment.first_x / 2 + segment.last_x / 2, segment.last_x]
            .map(|x| model.window(x));
        assert!(ends.iter().all(|window| window.first <= window.last && window.last < u32::from(model.cap)));
        assert!(ends.is_sorted_by_key(|window| window.first));
        slots += usize::from(model.cap);
    }
    assert_eq!(planned.last().map(|segment| segment.last_x), Some(gathered.last_x));
    assert_eq!(key, gathered.xs.len());
    let least = usize::from(options.least_slots) * planned.len();
    assert!(slots <= 20 * key + 20 + least, "{slots} slots for {key} keys in {} segments", planned.len());
    planned
}

/// Ascending keys with gaps of every size, and a range about them.
fn keys() -> impl Strategy<Value = (u64, Vec<u64>, u64)> {
    let gap = prop_oneof![6 => 1u64..3, 3 => 1u64..5_000, 1 => (0u32..60).prop_map(|bit| 1 << bit)];
    let margin = prop_oneof![Just(0), 1u64..100, any::<u64>()];
    (any::<u64>(), 0u32..64, prop::collection::vec(gap, 0..600), margin.clone(), margin).prop_map(
        |(first, shift, gaps, below, above)| {
            let mut keys = vec![first >> shift];
            for gap in gaps {
                keys.extend(keys[keys.len() - 1].checked_add(gap));
            }
            (keys[0].saturating_sub(below), keys.clone(), keys[keys.len() - 1].saturating_add(above))
        },
    )
}

/// Ages of `count` records: at random, with runs in either direction, or all alike.
fn ages(count: usize) -> impl Strategy<Value = Vec<u32>> {
    let random = prop::collection::vec(prop_oneof![any::<u32>(), 0u32..1_000, Just(u32::MAX)], count);
    let run = (random.clone(), any::<prop::sample::Index>(), 0usize..300, 1usize..4, 1u32..40, any::<bool>());
    let runs = run.prop_map(move |(mut ages, at, length, every, pace, ascending)| {
        let first = at.index(count.max(1));
        let ranks: Vec<usize> = (first..count).step_by(every).take(length).collect();
        for (i, rank) in ranks.iter().enumerate() {
            let back = if ascending { ranks.len() - 1 - i } else { i };
            ages[*rank] = back as u32 * pace;
        }
        ages
    });
    prop_oneof![1 => random, 4 => runs, 1 => any::<u32>().prop_map(move |age| vec![age; count])]
}

fn records() -> impl Strategy<Value = (u64, Vec<u64>, u64, Vec<u32>)> {
    keys().prop_flat_map(|(first_x, xs, last_x)| {
        let count = xs.len();
        (Just(first_x), Just(xs), Just(last_x), ages(count))
    })
}

fn options() -> impl Strategy<Value = RebuildOptions> {
    let shares = (0.0f64..=1.0, 0.5f64..=1.0, 0.5f64..=1.0);
    (0u32..100, shares, 16u16..5_000, 1u16..40).prop_map(
        |(epsilon, (fit, fill, settled_fill), max_slots, least_slots)| RebuildOptions {
            epsilon,
            fit,
            fill,
            settled_fill,
            max_slots,
            least_slots,
            ..RebuildOptions::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_records_any_options((first_x, xs, last_x, ages) in records(), options in options()) {
        check(&Gathered { first_x, last_x, xs: &xs, ages: &ages }, &options);
    }
}

proptest! {
    // Each lays out hundreds of segments of 65,535 slots.
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn options_out_of_range_are_taken_to_the_nearest(
        (first_x, xs, last_x, ages) in records(), fit in any::<f64>(), fill in any::<f64>(), zero in any::<bool>(),
    ) {
        let options = RebuildOptions {
            epsilon: if zero { 0 } else { u32::MAX },
            fit,
            equal: fit,
            fill,
            settled_fill: -fill,
            max_slots: if zero { 0 } else { u16::MAX },
            max_segment_bytes: if zero { 0 } else { usize::MAX },
            slot_bytes: 0,
            least_slots: if zero { 0 } else { u16::MAX },
        };
        let gathered = Gathered { first_x, last_x, xs: &xs, ages: &ages };
        let planned = plan(&gathered, &options);
        prop_assert_eq!(planned.iter().map(|segment| segment.keys.len()).sum::<usize>(), xs.len());
        prop_assert_eq!(planned[planned.len() - 1].last_x, last_x);
    }
}

#[test]
fn no_keys_make_one_empty_segment() {
    for (first_x, last_x) in [(0, u64::MAX), (7, 7), (u64::MAX, u64::MAX)] {
        let gathered = Gathered { first_x, last_x, xs: &[], ages: &[] };
        let planned = check(&gathered, &RebuildOptions::default());
        assert_eq!(planned.len(), 1);
        assert_eq!(
            planned[0].model.window(last_x).len(),
            u32::from(planned[0].model.cap),
            "every slot is in reach"
        );
    }
}

#[test]
fn single_keys_at_the_ends_of_the_range() {
    for x in [0, 1, u64::MAX - 1, u64::MAX] {
        for epsilon in [0, 1, 32] {
            let options = RebuildOptions { epsilon, ..RebuildOptions::default() };
            check(&Gathered { first_x: 0, last_x: u64::MAX, xs: &[x], ages: &[0] }, &options);
        }
    }
}

#[test]
fn a_segment_never_exceeds_its_bytes() {
    let xs: Vec<u64> = (0..10_000).map(|i| i * 3).collect();
    let ages = vec![u32::MAX; xs.len()];
    let options =
        RebuildOptions { slot_bytes: 264, max_segment_bytes: 100 * 264, ..RebuildOptions::default() };
    for segment in check(&Gathered { first_x: 0, last_x: u64::MAX, xs: &xs, ages: &ages }, &options) {
        assert!(segment.model.cap <= 100);
    }
}

/// Two thousand old keys, and after them a run of as many as told.
fn appended(run: u64) -> (Vec<u64>, Vec<u32>) {
    let xs = (0..2_000 + run).map(|i| 1_000 + 10 * i).collect();
    let ages = (0..2_000).map(|_| u32::MAX).chain((0..run as u32).rev()).collect();
    (xs, ages)
}

#[test]
fn a_run_is_cut_off_and_its_reserve_lies_ahead() {
    let (xs, ages) = appended(200);
    let gathered = Gathered { first_x: 0, last_x: u64::MAX, xs: &xs, ages: &ages };
    let planned = check(&gathered, &RebuildOptions::default());
    let lengths: Vec<usize> = planned.iter().map(|segment| segment.keys.len()).collect();
    // Old keys are two segments: one has 2,048 slots at most, 0.85 of them filled.
    assert_eq!(lengths, [1_000, 1_000, 199, 1]);
    let tail = &planned[3];
    let head = xs[xs.len() - 1];
    assert!((400..500).contains(&tail.model.cap));
    for i in 0..400 {
        let slot = tail.model.predict(head + 10 * i);
        assert!(slot.abs_diff((i as f64 / 0.85) as u32) <= 4, "key {i} is predicted in slot {slot}");
    }
}

#[test]
fn a_descending_run_is_met_below() {
    let xs: Vec<u64> = (0..2_200).map(|i| 1_000_000 + 10 * i).collect();
    let ages: Vec<u32> = (0..200).chain((0..2_000).map(|_| u32::MAX)).collect();
    let planned =
        check(&Gathered { first_x: 0, last_x: u64::MAX, xs: &xs, ages: &ages }, &RebuildOptions::default());
    let lengths: Vec<usize> = planned.iter().map(|segment| segment.keys.len()).collect();
    assert_eq!(lengths, [1, 199, 1_000, 1_000]);
    let head = planned[0].model;
    assert!(head.origin < xs[0] && head.predict(xs[0] - 1_000) + 50 < head.predict(xs[0]));
}

#[test]
fn a_false_alarm_wastes_little() {
    let (xs, ages) = appended(8);
    let planned =
        check(&Gathered { first_x: 0, last_x: u64::MAX, xs: &xs, ages: &ages }, &RebuildOptions::default());
    let slots: usize = planned.iter().map(|segment| usize::from(segment.model.cap)).sum();
    assert!(slots < 2_008 * 100 / 85 + 32, "{slots}");
}

#[test]
fn small_and_emptied_neighbours_are_merged_and_reserves_are_not() {
    let centre = Facts { keys: 500, cap: 600, idle: 0 };
    let options = RebuildOptions::default();
    let merged = |side| neighbours(centre, Some(side), None, &options).left;
    assert!(merged(Facts { keys: 10, cap: 16, idle: 0 }));
    assert!(merged(Facts { keys: 100, cap: 500, idle: 1 << 20 }), "emptied by deletes");
    assert!(!merged(Facts { keys: 100, cap: 500, idle: 50 }), "a reserve in use");
    assert!(!merged(Facts { keys: 1, cap: 500, idle: 50 }), "a reserve just made");
    assert!(!merged(Facts { keys: 100, cap: 143, idle: 1 << 20 }));
    assert_eq!(neighbours(centre, None, None, &options), Gather::default());
    let merged = |slot_bytes, side| {
        let options = RebuildOptions { slot_bytes, ..options };
        neighbours(centre, Some(side), None, &options).left
    };
    assert!(merged(1_060, Facts { keys: 63, cap: 127, idle: 0 }));
    assert!(!merged(16_400, Facts { keys: 44, cap: 63, idle: 0 }), "a whole one of long slots");
    assert!(merged(65_560, Facts { keys: 11, cap: 15, idle: 0 }), "one of the fewest slots");
}
