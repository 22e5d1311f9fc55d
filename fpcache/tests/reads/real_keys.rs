//! Every way to read finds what the table holds, and only that, whatever its keys and values look
//! like.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;

use crate::built::{Built, Cuts, Records};
use fpcache::cache::{CacheConfig, Variant};
use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::{ByteKeys, KeySpace, U64Keys};
use fpcache::layout::{RecordShape, Superblock, TableParameters, TableRecord, decode_root};
use fpcache::matching::Matcher;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{Lookup, LookupScratch, Outcome, Scan, ScanScratch, Wanted, drive, look_up, look_up_all};
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::{OpenError, TableView};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

const CHOICES: [PlanChoice; 4] = [
    PlanChoice::Auto,
    PlanChoice::Fixed(Plan::TwoStage),
    PlanChoice::Fixed(Plan::Range),
    PlanChoice::Fixed(Plan::Speculative),
];

/// The fewest bytes with which the table's models can be used.
fn least_bytes<K: Cuts>(built: &Built<K>) -> u64 {
    match TableView::<K>::open_within(&mut built.endpoint(), 1) {
        Err(OpenError::Budget { least, .. }) => least,
        other => panic!("{other:?}"),
    }
}

/// Keys that are there, and others near them.
fn questions<K: Cuts>(built: &Built<K>) -> Vec<K::Owned> {
    let keys = built.records.keys();
    let near = keys.clone().step_by(1 + keys.len() / 40).flat_map(|key| K::neighbours(key.borrow()));
    keys.cloned().chain(near).chain([K::lowest().to_owned()]).collect()
}

/// Asks for every key on its own and in groups, twice, so that a hot cache knows it the second
/// time.
fn assert_lookups<K: Cuts>(built: &Built<K>, table: &Table<K>, questions: &[K::Owned], context: &str) {
    let mut endpoint = built.endpoint();
    let handle = table.cache().map(|cache| cache.handle(1)).unwrap_or_default();
    let mut scratch = LookupScratch::new(Matcher::detect()).with_cache_handle(handle);
    let expected = |key: &K::Owned| built.records.get(key.borrow()).map(Vec::as_slice);
    for round in 0..2 {
        for key in questions {
            let take = |outcome: &Outcome, value: Option<&[u8]>| {
                assert_eq!(value, expected(key), "{} alone, {outcome:?}, {context}", K::show(key.borrow()));
                assert_eq!(outcome.version, value.map(|_| 1));
            };
            look_up(&mut endpoint, table, &mut scratch, key.borrow(), take).unwrap();
        }
        for group in questions.chunks(1 + 16 * (round + 1)) {
            for in_place in [true, false] {
                let keys = group.iter().map(Borrow::borrow);
                match in_place {
                    true => look_up_all(&mut endpoint, table, &mut scratch, keys, Wanted::Value).unwrap(),
                    false => drive(&mut endpoint, &mut Lookup::new(table, &mut scratch, keys)).unwrap(),
                }
                assert_eq!(scratch.outcomes().len(), group.len());
                for (key, (outcome, value)) in group.iter().zip(scratch.outcomes()) {
                    let key_shown = K::show(key.borrow());
                    let way = if in_place { "group in place" } else { "batch" };
                    assert_eq!(value, expected(key), "{key_shown} in a {way}, {outcome:?}, {context}");
                }
            }
        }
    }
}

/// Scans from every one of these keys on.
fn assert_scans<K: Cuts>(built: &Built<K>, view: &TableView<K>, starts: &[K::Owned], context: &str) {
    let (mut endpoint, mut scratch) = (built.endpoint(), ScanScratch::default());
    for (start, limit) in starts.iter().zip([1, 2, 7, 30, 400].into_iter().cycle()) {
        let mut scan = Scan::new(view, &mut scratch, start.borrow(), limit);
        drive(&mut endpoint, &mut scan).unwrap();
        let found = scan.records().map(|(key, value)| (key.to_owned(), value.to_vec()));
        let expected =
            built.records.range::<K::Key, _>((Bound::Included(start.borrow()), Bound::Unbounded)).take(limit);
        let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
        assert!(found.eq(expected), "{limit} records from {}, {context}", K::show(start.borrow()));
    }
    let mut scan = Scan::new(view, &mut scratch, K::lowest(), usize::MAX >> 1);
    drive(&mut endpoint, &mut scan).unwrap();
    assert!(
        scan.records().map(|(key, _)| key).eq(built.records.keys().map(Borrow::borrow)),
        "all, {context}"
    );
    assert!(scan.uncovered().is_none());
}

/// Every way to read a table of these records.
fn assert_all_ways<K: Cuts>(name: &str, records: Records<K>, parameters: TableParameters) -> Built<K> {
    let built = Built::<K>::new(records, parameters);
    assert_all_ways_to(&built, name);
    built
}

