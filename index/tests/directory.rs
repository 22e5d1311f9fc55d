//! The directory does what a sorted map does, for both kinds of separators, and clones do not see
//! later changes.

mod separators;

use fpcache_index::{Directory, DirectoryError, DirectoryKey, ScalarSteps};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use separators::{Decimal, Numbering, Paths, Unary, Words, WordsOfBytes, for_every_numbering};
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// Entries by the number of their separator.
type Map = BTreeMap<u32, u64>;
type Tree<N> = Directory<<N as Numbering>::Key, u64>;
type Entries<N> = Vec<(<<N as Numbering>::Key as ToOwned>::Owned, u64)>;

fn entries<N: Numbering>(map: impl IntoIterator<Item = (u32, u64)>) -> Entries<N> {
    map.into_iter().map(|(number, entry)| (N::separator(number), entry)).collect()
}

fn directory<N: Numbering>(map: &Map) -> Tree<N> {
    Directory::from_sorted(entries::<N>(map.clone())).expect("sorted")
}

/// As [`Directory::replace`], by numbers.
fn replace<N: Numbering>(
    tree: &mut Tree<N>,
    start: u32,
    end: Option<u32>,
    with: &[(u32, u64)],
) -> Result<usize, DirectoryError> {
    let (start, end) = (N::separator(start), end.map(N::separator));
    tree.replace(start.borrow(), end.as_ref().map(Borrow::borrow), &entries::<N>(with.to_vec()))
}

/// The range and entry of a key.
fn locate<N: Numbering>(tree: &Tree<N>, key: u32) -> Option<(u32, Option<u32>, u64)> {
    let located = tree.locate(N::separator(key).borrow())?;
    let number = |separator: &<N::Key as ToOwned>::Owned| N::number(separator.borrow());
    Some((number(&located.start), located.end.as_ref().map(number), *located.entry))
}

fn assert_same<N: Numbering>(tree: &Tree<N>, map: &Map) {
    assert_eq!((tree.len(), tree.is_empty()), (map.len(), map.is_empty()));
    assert!(tree.iter().map(|(separator, entry)| (N::number(separator.borrow()), *entry)).eq(map.clone()));
}

fn assert_located<N: Numbering>(tree: &Tree<N>, map: &Map, key: u32) {
    let expected = map.range(..=key).next_back().or_else(|| map.first_key_value());
    let expected =
        expected.map(|(&start, &entry)| (start, map.range(start + 1..).next().map(|(&end, _)| end), entry));
    assert_eq!(locate::<N>(tree, key), expected, "key {key}");
    let wanted = N::separator(key);
    let wanted = wanted.borrow();
    assert_eq!(tree.find(wanted).copied(), expected.map(|(_, _, entry)| entry), "key {key}");
    let shared = expected.map(|(start, ..)| N::shared(wanted, N::separator(start).borrow()));
    assert_eq!(tree.find_shared(wanted).map(|(_, shared)| shared), shared, "key {key}");
    let page = tree.page_for(wanted, ScalarSteps);
    page.iter().for_each(|page| page.prefetch(wanted, ScalarSteps));
    assert_eq!(
        page.and_then(|page| page.find_shared(wanted, ScalarSteps)),
        tree.find_shared(wanted),
        "key {key}"
    );
    let after = expected.and_then(|(_, end, _)| Some((end?, map[&end?])));
    let found = tree.after(wanted).map(|(start, entry)| (N::number(start.borrow()), *entry));
    assert_eq!(found, after, "after key {key}");
    let from = expected.map_or(0, |(start, ..)| start);
    let before = map.range(..from).next_back().map(|(&start, &entry)| (start, entry));
    let found = tree.before(wanted).map(|(start, entry)| (N::number(start.borrow()), *entry));
    assert_eq!(found, before, "before key {key}");
    let range = tree.range_from(wanted).take(70);
    let range = range.map(|(separator, entry)| (N::number(separator.borrow()), *entry));
    assert!(range.eq(map.range(from..).take(70).map(|(&start, &entry)| (start, entry))), "from {key}");
}

