//! Tables come, stay and make way.

use super::*;
use crate::layout::encode_groups;
use fpcache_index::groups::Separators;

const GROUPING: Grouping = Grouping { stride: 9, reach: 10 };
/// Slots of ten groups.
const CAP: u16 = 91;

fn name(generation: u32) -> SegmentName {
    SegmentName { address: u64::from(generation) * 4096, generation, cap: CAP }
}

/// A table whose keys all belong to the group of this number.
fn table(generation: u32, group: i64) -> Vec<u8> {
    let mut bytes = vec![0; GROUPING.table_bytes(CAP)];
    // Separators of 0 up to the group's, and of 1 after.
    let distance = |block: i64| (i64::from(block > group) - 9 * block) as i16;
    let separators = Separators::from_parts(0, 9, (0..10).map(distance).collect()).expect("ten");
    encode_groups(generation, Some(&separators), &mut bytes);
    bytes
}

fn tables(segments: u64) -> GroupTables {
    let bytes = GroupTables::bytes_for(GROUPING, segments, segments * u64::from(CAP));
    let tables = GroupTables::new(GROUPING, segments, bytes).expect("memory");
    assert!(tables.most_bytes() <= bytes, "{} of {bytes}", tables.most_bytes());
    assert!(tables.size_in_bytes() <= tables.most_bytes());
    tables
}

#[test]
fn tables_of_all_segments_stay_and_name_slots() {
    for segments in [1, 7, 100, 5000] {
        let tables = tables(segments);
        let all = 50..50 + segments as u32;
        for generation in all.clone() {
            assert_eq!(tables.find(&name(generation), 0), Known::NotHere);
            tables.keep(&name(generation), &table(generation, (generation % 10).into()));
        }
        for generation in all {
            let first = generation % 10 * 9;
            assert_eq!(tables.find(&name(generation), 0), Known::Slots(first, 10), "{generation}");
        }
        assert_eq!(tables.len(), segments);
        assert!(tables.emptied().expect("memory").is_empty());
    }
}

#[test]
fn tables_take_memory_when_they_come() {
    for segments in [100, 5000] {
        let tables = tables(segments);
        let parts = |tables: &GroupTables| tables.parts((0..segments as u32).map(name));
        let index = tables.index.len() as u64 * 8;
        let beside = |tables: &GroupTables| tables.size_in_bytes() - index;
        assert!(beside(&tables) < segments * 2 + 500, "{segments}: {}", beside(&tables));
        for generation in 0..segments as u32 {
            tables.keep(&name(generation), &table(generation, 3));
        }
        let parts = parts(&tables);
        assert_eq!((parts.separators, parts.names, parts.index), (8 * segments, 4 * segments, index));
        assert!(parts.room < segments + 1100, "{segments}: {parts:?}");
        assert_eq!(parts.separators + parts.names + parts.index + parts.room, tables.size_in_bytes());
        assert!(tables.most_bytes() > tables.size_in_bytes() + segments * 5);
        for generation in 0..3 * segments as u32 {
            tables.keep(&name(generation), &table(generation, 3));
        }
        assert_eq!(tables.size_in_bytes(), tables.most_bytes());
    }
}

#[test]
fn the_oldest_make_way_and_no_other_segment_has_their_name() {
    let tables = tables(20);
    for generation in 0..1000 {
        tables.keep(&name(generation), &table(generation, (generation % 10).into()));
        assert_eq!(tables.find(&name(generation), 0), Known::Slots(generation % 10 * 9, 10));
        for other in 0..=generation {
            let found = tables.find(&name(other), 0);
            assert!(
                found == Known::NotHere || found == Known::Slots(other % 10 * 9, 10),
                "{other}: {found:?}"
            );
        }
        let own = name(generation);
        for other in [SegmentName { address: 8, ..own }, SegmentName { cap: CAP - 1, ..own }] {
            assert_eq!(tables.find(&other, 0), Known::NotHere);
        }
    }
    assert!((20..=40).contains(&tables.len()), "{}", tables.len());
}

#[test]
fn tables_are_found_when_positions_have_outgrown_their_bits() {
    for rounds in [1, 3] {
        let tables = tables(20);
        tables.head.store((rounds << POSITION_BITS) - 101, Ordering::Relaxed);
        for generation in 1..200 {
            tables.keep(&name(generation), &table(generation, (generation % 10).into()));
            let found = tables.find(&name(generation), 0);
            assert_eq!(found, Known::Slots(generation % 10 * 9, 10), "{generation}");
            assert!(tables.len() >= u64::from(generation.min(19)), "{} at {generation}", tables.len());
        }
    }
}

#[test]
fn what_is_no_table_is_kept_as_none() {
    let tables = tables(3);
    let mut damaged = table(1, 0);
    damaged[9] ^= 1;
    tables.keep(&name(1), &damaged);
    tables.keep(&name(2), &[]);
    assert_eq!([1, 2, 3].map(|g| tables.find(&name(g), 0)), [Known::Nothing, Known::Nothing, Known::NotHere]);
}

#[test]
fn tables_that_are_overwritten_while_they_are_looked_at_are_not_believed() {
    let tables = tables(4);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for round in 0..20_000u32 {
                    let generation = round % 64;
                    let found = tables.find(&name(generation), 0);
                    let right = Known::Slots(generation % 10 * 9, 10);
                    assert!(found == Known::NotHere || found == right, "{generation}: {found:?}");
                }
            });
        }
        for round in 0..20_000u32 {
            let generation = round % 64;
            tables.keep(&name(generation), &table(generation, (generation % 10).into()));
        }
    });
}
