//! Tests of every interleaving of two threads on one bucket, as the C++ memory model allows them,
//! explored by loom: `RUSTFLAGS="--cfg loom" cargo test -p fpcache --release --lib cache::loom_tests`.

use fpcache_index::Window;
use loom::sync::Arc;
use loom::thread;

use super::deltas::Deltas;
use super::entries::{SeenEntry, replace};
use super::fd::Fd;
use super::packing::Packing;
use super::{CacheHandle, CacheProbe, CacheShape, CachedSlot, HotCache, Policy, Variant};

const WINDOW: Window = Window { first: 100, last: 164 };

fn cache_probe(key: u64) -> CacheProbe {
    CacheProbe { hash: key, key, predicted: 132, window: WINDOW, slots: 4096, slot_bytes: 24 }
}

/// One bucket.
fn cache(variant: Variant, policy: Policy) -> Arc<HotCache> {
    let shape = CacheShape { variant, policy, epsilon: 32, segments: 0, keys: 1 };
    let smallest = (0..4096).find_map(|bytes| HotCache::new(bytes, &shape).ok());
    Arc::new(smallest.expect("a bucket fits"))
}

fn learn(cache: &HotCache, key: u64, slot: u32) {
    cache.learn(&cache_probe(key), slot, 544, &mut CacheHandle::default());
}

fn slot(cache: &HotCache, key: u64) -> Option<u32> {
    cache.probe(&cache_probe(key)).map(|cached| cached.slot)
}

fn cached(cache: &HotCache, key: u64) -> CachedSlot {
    cache.probe(&cache_probe(key)).expect("just learned")
}

#[test]
fn no_entry_appears_that_nobody_wrote() {
    loom::model(|| {
        let cache = cache(Variant::Fd, Policy::Frequency);
        learn(&cache, 1, 101);
        let others = cache.clone();
        let other = thread::spawn(move || {
            // The same tag, elsewhere: takes the entry's place.
            learn(&others, 1, 102);
            learn(&others, 2, 103);
        });
        assert!([None, Some(101), Some(102)].contains(&slot(&cache, 1)));
        assert!([None, Some(103)].contains(&slot(&cache, 2)));
        assert_eq!(slot(&cache, 3), None);
        other.join().expect("no panic");
        assert_eq!((slot(&cache, 1), slot(&cache, 2)), (Some(102), Some(103)));
    });
}

#[test]
fn two_newcomers_leave_one_of_them_or_both() {
    for variant in [Variant::Fd, Variant::F] {
        loom::model(move || {
            let cache = cache(variant, Policy::Frequency);
            let others = cache.clone();
            let other = thread::spawn(move || learn(&others, 1, 101));
            learn(&cache, 2, 102);
            other.join().expect("no panic");
            let (one, two) = (slot(&cache, 1), slot(&cache, 2));
            assert!([None, Some(101)].contains(&one) && [None, Some(102)].contains(&two));
            assert!(one.is_some() || two.is_some());
            assert_eq!(cache.entries(), u64::from(one.is_some()) + u64::from(two.is_some()));
        });
    }
}

#[test]
fn what_replaced_a_forgotten_entry_stays() {
    loom::model(|| {
        let cache = cache(Variant::Fd, Policy::Frequency);
        learn(&cache, 1, 101);
        let wrong = cached(&cache, 1);
        let others = cache.clone();
        let other = thread::spawn(move || {
            let packing = Fd::from(Deltas::new(32));
            let entry_bits = packing.encode_slot(&cache_probe(2), 102).expect("inside the window");
            let bucket = others.only_bucket();
            replace::<Fd>(bucket, &mut bucket.words(), SeenEntry::by(wrong, &cache_probe(1)), entry_bits)
        });
        cache.forget(&cache_probe(1), wrong, &mut CacheHandle::default());
        let replaced = other.join().expect("no panic");
        assert_eq!(slot(&cache, 1), None);
        assert_eq!(slot(&cache, 2), replaced.then_some(102));
    });
}

#[test]
fn changes_to_two_entries_of_one_word_are_both_kept() {
    loom::model(|| {
        let cache = cache(Variant::Fd, Policy::Lru);
        let bucket = cache.only_bucket();
        let packing = Fd::from(Deltas::new(32));
        let [low, high] =
            [1, 2].map(|key| packing.encode_slot(&cache_probe(key), 100 + key as u32).expect("inside"));
        bucket.0[0].store(high << 32 | low, std::sync::atomic::Ordering::Relaxed);
        let (first, second) = (cached(&cache, 1), cached(&cache, 2));
        let others = cache.clone();
        let other =
            thread::spawn(move || others.confirm(&cache_probe(1), first, &mut CacheHandle::default()));
        cache.forget(&cache_probe(2), second, &mut CacheHandle::default());
        other.join().expect("no panic");
        assert_eq!(bucket.words()[0], Fd::at_level(low, 15));
    });
}

#[test]
fn a_hit_never_brings_a_forgotten_entry_back() {
    for variant in Variant::ALL {
        loom::model(move || {
            // A newcomer is at level 0, which the first hit raises.
            let cache = cache(*variant, Policy::Frequency);
            learn(&cache, 1, 101);
            let learned = cached(&cache, 1);
            let others = cache.clone();
            let other =
                thread::spawn(move || others.confirm(&cache_probe(1), learned, &mut CacheHandle::default()));
            cache.forget(&cache_probe(1), learned, &mut CacheHandle::default());
            other.join().expect("no panic");
            assert_eq!((slot(&cache, 1), cache.entries()), (None, 0));
        });
    }
}

#[test]
fn mixed_keys_and_marks_stay_inside_the_window_and_can_be_forgotten() {
    for variant in [Variant::D, Variant::Full] {
        loom::model(move || {
            let cache = cache(variant, Policy::Frequency);
            let others = cache.clone();
            let other = thread::spawn(move || learn(&others, 1, 101));
            learn(&cache, 2, 102);
            other.join().expect("no panic");
            assert!(cache.entries() <= 2);
            for key in [1, 2] {
                if let Some(cached) = cache.probe(&cache_probe(key)) {
                    assert!([101, 102].contains(&cached.slot));
                    cache.forget(&cache_probe(key), cached, &mut CacheHandle::default());
                }
                assert_eq!(slot(&cache, key), None);
            }
        });
    }
}
