//! A directory of byte strings does what a sorted map of them does, whatever the strings.

use fpcache_index::Directory;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Tree = Directory<[u8], u64>;
type Map = BTreeMap<Vec<u8>, u64>;

fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

fn tree(map: &Map) -> Tree {
    Directory::from_sorted(map.clone().into_iter().collect()).expect("sorted")
}

fn assert_located(tree: &Tree, map: &Map, key: &[u8]) {
    let expected = map.range(..=key.to_vec()).next_back().or_else(|| map.first_key_value());
    let located = tree.locate(key);
    let Some((start, entry)) = expected else {
        return assert!(located.is_none() && tree.find(key).is_none());
    };
    let end = map.keys().find(|separator| *separator > start);
    let located = located.expect("not empty");
    assert_eq!((&located.start, located.end.as_ref(), located.entry), (start, end, entry), "key {key:?}");
    assert_eq!(tree.find_shared(key), Some((entry, shared_bytes(key, start))), "key {key:?}");
    let mut range = tree.range_from(key);
    for (start, entry) in map.range(start.clone()..).take(20) {
        assert_eq!(range.advance(), Some((start.as_slice(), entry)), "from {key:?}");
    }
}

/// Every separator and what lies just beside it.
fn assert_same(tree: &Tree, map: &Map) {
    assert_eq!(tree.len(), map.len());
    assert!(tree.iter().eq(map.iter().map(|(separator, entry)| (separator.clone(), entry))));
    for separator in map.keys() {
        let mut key = separator.clone();
        assert_located(tree, map, &key);
        key.push(0);
        assert_located(tree, map, &key);
        *key.last_mut().expect("pushed") = 255;
        assert_located(tree, map, &key);
        key.pop();
        if let Some(last) = key.last_mut() {
            *last = last.wrapping_sub(1);
            assert_located(tree, map, &key);
            key.pop();
            assert_located(tree, map, &key);
        }
    }
}

/// Strings that share much: few different bytes, also zeros, and beginnings of any length.
fn string() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![6 => Just(0), 3 => Just(255), 2 => Just(b'a'), 1 => any::<u8>()];
    let short = vec(byte, 0..14);
    let words = vec(prop_oneof![Just("/home"), Just("/homework"), Just("/"), Just("/usr/share/")], 0..6);
    prop_oneof![
        3 => short.clone(),
        2 => (words, short.clone()).prop_map(|(words, tail)| [words.concat().as_bytes(), &tail].concat()),
        1 => (prop_oneof![Just(6), Just(7), Just(8), Just(300), Just(4_080)], short)
            .prop_map(|(len, tail)| [vec![b'p'; len].as_slice(), &tail].concat()),
    ]
}

fn strings(most: usize) -> impl Strategy<Value = Map> {
    vec(string(), 0..most).prop_map(|strings| strings.into_iter().zip(0..).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_strings_are_found(map in strings(300), keys in vec(string(), 60)) {
        let tree = tree(&map);
        assert_same(&tree, &map);
        for key in keys {
            assert_located(&tree, &map, &key);
        }
    }

    #[test]
    fn any_replacements_follow_a_sorted_map(
        mut map in strings(400),
        changes in vec((string(), prop::option::of(string()), strings(40)), 12),
        keys in vec(string(), 10),
    ) {
        let mut tree = tree(&map);
        for (start, end, mut with) in changes {
            let end = end.filter(|end| *end > start);
            let inside =
                |separator: &Vec<u8>| *separator >= start && end.as_ref().is_none_or(|end| separator < end);
            with.retain(|separator, _| inside(separator));
            let before = map.len();
            map.retain(|separator, _| !inside(separator));
            let with: Vec<(Vec<u8>, u64)> = with.into_iter().collect();
            prop_assert_eq!(tree.replace(&start, end.as_deref(), &with), Ok(before - map.len()));
            map.extend(with);
            prop_assert!(tree.iter().eq(map.iter().map(|(separator, entry)| (separator.clone(), entry))));
            for key in &keys {
                assert_located(&tree, &map, key);
            }
        }
        assert_same(&tree, &map);
    }
}

/// A tree of three levels in which the same seven bytes come again and again after long beginnings.
#[test]
fn deep_paths_are_found_in_a_high_tree() {
    let folders = ["a/", "a long folder name/", "a long folder name too/", "\0\0\0\0\0\0\0\0", "z"];
    let path = |mut n: usize| {
        let mut path = b"/srv/".to_vec();
        while n > 0 {
            path.extend_from_slice(folders[n % 5].as_bytes());
            n /= 5;
        }
        path
    };
    let map: Map = (0..6_000).map(|n| (path(n), n as u64)).collect();
    let tree = tree(&map);
    for (i, separator) in map.keys().enumerate() {
        assert_eq!(tree.find_shared(separator), Some((&map[separator], separator.len())));
        if i % 50 == 0 {
            for cut in 0..=separator.len() {
                assert_located(&tree, &map, &[&separator[..cut], b"m"].concat());
            }
        }
    }
}

/// Ten bytes beside the entry where seven bytes tell neighbours apart, and what front coding leaves
/// of longer tails.
#[test]
fn a_segment_costs_what_front_coding_leaves_of_its_separator() {
    let bytes_each = |separators: &mut dyn Iterator<Item = Vec<u8>>| {
        let entries: Vec<(Vec<u8>, [u64; 4])> = separators.map(|separator| (separator, [0; 4])).collect();
        let tree = Directory::<[u8], _>::from_sorted(entries).expect("sorted");
        tree.size_in_bytes() as f64 / tree.len() as f64 - 32.0
    };
    let mut short = (0..50_000_u32).map(|n| n.to_be_bytes().to_vec());
    assert!((10.0..12.0).contains(&bytes_each(&mut short)));
    let beginning = "/a/beginning/that/all/have/in/common/".repeat(20);
    let mut deep = (0..50_000_u32).map(|n| format!("{beginning}{n:08}").into_bytes());
    let deep = bytes_each(&mut deep);
    // The beginning once per page.
    assert!((22.0..28.0).contains(&deep), "{deep}");
    let mut tails =
        (0..50_000_u32).map(|n| format!("{:05}/the same folder in all/{:02}", n / 10, n % 10).into_bytes());
    let tails = bytes_each(&mut tails);
    assert!((14.0..20.0).contains(&tails), "{tails}");
}
