//! Limits of the hot cache: what it may say whatever it holds, and what it may take.

use std::collections::HashMap;

use fpcache::cache::{CacheProbe, CacheShape, HotCache, NoCache, Policy, Variant};
use fpcache_index::Window;
use proptest::prelude::*;

/// The hash as the tests choose it: few buckets and few tags, so that keys get in each other's way.
fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xff00_0000_0000_000f
}

fn cache_probe(key: u64, epsilon: u32) -> CacheProbe {
    let predicted = (key % 5_000) as u32;
    let window = Window { first: predicted.saturating_sub(epsilon), last: (predicted + epsilon).min(4_999) };
    CacheProbe {
        hash: hash(key),
        key,
        predicted,
        window,
        slots: 4096 + key / 5_000 * 200_000,
        slot_bytes: 24,
    }
}

/// Whether an entry that was learned for `a` may be taken for `b`'s: never more of them than the
/// low 14 bits of the hashes and the bucket agree, and where entries hold keys, only the same key.
fn alike(variant: Variant, a: u64, b: u64) -> bool {
    match variant {
        Variant::Fd | Variant::F => {
            hash(a).max(1) & 0x3fff == hash(b).max(1) & 0x3fff || (hash(a) | hash(b)) & 0xf <= 1
        }
        _ => a == b,
    }
}

fn shapes() -> impl Strategy<Value = CacheShape> {
    let variant = prop::sample::select(Variant::ALL);
    let policy = prop::sample::select(Policy::ALL);
    let epsilon = prop::sample::select(vec![0u32, 1, 8, 32, 255, 256, 4096, u32::MAX]);
    (variant, policy, epsilon, any::<u16>()).prop_map(|(variant, policy, epsilon, segments)| CacheShape {
        variant,
        policy,
        epsilon,
        segments: segments.into(),
        keys: u64::MAX,
    })
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The key lies this share of its window in, of 256.
    Learn(u64, u8),
    Probe(u64),
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0u64..12_000;
    let step = prop_oneof![
        8 => (key(), any::<u8>()).prop_map(|(key, share)| Step::Learn(key % 300 * 40, share)),
        8 => key().prop_map(|key| Step::Probe(key % 300 * 40)),
        1 => (key(), any::<u8>()).prop_map(|(key, share)| Step::Learn(key, share)),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    #[test]
    fn hints_name_slots_of_the_window_that_were_learned_for_such_a_key(shape in shapes(), steps in steps()) {
        let cache = HotCache::new(4_000, &shape).expect("room for buckets");
        let mut handle = cache.handle(1);
        let epsilon = shape.epsilon.min(4096);
        // Everything ever learned since the last clear: key, and what an entry would hold.
        let mut learned: Vec<(CacheProbe, u32)> = Vec::new();
        let mut latest = HashMap::new();
        let (mut hits, mut misses, mut conflicts) = (0, 0, 0);
        for step in steps {
            match step {
                Step::Learn(key, share) => {
                    let probe = cache_probe(key, epsilon);
                    let slot = probe.window.first + probe.window.len() * u32::from(share) / 256;
                    cache.learn(&probe, slot, 544, &mut handle);
                    misses += 1;
                    learned.push((probe, slot));
                    latest.insert(key, slot);
                }
                Step::Probe(key) => {
                    let probe = cache_probe(key, epsilon);
                    let Some(hint) = cache.probe(&probe) else { continue };
                    prop_assert!(probe.window.contains(hint.slot));
                    // What an entry keeps of a slot: its distance from the prediction, or its
                    // address.
                    let same = |(other, slot): &(CacheProbe, u32)| match shape.variant {
                        Variant::Fd | Variant::D => {
                            hint.slot.wrapping_sub(probe.predicted) == slot.wrapping_sub(other.predicted)
                        }
                        _ => other.slots == probe.slots && hint.slot == *slot,
                    };
                    let origin = learned.iter().any(|one| alike(shape.variant, one.0.key, key) && same(one));
                    prop_assert!(origin, "nobody learned slot {} for key {}", hint.slot, key);
                    if latest.get(&key) == Some(&hint.slot) {
                        cache.confirm(&probe, hint, &mut handle);
                        hits += 1;
                        prop_assert_eq!(cache.probe(&probe).map(|again| again.slot), Some(hint.slot));
                    } else {
                        let before = cache.entries();
                        cache.forget(&probe, hint, &mut handle);
                        conflicts += 1;
                        prop_assert_eq!(cache.entries(), before - 1);
                    }
                }
                Step::Clear => {
                    cache.clear();
                    learned.clear();
                    prop_assert_eq!(cache.entries(), 0);
                }
            }
            prop_assert!(cache.entries() <= cache.capacity());
        }
        drop(handle);
        let counts = cache.counts();
        prop_assert_eq!((counts.hits, counts.misses, counts.conflicts), (hits, misses, conflicts));
    }

    #[test]
    fn hostile_contents_never_panic_nor_leave_the_window(
        shape in shapes(),
        words in prop::collection::vec(prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), any::<u64>()], 1..64),
        keys in prop::collection::vec(any::<u64>(), 1..200),
        place: (u32, u32, u32, u64, u32),
        share: u8,
    ) {
        let cache = HotCache::new(3_000, &shape).expect("room for buckets");
        let mut at = words.iter().cycle();
        cache.overwrite(|| *at.next().expect("at least one word"));
        let mut handle = cache.handle(9);
        for key in keys {
            let (predicted, a, b, slots, slot_bytes) = place;
            let hostile = CacheProbe { hash: key, key, predicted, window: Window { first: a.min(b), last: a.max(b) }, slots, slot_bytes };
            // What the words hold is met under their own bits too.
            let named = CacheProbe { hash: words[key as usize % words.len()], key: words[0], ..hostile };
            for probe in [cache_probe(key % 10_000, 4096), CacheProbe { hash: key, ..cache_probe(key % 10_000, 4096) }, hostile, named] {
                if let Some(hint) = cache.probe(&probe) {
                    prop_assert!(probe.window.contains(hint.slot));
                    match share % 3 {
                        0 => cache.confirm(&probe, hint, &mut handle),
                        1 => cache.forget(&probe, hint, &mut handle),
                        _ => {}
                    }
                }
                let slot = if share % 2 == 0 { probe.window.first } else { share.into() };
                cache.learn(&probe, slot, slot_bytes, &mut handle);
            }
            prop_assert!(cache.entries() <= cache.capacity());
        }
    }

    #[test]
    fn budgets_are_kept_to_the_byte(shape in shapes(), bytes in prop_oneof![0usize..2_000, 0usize..300_000]) {
        match HotCache::new(bytes, &shape) {
            Ok(cache) => {
                let taken = cache.size_in_bytes();
                prop_assert!(taken <= bytes && taken + 64 > bytes, "{taken} of {bytes}");
                prop_assert!(cache.capacity() > 0);
            }
            Err(error) => {
                prop_assert_eq!(error, NoCache::TooSmall(bytes));
                prop_assert!(bytes < 700, "{} bytes are enough for a bucket", bytes);
            }
        }
    }
}