/// Every plan, with and without all models, with and without a hot cache; and scans.
fn assert_all_ways_to<K: Cuts>(built: &Built<K>, name: &str) {
    let (least, questions) = (least_bytes(built), questions(built));
    for bytes in [u64::MAX, least] {
        for choice in CHOICES {
            let view = TableView::open_within(&mut built.endpoint(), bytes).unwrap();
            let table = Table::over(view, &TableOptions::plan(choice)).unwrap();
            let context = format!("{name}, {}, models of {bytes} bytes", choice.name());
            assert_lookups(built, &table, &questions, &context);
        }
        let view = TableView::open_within(&mut built.endpoint(), bytes).unwrap();
        assert_scans(built, &view, &questions, &format!("{name}, models of {bytes} bytes"));
    }
    for (variant, choice) in Variant::ALL.iter().zip(CHOICES) {
        for budget in [least * 2 + 2_000, 1 << 22] {
            let cache = CacheConfig::of(budget).with_variant(*variant);
            let options = TableOptions { cache: Some(cache), ..TableOptions::plan(choice) };
            let table = Table::open(&mut built.endpoint(), &options).unwrap();
            assert_lookups(built, &table, &questions, &format!("{name}, {}, {cache:?}", choice.name()));
            let stats = table.cache_stats().unwrap();
            assert!(stats.used <= stats.budget, "{stats:?}");
            assert!(
                choice == PlanChoice::Auto || table.cache().is_none() || stats.hits > 0,
                "{name}: {stats:?}"
            );
        }
    }
}

/// A value for a key, of one of many lengths.
fn value(seed: usize, most: usize) -> Vec<u8> {
    (0..seed * 7 % (most + 1)).map(|i| (seed + i) as u8).collect()
}

fn with_values<K: KeySpace>(keys: impl IntoIterator<Item = K::Owned>, most: usize) -> Records<K> {
    keys.into_iter().enumerate().map(|(i, key)| (key, value(i, most))).collect()
}

const fn parameters(shape: RecordShape) -> TableParameters {
    TableParameters {
        width: FingerprintWidth::Bits8,
        stores_fingerprints: true,
        shape,
        epsilon: 6,
        fill: 0.8,
        max_slots: 48,
        groups: None,
        chosen_for: None,
    }
}

/// A sequence without a pattern (xorshift; Marsaglia, "Xorshift RNGs", 2003).
fn random(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed), |x| {
        let x = x ^ x << 13;
        let x = x ^ x >> 7;
        Some(x ^ x << 17)
    })
}

#[test]
fn integers_with_values_of_one_length_and_of_any() {
    let keys: Vec<u64> = random(7).take(250).chain(0..50).chain([u64::MAX]).collect();
    let fixed = keys.iter().map(|key| (*key, key.to_le_bytes().to_vec())).collect();
    assert_all_ways::<U64Keys>("integers", fixed, parameters(RecordShape::fixed(8, 8)));
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 8 + 40 };
    assert_all_ways::<U64Keys>("integers, any values", with_values::<U64Keys>(keys, 40), parameters(shape));
}

#[test]
fn values_that_lie_outside_their_slots_among_others_that_do_not() {
    let keys = random(11).take(250).chain(0..50);
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 8 + 40 };
    assert_all_ways::<U64Keys>("integers, long values", with_values::<U64Keys>(keys, 300), parameters(shape));
    let paths = (0..200).map(|i| format!("/a/b/{:02}/{:03}", i / 30, i * i).into_bytes());
    let records = with_values::<ByteKeys>(paths, 500);
    assert_all_ways::<ByteKeys>("paths, long values", records, any_lengths(64));
}

fn any_lengths(room: u32) -> TableParameters {
    parameters(RecordShape { key_bytes: None, value_bytes: None, room })
}

#[test]
fn paths_that_share_more_than_a_coder_codes() {
    let path =
        |i: u64| format!("/srv/data/shared by all of the keys in this table/{:02}/{:03}", i / 40, i % 40);
    let built = assert_all_ways::<ByteKeys>(
        "paths",
        with_values::<ByteKeys>((0..300).map(|i| path(i).into_bytes()), 30),
        any_lengths(110),
    );
    assert!(built.skipping > 5, "{} of {} segments skip", built.skipping, built.descriptors.len());
}

