//! Groups of a segment: their tables lead to nearly all keys, and to slots of the segment whatever
//! is in them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use fpcache_index::groups::{BlockForm, BlockSeparators, GroupTable, GroupedSegment};
use fpcache_index::{Line, PlacedSegment, SegmentOptions, Segmenter};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

const FORMS: [BlockForm; 7] = [
    BlockForm::PLAIN,
    BlockForm::Plain { stride: 10, reach: 10 },
    BlockForm::Plain { stride: 1, reach: 2 },
    BlockForm::SEEDED,
    BlockForm::Seeded { groups: 4, reach: 10 },
    BlockForm::PILOTS,
    BlockForm::Pilots { slots: 200, buckets: 40 },
];

fn hash(key: u64) -> u64 {
    let mut z = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    z ^ z >> 32
}

/// The segments of these coordinates, which ascend and may be equal, each with its own.
fn segments<'x>(xs: &'x [u64], options: &SegmentOptions) -> Vec<(PlacedSegment, &'x [u64])> {
    let mut segmenter = Segmenter::new(*options).unwrap();
    let mut pieces: Vec<_> = xs.iter().filter_map(|x| segmenter.push_or_equal(*x).unwrap()).collect();
    pieces.extend(segmenter.finish());
    let (mut all, mut rest) = (Vec::new(), xs);
    for piece in pieces {
        let (of_piece, after) = rest.split_at(piece.keys);
        let mut left = of_piece;
        for segment in piece.place(of_piece, options) {
            let (own, others) = left.split_at(segment.keys);
            all.push((segment, own));
            left = others;
        }
        rest = after;
    }
    all
}

/// Groups a segment's keys and checks all that must hold of it; gives how many keys there are and
/// how many strays.
fn checked(segment: &PlacedSegment, xs: &[u64], form: BlockForm) -> GroupedSegment {
    // Keys of one coordinate have hashes of their own.
    let hashes: Vec<u64> =
        (0..).zip(xs).map(|(rank, x): (u64, _)| hash(x.wrapping_add(rank << 32))).collect();
    let grouped = segment.grouped(xs, &hashes, form).expect("segments of a few thousand slots");
    let GroupedSegment { model, slots, table, strays } = &grouped;
    let mut taken = vec![false; usize::from(model.cap)];
    for (rank, (x, slot)) in xs.iter().zip(slots).enumerate() {
        assert!(!std::mem::replace(&mut taken[usize::from(*slot)], true), "two keys have slot {slot}");
        assert!(model.window(*x).contains(u32::from(*slot)), "slot {slot} is outside its key's window");
        let leads = table.slots_of(model, *x, hashes[rank]).contains(*slot);
        assert_eq!(leads, !strays.contains(&(rank as u32)), "rank {rank}");
    }
    let slope = |line: Line| line.to_bits() << 24;
    assert_eq!(slope(model.line), slope(segment.model.line));
    assert!(model.cap >= segment.model.cap && model.epsilon >= segment.model.epsilon);
    grouped
}

