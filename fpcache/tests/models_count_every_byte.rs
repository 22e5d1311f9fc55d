//! Models allocate just what they say they take, and never more than they were given.
//!
//! One test, alone in its process: the counts are those of the whole process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use std::borrow::Borrow;

use allocations::{SPARE, live};
use common::{Firsts, Region, first_key, least_bytes};
use fpcache::cache::CacheConfig;
use fpcache::key_space::{ByteKeys, U64Keys};
use fpcache::matching::Matcher;
use fpcache::models::{Models, PagedModels};
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{Lookup, LookupScratch, drive};
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::{OpenError, TableView};
use rand::{Rng, SeedableRng, rngs::SmallRng};

/// Compares what the models say with the bytes live since there were `before`, and the value
/// itself.
fn assert_counted<K: Firsts>(view: &TableView<K>, before: usize) {
    // A view's stride is not its models'.
    let beside = view.stride().heap_bytes();
    let taken = live() - before - beside + size_of::<Models<K>>();
    let counted = view.model_bytes();
    assert!(taken <= counted && counted <= taken + SPARE, "{counted} bytes counted, {taken} taken");
}

#[test]
fn paged_and_resident_models_count_every_byte_and_stay_within_theirs() {
    assert_every_byte_counted::<U64Keys>();
    assert_every_byte_counted::<ByteKeys>();
    assert_lookups_give_pages_back::<U64Keys>();
    assert_lookups_give_pages_back::<ByteKeys>();
}

/// A long group kept every page that it had fetched until the thread's next lookup, whatever the
/// budget.
fn assert_lookups_give_pages_back<K: Firsts>() {
    let pages = 2000;
    let region = Region::<K>::new(&vec![K::full(); pages]);
    let mut endpoint = region.endpoint();
    let cache = Some(CacheConfig::of((least_bytes(&region) + 100_000) * 8 / 7 + 20_000));
    let options = TableOptions { cache, ..TableOptions::plan(PlanChoice::Fixed(Plan::Range)) };
    let table = Table::<K>::open(&mut endpoint, &options).unwrap();
    assert!(table.view().models().paged().is_some());
    let mut scratch = LookupScratch::<K>::new(Matcher::detect());
    let keys: Vec<K::Owned> = (0..pages).map(|page| first_key::<K>((page * K::full()) as u64 + 1)).collect();
    let before = live();
    drive(&mut endpoint, &mut Lookup::new(&table, &mut scratch, keys.iter().map(Borrow::borrow))).unwrap();
    let kept = live() - before;
    assert!(kept <= scratch.kept_bytes() + (2 << 20), "{kept} bytes beside the budget");
}

fn assert_every_byte_counted<K: Firsts>() {
    let mut rng = SmallRng::seed_from_u64(1);
    let full = vec![K::full(); 400];
    let uneven: Vec<usize> = (0..400).map(|_| rng.random_range(1..=K::full())).collect();
    let small = vec![1; 400];
    for counts in [full, uneven, small, vec![K::full()], vec![K::full(); 3]] {
        let region = Region::<K>::new(&counts);
        let mut endpoint = region.endpoint();
        let whole = {
            let before = live();
            let view = TableView::<K>::open(&mut endpoint).unwrap();
            assert_counted(&view, before);
            view.model_bytes()
        };
        let least = least_bytes(&region) as usize;
        assert!(K::FIXED_BYTES.is_none() || least <= PagedModels::<K>::least_bytes(counts.len() as u64));
        let budgets = [40_000, 70_000, 200_000, 700_000, 1_500_000, 6_000_000];
        for budget in [least, least + 1, least + 5000].into_iter().chain(budgets) {
            let before = live();
            let Ok(view) = TableView::<K>::open_within(&mut endpoint, budget as u64) else {
                assert!(budget < least, "{budget} bytes refused, {least} are needed");
                continue;
            };
            assert!(view.model_bytes() <= budget);
            assert_counted(&view, before);
            if let Some(models) = view.models().paged() {
                keep_random_pages(&region, models, budget, &mut rng);
                assert!(view.model_bytes() <= budget, "{} of {budget}", view.model_bytes());
            } else {
                assert!(whole <= budget);
            }
            assert_counted(&view, before);
        }
        match TableView::<K>::open_within(&mut endpoint, least as u64 - 1) {
            Err(error) => assert!(matches!(error, OpenError::Budget { .. }), "{error}"),
            // What a whole directory of byte strings takes is not foretold to the byte.
            Ok(view) => {
                assert!(K::FIXED_BYTES.is_none() && view.models().resident().is_some());
                assert!(view.model_bytes() < least);
            }
        }
    }
}

fn keep_random_pages<K: Firsts>(
    region: &Region<K>,
    models: &PagedModels<K>,
    budget: usize,
    rng: &mut SmallRng,
) {
    let mut bytes = vec![0; K::PAGE_BYTES];
    for _ in 0..4_000_000 / K::PAGE_BYTES {
        let page = rng.random_range(0..models.pages());
        region.page(page, &mut bytes);
        models.keep(page, &bytes).unwrap();
        let (size, kept) = (models.size_in_bytes(), models.pages_kept());
        assert!(size <= budget, "{size} bytes of {budget} with {kept} pages");
        assert!(models.kept(page).is_some(), "the page just kept has gone");
    }
}
