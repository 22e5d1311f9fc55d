use super::*;
use fpcache_fabric::{Access, HugePages, SharedMemory};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// Memory of which nothing goes back, as that of a file system that makes no holes: only those who
/// map it already can write to it.
pub(crate) fn memory_that_stays(bytes: usize) -> SharedMemory {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memory file");
    ftruncate(&file, bytes as u64).expect("room");
    let memory = SharedMemory::map(&file, bytes, Access::ReadWrite).expect("memory");
    fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).expect("a memory file");
    memory
}

fn region(bytes: usize) -> Arc<SharedMemory> {
    Arc::new(SharedMemory::create_memfd("test", bytes, HugePages::No).expect("memory").0)
}

#[test]
fn regions_take_steps_of_one_budget_and_give_them_back() {
    let budget = Budget::new(1 << 20);
    let (a, b) = (region(1 << 20), region(1 << 20));
    let first = Grant::of(&budget, &a, u64::MAX).expect("room");
    assert_eq!((first.end(), budget.granted()), (16 << 10, 16 << 10));
    first.cover(900 << 10).expect("room");
    let second = Grant::of(&budget, &b, u64::MAX).expect("room");
    assert_eq!(second.reach(), (1 << 20) - first.end(), "what the first has left");
    assert_eq!(second.cover(second.reach() + 8), Err(Denied::Budget));
    assert_eq!(second.end(), 16 << 10, "nothing was taken");
    second.cover(second.reach()).expect("room, though no whole step");
    assert_eq!(budget.left(), 0);
    drop(first);
    assert_eq!(budget.granted(), second.end());
    second.cover(1 << 20).expect("room again");
    assert_eq!(second.cover((1 << 20) + 8), Err(Denied::Region));
    b.store_relaxed(512 << 10, 7).expect("inside");
    second.shrink_to(4096);
    assert_eq!((budget.granted(), b.load_relaxed(512 << 10).expect("inside")), (16 << 10, 0));
    drop(second);
    assert_eq!(budget.granted(), 0);
}

/// A load that is given up gives its memory back in steps; who wants memory meanwhile is not
/// refused what is nobody's.
#[test]
fn what_is_on_its_way_back_can_be_had_at_once() {
    let budget = Budget::new(16 << 20);
    let (a, b, c) = (region(16 << 20), region(16 << 20), region(16 << 20));
    let given_up = Grant::of(&budget, &a, u64::MAX).expect("room");
    given_up.cover(14 << 20).expect("room");
    a.store_relaxed(9 << 20, 7).expect("inside");
    let wants = Grant::of(&budget, &b, u64::MAX).expect("room");
    assert_eq!(wants.cover(8 << 20), Err(Denied::Budget), "it is in use");
    given_up.begin_returning();
    assert_eq!(wants.reach(), (16 << 20) - (16 << 10), "all but the first page of the one that was given up");
    wants.cover(8 << 20).expect("room");
    assert!(budget.left() < 2 << 20, "no more came back than was missing: {} left", budget.left());
    assert!(given_up.end() > 4 << 20 && budget.granted() == given_up.end() + wants.end());
    // A load that begins in the region goes on with what it still has, and nobody takes it away.
    given_up.end_returning();
    let kept = given_up.end();
    assert_eq!(wants.cover(wants.end() + budget.left() + 8), Err(Denied::Budget));
    assert_eq!(given_up.end(), kept);
    // In steps, if nobody wants it; and nothing is counted twice of a region that ends meanwhile.
    given_up.begin_returning();
    while given_up.step_returning() {}
    assert_eq!((given_up.end(), budget.granted()), (16 << 10, (16 << 10) + wants.end()));
    wants.begin_returning();
    drop(wants);
    assert_eq!(budget.granted(), 16 << 10);
    given_up.cover(10 << 20).expect("room");
    assert_eq!(a.load_relaxed(9 << 20).expect("inside"), 0, "the memory went back");
    let last = Grant::of(&budget, &c, u64::MAX).expect("room");
    assert_eq!(last.cover(8 << 20), Err(Denied::Budget));
}

/// What is not granted is not touched for those who read over sockets: the region says where that
/// begins.
#[test]
fn a_region_is_backed_as_far_as_it_is_granted() {
    let (budget, memory) = (Budget::new(1 << 20), region(1 << 20));
    let grant = Grant::of(&budget, &memory, u64::MAX).expect("room");
    assert_eq!(memory.backed_end(), 16 << 10);
    grant.cover(512 << 10).expect("room");
    assert_eq!(memory.backed_end(), grant.end());
    grant.shrink_to(4096);
    assert_eq!((memory.backed_end(), grant.end()), (16 << 10, 16 << 10));
}

