//! Nearest records, scans that go down and counts are what a `BTreeMap` says, while records come
//! and go between them.
#![cfg(feature = "embedded")]

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::{TestKeys, patient};
use fpcache_client::{
    ByteClient, ByteKeys, CacheConfig, Cost, KeyRef, Record, TableClient, TableParameters, U64Keys,
};
use proptest::collection::vec;
use proptest::prelude::*;

type Records<K> = BTreeMap<<K as fpcache_client::KeySpace>::Owned, Vec<u8>>;

/// A client that has all models, and one that has room for some pages of them.
struct Clients<K: TestKeys>(TableClient<K>, TableClient<K>);

fn clients<K: TestKeys>(epsilon: u32, max_slots: u16, value_bytes: Option<u32>) -> Clients<K> {
    let client = TableClient::<K>::embedded_with(32 << 20, patient()).unwrap();
    let shape = K::shape(value_bytes);
    client.create(TableParameters { shape, epsilon, max_slots, ..TableParameters::default() }).unwrap();
    let budget = CacheConfig::of(5 * K::PAGE_BYTES as u64);
    let poor = client.beside(patient().with_cache(budget)).unwrap();
    Clients(client, poor)
}

fn owned<K: TestKeys>(entry: Option<(&K::Owned, &Vec<u8>)>) -> Option<Record<K>> {
    entry.map(|(key, value)| (key.clone(), value.clone()))
}

/// The records with keys from one up to another.
fn within<'r, K: TestKeys>(
    records: &'r Records<K>,
    from: Bound<&K::Owned>,
    to: Bound<&K::Owned>,
) -> impl DoubleEndedIterator<Item = Record<K>> + use<'r, K> {
    let range = records.range::<K::Key, _>((from.map(Borrow::borrow), to.map(Borrow::borrow)));
    range.map(|(key, value)| (key.clone(), value.clone()))
}

fn floor<K: TestKeys>(records: &Records<K>, key: &K::Owned) -> Option<Record<K>> {
    within::<K>(records, Bound::Unbounded, Bound::Included(key)).next_back()
}

fn ceiling<K: TestKeys>(records: &Records<K>, key: &K::Owned) -> Option<Record<K>> {
    within::<K>(records, Bound::Included(key), Bound::Unbounded).next()
}

