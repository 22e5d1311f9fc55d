//! Whatever the hot cache holds, random, stale or hostile: it changes what an answer costs, never
//! the answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use std::borrow::Borrow;

use crate::common::keys::TestKeys;
use crate::common::{Fixture, Reader, TWO_STAGE, WAYS, Way, scattered};
use fpcache::cache::{CacheConfig, CacheProbe, OnConflict, Policy, Variant};
use fpcache::fingerprint::FingerprintWidth;
use fpcache::layout::TableParameters;
use fpcache::plan::Plan;
use fpcache::read::{ReadError, cache_probe};
use proptest::prelude::*;

const KEYS: u64 = 600;

fn fixture<T: TestKeys>() -> Fixture<T> {
    Fixture::new(scattered(KEYS), TableParameters { epsilon: 12, ..T::parameters(16) })
}

fn config(variant: Variant, on_conflict: OnConflict) -> CacheConfig {
    CacheConfig::of(256 << 10).with_variant(variant).with_on_conflict(on_conflict)
}

/// Every variant, policy and way, and what follows a conflict.
fn all_configs() -> impl Iterator<Item = (Way, CacheConfig)> {
    WAYS.into_iter().flat_map(|way| {
        Variant::ALL.iter().zip(Policy::ALL.iter().cycle()).zip(OnConflict::ALL.iter().cycle()).map(
            move |((variant, policy), on_conflict)| {
                (way, config(*variant, *on_conflict).with_policy(*policy))
            },
        )
    })
}

/// What the hot cache knows `key` by.
fn probe<T: TestKeys>(reader: &Reader<T>, key: u64) -> CacheProbe {
    cache_probe(reader.table.view(), T::key(key).borrow()).expect("all models are here")
}

fn check<T: TestKeys>(f: &Fixture<T>, reader: &mut Reader<T>, key: u64) -> Result<(), TestCaseError> {
    let expected = f.keys.binary_search(&key).ok().map(|_| (1, f.value(key, 1)));
    prop_assert_eq!(reader.get(key).unwrap(), expected);
    Ok(())
}

fn config_of(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn random_contents_change_no_answer<T: TestKeys>() {
    proptest!(config_of(6), |(seed: u64)| {
        let f = fixture::<T>();
        for (way, config) in all_configs() {
            // Small, because all of it is written for every key.
            let mut reader = f.cached_reader(way, config.with_budget(24 << 10));
            let mut state = seed | 1;
            for key in f.keys.iter().flat_map(|key| [*key, key ^ 1]).step_by(7) {
                reader.hot().overwrite(|| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state
                });
                check(&f, &mut reader, key)?;
            }
        }
    });
}

/// Entries that name slots of the right window, but the wrong ones: what a cache of an older table
/// looks like.
fn wrong_slots_of_the_right_window_change_no_answer<T: TestKeys>() {
    proptest!(config_of(6), |(shift in 1..24u32)| {
        let f = fixture::<T>();
        let questions = f.keys.iter().map(|key| (*key, Some(f.place_of(*key).index)));
        let questions: Vec<_> = questions.flat_map(|asked| [asked, (asked.0 ^ 1, None)]).collect();
        for (way, config) in all_configs() {
            let mut reader = f.cached_reader(way, config);
            let mut handle = reader.hot().handle(7);
            let (mut conflicts, mut learned) = (0, 0);
            for (key, right) in questions.iter().copied() {
                let probe = probe(&reader, key);
                let wrong = probe.window.first + (probe.predicted + shift - probe.window.first) % probe.window.len();
                if right == Some(wrong) {
                    continue;
                }
                reader.hot().learn(&probe, wrong, 500, &mut handle);
                learned += u32::from(reader.hot().probe(&probe).is_some_and(|hint| hint.slot == wrong));
                let (outcome, _) = reader.get_with_outcome(key).unwrap();
                conflicts += outcome.cost.conflicts;
                check(&f, &mut reader, key)?;
            }
            prop_assert!(learned > KEYS as u32 && conflicts >= learned, "{conflicts} of {learned}: {config:?}");
        }
    });
}

fn a_hit_is_one_read_of_one_slot<T: TestKeys>() {
    let f = fixture::<T>();
    for (way, config) in all_configs() {
        let mut reader = f.cached_reader(way, config);
        for key in &f.keys {
            reader.get(*key).unwrap();
        }
        let mut hits = 0;
        for key in &f.keys {
            let (outcome, answer) = reader.get_with_outcome(*key).unwrap();
            assert_eq!(answer, Some((1, f.value(*key, 1))));
            if outcome.plan == Plan::Cached {
                hits += 1;
                let cost = outcome.cost;
                assert_eq!((cost.round_trips, cost.reads, cost.conflicts), (1, 1, 0), "{cost:?}");
                assert_eq!(cost.bytes, f.geometry().slot_bytes as u64);
            }
        }
        assert!(hits > KEYS * 9 / 10, "{hits} of {KEYS} keys: {config:?}");
    }
}