fn replace_in_map(map: &mut Map, start: u32, end: Option<u32>, with: &[(u32, u64)]) -> usize {
    let before = map.len();
    map.retain(|&separator, _| separator < start || end.is_some_and(|end| separator >= end));
    let removed = before - map.len();
    map.extend(with.iter().copied());
    removed
}

/// Random replacements: mostly one entry by a few, sometimes wide ranges, many new entries, or
/// none.
fn churn<N: Numbering>(seed: u64, initial: u32, space: u32, steps: usize) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut map: Map = (0..initial).map(|i| (i * (space / initial.max(1)), u64::from(i))).collect();
    let mut tree = directory::<N>(&map);
    let mut snapshots = Vec::new();
    for step in 0..steps {
        let start = rng.random_range(0..space);
        let width = if rng.random_bool(0.1) { space / 3 } else { space / initial.max(1) + 1 };
        let end = rng.random_bool(0.95).then(|| start.saturating_add(rng.random_range(1..=width)));
        let most = if rng.random_bool(0.05) { 600 } else { 4 };
        let mut with: Vec<(u32, u64)> = (0..rng.random_range(0..=most))
            .map(|_| (rng.random_range(start..end.unwrap_or(space).max(start + 1)), rng.random()))
            .collect();
        with.sort_unstable_by_key(|entry| entry.0);
        with.dedup_by_key(|entry| entry.0);
        if step % 16 == 0 {
            snapshots.push((tree.clone(), map.clone()));
        }
        let removed = replace::<N>(&mut tree, start, end, &with).expect("a valid replacement");
        assert_eq!(removed, replace_in_map(&mut map, start, end, &with));
        for key in
            [start, start.saturating_sub(1), end.unwrap_or(space), rng.random_range(0..space), 0, 2 * space]
        {
            assert_located::<N>(&tree, &map, key);
        }
        if step % 32 == 0 {
            assert_same::<N>(&tree, &map);
        }
    }
    for (tree, map) in snapshots.into_iter().chain([(tree, map)]) {
        assert_same::<N>(&tree, &map);
    }
}

fn random_replacements_follow_a_sorted_map<N: Numbering>() {
    churn::<N>(1, 0, 500, 100);
    churn::<N>(2, 50, 2_000, 100);
    churn::<N>(3, N::MOST, N::MOST * 2, 100);
    churn::<N>(4, 900, 900, 100);
}

fn growing_one_by_one_and_shrinking_to_nothing<N: Numbering>() {
    let mut map = Map::new();
    let mut tree = directory::<N>(&map);
    assert!(tree.locate(N::separator(0).borrow()).is_none());
    assert!(tree.range_from(N::separator(0).borrow()).next().is_none());
    let count = N::MOST / 2;
    for i in 0..count {
        let number = i * 7_919 % count;
        assert_eq!(replace::<N>(&mut tree, number, Some(number + 1), &[(number, u64::from(i))]), Ok(0));
        map.insert(number, u64::from(i));
    }
    assert_same::<N>(&tree, &map);
    let full = tree.clone();
    for number in (0..count).step_by(2).chain((1..count).step_by(2)) {
        assert_eq!(replace::<N>(&mut tree, number, Some(number + 1), &[]), Ok(1));
    }
    assert!(tree.is_empty() && tree.iter().next().is_none());
    assert!(tree.locate(N::separator(5).borrow()).is_none());
    assert_same::<N>(&full, &map);
    assert_eq!(replace::<N>(&mut full.clone(), 0, None, &[]), Ok(map.len()));
    let refilled: Vec<(u32, u64)> = map.clone().into_iter().collect();
    assert_eq!(replace::<N>(&mut tree, 0, None, &refilled), Ok(0));
    assert_same::<N>(&tree, &map);
}

