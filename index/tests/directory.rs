//! The directory does what a sorted map does, and clones do not see later changes.

use fpcache_index::{Directory, DirectoryError};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

type Map = BTreeMap<u32, u64>;

fn directory(map: &Map) -> Directory<u32, u64> {
    Directory::from_sorted(map.iter().map(|(&separator, &entry)| (separator, entry)).collect())
        .expect("sorted")
}

fn assert_same(directory: &Directory<u32, u64>, map: &Map) {
    assert_eq!((directory.len(), directory.is_empty()), (map.len(), map.is_empty()));
    assert!(directory.iter().eq(map.iter()));
}

fn assert_located(directory: &Directory<u32, u64>, map: &Map, key: u32) {
    let expected = map.range(..=key).next_back().or_else(|| map.first_key_value());
    let next = expected.and_then(|(lo, _)| map.range(lo + 1..).next());
    let located = directory.locate(&key).map(|located| (located.lo, located.hi, located.entry));
    assert_eq!(located, expected.map(|(lo, entry)| (lo, next.map(|(hi, _)| hi), entry)), "key {key}");
    assert_eq!(directory.find(&key), expected.map(|(_, entry)| entry), "key {key}");
    let from = expected.map_or(0, |(&lo, _)| lo);
    assert!(directory.range_from(&key).take(70).eq(map.range(from..).take(70)), "from {key}");
}

fn replace_in_map(map: &mut Map, lo: u32, hi: Option<u32>, with: &[(u32, u64)]) -> usize {
    let before = map.len();
    map.retain(|&separator, _| separator < lo || hi.is_some_and(|hi| separator >= hi));
    let removed = before - map.len();
    map.extend(with.iter().copied());
    removed
}

/// Random replacements: mostly one entry by a few, sometimes wide ranges, many new entries, or none.
fn churn(seed: u64, initial: u32, space: u32, steps: usize) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut map: Map = (0..initial).map(|i| (i * (space / initial.max(1)), u64::from(i))).collect();
    let mut tree = directory(&map);
    let mut snapshots = Vec::new();
    for step in 0..steps {
        let lo = rng.random_range(0..space);
        let width = if rng.random_bool(0.1) { space / 3 } else { space / initial.max(1) + 1 };
        let hi = rng.random_bool(0.95).then(|| lo.saturating_add(rng.random_range(1..=width)));
        let most = if rng.random_bool(0.05) { 600 } else { 4 };
        let mut with: Vec<(u32, u64)> = (0..rng.random_range(0..=most))
            .map(|_| (rng.random_range(lo..hi.unwrap_or(space).max(lo + 1)), rng.random()))
            .collect();
        with.sort_unstable_by_key(|entry| entry.0);
        with.dedup_by_key(|entry| entry.0);
        if step % 16 == 0 {
            snapshots.push((tree.clone(), map.clone()));
        }
        let removed = tree.replace(&lo, hi.as_ref(), &with).expect("a valid replacement");
        assert_eq!(removed, replace_in_map(&mut map, lo, hi, &with));
        for key in
            [lo, lo.saturating_sub(1), hi.unwrap_or(u32::MAX), rng.random_range(0..space), 0, u32::MAX - 1]
        {
            assert_located(&tree, &map, key);
        }
        if step % 8 == 0 {
            assert_same(&tree, &map);
        }
    }
    assert_same(&tree, &map);
    for (tree, map) in snapshots {
        assert_same(&tree, &map);
    }
}

#[test]
fn random_replacements_follow_a_sorted_map() {
    churn(1, 0, 1_000, 300);
    churn(2, 50, 10_000, 300);
    churn(3, 20_000, 2_000_000, 300);
    churn(4, 3_000, 3_000, 300);
}