#[test]
fn what_the_operating_system_does_not_take_back_stays_granted() {
    let memory = memory_that_stays(1 << 20);
    let budget = Budget::new(1 << 20);
    let grant = Grant::of(&budget, &Arc::new(memory), u64::MAX).expect("room");
    grant.cover(512 << 10).expect("room");
    let granted = budget.granted();
    grant.shrink_to(4096);
    assert_eq!((budget.granted(), grant.end()), (granted, granted));
}

#[test]
fn what_a_store_has_already_is_granted_whatever_the_budget() {
    let budget = Budget::new(64 << 10);
    let memory = region(1 << 20);
    let grant = Grant::resumed(&budget, &memory, u64::MAX).expect("memory");
    grant.claim(100_000).expect("memory");
    assert_eq!(grant.claim((1 << 20) + 8), Err(Denied::Region));
    [99_992, 512 << 10].into_iter().for_each(|at| memory.store_relaxed(at, 7).expect("inside"));
    grant.discard_rest();
    let left = [99_992, 512 << 10].map(|at| memory.load_relaxed(at).expect("inside"));
    assert_eq!(left, [7, 0], "what another process had used after it goes back");
    assert!(grant.end() >= 100_000 && budget.left() == 0);
    assert_eq!(grant.cover(grant.end() + 8), Err(Denied::Budget));
    let whole = Grant::whole(5000);
    assert_eq!((whole.reach(), whole.cover(5000), whole.cover(5001)), (5000, Ok(()), Err(Denied::Region)));
}

#[test]
fn what_is_restored_may_go_beyond_limit_and_budget_and_stays() {
    let budget = Budget::new(256 << 10);
    let memory = region(1 << 20);
    let grant = Grant::of(&budget, &memory, 128 << 10).expect("room");
    assert_eq!((grant.reach(), grant.cover((128 << 10) + 8)), (128 << 10, Err(Denied::Region)));
    grant.begin_restoring();
    assert_eq!(grant.reach(), 1 << 20);
    grant.cover(600 << 10).expect("whatever the budget says");
    grant.end_restoring();
    let end = grant.end();
    assert!(end >= 600 << 10 && grant.reach() == end && budget.granted() == end);
    assert_eq!(grant.cover(end + 8), Err(Denied::Region));
    grant.shrink_to(300_000);
    assert!((300_000..320_000).contains(&grant.end()), "{}", grant.end());
    grant.shrink_to(1000);
    assert_eq!((grant.end(), grant.reach(), budget.left()), (16 << 10, 128 << 10, 240 << 10));
    let alone = Grant::limited(1 << 20, 64 << 10);
    assert_eq!((alone.reach(), alone.cover((64 << 10) + 8)), (64 << 10, Err(Denied::Region)));
    alone.begin_restoring();
    alone.cover(100 << 10).expect("as far as the memory reaches");
    alone.end_restoring();
    assert!(alone.reach() == alone.end() && alone.end() >= 100 << 10);
}

#[test]
fn remedies_count_what_others_have() {
    let budget = Budget::new(1 << 20);
    let (a, b) = (region(1 << 20), region(256 << 10));
    let alone = Grant::of(&budget, &a, u64::MAX).expect("room");
    assert!(alone.remedy(8 << 20).contains("--capacity 8MiB"), "{}", alone.remedy(8 << 20));
    alone.cover(512 << 10).expect("room");
    let small = Grant::of(&budget, &b, u64::MAX).expect("room");
    assert!(small.remedy(400 << 10).contains("--region-bytes 400KiB"), "{}", small.remedy(400 << 10));
    let remedy = small.remedy(8 << 20);
    assert!(remedy.contains("drop other tables, which use 512.0 KiB") && remedy.contains("9MiB"), "{remedy}");
}

#[test]
fn what_ends_a_region_is_known() {
    let budget = Budget::new(1 << 20);
    let (a, b) = (region(1 << 20), region(256 << 10));
    let (whole, short) =
        (Grant::of(&budget, &a, u64::MAX).expect("room"), Grant::of(&budget, &b, u64::MAX).expect("room"));
    assert_eq!((whole.is_at_limit(), short.is_at_limit()), (false, true));
    whole.cover(900 << 10).expect("room");
    assert_eq!((whole.is_at_limit(), short.is_at_limit()), (false, false), "others have the rest");
}