#[test]
fn every_variant_gives_back_every_slot_of_every_window() {
    for variant in Variant::ALL {
        for epsilon in [0, 1, 7, 32, 2048, 4096] {
            let shape =
                CacheShape { variant: *variant, policy: Policy::Lru, epsilon, segments: 10, keys: u64::MAX };
            let cache = HotCache::new(1_000, &shape).expect("room");
            let mut handle = cache.handle(1);
            for predicted in [0, epsilon, 4_999] {
                let window = Window { first: predicted.saturating_sub(epsilon), last: predicted + epsilon };
                for slot in window.first..=window.last {
                    let hash = u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let slots = (1 << 48) - 10_000 * 1_024;
                    let probe =
                        CacheProbe { hash, key: slot.into(), predicted, window, slots, slot_bytes: 1_024 };
                    cache.learn(&probe, slot, 544, &mut handle);
                    let hint = cache.probe(&probe).expect("newcomers come in by this policy");
                    assert_eq!(hint.slot, slot, "{variant} at epsilon {epsilon}, predicted {predicted}");
                    cache.forget(&probe, hint, &mut handle);
                    assert!(cache.probe(&probe).is_none());
                }
            }
        }
    }
}

#[test]
fn a_slot_outside_the_window_is_not_learned() {
    for variant in Variant::ALL {
        let shape = CacheShape { variant: *variant, epsilon: 32, keys: 6_000, ..CacheShape::default() };
        let cache = HotCache::new(1 << 16, &shape).expect("room");
        let mut handle = cache.handle(1);
        let probe = cache_probe(100, 32);
        [probe.window.first - 1, probe.window.last + 1, u32::MAX]
            .into_iter()
            .for_each(|slot| cache.learn(&probe, slot, 544, &mut handle));
        assert_eq!(cache.entries(), 0);
        assert_eq!(cache.counts().misses, 3);
    }
}