fn invalid_replacements_change_nothing<N: Numbering>() {
    let map: Map = (0..300).map(|i| (i * 10, u64::from(i))).collect();
    let mut tree = directory::<N>(&map);
    assert_eq!(replace::<N>(&mut tree, 50, Some(50), &[]), Err(DirectoryError::EmptyRange));
    assert_eq!(replace::<N>(&mut tree, 50, Some(40), &[]), Err(DirectoryError::EmptyRange));
    let unsorted = replace::<N>(&mut tree, 50, None, &[(50, 0), (55, 0), (55, 1)]);
    assert_eq!(unsorted, Err(DirectoryError::NotAscending { position: 2 }));
    let outside = replace::<N>(&mut tree, 50, Some(60), &[(50, 0), (60, 0)]);
    assert_eq!(outside, Err(DirectoryError::OutsideRange { position: 1 }));
    let outside = replace::<N>(&mut tree, 50, None, &[(49, 0), (60, 0)]);
    assert_eq!(outside, Err(DirectoryError::OutsideRange { position: 0 }));
    assert_same::<N>(&tree, &map);
    let unsorted = Tree::<N>::from_sorted(entries::<N>([(1, 0), (0, 0)]));
    assert_eq!(unsorted.expect_err("unsorted"), DirectoryError::NotAscending { position: 1 });
}

/// Replaces about every tenth entry by up to three, in a tree and its model alike.
fn change_some<N: Numbering>(tree: &mut Tree<N>, map: &mut Map, rng: &mut SmallRng) {
    let numbers: Vec<u32> = map.keys().copied().filter(|_| rng.random_bool(0.1)).collect();
    for start in numbers {
        let with: Vec<(u32, u64)> =
            (start..start + 3).map(|s| (s, rng.random())).filter(|(_, entry)| entry % 2 == 0).collect();
        let removed = replace::<N>(tree, start, Some(start + 3), &with);
        assert_eq!(removed, Ok(replace_in_map(map, start, Some(start + 3), &with)));
    }
}

fn clones_part_ways<N: Numbering>() {
    let mut rng = SmallRng::seed_from_u64(6);
    let mut left_map: Map = (0..N::MOST / 3).map(|i| (i * 3, u64::from(i))).collect();
    let mut right_map = left_map.clone();
    let mut left = directory::<N>(&left_map);
    let (mut right, original, original_map) = (left.clone(), left.clone(), left_map.clone());
    for _ in 0..3 {
        change_some::<N>(&mut left, &mut left_map, &mut rng);
        change_some::<N>(&mut right, &mut right_map, &mut rng);
        assert_same::<N>(&left, &left_map);
        assert_same::<N>(&right, &right_map);
        assert_same::<N>(&original, &original_map);
        for _ in 0..100 {
            let key = rng.random_range(0..N::MOST);
            assert_located::<N>(&left, &left_map, key);
            assert_located::<N>(&right, &right_map, key);
        }
    }
}

/// Also the first of a leaf and of an inner page, by whose separator the pages above find it.
fn the_range_of_a_removed_entry_falls_to_the_one_before<N: Numbering>() {
    let count = N::MOST / 10;
    let map: Map = (0..count).map(|i| (i * 10, u64::from(i))).collect();
    let tree = directory::<N>(&map);
    for removed in (1..count).map(|i| i * 10) {
        let (before, after) = (removed - 10, (removed < 10 * (count - 1)).then_some(removed + 10));
        for new in [None, Some(removed + 5)] {
            let mut tree = tree.clone();
            let with: Vec<(u32, u64)> = new.iter().map(|&number| (number, 0)).collect();
            assert_eq!(replace::<N>(&mut tree, removed, Some(removed + 10), &with), Ok(1));
            let range_of = |key| locate::<N>(&tree, key).map(|(start, end, _)| (start, end));
            assert_eq!(range_of(removed), Some((before, new.or(after))));
            assert_eq!(range_of(removed + 4), Some((before, new.or(after))));
            assert_eq!(range_of(removed + 5), Some((new.unwrap_or(before), after)));
        }
    }
}

