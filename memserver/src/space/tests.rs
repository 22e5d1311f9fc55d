use super::*;
use proptest::prelude::*;

#[test]
fn the_smallest_extent_that_fits_is_taken_and_neighbours_join() {
    let mut space = Space::new([Extent::new(0, 64), Extent::new(128, 32)]);
    assert_eq!(space.take(30), Some(Extent { offset: 128, len: 32 }));
    let piece = space.take(1).expect("room");
    assert_eq!(piece, Extent { offset: 0, len: 8 });
    assert_eq!(space.take(64), None);
    space.put(piece);
    assert_eq!(space.take(64), Some(Extent { offset: 0, len: 64 }));
    assert_eq!(space.take(u64::MAX), None);
}

#[test]
fn quarantined_bytes_come_back_in_the_order_of_their_tags() {
    let mut space = Space::default();
    space.retire(3, Extent::new(0, 8));
    space.retire(5, Extent::new(8, 8));
    assert_eq!((space.newest_tag(2), space.newest_tag(4), space.newest_tag(9)), (None, Some(3), Some(5)));
    space.release(4);
    assert_eq!((space.free_bytes(), space.quarantined_bytes()), (8, 8));
    assert_eq!(space.take(16), None);
    space.release(5);
    assert_eq!(space.take(16), Some(Extent { offset: 0, len: 16 }));
}

/// Very many short segments may wait: they are freed some at a time, those of one change together.
#[test]
fn the_oldest_of_what_waits_can_be_freed_alone() {
    let mut space = Space::default();
    for n in 0..100 {
        space.retire(3 + n / 4, Extent::new(n * 16, 8));
    }
    assert_eq!(space.tag_of_oldest(2, 50), None);
    assert_eq!(space.tag_of_oldest(u64::MAX, 1), Some(3), "one change at least");
    assert_eq!(space.tag_of_oldest(u64::MAX, 11), Some(4));
    assert_eq!(space.tag_of_oldest(u64::MAX, 12), Some(5));
    assert_eq!(space.tag_of_oldest(9, 1000), Some(9));
    let mut steps = 0;
    while let Some(tag) = space.tag_of_oldest(20, 10) {
        let before = space.free_bytes();
        space.release(tag);
        assert!(space.free_bytes() - before <= 80);
        steps += 1;
    }
    assert_eq!((steps, space.free_bytes(), space.newest_tag(20)), (9, 18 * 32, None));
}

#[test]
fn what_is_not_used_is_free() {
    let mut space = Space::around(100 * 8, 200 * 8, vec![Extent::new(150 * 8, 80), Extent::new(800, 8)]);
    assert_eq!(space.free_bytes(), 100 * 8 - 88);
    assert_eq!(space.used_end(1600), 1280);
    assert_eq!(space.take(49 * 8).map(|e| e.offset), Some(808));
}

#[test]
fn just_the_bytes_that_are_asked_for_are_claimed() {
    let mut space = Space::new([Extent::new(64, 64), Extent::new(256, 64)]);
    let refused = [(56, 16), (120, 16), (128, 8), (0, 8), (u64::MAX - 7, 16), (256, 72)];
    for (offset, len) in refused {
        assert!(!space.claim(Extent { offset, len }), "{offset}, {len}");
    }
    assert_eq!(space.free_bytes(), 128);
    assert!(space.claim(Extent::new(80, 16)) && space.claim(Extent::new(256, 64)));
    assert!(!space.claim(Extent::new(80, 8)));
    assert!(space.overlaps(Extent::new(56, 16)) && !space.overlaps(Extent::new(80, 16)));
    assert_eq!((space.free_bytes(), space.take(32)), (48, Some(Extent { offset: 96, len: 32 })));
    assert_eq!(space.take(16), Some(Extent { offset: 64, len: 16 }));
}

#[test]
fn bytes_that_are_claimed_are_granted_whatever_the_budget_says() {
    use fpcache_fabric::{HugePages, SharedMemory};
    let memory = SharedMemory::create_memfd("test", 128 << 10, HugePages::No).expect("memory").0;
    let budget = crate::budget::Budget::new(32 << 10);
    let grant = Grant::of(&budget, &Arc::new(memory), u64::MAX).expect("room");
    let mut space = Space::new([]).with_more(Arc::clone(&grant));
    assert!(!space.claim(Extent { offset: 120 << 10, len: 16 << 10 }), "past the region");
    assert!(space.claim(Extent { offset: 80 << 10, len: 8 << 10 }));
    assert!(grant.end() >= 88 << 10 && budget.left() == 0);
    assert!(
        space.overlaps(Extent { offset: 40 << 10, len: 8 })
            && !space.overlaps(Extent { offset: 80 << 10, len: 8 })
    );
}