#[test]
fn compact_entries_hold_four_times_as_many_keys_as_full_ones() {
    let capacity = |variant| {
        let shape =
            CacheShape { variant, epsilon: 32, segments: 100_000, keys: u64::MAX, ..CacheShape::default() };
        HotCache::new(8 << 20, &shape).expect("room").capacity()
    };
    assert_eq!(capacity(Variant::Fd), 4 * capacity(Variant::Full));
    assert_eq!(capacity(Variant::F), 2 * capacity(Variant::Full));
    assert_eq!(2 * capacity(Variant::D), 3 * capacity(Variant::Full));
}

#[test]
fn threads_share_one_cache_and_every_count_is_kept() {
    let shape = CacheShape { epsilon: 32, segments: 100, keys: 9_000, ..CacheShape::default() };
    let cache = HotCache::new(1 << 15, &shape).expect("room");
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                let mut handle = cache.handle(seed);
                for step in 0..20_000u64 {
                    let key = step.wrapping_mul(seed * 2 + 1) % 9_000;
                    let probe =
                        CacheProbe { hash: key.wrapping_mul(0x9e37_79b9_7f4a_7c15), ..cache_probe(key, 32) };
                    match cache.probe(&probe) {
                        Some(hint) if hint.slot == probe.predicted => {
                            cache.confirm(&probe, hint, &mut handle)
                        }
                        Some(hint) => cache.forget(&probe, hint, &mut handle),
                        None => cache.learn(&probe, probe.predicted, 544, &mut handle),
                    }
                }
            });
        }
    });
    let counts = cache.counts();
    assert_eq!(counts.hits + counts.misses + counts.conflicts, 80_000);
    assert!(counts.hits > 10_000, "{counts:?}");
}

#[test]
fn no_limit_takes_what_the_keys_can_fill_and_holds_nearly_all_of_them() {
    for variant in Variant::ALL {
        for policy in Policy::ALL {
            for (keys, segments) in [(0, 0), (1, 1), (1_000, 6), (10_000, u64::MAX)] {
                let shape = CacheShape { variant: *variant, policy: *policy, epsilon: 32, segments, keys };
                let cache = HotCache::new(usize::MAX, &shape).expect("little is needed");
                assert!((2 * keys..2 * keys + 16).contains(&cache.capacity()) || keys == 0, "{shape:?}");
                assert!(cache.size_in_bytes() < 10_000 + 40 * keys as usize, "{shape:?}");
                let mut handle = cache.handle(1);
                let probes =
                    || (0..keys).map(|key| CacheProbe { hash: scattered(key), ..cache_probe(key, 32) });
                probes().for_each(|probe| cache.learn(&probe, probe.predicted, 544, &mut handle));
                let held = probes().filter(|probe| cache.probe(probe).is_some()).count() as u64;
                assert!(held >= keys * 9 / 10, "{held} of {keys} keys: {shape:?}");
            }
        }
    }
}

fn scattered(key: u64) -> u64 {
    let bits = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[test]
fn memory_that_cannot_be_had_is_an_error_with_a_remedy() {
    for policy in Policy::ALL {
        let shape =
            CacheShape { policy: *policy, segments: u64::MAX, keys: u64::MAX, ..CacheShape::default() };
        for bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
            let error = HotCache::new(bytes, &shape).expect_err("nobody has so much");
            assert!(matches!(error, NoCache::Memory(needed) if needed <= bytes as u64), "{error:?}");
            assert!(error.to_string().contains("lower the cache budget"), "{error}");
        }
    }
}

#[test]
fn slots_near_the_end_of_their_numbers_are_learned_like_others() {
    for variant in Variant::ALL {
        let shape = CacheShape { variant: *variant, epsilon: 32, keys: 100, ..CacheShape::default() };
        let cache = HotCache::new(1 << 16, &shape).expect("room");
        let mut handle = cache.handle(1);
        let window = Window { first: u32::MAX - 64, last: u32::MAX };
        let probe =
            CacheProbe { predicted: u32::MAX - 32, window, slots: 4096, slot_bytes: 0, ..cache_probe(7, 32) };
        for slot in [u32::MAX - 64, u32::MAX - 1, u32::MAX] {
            cache.learn(&probe, slot, 544, &mut handle);
            assert!(cache.probe(&probe).is_none_or(|hint| window.contains(hint.slot)));
        }
    }
}
