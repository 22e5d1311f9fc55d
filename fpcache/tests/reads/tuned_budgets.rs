//! The bytes that are reported as enough for a table's models are enough for a compute node that
//! opens it.

use super::built::{Built, Cuts, Records};
use fpcache::cache::CacheConfig;
use fpcache::key_space::{BuildKeys, ByteKeys, U64Keys};
use fpcache::layout::{RecordShape, TableParameters};
use fpcache::plan::{FabricCosts, PlanChoice};
use fpcache::table::{Table, TableOptions};
use fpcache::tuning::{Forced, KeySample, Lookups, TuneError, tune};

const EPSILON: u32 = 8;

/// The least budget with which `tune` finds room for the models of these keys.
fn least<K: BuildKeys>(keys: &[K::Owned], shape: RecordShape) -> u64 {
    let lookups = Lookups::over(FabricCosts::TCP).with_budget(10);
    let forced = Forced { groups: Some(None), epsilon: Some(EPSILON), ..Forced::default() };
    let sample = KeySample::<K>::of(keys.len(), |at| keys[at].clone());
    match tune(&sample, shape, &lookups, 0.0, &forced) {
        Err(TuneError::Budget { budget: 10, least, epsilon: EPSILON }) => least,
        other => panic!("{other:?}"),
    }
}

fn assert_enough<K: BuildKeys + Cuts>(keys: Vec<K::Owned>, shape: RecordShape) {
    let least = least::<K>(&keys, shape);
    let records: Records<K> = keys.into_iter().map(|key| (key, vec![7; 8])).collect();
    let parameters = TableParameters { shape, epsilon: EPSILON, ..TableParameters::default() };
    let built = Built::<K>::new(records, parameters);
    let open = |budget| {
        let cache = Some(CacheConfig::of(budget));
        let options = TableOptions { cache, ..TableOptions::plan(PlanChoice::Auto) };
        Table::<K>::open(&mut built.endpoint(), &options).expect("enough for pages")
    };
    let table = open(least);
    assert!(table.view().models().resident().is_some(), "{least} bytes: {:?}", table.cache_stats());
    assert!(table.size_in_bytes() <= least);
    // Nor is it much more than it takes.
    assert!(open(least - least / 8).view().models().paged().is_some(), "{least} bytes");
}

#[test]
fn a_table_that_is_opened_with_the_budget_that_tune_names_has_all_models() {
    let mixed = |n: u64| n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = 0u64;
    let uneven: Vec<u64> = (0..60_000)
        .map(|n| {
            next += 1 + (mixed(n) >> (40 + mixed(n / 50) % 24));
            next
        })
        .collect();
    let strings = uneven.iter().map(|key| format!("user/{key:012}").into_bytes()).collect();
    assert_enough::<U64Keys>(uneven, RecordShape::fixed(8, 8));
    assert_enough::<ByteKeys>(strings, RecordShape::fixed(17, 8));
}