#[test]
fn more_of_the_region_is_granted_where_nothing_fits() {
    use fpcache_fabric::{HugePages, SharedMemory};
    let memory = SharedMemory::create_memfd("test", 128 << 10, HugePages::No).expect("memory").0;
    let budget = crate::budget::Budget::new(96 << 10);
    let grant = Grant::of(&budget, &Arc::new(memory), u64::MAX).expect("room");
    let free = Extent { offset: 4096, len: grant.end() - 4096 };
    let mut space = Space::new([free]).with_more(Arc::clone(&grant));
    assert_eq!((space.free_bytes(), grant.end()), (92 << 10, 16 << 10), "all that could be had");
    let first = space.take(20 << 10).expect("more of it");
    assert_eq!(first, Extent { offset: 4096, len: 20 << 10 }, "joined with what was free");
    assert_eq!(grant.end(), 32 << 10);
    assert_eq!((space.used_end(grant.end()), space.free_bytes()), (24 << 10, 72 << 10));
    assert_eq!(space.take(73 << 10), None);
    assert_eq!(space.take(72 << 10).map(|extent| extent.offset), Some(24 << 10));
    assert_eq!((space.free_bytes(), budget.left(), space.take(8)), (0, 0, None));
    space.put(first);
    assert_eq!(space.take(20 << 10), Some(first));
}

#[test]
fn nothing_of_bytes_that_are_being_emptied_is_handed_out() {
    let mut space = Space::new([Extent::new(64, 64), Extent::new(256, 64)]);
    space.set_emptied(Some(96..288));
    assert_eq!(space.longest(), 32);
    space.put(Extent::new(128, 128));
    assert!(space.overlaps(Extent::new(128, 8)) && space.free_bytes() == 256);
    let taken = [space.take(32), space.take(32), space.take(8)].map(|extent| extent.map(|e| e.offset));
    assert_eq!(taken, [Some(64), Some(288), None]);
    space.set_emptied(None);
    assert_eq!((space.longest(), space.free_bytes()), (192, 192));
    assert_eq!(space.take(192).map(|extent| extent.offset), Some(96));
}

#[test]
fn the_bytes_with_the_fewest_in_use_are_found() {
    let space =
        Space::new([Extent::new(0, 8), Extent::new(80, 16), Extent::new(104, 40), Extent::new(192, 8)]);
    let emptiest = |bytes, from, most| {
        let Emptiest { found, go_on_at } = space.emptiest(bytes, from, 400, most, &Obstacles::default());
        (found, go_on_at)
    };
    assert_eq!(emptiest(64, 0, 9), (Some((80..144, 8)), None));
    assert_eq!(emptiest(40, 0, 9), (Some((104..144, 0)), None));
    assert_eq!(emptiest(1000, 0, 9), (None, None));
    // In two searches.
    assert_eq!(emptiest(40, 0, 2), (Some((80..144, 8)), Some(104)));
    assert_eq!(emptiest(40, 104, 2), (Some((104..144, 0)), None));
}

#[test]
fn bytes_that_cannot_be_emptied_are_passed_over_for_the_next_best() {
    let space =
        Space::new([Extent::new(0, 8), Extent::new(80, 16), Extent::new(104, 40), Extent::new(192, 8)]);
    let emptiest = |bytes, obstacles: &[(u64, u64)]| {
        let extents = obstacles.iter().map(|(offset, len)| Extent { offset: *offset, len: *len });
        space.emptiest(bytes, 0, 400, 9, &Obstacles::of(extents.collect())).found
    };
    assert_eq!(emptiest(64, &[(200, 100)]), Some((80..144, 8)));
    assert_eq!(emptiest(64, &[(96, 8)]), Some((104..168, 24)));
    assert_eq!(emptiest(64, &[(96, 8), (144, 8)]), Some((0..64, 56)));
    assert_eq!(emptiest(64, &[(8, 16), (16, 8), (96, 8), (144, 8)]), Some((192..256, 56)));
    // In any order, one within the other, up to the end of everything.
    assert_eq!(emptiest(64, &[(96, u64::MAX), (160, 8), (8, 8)]), None);
}

proptest! {
    #[test]
    fn extents_never_overlap_and_all_bytes_come_back(
        steps in prop::collection::vec((any::<bool>(), 1u64..200, any::<prop::sample::Index>()), 1..200),
    ) {
        let mut space = Space::new([Extent::new(4096, 8000)]);
        let mut held: Vec<Extent> = Vec::new();
        for (take, len, which) in steps {
            if take || held.is_empty() {
                if let Some(extent) = space.take(len) {
                    prop_assert!(extent.offset >= 4096 && extent.end() <= 12096 && extent.len >= len);
                    prop_assert!(held.iter().all(|h| h.end() <= extent.offset || extent.end() <= h.offset));
                    held.push(extent);
                }
            } else {
                space.put(held.swap_remove(which.index(held.len())));
            }
            prop_assert_eq!(space.free_bytes() + held.iter().map(|h| h.len).sum::<u64>(), 8000);
        }
        held.drain(..).for_each(|extent| space.put(extent));
        prop_assert_eq!(space.take(8000), Some(Extent { offset: 4096, len: 8000 }));
    }
}