#[test]
fn growing_one_by_one_and_shrinking_to_nothing() {
    let mut map = Map::new();
    let mut tree = directory(&map);
    assert!(tree.locate(&0).is_none() && tree.range_from(&0).next().is_none());
    for i in 0..6_000u32 {
        let separator = i.wrapping_mul(2_654_435_761) >> 4;
        tree.replace(&separator, Some(&(separator + 1)), &[(separator, u64::from(i))]).expect("valid");
        map.insert(separator, u64::from(i));
    }
    assert_same(&tree, &map);
    let full = tree.clone();
    let separators: Vec<u32> = map.keys().copied().collect();
    for separator in separators.iter().step_by(2).chain(separators.iter().skip(1).step_by(2)) {
        assert_eq!(tree.replace(separator, Some(&(separator + 1)), &[]), Ok(1));
    }
    assert!(tree.is_empty() && tree.iter().next().is_none() && tree.locate(&5).is_none());
    assert_same(&full, &map);
    assert_eq!(full.clone().replace(&0, None, &[]), Ok(map.len()));
    let refilled: Vec<(u32, u64)> = map.iter().map(|(&separator, &entry)| (separator, entry)).collect();
    assert_eq!(tree.replace(&0, None, &refilled), Ok(0));
    assert_same(&tree, &map);
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

#[test]
fn shrinking_gives_memory_back() {
    let mut tree = Segments::from_sorted((0..100_000).map(|i| (i, [i; 4])).collect()).expect("sorted");
    let full = tree.size_in_bytes();
    for i in (0..100_000).filter(|i| i % 100 != 0) {
        assert_eq!(tree.replace(&i, Some(&(i + 1)), &[]), Ok(1));
    }
    assert_eq!(tree.len(), 1_000);
    assert!(tree.size_in_bytes() < full / 80, "{} of {full} bytes", tree.size_in_bytes());
}

#[test]
fn byte_strings_are_located_by_slice() {
    let words: [&[u8]; 4] = [b"", b"apple", b"melon", b"pear"];
    let entries = words.iter().zip(0..).map(|(&word, i)| (word.to_vec(), i)).collect();
    let tree: Directory<Vec<u8>, i32> = Directory::from_sorted(entries).expect("sorted");
    let entry = |key: &[u8]| tree.locate(key).map(|located| *located.entry);
    assert_eq!([&b""[..], b"apple", b"kiwi", b"zebra"].map(entry), [0, 1, 1, 3].map(Some));
}

#[test]
fn invalid_replacements_change_nothing() {
    let map: Map = (0..1_000).map(|i| (i * 10, u64::from(i))).collect();
    let mut tree = directory(&map);
    assert_eq!(tree.replace(&50, Some(&50), &[]), Err(DirectoryError::EmptyRange));
    assert_eq!(tree.replace(&50, Some(&40), &[]), Err(DirectoryError::EmptyRange));
    let unsorted = [(50, 0), (55, 0), (55, 1)];
    assert_eq!(tree.replace(&50, None, &unsorted), Err(DirectoryError::NotAscending { position: 2 }));
    let outside = DirectoryError::OutsideRange { position: 1 };
    assert_eq!(tree.replace(&50, Some(&60), &[(50, 0), (60, 0)]), Err(outside));
    let outside = DirectoryError::OutsideRange { position: 0 };
    assert_eq!(tree.replace(&50, None, &[(49, 0), (60, 0)]), Err(outside));
    assert_same(&tree, &map);
    let unsorted = Directory::from_sorted(vec![(1, 0), (0, 0)]);
    assert_eq!(unsorted.expect_err("unsorted"), DirectoryError::NotAscending { position: 1 });
}

/// Replaces about every tenth entry by up to three, in a tree and its model alike.
fn change_some(tree: &mut Directory<u32, u64>, map: &mut Map, rng: &mut SmallRng) {
    let separators: Vec<u32> = map.keys().copied().filter(|_| rng.random_bool(0.1)).collect();
    for lo in separators {
        let with: Vec<(u32, u64)> =
            (lo..lo + 3).map(|s| (s, rng.random())).filter(|(_, entry)| entry % 2 == 0).collect();
        let removed = tree.replace(&lo, Some(&(lo + 3)), &with);
        assert_eq!(removed, Ok(replace_in_map(map, lo, Some(lo + 3), &with)));
    }
}

#[test]
fn clones_part_ways() {
    let mut rng = SmallRng::seed_from_u64(6);
    let mut left_map: Map = (0..3_000).map(|i| (i * 3, u64::from(i))).collect();
    let mut right_map = left_map.clone();
    let mut left = directory(&left_map);
    let (mut right, original, original_map) = (left.clone(), left.clone(), left_map.clone());
    for _ in 0..4 {
        change_some(&mut left, &mut left_map, &mut rng);
        change_some(&mut right, &mut right_map, &mut rng);
        assert_same(&left, &left_map);
        assert_same(&right, &right_map);
        assert_same(&original, &original_map);
        for _ in 0..300 {
            let key = rng.random_range(0..9_010);
            assert_located(&left, &left_map, key);
            assert_located(&right, &right_map, key);
        }
    }
}

/// Also the first of a leaf and of an inner page, by whose separator the pages above find it.
#[test]
fn the_range_of_a_removed_entry_falls_to_the_one_before() {
    let map: Map = (0..6_000).map(|i| (i * 10, u64::from(i))).collect();
    let tree = directory(&map);
    for removed in (1..6_000).map(|i| i * 10) {
        let (before, after) = (removed - 10, (removed < 59_990).then_some(removed + 10));
        for new in [None, Some(removed + 5)] {
            let mut tree = tree.clone();
            let with: Vec<(u32, u64)> = new.iter().map(|&separator| (separator, 0)).collect();
            assert_eq!(tree.replace(&removed, Some(&(removed + 10)), &with), Ok(1));
            let range_of = |key: u32| tree.locate(&key).map(|located| (*located.lo, located.hi.copied()));
            assert_eq!(range_of(removed), Some((before, new.or(after))));
            assert_eq!(range_of(removed + 4), Some((before, new.or(after))));
            assert_eq!(range_of(removed + 5), Some((new.unwrap_or(before), after)));
        }
    }
}

/// Keys that own memory, or are wider than a word, take other ways than `u32`; both must answer as a map does.
#[test]
fn every_kind_of_key_is_located_as_in_a_map() {
    fn check<S: Ord + Clone>(wrap: impl Fn(u64) -> S, read: impl Fn(&S) -> u64) {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut tree =
            Directory::from_sorted((0..3_000).map(|i| (wrap(4 * i), i)).collect()).expect("sorted");
        let mut map: BTreeMap<u64, u64> = (0..3_000).map(|i| (4 * i, i)).collect();
        for _ in 0..3_000 {
            let key = rng.random_range(0..12_100);
            let expected = map.range(..=key).next_back();
            let located = tree.locate(&wrap(key)).map(|located| (read(located.lo), *located.entry));
            assert_eq!(located, expected.map(|(lo, entry)| (*lo, *entry)), "key {key}");
            let hi = tree.locate(&wrap(key)).and_then(|located| located.hi).map(&read);
            assert_eq!(hi, map.range(key + 1..).next().map(|(hi, _)| *hi), "key {key}");
            // The first entry stays, so that every key has one at or below it.
            let new = [(wrap(key), key)];
            let with = if key == 0 || rng.random_bool(0.5) { &new[..] } else { &[] };
            tree.replace(&wrap(key), Some(&wrap(key + 1)), with).expect("valid");
            map.remove(&key);
            map.extend(with.iter().map(|(_, entry)| (key, *entry)));
        }
        assert!(tree.iter().map(|(s, e)| (read(s), *e)).eq(map));
    }
    let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("8 bytes"));
    check(|key| key.to_be_bytes().to_vec(), |key| word(key));
    check(|key| key.to_be_bytes(), |key| word(key));
    check(|key| (key, u64::MAX), |key| key.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_churn(seed: u64, initial in 0u32..2_000, spread in 1u32..50) {
        churn(seed, initial, initial.max(10) * spread, 60);
    }
}