#[test]
fn keys_of_a_segment_that_lack_what_it_skips() {
    let deep = |i: u64| format!("common to nearly every key/{:02}/and/some/more/{:03}", i / 60, i % 60);
    let keys = (0..480).map(|i| deep(i).into_bytes());
    let mut built = Built::<ByteKeys>::new(with_values::<ByteKeys>(keys, 10), any_lengths(80));
    assert!(built.skipping > 8);
    // Whatever came later: after the keys of a folder, before the next one's.
    let later = (0..480).flat_map(|i| {
        let key = deep(i).into_bytes();
        [30, 40, 47].map(|len| [&key[..len], b"~", &key[len..]].concat())
    });
    let (mut inserted, mut lacking) = (0, 0);
    for (i, key) in later.enumerate() {
        if let Some(lacks) = built.insert(key, value(i, 10)) {
            inserted += 1;
            lacking += u32::from(lacks);
        }
    }
    assert!(inserted > 60 && lacking > 4, "{inserted} inserted, {lacking} of them lack a prefix");
    assert_all_ways_to(&built, "lacking");
}

#[test]
fn keys_that_came_later_lie_anywhere_in_their_windows() {
    let mut built = Built::<ByteKeys>::new(
        with_values::<ByteKeys>((0..300).map(|i| format!("{i:x}/{i}").into_bytes()), 20),
        any_lengths(60),
    );
    let near: Vec<_> = built
        .records
        .keys()
        .flat_map(|key| ByteKeys::neighbours(key))
        .filter(|key| !key.is_empty())
        .collect();
    let mut inserted = 0;
    for (i, key) in near.into_iter().enumerate() {
        if !built.records.contains_key(&key) && built.insert(key, value(i, 20)).is_some() {
            inserted += 1;
        }
    }
    assert!(inserted > 20, "{inserted}");
    assert_all_ways_to(&built, "inserted");
}

#[test]
fn prefixes_of_one_another_and_zero_bytes() {
    let runs = (1..90).map(|len| vec![0; len]);
    let letters = (1..90).map(|len| vec![b'a'; len]);
    let ended = (1..90).map(|len| [&vec![b'a'; len][..], &[0]].concat());
    let keys = runs.chain(letters).chain(ended);
    assert_all_ways::<ByteKeys>("prefixes", with_values::<ByteKeys>(keys, 20), any_lengths(120));
}

#[test]
fn random_bytes_of_any_length() {
    let mut numbers = random(99);
    let mut key = || {
        let len = 1 + numbers.next().unwrap() % 40;
        numbers.by_ref().take(len as usize).map(|x| (x >> 32) as u8 & 0x8f).collect::<Vec<u8>>()
    };
    let keys: Vec<_> = (0..250).map(|_| key()).collect();
    assert_all_ways::<ByteKeys>("random", with_values::<ByteKeys>(keys, 60), any_lengths(100));
}

#[test]
fn keys_and_values_of_the_tables_length() {
    let key = |i: u64| format!("user{:012}", i * i * 7919 % 1_000_003).into_bytes();
    let fixed: Records<ByteKeys> = (0..250).map(|i| (key(i), vec![i as u8; 8])).collect();
    assert_all_ways::<ByteKeys>("both fixed", fixed.clone(), parameters(RecordShape::fixed(16, 8)));
    let keys_vary = RecordShape { key_bytes: None, value_bytes: Some(8), room: 30 };
    assert_all_ways::<ByteKeys>("values fixed", fixed.clone(), parameters(keys_vary));
    let values_vary = RecordShape { key_bytes: Some(16), value_bytes: None, room: 30 };
    let records = with_values::<ByteKeys>(fixed.into_keys(), 14);
    assert_all_ways::<ByteKeys>("keys fixed", records, parameters(values_vary));
}

#[test]
fn the_longest_keys() {
    let keys = (0..60u8).map(|i| {
        let mut key = vec![b'k'; 4096 - usize::from(i % 3)];
        key[4090] = i;
        key
    });
    let built = assert_all_ways::<ByteKeys>("longest", with_values::<ByteKeys>(keys, 100), any_lengths(4200));
    assert!(built.skipping > 0);
}

#[test]
fn a_table_of_one_key() {
    let one: Records<ByteKeys> = BTreeMap::from([(b"only".to_vec(), b"value".to_vec())]);
    let built = Built::<ByteKeys>::new(one, any_lengths(30));
    let table = Table::open(&mut built.endpoint(), &TableOptions::plan(PlanChoice::Auto)).unwrap();
    assert_lookups(&built, &table, &questions(&built), "one");
    assert_scans(&built, table.view(), &questions(&built), "one");
}

/// What of a directory is forged, and made to agree with its checksum again.
#[derive(Clone, Copy, Debug)]
enum Forged {
    Root,
    Encoders,
    Page,
    Record,
}

/// Bytes that are replaced: where, and by what. Small ones are counts and lengths that nearly fit.
type Changes = Vec<(prop::sample::Index, u8)>;