fn shrinking_gives_memory_back<N: Numbering>() {
    let count = N::MOST;
    let map: Map = (0..count).map(|i| (i, 0)).collect();
    let mut tree = directory::<N>(&map);
    let full = tree.size_in_bytes();
    for i in (0..count).filter(|i| i % 100 != 0) {
        assert_eq!(replace::<N>(&mut tree, i, Some(i + 1), &[]), Ok(1));
    }
    assert_eq!(tree.len() as u32, count.div_ceil(100));
    assert!(tree.size_in_bytes() < full / 10, "{} of {full} bytes", tree.size_in_bytes());
}

for_every_numbering! {
    random_replacements_follow_a_sorted_map,
    growing_one_by_one_and_shrinking_to_nothing,
    invalid_replacements_change_nothing,
    clones_part_ways,
    the_range_of_a_removed_entry_falls_to_the_one_before,
    shrinking_gives_memory_back,
}

/// Separators and entries as a compute node has them: 40 bytes.
type Segments = Directory<u64, [u64; 4]>;

#[test]
fn a_segment_costs_three_bytes_beside_itself_also_after_splits() {
    let mut tree = Segments::from_sorted((0..100_000).map(|i| (i << 40, [i; 4])).collect()).expect("sorted");
    let bytes_each = |tree: &Segments| tree.size_in_bytes() as f64 / tree.len() as f64;
    assert!((41.0..42.0).contains(&bytes_each(&tree)), "{}", bytes_each(&tree));
    let mut rng = SmallRng::seed_from_u64(5);
    for _ in 0..50_000 {
        let key = rng.random_range(0..100_000 << 40);
        tree.replace(&key, Some(&(key + 1)), &[(key, [0; 4])]).expect("valid");
    }
    assert!((41.0..43.0).contains(&bytes_each(&tree)), "{}", bytes_each(&tree));
}

/// Separators and keys up to the highest, which what fills unused room of pages is not above.
#[test]
fn the_highest_key_lies_in_the_last_range() {
    for segments in [1, 7, 8, 9, 56, 57, 500, 3_584, 3_585, 8_000, 70_000] {
        for last in [u64::MAX, u64::MAX - 1, 1 << 63] {
            let entries = (0..segments - 1).map(|i| (i << 40, i)).chain([(last, segments - 1)]).collect();
            let tree = Directory::<u64, u64>::from_sorted(entries).expect("sorted");
            for key in [u64::MAX, last] {
                let located = tree.locate(&key).expect("not empty");
                assert_eq!((located.start, located.end, *located.entry), (last, None, segments - 1));
                assert_eq!(
                    tree.page_for(&key, ScalarSteps).and_then(|page| page.find_shared(&key, ScalarSteps)),
                    Some((&(segments - 1), 0))
                );
                assert_eq!(tree.range_from(&key).count(), 1);
            }
            let before = (last - 1, segments.saturating_sub(2));
            assert_eq!(tree.find(&before.0), Some(&before.1));
        }
    }
}

/// A directory that only needs to be named: what it holds decides whether it can go to another
/// thread.
#[test]
fn a_directory_goes_where_its_entries_can_go() {
    fn can_go<T: Send + Sync>() {}
    fn any_key<K: DirectoryKey + ?Sized>() {
        can_go::<Directory<K, u64>>();
    }
    any_key::<u64>();
    any_key::<[u8]>();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn any_churn(seed: u64, initial in 0u32..600, spread in 1u32..5) {
        churn::<Words>(seed, initial, initial.max(10) * spread, 40);
        churn::<WordsOfBytes>(seed, initial, initial.max(10) * spread, 40);
        churn::<Decimal>(seed, initial, initial.max(10) * spread, 40);
        churn::<Paths>(seed, initial, initial.max(10) * spread, 40);
        churn::<Unary>(seed, initial / 4, initial.max(40) * spread / 4, 40);
    }
}
