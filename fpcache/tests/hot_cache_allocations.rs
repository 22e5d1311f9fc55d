//! The hot cache takes what it says, and allocates nothing once it is there. Alone in its process,
//! without a harness's thread: the allocator counts all threads.

use std::alloc::System;

use fpcache::cache::{CacheProbe, CacheShape, HotCache, Policy, Variant};
use fpcache_index::Window;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    what_is_allocated_is_what_is_said_and_nothing_comes_later();
}

fn what_is_allocated_is_what_is_said_and_nothing_comes_later() {
    for variant in Variant::ALL {
        for policy in Policy::ALL {
            for bytes in [1_000, 70_001, 1 << 20, usize::MAX] {
                let (variant, policy) = (*variant, *policy);
                let shape = CacheShape { variant, policy, epsilon: 32, segments: 1_000, keys: 9_000 };
                let region = Region::new(ALLOCATOR);
                let cache = HotCache::new(bytes, &shape).expect("room");
                let made = region.change();
                let held = made.bytes_allocated - made.bytes_deallocated;
                assert_eq!(held + size_of::<HotCache>(), cache.size_in_bytes(), "{shape:?} in {bytes}");

                let region = Region::new(ALLOCATOR);
                let mut handle = cache.handle(1);
                for key in 0..50_000u64 {
                    let window = Window { first: 0, last: 64 };
                    let hash = (key % 9_000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let probe = CacheProbe {
                        hash,
                        key,
                        predicted: 32,
                        window,
                        slots: key / 190 * 6_000,
                        slot_bytes: 24,
                    };
                    match cache.probe(&probe) {
                        Some(hint) if key % 7 == 0 => cache.forget(&probe, hint, &mut handle),
                        Some(hint) => cache.confirm(&probe, hint, &mut handle),
                        None => cache.learn(&probe, (key % 65) as u32, 544, &mut handle),
                    }
                }
                assert!(cache.counts().misses > 0 && cache.entries() > 0);
                cache.clear();
                drop(handle);
                assert_eq!(region.change().allocations, 0);
            }
        }
    }
}
