//! A table allocates just what it says it uses of its budget, and never more.
//!
//! One test, alone in its process: the counts are those of the whole process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use allocations::{SPARE, live};
use common::{Firsts, Region};
use fpcache::cache::{CacheConfig, Policy, Variant};
use fpcache::group_tables::{GroupTables, Known, SegmentName};
use fpcache::key_space::{ByteKeys, U64Keys};
use fpcache::layout::{Grouping, encode_groups};
use fpcache::plan::PlanChoice;
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::{OpenError, TableView};
use fpcache_index::groups::{BlockSeparators, GroupTable};

fn options(config: CacheConfig) -> TableOptions {
    TableOptions { cache: Some(config), ..TableOptions::plan(PlanChoice::Auto) }
}

/// Compares what the table says with the bytes live since there were `before`, and the value
/// itself.
fn assert_counted<K: Firsts>(table: &Table<K>, before: usize) {
    let taken = live() - before + size_of::<Table<K>>();
    let stats = table.cache_stats().unwrap();
    let used = stats.used as usize;
    assert!(taken <= used && used <= taken + SPARE, "{taken} bytes taken: {stats:?}");
    assert!(stats.used <= stats.budget, "{stats:?}");
    assert!(stats.model_bytes + stats.hot_bytes <= stats.used, "{stats:?}");
    assert_eq!(stats.model_bytes, table.view().model_bytes() as u64);
    // Whatever the table's record says of its keys.
    let room = table.view().superblock().region_bytes / table.view().geometry().slot_bytes as u64;
    assert!(stats.capacity < 2 * room + 16, "{stats:?}");
}

#[test]
fn every_byte_is_in_the_budget_long_slots_and_pages_fetched_late_included() {
    assert_within_budgets::<U64Keys>();
    assert_within_budgets::<ByteKeys>();
    tables_of_groups_are_counted();
}

/// Of the longest segments, with as many pilots as they have: what leads to a key, and what it
/// takes to keep it.
fn tables_of_groups_are_counted() {
    const CAP: u16 = 1023 * 64;
    const SEGMENTS: u64 = 8;
    let grouping = Grouping::pilots(64, 14);
    let blocks = CAP / grouping.block();
    let distances = (0..i64::from(blocks)).map(|block| (block % 7) as i16).collect();
    let separators = BlockSeparators::from_parts(0, grouping.block(), distances).unwrap();
    let pilots = (0..usize::from(blocks) * 14).map(|at| at as u8).collect();
    let table = GroupTable::from_parts(grouping.form(), CAP, separators, pilots).unwrap();
    let mut bytes = vec![0; grouping.table_bytes(CAP)];
    let before = live();
    let room = GroupTables::bytes_for(grouping, SEGMENTS, SEGMENTS * u64::from(CAP));
    let tables = GroupTables::new(grouping, SEGMENTS, room).unwrap();
    for generation in 1..=3 * SEGMENTS as u32 {
        encode_groups(generation, Some(&table), &mut bytes);
        let segment = SegmentName { address: u64::from(generation) << 12, generation, cap: CAP };
        tables.keep(&segment, &bytes);
        assert!(matches!(tables.find(&segment, 0, 1), Known::Here(_)), "{generation}");
        let taken = (live() - before + size_of::<GroupTables>()) as u64;
        assert_eq!(tables.size_in_bytes(), taken, "with {generation} tables");
        assert!(taken <= room && tables.most_bytes() <= room);
    }
}

fn assert_within_budgets<K: Firsts>() {
    let pages = vec![K::full(); if K::FIXED_BYTES.is_some() { 100 } else { 20 }];
    let long = |counts: &[usize]| Region::<K>::with_values(counts, 65_000);
    for region in [Region::new(&pages), long(&pages), long(&[3])] {
        let mut endpoint = region.endpoint();
        let refused = Table::<K>::open(&mut endpoint, &options(CacheConfig::of(1))).unwrap_err();
        let OpenError::Budget { budget: 1, least } = refused else { panic!("{refused}") };
        let too_small = CacheConfig::of(least - 1);
        match Table::<K>::open(&mut endpoint, &options(too_small)) {
            Err(error) => assert!(matches!(error, OpenError::Budget { .. }), "{error}"),
            // What a whole directory of byte strings takes is not foretold to the byte.
            Ok(table) => assert!(K::FIXED_BYTES.is_none() && table.view().models().resident().is_some()),
        }
        for budget in [least, least + 1, least + 9_000, 100_000, 700_000, u64::MAX] {
            for (variant, policy) in Variant::ALL.iter().zip(Policy::ALL.iter().cycle()) {
                let config = CacheConfig::of(budget).with_variant(*variant).with_policy(*policy);
                let (mut bytes, before) = (vec![0; K::PAGE_BYTES], live());
                let table = Table::<K>::open(&mut endpoint, &options(config)).unwrap();
                assert_counted(&table, before);
                if let Some(models) = table.view().models().paged() {
                    for page in 0..models.pages() {
                        region.page(page, &mut bytes);
                        models.keep(page, &bytes).unwrap();
                        assert_counted(&table, before);
                    }
                }
            }
        }
        models_fetched_elsewhere(&region, least);
    }
}

/// Models that were fetched without regard to the budget leave the hot cache what remains, or are
/// refused.
fn models_fetched_elsewhere<K: Firsts>(region: &Region<K>, least: u64) {
    let mut endpoint = region.endpoint();
    for bytes in [u64::MAX, least + 20_000] {
        for budget in (0..1_000_000).step_by(19_999).chain([u64::MAX]) {
            let (mut page, before) = (vec![0; K::PAGE_BYTES], live());
            let view = TableView::<K>::open_within(&mut endpoint, bytes).unwrap();
            match Table::over(view, &options(CacheConfig::of(budget))) {
                Ok(table) => {
                    if let Some(models) = table.view().models().paged() {
                        for number in 0..models.pages() {
                            region.page(number, &mut page);
                            models.keep(number, &page).unwrap();
                        }
                    }
                    assert_counted(&table, before);
                }
                Err(OpenError::Budget { budget: given, least }) => assert!(given == budget && least > budget),
                Err(error) => panic!("{error}"),
            }
        }
    }
}