fn absent_keys_are_never_answered_from_the_cache_alone<T: TestKeys>() {
    let f = fixture::<T>();
    for (way, config) in all_configs() {
        let mut reader = f.cached_reader(way, config);
        for key in f.keys.iter().map(|key| key ^ 1) {
            for _ in 0..2 {
                let (outcome, answer) = reader.get_with_outcome(key).unwrap();
                assert_eq!(answer, None);
                assert_ne!(outcome.plan, Plan::Cached, "{config:?}");
                assert!(outcome.cost.bytes >= f.geometry().width.bytes() as u64);
            }
        }
        assert_eq!(reader.hot().counts().hits, 0);
    }
}

/// A key, and another key's slot in its window.
fn mistaken<T: TestKeys>(f: &Fixture<T>, reader: &Reader<T>) -> (u64, CacheProbe, u32) {
    let of = |key: u64| (key, probe(reader, key), f.place_of(key));
    let all: Vec<_> = f.keys.iter().map(|key| of(*key)).collect();
    all.windows(2)
        .find_map(|pair| {
            let ((key, probe, _), (_, other_spot, other)) = (&pair[0], &pair[1]);
            let shared = probe.slots == other_spot.slots && probe.window.contains(other.index);
            (shared && probe.window.len() > 8).then_some((*key, *probe, other.index))
        })
        .expect("neighbours share windows")
}

fn after_a_conflict_the_entry_goes_and_the_option_decides<T: TestKeys>() {
    let f = fixture::<T>();
    for way in WAYS {
        for variant in Variant::ALL {
            for on_conflict in OnConflict::ALL {
                let mut reader = f.cached_reader(way, config(*variant, *on_conflict));
                let (key, probe, other) = mistaken(&f, &reader);
                let mut handle = reader.hot().handle(1);
                reader.hot().learn(&probe, other, 500, &mut handle);
                assert_eq!(reader.hot().probe(&probe).map(|hint| hint.slot), Some(other));

                let (outcome, answer) = reader.get_with_outcome(key).unwrap();
                assert_eq!(answer, Some((1, f.value(key, 1))));
                assert_eq!((outcome.cost.conflicts, outcome.cost.fallbacks), (1, 0));
                let plan = if *on_conflict == OnConflict::Range { Plan::Range } else { way.plan };
                assert_eq!(outcome.plan, plan, "{way:?} {on_conflict}");
                if plan == Plan::Range {
                    assert_eq!((outcome.cost.round_trips, outcome.cost.reads), (2, 2));
                }
                assert_eq!(reader.hot().counts().conflicts, 1);

                let (outcome, _) = reader.get_with_outcome(key).unwrap();
                assert_eq!(
                    (outcome.plan, outcome.cost.conflicts),
                    (Plan::Cached, 0),
                    "the right slot was learned"
                );
            }
        }
    }
}

/// Windows beyond the buffers of the short way to a single key take another way, which must not
/// forget what came before.
fn a_conflict_in_a_long_window_keeps_its_cost_and_its_option<T: TestKeys>() {
    let parameters = TableParameters { epsilon: 40, ..T::parameters(900) };
    let f = Fixture::<T>::new(scattered(KEYS), parameters);
    for way in WAYS {
        for on_conflict in OnConflict::ALL {
            let mut reader = f.cached_reader(way, config(Variant::Fd, *on_conflict));
            let (key, probe, other) = mistaken(&f, &reader);
            assert!(probe.window.len() * probe.slot_bytes > 4096, "{probe:?}");
            let mut handle = reader.hot().handle(1);
            reader.hot().learn(&probe, other, 500, &mut handle);
            let (outcome, answer) = reader.get_with_outcome(key).unwrap();
            assert_eq!(answer, Some((1, f.value(key, 1))));
            let plan = if *on_conflict == OnConflict::Range { Plan::Range } else { way.plan };
            assert_eq!((outcome.plan, outcome.cost.conflicts), (plan, 1), "{way:?} {on_conflict}");
            if plan == Plan::Range {
                let bytes = u64::from(probe.slot_bytes * (1 + probe.window.len()));
                let cost = outcome.cost;
                assert_eq!((cost.round_trips, cost.reads, cost.bytes), (2, 2, bytes));
            }
            assert_eq!(reader.get_with_outcome(key).unwrap().0.plan, Plan::Cached, "learned all the same");
        }
    }
}

