//! Tests that tables come, stay and make way.

use super::*;
use crate::layout::{GroupForm, encode_groups};
use fpcache_index::groups::{BlockSeparators, GroupTable, bucket_of, group_by_seed, slot_by_pilot};

/// Groups, and a segment of ten blocks of them.
#[derive(Clone, Copy, Debug)]
struct Kind {
    grouping: Grouping,
    cap: u16,
}

const PLAIN: Kind = Kind { grouping: Grouping::plain(9, 10), cap: 91 };
const SEEDED: Kind = Kind { grouping: Grouping::seeded(6, 10), cap: 600 };
const PILOTS: Kind = Kind { grouping: Grouping::pilots(64, 14), cap: 640 };
const KINDS: [Kind; 3] = [PLAIN, SEEDED, PILOTS];
/// Of the key that is looked for.
const HASH: u64 = 0x0123_4567_89ab_cdef;

impl Kind {
    fn name(&self, generation: u32) -> SegmentName {
        SegmentName { address: u64::from(generation) * 4096, generation, cap: self.cap }
    }

    /// A seed or pilot of the table.
    fn byte(generation: u32, at: u32) -> u8 {
        (generation * 7 + at * 13) as u8
    }

    /// A table whose keys all belong to one block.
    fn table(&self, generation: u32) -> Vec<u8> {
        self.table_to(generation, generation % 10)
    }

    fn table_to(&self, generation: u32, own: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.grouping.table_bytes(self.cap)];
        // Separators of -1 up to the block's, and of 1 after.
        let (size, own) = (i64::from(self.grouping.block()), i64::from(own));
        let distance = |block: i64| ((if block > own { 1 } else { -1 }) - size * block) as i16;
        let separators =
            BlockSeparators::from_parts(0, self.grouping.block(), (0..10).map(distance).collect());
        let bytes_of_names = (0..10 * u32::from(self.grouping.names)).map(|at| Self::byte(generation, at));
        let (form, names) = (self.grouping.form(), bytes_of_names.collect());
        let table = GroupTable::from_parts(form, self.cap, separators.expect("ten"), names);
        encode_groups(generation, Some(&table.expect("parts that fit")), &mut bytes);
        bytes
    }

    /// What it says.
    fn slots(&self, generation: u32) -> Known<(u32, u32)> {
        let block = generation % 10;
        let first = block * u32::from(self.grouping.block());
        match self.grouping.name() {
            GroupForm::Plain => Known::Here((first, 10)),
            GroupForm::Seeded => {
                let group = group_by_seed(HASH, Self::byte(generation, block), 6);
                Known::Here((first + 10 * u32::from(group), 10))
            }
            GroupForm::Pilots => {
                let pilot = Self::byte(generation, 14 * block + bucket_of(HASH, 14) as u32);
                let slot = slot_by_pilot(HASH, pilot, 64);
                Known::Here(slot.map_or((first, 0), |slot| (first + u32::from(slot), 1)))
            }
        }
    }

    fn tables(&self, segments: u64) -> GroupTables {
        let bytes = GroupTables::bytes_for(self.grouping, segments, segments * u64::from(self.cap));
        let tables = GroupTables::new(self.grouping, segments, bytes).expect("memory");
        assert!(tables.most_bytes() <= bytes, "{} of {bytes}", tables.most_bytes());
        assert!(tables.size_in_bytes() <= tables.most_bytes());
        tables
    }

    fn keep(&self, tables: &GroupTables, generation: u32) {
        tables.keep(&self.name(generation), &self.table(generation));
    }

    fn find(&self, tables: &GroupTables, generation: u32) -> Known<(u32, u32)> {
        tables.find(&self.name(generation), 0, HASH)
    }
}

#[test]
fn tables_of_all_segments_stay_and_name_slots() {
    for (kind, segments) in KINDS.into_iter().flat_map(|kind| [1, 7, 100, 5000].map(|count| (kind, count))) {
        let tables = kind.tables(segments);
        let all = 50..50 + segments as u32;
        for generation in all.clone() {
            assert_eq!(kind.find(&tables, generation), Known::NotHere);
            kind.keep(&tables, generation);
        }
        for generation in all {
            assert_eq!(kind.find(&tables, generation), kind.slots(generation), "{kind:?}, {generation}");
        }
        assert_eq!(tables.len(), segments);
        assert!(tables.emptied().expect("memory").is_empty());
    }
}

#[test]
fn tables_of_segments_that_outlived_rebuilds_all_have_a_place() {
    // Their generations lie unevenly: some of the buckets they are looked for in first are full.
    let mut state = 1u64;
    let mut shuffled = |mut generations: Vec<u32>| {
        for left in (1..generations.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            generations.swap(left, (state >> 32) as usize % (left + 1));
        }
        generations
    };
    let mut alive = shuffled((1..6000).collect());
    alive.truncate(2000);
    let tables = PLAIN.tables(2000);
    let mut missed = Vec::new();
    for _ in 0..3 {
        alive = shuffled(alive);
        let here = |generation: &&u32| PLAIN.find(&tables, **generation) != Known::NotHere;
        let mut found = 0;
        for generation in &alive {
            found += usize::from(here(&generation));
            PLAIN.keep(&tables, *generation);
        }
        missed.push(alive.len() - found);
    }
    assert!(missed[2] <= 20, "{missed:?}");
}