fn forge<K: Cuts>(built: &Built<K>, what: Forged, changes: &Changes) {
    let change = |part: &mut Vec<u8>| {
        let len = part.len();
        changes.iter().for_each(|(at, byte)| part[at.index(len)] = *byte);
    };
    let mut table = built.superblock.table.unwrap();
    match what {
        Forged::Root => table.root_checksum = xxh3_64(&built.forge(table.root, table.root_bytes, change)),
        Forged::Encoders if table.encoders_bytes == 0 => {}
        Forged::Encoders => {
            table.encoders_checksum = xxh3_64(&built.forge(table.encoders, table.encoders_bytes, change));
        }
        Forged::Page => {
            let entries =
                decode_root::<K>(&built.forge(table.root, table.root_bytes, |_| ()), table.pages).unwrap();
            let page = entries[changes[0].0.index(entries.len())].page;
            built.forge(page, K::PAGE_BYTES as u64, |page| {
                // Where there is something, its header included.
                let used = usize::from(u16::from_le_bytes([page[6], page[7]]));
                changes.iter().for_each(|(at, byte)| page[4 + at.index(used + 12)] = *byte);
                let used = usize::from(u16::from_le_bytes([page[6], page[7]]));
                let checksum = page.get(16..16 + used).map_or(0, xxh3_64);
                page[8..16].copy_from_slice(&checksum.to_le_bytes());
            });
        }
        Forged::Record => {
            let mut bytes = table.encode::<K>();
            // After the parameters, which have checks of their own.
            changes.iter().for_each(|(at, byte)| bytes[40 + at.index(112)] = *byte);
            table = TableRecord::decode::<K>(&bytes, 64).unwrap();
        }
    }
    let superblock = Superblock { table: Some(table), ..built.superblock };
    built.memory.write_bytes(0, &superblock.encode::<K>()).unwrap();
}

/// Opens and reads in every way; whatever comes of it, it is no panic.
fn read_in_every_way<K: Cuts>(built: &Built<K>) {
    let (mut endpoint, keys) = (built.endpoint(), questions(built));
    for bytes in [u64::MAX, 1, 60_000] {
        for choice in CHOICES {
            let Ok(view) = TableView::<K>::open_within(&mut endpoint, bytes) else { continue };
            let Ok(table) = Table::over(view, &TableOptions::plan(choice)) else { continue };
            let mut scratch = LookupScratch::new(Matcher::detect());
            for key in keys.iter().step_by(9) {
                let _ = look_up(&mut endpoint, &table, &mut scratch, key.borrow(), |_, _| ());
                let mut scratch = ScanScratch::default();
                let _ = drive(&mut endpoint, &mut Scan::new(table.view(), &mut scratch, key.borrow(), 9));
            }
            let _ =
                drive(&mut endpoint, &mut Lookup::new(&table, &mut scratch, keys.iter().map(Borrow::borrow)));
        }
    }
}

fn forged() -> impl Strategy<Value = (Forged, Changes)> {
    let what = prop::sample::select(vec![Forged::Root, Forged::Encoders, Forged::Page, Forged::Record]);
    let byte = prop_oneof![0u8..20, any::<u8>()];
    (what, prop::collection::vec((any::<prop::sample::Index>(), byte), 1..6))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn forged_directories_end_in_an_error_or_are_read_but_never_in_a_panic((what, changes) in forged()) {
        let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 8 + 9 };
        let built = Built::<U64Keys>::new(with_values::<U64Keys>(random(3).take(90), 9), parameters(shape));
        forge(&built, what, &changes);
        read_in_every_way(&built);
        let keys = (0..90).map(|i| format!("some/{}/{i}/{:40}", i / 30, i % 7).into_bytes());
        let built = Built::<ByteKeys>::new(with_values::<ByteKeys>(keys, 9), any_lengths(80));
        forge(&built, what, &changes);
        read_in_every_way(&built);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_of_few_bytes_that_have_much_in_common(
        keys in prop::collection::btree_set(
            prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 1..9), 1..250),
        prefix in prop::collection::vec(any::<u8>(), 0..40),
        epsilon in 0u32..9,
        max_slots in 16u16..80,
        choice in prop::sample::select(&CHOICES[..]),
        paged: bool,
    ) {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(|key| [&prefix[..], &key].concat()).collect();
        let parameters = TableParameters { epsilon, max_slots, ..any_lengths(80) };
        let built = Built::<ByteKeys>::new(with_values::<ByteKeys>(keys, 25), parameters);
        let questions = questions(&built);
        let bytes = if paged { least_bytes(&built) } else { u64::MAX };
        let view = TableView::open_within(&mut built.endpoint(), bytes).unwrap();
        let table = Table::over(view, &TableOptions::plan(choice)).unwrap();
        assert_lookups(&built, &table, &questions, "drawn");
        assert_scans(&built, table.view(), &questions, "drawn");
    }
}