/// Keys as different as runs of neighbours and keys far apart.
fn keys() -> impl Strategy<Value = Vec<u64>> {
    let runs = vec((any::<u64>(), 1u64..200, 1u64..1000), 1..12).prop_map(|runs| {
        let keys = runs
            .into_iter()
            .flat_map(|(first, count, step)| (0..count).map(move |i| first.saturating_add(i * step)));
        keys.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    });
    prop_oneof![runs, btree_set(any::<u64>(), 1..800).prop_map(|keys| keys.into_iter().collect())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_key_has_a_slot_in_its_window_and_the_table_leads_to_all_but_the_strays(
        xs in keys(), epsilon in prop_oneof![Just(1u32), Just(8), Just(64)], fill in 0.3f64..=1.0,
    ) {
        let options = SegmentOptions { epsilon, fill, max_slots: 2048, ..SegmentOptions::default() };
        for (segment, xs) in segments(&xs, &options) {
            for form in FORMS {
                checked(&segment, xs, form);
            }
        }
    }

    #[test]
    fn keys_of_one_coordinate_have_slots_too(first in vec(0u64..40, 1..300), fill in 0.3f64..=1.0) {
        let mut xs = first;
        xs.sort_unstable();
        let options = SegmentOptions { epsilon: 16, fill, ..SegmentOptions::default() };
        for (segment, xs) in segments(&xs, &options) {
            for form in FORMS {
                checked(&segment, xs, form);
            }
        }
    }

    #[test]
    fn whatever_is_in_a_table_it_leads_to_slots_of_its_segment(
        bits in 0u8..=14, distances in vec(any::<i16>(), 1..60), bytes in vec(any::<u8>(), 60 * 40),
        line: u64, origin: u64, xs in vec(any::<u64>(), 20), which in 0..FORMS.len(),
    ) {
        let form = FORMS[which];
        let blocks = distances.len() as u16;
        let (block, overhang, each) = match form {
            BlockForm::Plain { stride, reach } => (stride, reach - stride, 0),
            BlockForm::Seeded { groups, reach } => (groups * reach, 0, 1),
            BlockForm::Pilots { slots, buckets } => (slots, 0, usize::from(buckets)),
        };
        let cap = blocks * block + overhang;
        let separators = BlockSeparators::from_parts(bits, block, distances).unwrap();
        let bytes = bytes[..each * usize::from(blocks)].to_vec();
        let table = GroupTable::from_parts(form, cap, separators, bytes).unwrap();
        let line = Line::from_bits(line);
        let model = fpcache_index::SegmentModel { origin, line, cap, epsilon: 0 };
        for x in xs {
            let run = table.slots_of(&model, x, hash(x));
            let may_not_know = matches!(form, BlockForm::Pilots { .. });
            prop_assert!(run.len > 0 || may_not_know);
            prop_assert!(run.first < cap && u32::from(run.first) + u32::from(run.len) <= u32::from(cap));
        }
    }
}

/// Uniform keys, always the same.
fn scattered(count: u64) -> Vec<u64> {
    let keys: std::collections::BTreeSet<u64> = (0..count).map(hash).collect();
    keys.into_iter().collect()
}

#[test]
fn nearly_all_keys_are_where_the_table_leads() {
    let xs = scattered(200_000);
    for (form, most_strays, most_bytes) in [
        (BlockForm::PLAIN, 0.0005, 0.27),
        (BlockForm::SEEDED, 0.0005, 0.065),
        (BlockForm::PILOTS, 0.002, 0.335),
    ] {
        let (mut strays, mut bytes, mut slots) = (0, 0, 0);
        let options = SegmentOptions { epsilon: 64, fill: 0.8, ..SegmentOptions::default() };
        for (segment, xs) in segments(&xs, &options) {
            let grouped = checked(&segment, xs, form);
            strays += grouped.strays.len();
            bytes += grouped.table.bytes();
            slots += usize::from(grouped.model.cap);
        }
        let share = |count: usize| count as f64 / xs.len() as f64;
        assert!(share(strays) <= most_strays, "{form:?}: {} strays", share(strays));
        assert!(share(bytes) <= most_bytes, "{form:?}: {} bytes a key", share(bytes));
        assert!(share(slots) < 1.3, "{form:?}: {} slots a key", share(slots));
    }
}

#[test]
fn parts_that_do_not_fit_make_no_table() {
    let separators = || BlockSeparators::from_parts(8, 9, vec![0; 4]).unwrap();
    assert!(GroupTable::from_parts(BlockForm::PLAIN, 37, separators(), Vec::new()).is_some());
    assert!(GroupTable::from_parts(BlockForm::PLAIN, 38, separators(), Vec::new()).is_none());
    assert!(GroupTable::from_parts(BlockForm::PLAIN, 37, separators(), vec![0]).is_none());
    assert!(
        GroupTable::from_parts(BlockForm::Plain { stride: 0, reach: 10 }, 37, separators(), Vec::new())
            .is_none()
    );
    assert!(BlockSeparators::from_parts(15, 9, vec![0]).is_none());
    assert!(BlockSeparators::from_parts(8, 9, Vec::new()).is_none());
}

#[test]
fn groups_widen_windows_by_little_more_than_the_free_slots_between_keys() {
    // Gaps of very different lengths, so that lines are as far from keys as they may be.
    let mut key = 0;
    let xs: Vec<u64> = (0..100_000u64)
        .map(|i| {
            key += 1 + (hash(i) % 64) * (hash(i / 300) % 50) * (hash(i / 40) % 20);
            key
        })
        .collect();
    for (epsilon, fill) in [(32, 0.85), (128, 0.85), (128, 0.6)] {
        let options = SegmentOptions { epsilon, fill, ..SegmentOptions::default() };
        for (segment, xs) in segments(&xs, &options) {
            let hashes: Vec<u64> = xs.iter().map(|x| hash(*x)).collect();
            let grouped = segment.grouped(xs, &hashes, BlockForm::PLAIN).unwrap();
            let most = f64::from(epsilon) / fill + 20.0;
            assert!(
                f64::from(grouped.model.epsilon) <= most,
                "{} at {epsilon}, {fill}",
                grouped.model.epsilon
            );
        }
    }
}

#[test]
fn keys_of_one_coordinate_that_no_block_has_room_for_have_several() {
    // As many as windows of this ε allow, and some others between them.
    let xs: Vec<u64> = (0..40u64)
        .flat_map(|run| {
            let equal = 130 + hash(run) as usize % 127;
            let others = hash(run + 100) % 60;
            std::iter::repeat_n(run << 40, equal)
                .chain((1..=others).map(move |other| (run << 40) + (other << 34)))
        })
        .collect();
    for (form, most) in [(BlockForm::PLAIN, 0.12), (BlockForm::SEEDED, 0.12), (BlockForm::PILOTS, 0.12)] {
        let options = SegmentOptions { epsilon: 128, fill: 0.8, ..SegmentOptions::default() };
        let mut strays = 0;
        for (segment, xs) in segments(&xs, &options) {
            strays += checked(&segment, xs, form).strays.len();
        }
        let share = strays as f64 / xs.len() as f64;
        println!("{form:?}: {share:.3} strays");
        assert!(share < most, "{form:?}: {share} of all keys");
    }
}

#[test]
fn segments_shorter_than_a_block_have_whole_groups_and_no_more() {
    let xs = scattered(25);
    let options = SegmentOptions { epsilon: 64, ..SegmentOptions::default() };
    for keys in 1..=25 {
        for (segment, xs) in segments(&xs[..keys], &options) {
            let grouped = checked(&segment, xs, BlockForm::SEEDED);
            assert_eq!(grouped.model.cap, segment.model.cap.next_multiple_of(10), "{keys} keys");
            assert!(grouped.strays.is_empty(), "{keys} keys in {} slots", grouped.model.cap);
        }
    }
}

#[test]
fn seeds_leave_free_slots_to_all_groups() {
    let xs = scattered(100_000);
    let options = SegmentOptions { epsilon: 64, fill: 0.8, ..SegmentOptions::default() };
    let (mut groups, mut full) = (0, 0);
    for (segment, xs) in segments(&xs, &options) {
        let GroupedSegment { model, slots, .. } = checked(&segment, xs, BlockForm::SEEDED);
        let mut keys = vec![0; usize::from(model.cap / 10)];
        slots.iter().for_each(|slot| keys[usize::from(*slot / 10)] += 1);
        groups += keys.len();
        full += keys.iter().filter(|keys| **keys == 10).count();
    }
    // With the first seed that leaves no group with too many keys it is one in five.
    assert!(full * 8 < groups, "{full} of {groups} groups are full");
}