#[test]
fn keys_of_one_block_are_told_apart_by_their_hashes() {
    let tables = SEEDED.tables(1);
    SEEDED.keep(&tables, 7);
    let mut groups: Vec<Known<(u32, u32)>> = (0..100u64)
        .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .map(|hash| tables.find(&SEEDED.name(7), 0, hash))
        .collect();
    groups.sort_unstable_by_key(|known| if let Known::Here((first, _)) = known { *first } else { u32::MAX });
    groups.dedup();
    assert_eq!(groups, [420, 430, 440, 450, 460, 470].map(|first| Known::Here((first, 10))));
}

#[test]
fn tables_take_memory_when_they_come() {
    // Of seeded groups three words of seeds and two of separators.
    for (kind, bytes) in [(PLAIN, 8), (SEEDED, 20)] {
        for segments in [100, 5000] {
            let tables = kind.tables(segments);
            let parts = |tables: &GroupTables| tables.parts((0..segments as u32).map(|g| kind.name(g)));
            let index = tables.index.len() as u64 * 8;
            let beside = |tables: &GroupTables| tables.size_in_bytes() - index;
            assert!(beside(&tables) < segments * 2 + 500, "{segments}: {}", beside(&tables));
            for generation in 0..segments as u32 {
                tables.keep(&kind.name(generation), &kind.table_to(generation, 3));
            }
            let parts = parts(&tables);
            assert_eq!((parts.separators, parts.names), (bytes * segments, 4 * segments), "{kind:?}");
            assert_eq!(parts.index, index);
            assert!(parts.room < segments + 1100, "{segments}: {parts:?}");
            assert_eq!(parts.separators + parts.names + parts.index + parts.room, tables.size_in_bytes());
            assert!(tables.most_bytes() > tables.size_in_bytes() + segments * 5);
            for generation in 0..3 * segments as u32 {
                tables.keep(&kind.name(generation), &kind.table_to(generation, 3));
            }
            assert_eq!(tables.size_in_bytes(), tables.most_bytes());
        }
    }
}

#[test]
fn the_oldest_make_way_and_no_other_segment_has_their_name() {
    for kind in KINDS {
        let tables = kind.tables(20);
        for generation in 0..1000 {
            kind.keep(&tables, generation);
            assert_eq!(kind.find(&tables, generation), kind.slots(generation));
            for other in 0..=generation {
                let found = kind.find(&tables, other);
                assert!(found == Known::NotHere || found == kind.slots(other), "{other}: {found:?}");
            }
            let own = kind.name(generation);
            for other in [SegmentName { address: 8, ..own }, SegmentName { cap: own.cap - 1, ..own }] {
                assert_eq!(tables.find(&other, 0, HASH), Known::NotHere);
            }
        }
        assert!((20..=40).contains(&tables.len()), "{}", tables.len());
    }
}

#[test]
fn tables_are_found_when_positions_have_outgrown_their_bits() {
    for rounds in [1, 3] {
        let tables = PLAIN.tables(20);
        tables.head.store((rounds << POSITION_BITS) - 101, Ordering::Relaxed);
        for generation in 1..200 {
            PLAIN.keep(&tables, generation);
            assert_eq!(PLAIN.find(&tables, generation), PLAIN.slots(generation), "{generation}");
            assert!(tables.len() >= u64::from(generation.min(19)), "{} at {generation}", tables.len());
        }
    }
}

#[test]
fn what_is_no_table_is_kept_as_none() {
    for kind in KINDS {
        let tables = kind.tables(3);
        let mut damaged = kind.table(1);
        damaged[9] ^= 1;
        tables.keep(&kind.name(1), &damaged);
        tables.keep(&kind.name(2), &[]);
        // Whole, and of a segment with more slots.
        tables.keep(&SegmentName { cap: kind.cap * 2, ..kind.name(4) }, &kind.table(4));
        let found = [1, 2, 3].map(|generation| kind.find(&tables, generation));
        assert_eq!(found, [Known::Nothing, Known::Nothing, Known::NotHere]);
        let other = SegmentName { cap: kind.cap * 2, ..kind.name(4) };
        assert_eq!(tables.find(&other, 0, HASH), Known::Nothing);
    }
}

#[test]
fn tables_that_are_overwritten_while_they_are_looked_at_are_not_believed() {
    for kind in KINDS {
        let tables = kind.tables(4);
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    for round in 0..20_000u32 {
                        let generation = round % 64;
                        let found = kind.find(&tables, generation);
                        let is_right = found == Known::NotHere || found == kind.slots(generation);
                        assert!(is_right, "{generation}: {found:?}");
                    }
                });
            }
            for round in 0..20_000u32 {
                kind.keep(&tables, round % 64);
            }
        });
    }
}