/// What is left was looked at and taken in two steps.
#[test]
fn threads_that_take_the_last_byte_take_no_more_than_there_is() {
    let (budget, both) = (Budget::new(1), std::sync::Barrier::new(2));
    let take_and_give_back = || {
        both.wait();
        for _ in 0..2_000_000 {
            if budget.take(1, 1).is_some() {
                assert_eq!(budget.granted(), 1);
                budget.give_back(1);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(take_and_give_back);
        take_and_give_back();
    });
    assert_eq!(budget.granted(), 0);
}

/// A table with memory that it does not use is asked for it once another was denied some, until as
/// much came back.
#[test]
fn a_denial_is_known_until_there_is_as_much_again() {
    let budget = Budget::new(1 << 20);
    let (a, b) = (region(1 << 20), region(1 << 20));
    let has = Grant::of(&budget, &a, u64::MAX).expect("room");
    assert!(has.cover((1 << 20) + 8).is_err() && !budget.take_missed_anew(), "that is the region's end");
    let wants = Grant::of(&budget, &b, u64::MAX).expect("room");
    has.cover(900 << 10).expect("room");
    assert!(!has.is_short() && !budget.take_missed_anew());
    assert_eq!(wants.cover(512 << 10), Err(Denied::Budget));
    assert!(has.is_short() && budget.take_missed_anew() && !budget.take_missed_anew());
    assert_eq!(wants.cover(400 << 10), Err(Denied::Budget));
    assert!(!budget.take_missed_anew(), "more was missed before");
    has.shrink_to(800 << 10);
    assert!(has.is_short());
    has.shrink_to(100 << 10);
    assert!(!has.is_short());
    wants.cover(512 << 10).expect("room");
    assert!(!has.is_short() && !wants.is_short());
}

/// Each byte that came back counted twice, so that half of them ended the denial.
#[test]
fn a_denial_lasts_until_all_of_it_is_there() {
    let budget = Budget::new(1 << 20);
    let a = region(1 << 20);
    let has = Grant::of(&budget, &a, u64::MAX).expect("room");
    has.cover(1 << 20).expect("room");
    budget.miss(100 * 4096);
    for page in 1..100 {
        budget.give_back(4096);
        assert!(budget.is_short(), "after {page} of 100 pages");
    }
    budget.give_back(4096);
    assert!(!budget.is_short());
    budget.claim(100 * 4096);
}

/// Other tables were asked for what they did not use for good.
#[test]
fn a_denial_of_more_than_there_is_ends_when_as_much_came_back() {
    let budget = Budget::new(1 << 20);
    let (a, b) = (region(1 << 20), region(8 << 20));
    let has = Grant::of(&budget, &a, u64::MAX).expect("room");
    let wants = Grant::of(&budget, &b, u64::MAX).expect("room");
    assert_eq!(wants.cover(4 << 20), Err(Denied::Budget));
    for _ in 0..5 {
        has.cover(900 << 10).expect("room");
        assert!(has.is_short());
        has.shrink_to(4096);
    }
    has.cover(900 << 10).expect("room");
    assert!(!has.is_short() && !budget.is_short());
}

proptest! {
    #[test]
    fn grants_add_up_to_what_the_budget_counts(steps in prop::collection::vec((0usize..4, 0u64..600_000, any::<bool>()), 1..60)) {
        let budget = Budget::new(1_000_000);
        let memories: Vec<_> = (0..4).map(|_| region(500_000)).collect();
        let mut grants: Vec<Option<Arc<Grant>>> = vec![None; 4];
        for (which, end, grows) in steps {
            match &grants[which] {
                None => grants[which] = Grant::of(&budget, &memories[which], u64::MAX).ok(),
                Some(grant) if grows => {
                    let reach = grant.reach();
                    prop_assert_eq!(grant.cover(end).is_ok(), end <= reach);
                    prop_assert!(end > reach || grant.end() >= end);
                }
                Some(grant) if end < 300_000 => grant.shrink_to(end),
                Some(_) => grants[which] = None,
            }
            let sum: u64 = grants.iter().flatten().map(|grant| grant.end()).sum();
            prop_assert_eq!(budget.granted(), sum);
            prop_assert!(sum <= budget.bytes());
        }
    }
}
