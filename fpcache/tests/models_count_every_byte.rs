//! What models say they take is what they allocate, and never more than they were given.
//!
//! One test, alone in its process: the counts are those of the whole process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use allocations::{SPARE, live};
use common::Region;
use fpcache::key_space::U64Keys;
use fpcache::layout::PAGE_BYTES;
use fpcache::models::{Models, PagedModels};
use fpcache::snapshot::{OpenError, Snapshot};
use rand::{Rng, SeedableRng, rngs::SmallRng};
/// Compares what the models say with the bytes live since there were `before`, and the value itself.
fn assert_counted(snapshot: &Snapshot<U64Keys>, before: usize) {
    // A snapshot's stride is not its models'.
    let beside = snapshot.stride().heap_bytes();
    let taken = live() - before - beside + size_of::<Models<U64Keys>>();
    let counted = snapshot.model_bytes();
    assert!(taken <= counted && counted <= taken + SPARE, "{counted} bytes counted, {taken} taken");
}

#[test]
fn paged_and_resident_models_count_every_byte_and_stay_within_theirs() {
    let mut rng = SmallRng::seed_from_u64(1);
    let full = vec![102; 400];
    let uneven: Vec<usize> = (0..400).map(|_| rng.random_range(1..=102)).collect();
    let small = vec![1; 400];
    for counts in [full, uneven, small, vec![102], vec![102; 3]] {
        let region = Region::new(&counts);
        let mut endpoint = region.endpoint();
        let whole = {
            let before = live();
            let snapshot = Snapshot::<U64Keys>::open(&mut endpoint).unwrap();
            assert_counted(&snapshot, before);
            snapshot.model_bytes()
        };
        let least = PagedModels::<U64Keys>::least_bytes(counts.len() as u64);
        for budget in [least, least + 1, least + 5000, 40_000, 70_000, 200_000, 700_000, 1_500_000] {
            let before = live();
            let Ok(snapshot) = Snapshot::<U64Keys>::open_within(&mut endpoint, budget as u64) else {
                assert!(budget < least.min(whole), "{budget} bytes refused, {least} are needed");
                continue;
            };
            assert!(snapshot.model_bytes() <= budget);
            assert_counted(&snapshot, before);
            if let Some(models) = snapshot.models().paged() {
                keep_random_pages(&region, models, budget, &mut rng);
            } else {
                assert!(whole <= budget);
            }
            assert_counted(&snapshot, before);
        }
        let least = least.min(whole);
        let error = Snapshot::<U64Keys>::open_within(&mut endpoint, least as u64 - 1).unwrap_err();
        assert!(matches!(error, OpenError::Budget { .. }), "{error}");
    }
}

fn keep_random_pages(region: &Region, models: &PagedModels<U64Keys>, budget: usize, rng: &mut SmallRng) {
    let mut bytes = [0; PAGE_BYTES];
    for _ in 0..1000 {
        let page = rng.random_range(0..models.pages());
        region.page(page, &mut bytes);
        models.keep(page, &bytes).unwrap();
        let (size, kept) = (models.size_in_bytes(), models.pages_kept());
        assert!(size <= budget, "{size} bytes of {budget} with {kept} pages");
        assert!(models.kept(page).is_some(), "the page just kept has gone");
    }
}