/// In windows of a few slots, two equal fingerprints are reason enough to read all of the window.
fn keys_that_fall_back_to_a_range_read_are_learned_too<T: TestKeys>() {
    let parameters = TableParameters { width: FingerprintWidth::Bits8, epsilon: 1, ..T::parameters(8) };
    let f = Fixture::<T>::new(scattered(2000), parameters);
    for way in TWO_STAGE {
        let mut reader = f.cached_reader(way, CacheConfig::of(1 << 20));
        let (mut fallbacks, mut missing) = (0, 0);
        for key in &f.keys {
            fallbacks += reader.get_with_outcome(*key).unwrap().0.cost.fallbacks;
            let again = reader.get_with_outcome(*key).unwrap().0;
            missing += u32::from(again.plan != Plan::Cached);
        }
        // Which keys a full bucket takes is left to the policy, and to chance.
        assert!(fallbacks > 0 && missing < 5, "{way:?}: {fallbacks} fallbacks, {missing} not learned");
    }
}

fn a_cached_slot_that_is_being_written_is_waited_for<T: TestKeys>() {
    let f = fixture::<T>();
    let key = f.keys[300];
    let place = f.place_of(key);
    let live = f.bytes(place.slot, f.geometry().slot_bytes);
    for (way, config) in all_configs() {
        let mut reader = f.cached_reader(way, config);
        reader.get(key).unwrap();
        let (outcome, _) = reader.get_with_outcome(key).unwrap();
        assert_eq!(outcome.plan, Plan::Cached);
        // In the value.
        let value = f.key_bytes(key).end as usize;
        for torn in [value + 1, value + 7] {
            let mut image = live.clone();
            image[torn] ^= 1;
            f.with(place.slot, &image, || {
                assert!(matches!(reader.get(key), Err(ReadError::Contended { .. })), "{config:?}");
            });
        }
        assert_eq!(reader.get(key).unwrap(), Some((1, f.value(key, 1))));
    }
}

fn a_cached_slot_of_a_replaced_segment_is_stale<T: TestKeys>() {
    let f = fixture::<T>();
    let key = f.keys[300];
    let place = f.place_of(key);
    for (way, config) in all_configs() {
        let mut reader = f.cached_reader(way, config);
        reader.get(key).unwrap();
        f.with(place.slot, &3u64.to_le_bytes(), || {
            assert!(matches!(reader.get(key), Err(ReadError::Stale)), "{config:?}");
        });
    }
}

fn threads_that_share_a_hot_cache_with_a_vandal_get_right_answers<T: TestKeys>() {
    let f = fixture::<T>();
    let reader = f.cached_reader(WAYS[0], CacheConfig::of(64 << 10));
    let hot = reader.hot();
    let done = AtomicBool::new(false);
    let until = Instant::now() + Duration::from_millis(400);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 0x9e37_79b9_7f4a_7c15u64;
            while !done.load(Ordering::Relaxed) {
                hot.overwrite(|| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    state ^ state >> 29
                });
            }
        });
        let asking: Vec<_> = (0..2)
            .map(|seed| {
                let (f, table) = (&f, &reader.table);
                scope.spawn(move || {
                    let mut reading = crate::common::Sharing::<T>::new(f.endpoint(), table, seed);
                    let mut asked = 0u64;
                    // Once at least, however late this thread begins.
                    while asked == 0 || Instant::now() < until {
                        for key in f.keys.iter().flat_map(|key| [*key, key ^ 1]) {
                            let expected = f.keys.binary_search(&key).ok().map(|_| f.value(key, 1));
                            assert_eq!(reading.get(key), expected);
                            asked += 1;
                        }
                    }
                    asked
                })
            })
            .collect();
        for thread in asking {
            assert!(thread.join().unwrap() > KEYS);
        }
        done.store(true, Ordering::Relaxed);
    });
}

for_all_keys!(
    random_contents_change_no_answer,
    wrong_slots_of_the_right_window_change_no_answer,
    a_hit_is_one_read_of_one_slot,
    absent_keys_are_never_answered_from_the_cache_alone,
    after_a_conflict_the_entry_goes_and_the_option_decides,
    a_conflict_in_a_long_window_keeps_its_cost_and_its_option,
    keys_that_fall_back_to_a_range_read_are_learned_too,
    a_cached_slot_that_is_being_written_is_waited_for,
    a_cached_slot_of_a_replaced_segment_is_stale,
    threads_that_share_a_hot_cache_with_a_vandal_get_right_answers,
);