/// What a call passes on.
fn passed<K: TestKeys>(call: impl FnOnce(&mut dyn FnMut(K::View<'_>, &[u8])) -> Cost) -> Vec<Record<K>> {
    let mut found = Vec::new();
    call(&mut |key, value| found.push((Borrow::<K::Key>::borrow(&key).to_owned(), value.to_vec())));
    found
}

/// The answer that a client and its reader both give.
macro_rules! both {
    ($client:ident, $reader:ident: $call:ident($($argument:expr),*)) => {{
        let answer = $client.$call($($argument),*).unwrap();
        assert_eq!($reader.$call($($argument),*).unwrap(), answer, stringify!($call));
        answer
    }};
}

/// What calls of a client and of its reader both pass on.
macro_rules! both_pass {
    ($client:ident, $reader:ident: $call:ident($($argument:expr),*)) => {{
        let records = passed::<K>(|take| $client.$call($($argument,)* take).unwrap());
        let same = passed::<K>(|take| $reader.$call($($argument,)* take).unwrap());
        assert_eq!(same, records, stringify!($call));
        records
    }};
}

/// Asks everything there is to ask about these keys, of the client and of a reader.
fn check<K: TestKeys>(client: &TableClient<K>, records: &Records<K>, keys: &[K::Owned], limit: usize) {
    let mut reader = client.reader();
    assert_eq!(both!(client, reader: first()), owned::<K>(records.first_key_value()));
    assert_eq!(both!(client, reader: last()), owned::<K>(records.last_key_value()));
    let floors: Vec<_> = keys.iter().map(|key| floor::<K>(records, key)).collect();
    let ceilings: Vec<_> = keys.iter().map(|key| ceiling::<K>(records, key)).collect();
    assert_eq!(both!(client, reader: multi_floor(keys)), floors);
    assert_eq!(both!(client, reader: multi_ceiling(keys)), ceilings);
    let mut floors_passed = Vec::new();
    reader.multi_floor_with(keys, |found, _| floors_passed.push(found.is_some())).unwrap();
    reader.multi_ceiling_with(keys, |found, _| floors_passed.push(found.is_some())).unwrap();
    assert!(floors_passed.into_iter().eq(floors.iter().chain(&ceilings).map(Option::is_some)));
    let values: Vec<Option<Vec<u8>>> =
        keys.iter().map(|key| records.get::<K::Key>(key.borrow()).cloned()).collect();
    let present: Vec<bool> = values.iter().map(Option::is_some).collect();
    assert_eq!(both!(client, reader: multi_contains(keys)), present);
    assert_eq!(both!(client, reader: multi_get(keys)), values);
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(both!(client, reader: get(key.clone())), values[i], "{key:?}");
        assert_eq!(both!(client, reader: contains(key.clone())), present[i], "{key:?}");
        let versioned = both!(client, reader: get_versioned(key.clone()));
        assert_eq!(versioned.map(|(value, _)| value), values[i], "{key:?}");
        assert_eq!(both!(client, reader: floor(key.clone())), floors[i], "floor of {key:?}");
        assert_eq!(both!(client, reader: ceiling(key.clone())), ceilings[i], "ceiling of {key:?}");
        let is = |found: Option<(K::View<'_>, &[u8])>| found.map(|(_, value)| value.to_vec());
        let value = |found: &Option<Record<K>>| found.as_ref().map(|(_, value)| value.clone());
        assert_eq!(reader.floor_with(key.clone(), is).unwrap().0, value(&floors[i]));
        assert_eq!(reader.ceiling_with(key.clone(), is).unwrap().0, value(&ceilings[i]));
        let below: Vec<_> =
            within::<K>(records, Bound::Unbounded, Bound::Included(key)).rev().take(limit).collect();
        assert_eq!(both!(client, reader: scan_back(key.clone(), limit)), below, "from {key:?}");
        assert_eq!(both_pass!(client, reader: scan_back_with(key.clone(), limit)), below, "from {key:?}");
        let alone: Vec<_> = below.into_iter().map(|(key, _)| key).collect();
        let to = KeyRef::<K>(key.borrow());
        assert_eq!(both!(client, reader: scan_keys_back(..=to, limit)), alone, "from {key:?}");
        let above: Vec<_> = within::<K>(records, Bound::Included(key), Bound::Unbounded).collect();
        let first = &above[..limit.min(above.len())];
        assert_eq!(both!(client, reader: scan(key.clone(), limit)), first, "from {key:?}");
        assert_eq!(both_pass!(client, reader: scan_with(key.clone(), limit)), first, "from {key:?}");
        assert_eq!(both!(client, reader: count_from(key.clone())), above.len() as u64, "from {key:?}");
        let counted = reader.count_with_cost(key.clone(), None::<K::Owned>).unwrap().0;
        assert_eq!(counted, above.len() as u64, "from {key:?}");
        let last: Vec<_> = above.into_iter().rev().take(limit).collect();
        assert_eq!(both_pass!(client, reader: scan_back_to(key.clone(), limit)), last, "down to {key:?}");
        for end in keys {
            let inside: Vec<Record<K>> = match key < end {
                true => within::<K>(records, Bound::Included(key), Bound::Excluded(end)).collect(),
                false => Vec::new(),
            };
            assert_eq!(both!(client, reader: count(key.clone(), end.clone())), inside.len() as u64);
            let first = &inside[..limit.min(inside.len())];
            let found = both_pass!(client, reader: scan_range(key.clone(), end.clone(), limit));
            assert_eq!(found, first, "{key:?} to {end:?}");
            let found = both_pass!(client, reader: scan_range_back(key.clone(), end.clone(), limit));
            assert_eq!(found, inside.into_iter().rev().take(limit).collect::<Vec<_>>(), "{key:?} to {end:?}");
        }
    }
}

/// What happens to a table, one after the other.
#[derive(Clone, Debug)]
enum Step<T> {
    Put(T, u8),
    Delete(usize),
    /// Deletes this many neighbours.
    Clear(usize, usize),
    Ask(Vec<T>, usize),
}

fn step<T: Clone + std::fmt::Debug + 'static>(
    key: impl Strategy<Value = T> + Clone + 'static,
) -> impl Strategy<Value = Step<T>> {
    let limit = prop_oneof![3 => Just(usize::MAX), 1 => 0..20usize];
    prop_oneof![
        30 => (key.clone(), any::<u8>()).prop_map(|(key, len)| Step::Put(key, len)),
        6 => any::<usize>().prop_map(Step::Delete),
        1 => (any::<usize>(), 0..60usize).prop_map(|(at, count)| Step::Clear(at, count)),
        1 => (vec(key, 0..4), limit).prop_map(|(keys, limit)| Step::Ask(keys, limit)),
    ]
}

fn play<K: TestKeys>(
    Clients(client, poor): &Clients<K>,
    steps: Vec<Step<K::Owned>>,
    value_bytes: Option<u32>,
    edges: &[K::Owned],
) {
    let mut records = Records::<K>::new();
    let delete = |records: &mut Records<K>, at: usize| {
        if let Some(key) = records.keys().nth(at % records.len().max(1)).cloned() {
            assert!(client.delete(key.clone()).unwrap());
            records.remove::<K::Key>(key.borrow());
        }
    };
    check(client, &records, edges, 3);
    for step in steps {
        match step {
            Step::Put(key, len) => {
                let value = vec![len; value_bytes.map_or(usize::from(len % 90), |bytes| bytes as usize)];
                client.put(key.clone(), &value).unwrap();
                records.insert(key, value);
            }
            Step::Delete(at) => delete(&mut records, at),
            Step::Clear(at, count) => (0..count).for_each(|_| delete(&mut records, at)),
            Step::Ask(keys, limit) => {
                check(client, &records, &keys, limit);
                check(poor, &records, &keys, limit);
            }
        }
    }
    for client in [client, poor] {
        check(client, &records, edges, usize::MAX);
    }
}

/// Numbers in clusters, among them the least and the greatest.
fn number() -> impl Strategy<Value = u64> + Clone {
    let near = (prop_oneof![Just(0u64), Just(1 << 20), Just(1 << 40), Just(u64::MAX - 300)], 0..300u64);
    prop_oneof![8 => near.prop_map(|(base, step)| base + step), 1 => Just(u64::MAX), 1 => Just(0), 2 => any::<u64>()]
}

/// Strings of few letters, so that many begin alike, among them runs of the greatest byte; some are
/// longer than any key.
fn string(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> + Clone {
    let letter = prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(254), Just(255)];
    let long = vec(prop_oneof![Just("usr/"), Just("share/documentation/"), Just("\u{ff}")], 0..3)
        .prop_map(|parts| parts.concat().into_bytes());
    (long, vec(letter, len)).prop_map(|(front, back)| [front, back].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_about_numbers_are_those_of_a_btreemap(
        steps in vec(step(number()), 1..600), epsilon in 1..40u32, max_slots in prop_oneof![Just(16u16), Just(4096)],
    ) {
        let edges = [0, 1, 299, 1 << 20, 1 << 40, (1 << 40) - 1, u64::MAX - 300, u64::MAX];
        play::<U64Keys>(&clients(epsilon, max_slots, Some(8)), steps, Some(8), &edges);
    }

    #[test]
    fn answers_about_strings_are_those_of_a_btreemap(
        steps in vec(step(string(1..6)), 1..600), epsilon in 1..40u32, max_slots in prop_oneof![Just(16u16), Just(4096)],
    ) {
        let edges = [&b""[..], b"a", b"\0", b"\xff\xff\xff\xff\xff\xff\xff", b"usr/share/documentation/b", &[255; 5000]];
        let edges = edges.map(<[u8]>::to_vec);
        play::<ByteKeys>(&clients(epsilon, max_slots, None), steps, None, &edges);
    }
}

/// Models in pages: neighbours lie in other pages of the directory than the key.
fn neighbours_across_pages<K: TestKeys>() {
    let Clients(client, poor) = clients::<K>(2, 16, Some(8));
    let mut records = Records::<K>::new();
    let mut changes = fpcache_client::Changes::<K>::default();
    for number in 0..12_000u64 {
        let (key, value) = (K::key(number * 7 + 3), number.to_le_bytes().to_vec());
        changes.put(key.clone(), &value);
        records.insert(key, value);
        if changes.len() == 500 {
            client.apply(&changes, &mut Vec::new()).unwrap();
            changes.clear();
        }
    }
    // All between two keys go, over many segments.
    for some in (4_000..7_000u64).collect::<Vec<_>>().chunks(500) {
        changes.clear();
        for number in some {
            let key = K::key(number * 7 + 3);
            changes.delete(key.clone());
            records.remove::<K::Key>(key.borrow());
        }
        client.apply(&changes, &mut Vec::new()).unwrap();
    }
    let keys: Vec<K::Owned> = (0..150u64).map(|i| K::key(i * 571)).collect();
    for client in [&client, &poor] {
        let floors: Vec<_> = keys.iter().map(|key| floor::<K>(&records, key)).collect();
        let ceilings: Vec<_> = keys.iter().map(|key| ceiling::<K>(&records, key)).collect();
        assert_eq!(client.multi_floor(&keys).unwrap(), floors);
        assert_eq!(client.multi_ceiling(&keys).unwrap(), ceilings);
        for (i, key) in keys.iter().enumerate().step_by(7) {
            assert_eq!(client.floor(key.clone()).unwrap(), floors[i]);
            assert_eq!(client.ceiling(key.clone()).unwrap(), ceilings[i]);
        }
        let all = client.scan_back(keys[149].clone(), usize::MAX).unwrap();
        assert!(all.iter().map(|(key, _)| key).eq(records.keys().rev().skip_while(|key| **key > keys[149])));
        assert_eq!(client.count_from(K::key(0)).unwrap(), 9_000);
        assert_eq!(client.last().unwrap(), owned::<K>(records.last_key_value()));
    }
    assert!(poor.cache_stats().unwrap().unwrap().paged, "the models are too many for the budget");
}

for_both_kinds_of_keys!(neighbours_across_pages);

#[test]
fn an_empty_table_has_no_neighbours() {
    let Clients(client, poor) = clients::<U64Keys>(8, 64, Some(8));
    for client in [&client, &poor] {
        check(client, &Records::<U64Keys>::new(), &[0, 5, u64::MAX], 10);
    }
}

#[test]
fn prefixes_are_counted_and_listed_from_their_ends() {
    let Clients(client, _) = clients::<ByteKeys>(8, 64, None);
    let keys: [&[u8]; 8] = [b"a", b"a\0", b"a\xff", b"a\xff\xff", b"b", b"\xfe\xff", b"\xff", b"\xff\xff"];
    keys.iter().for_each(|key| client.put(*key, b"value").unwrap());
    let mut reader = client.reader();
    for (prefix, expected) in [
        (&b""[..], &keys[..]),
        (b"a", &keys[..4]),
        (b"a\xff", &keys[2..4]),
        (b"\xff", &keys[6..]),
        (b"c", &[]),
    ] {
        let (mut found, mut by_reader) = (Vec::new(), Vec::new());
        client.scan_prefix_back(prefix, usize::MAX, |key, _| found.push(key.to_vec())).unwrap();
        reader.scan_prefix_back(prefix, usize::MAX, |key, _| by_reader.push(key.to_vec())).unwrap();
        assert!(found.iter().eq(expected.iter().rev()), "{}", prefix.escape_ascii());
        assert_eq!(by_reader, found, "{}", prefix.escape_ascii());
        reader.scan_prefix(prefix, usize::MAX, |key, _| assert_eq!(by_reader.pop().unwrap(), key)).unwrap();
        assert!(by_reader.is_empty());
        assert_eq!(both!(client, reader: count_prefix(prefix)), expected.len() as u64);
    }
}

#[test]
fn long_values_outside_their_slots_come_with_their_neighbours() {
    let Clients(client, _) = clients::<U64Keys>(8, 64, None);
    let value = |key: u64| vec![key as u8; if key.is_multiple_of(3) { 100_000 } else { 10 }];
    (0..400u64).for_each(|key| client.put(key * 2, &value(key)).unwrap());
    for key in 0..400u64 {
        assert_eq!(client.floor(key * 2 + 1).unwrap(), Some((key * 2, value(key))));
    }
    let keys: Vec<u64> = (0..800).collect();
    let floors = client.multi_floor(&keys).unwrap();
    assert!(floors.iter().zip(&keys).all(|(found, key)| *found == Some((key & !1, value(key / 2)))));
    let (mut next, mut bytes) = (400, 0);
    let take = |key, found: &[u8]| {
        next -= 1;
        bytes += found.len();
        assert_eq!((key, found), (next * 2, &value(next)[..]));
    };
    client.scan_back_to(KeyRef::<U64Keys>(&0), usize::MAX, take).unwrap();
    assert_eq!((next, bytes), (0, 134 * 100_000 + 266 * 10));
}

#[test]
fn a_page_of_models_that_several_floors_need_is_read_once() {
    // Byte strings: what is read of numbers depends on whether their page is here.
    let Clients(client, _) = clients::<ByteKeys>(2, 16, Some(8));
    let mut changes = fpcache_client::Changes::<ByteKeys>::default();
    for numbers in (0..12_000u64).collect::<Vec<_>>().chunks(500) {
        changes.clear();
        numbers.iter().for_each(|number| {
            changes.put(ByteKeys::key(*number), &number.to_le_bytes());
        });
        client.apply(&changes, &mut Vec::new()).unwrap();
    }
    let keys = |first: u64, step: u64| -> Vec<Vec<u8>> {
        (0..50).map(|i| ByteKeys::key(first + i * step)).collect()
    };
    let cost = |client: &ByteClient| {
        let (mut bytes, mut reads) = (0, 0);
        client
            .multi_floor_with(&keys(1_000, 1), |found, cost| {
                assert!(found.is_some());
                (bytes, reads) = (bytes + cost.bytes, reads + cost.reads);
            })
            .unwrap();
        (bytes, reads)
    };
    let page = <ByteKeys as fpcache_client::KeySpace>::PAGE_BYTES as u64;
    let measured = || {
        // One that has no page yet.
        let poor = client.beside(patient().with_cache(CacheConfig::of(5 * page))).unwrap();
        [cost(&client), cost(&poor), cost(&client)]
    };
    // Rebuilds that the inserts asked for go on for a while, and what was rebuilt is read anew:
    // which takes more reads, never less.
    let is_once = |[rich, poor, again]: &[(u64, u32); 3]| {
        rich == again && (rich.1 + 1..=rich.1 + 3).contains(&poor.1) && poor.0 <= rich.0 + 3 * page
    };
    let mut attempts = Vec::new();
    while attempts.len() < 200 && !attempts.last().is_some_and(is_once) {
        attempts.push(measured());
    }
    assert!(attempts.last().is_some_and(is_once), "{attempts:?}");
}
