//! External values: the costs of reading them, and that nothing else is ever taken for them.

mod costs;

use std::borrow::Borrow;
use std::collections::BTreeMap;

use crate::built::{Built, Cuts, Records};
use crate::node::Interrupted;
use fpcache::cache::CacheConfig;
use fpcache::fingerprint::FingerprintWidth;
use fpcache::key_space::{ByteKeys, KeySpace, U64Keys};
use fpcache::layout::{
    MAX_VALUE_BYTES, RecordShape, SEGMENT_HEADER_BYTES, SLOT_WORD_BYTES, SegmentAddress, SlotState, SlotWord,
    Stored, TableParameters, ValueExtent,
};
use fpcache::matching::Matcher;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{
    Cost, Lookup, LookupScratch, Outcome, ReadError, Scan, ScanScratch, cache_probe, contains, drive, look_up,
};
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::TableView;
use fpcache_fabric::Endpoint;
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

const PLANS: [Plan; 3] = [Plan::TwoStage, Plan::Range, Plan::Speculative];
const ROOM: u32 = 48;

/// Fingerprints so wide that no other key has the same.
const fn parameters(key_bytes: Option<u16>) -> TableParameters {
    let shape = RecordShape { key_bytes, value_bytes: None, room: ROOM };
    TableParameters {
        width: FingerprintWidth::Bits64,
        stores_fingerprints: true,
        shape,
        epsilon: 6,
        fill: 0.8,
        max_slots: 48,
        groups: None,
        chosen_for: None,
    }
}

/// Bytes that differ from key to key and from one position to the next.
fn value(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (seed.wrapping_mul(31) ^ (i * (i >> 8 | 1))) as u8).collect()
}

/// Keys at odd distances, every third of which has a value in its slot.
fn mixed() -> Built<U64Keys> {
    let long = |i: u64| value(i, if i.is_multiple_of(3) { 9 } else { 41 + (i * i % 900) as usize });
    Built::new((0..300).map(|i| (i * i * 17 + 5, long(i))).collect(), parameters(Some(8)))
}

/// A key whose value is external, with others around it.
const KEY: u64 = 100 * 100 * 17 + 5;

fn by<K: Cuts>(built: &Built<K>, plan: Plan) -> Table<K> {
    Table::open(&mut built.endpoint(), &TableOptions::plan(PlanChoice::Fixed(plan))).unwrap()
}

/// How a lookup ended, and the value it found.
type Answer = (Outcome, Option<Vec<u8>>);

fn get<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    table: &Table<K>,
    key: &K::Key,
) -> Result<Answer, ReadError> {
    let mut scratch = LookupScratch::new(Matcher::detect());
    look_up(endpoint, table, &mut scratch, key, |outcome, value| (outcome.clone(), value.map(<[u8]>::to_vec)))
}

/// The same, by way of a group.
fn get_in_group<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    table: &Table<K>,
    keys: &[K::Owned],
) -> Result<Vec<Answer>, ReadError> {
    let mut scratch = LookupScratch::new(Matcher::detect());
    drive(endpoint, &mut Lookup::new(table, &mut scratch, keys.iter().map(Borrow::borrow)))?;
    Ok(scratch.outcomes().map(|(outcome, value)| (outcome.clone(), value.map(<[u8]>::to_vec))).collect())
}

/// What a scan found and cost, where another one would go on, and how it ended.
struct Scanned<K: KeySpace> {
    records: Vec<(K::Owned, Vec<u8>)>,
    cost: Cost,
    uncovered: Option<K::Owned>,
    ended: Result<(), ReadError>,
}

/// Scans from a key on.
fn scan<K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    view: &TableView<K>,
    start: &K::Key,
    limit: usize,
) -> Scanned<K> {
    let mut scratch = ScanScratch::default();
    let mut scan = Scan::new(view, &mut scratch, start, limit);
    let ended = drive(endpoint, &mut scan);
    let records = scan.records().map(|(key, value)| (key.to_owned(), value.to_vec())).collect();
    let (cost, uncovered) = (scan.cost(), scan.uncovered().map(|(from, _)| from));
    Scanned { records, cost, uncovered, ended }
}

/// The extent in which a value of the table lies.
fn extent_of(built: &Built<U64Keys>, value: &[u8]) -> ValueExtent {
    ValueExtent { bytes: value.len() as u32, checksum: xxh3_64(value), ..built.extent_of(&KEY) }
}

/// Reads KEY alone, in a group and by a scan, while `before` is called before each READ with its
/// number, counted anew for each of them; `check` gets what came of it.
fn in_every_way(
    built: &Built<U64Keys>,
    mut before: impl FnMut(u32),
    mut reset: impl FnMut(),
    mut check: impl FnMut(Result<Option<Vec<u8>>, ReadError>, &str),
) {
    for plan in PLANS {
        let table = by(built, plan);
        for way in ["alone", "in a group", "by a scan"] {
            reset();
            let mut number = 0;
            let mut count = || {
                number += 1;
                before(number);
            };
            let mut endpoint =
                Interrupted { inner: built.endpoint(), before: Box::new(&mut count), in_place: false };
            let answer = match way {
                "alone" => get(&mut endpoint, &table, &KEY).map(|(_, value)| value),
                "in a group" => {
                    get_in_group(&mut endpoint, &table, &[KEY]).map(|mut found| found.remove(0).1)
                }
                _ => {
                    let Scanned { records, ended, .. } = scan(&mut endpoint, table.view(), &KEY, 1);
                    ended.map(|()| records.into_iter().find(|(key, _)| *key == KEY).map(|(_, value)| value))
                }
            };
            drop(endpoint);
            check(answer, &format!("{way}, {plan:?}"));
        }
    }
}

#[test]
fn a_mixture_of_two_values_is_never_an_answer() {
    let built = mixed();
    let (old, at) = (built.records[&KEY].clone(), built.extent_of(&KEY));
    let new = value(1000, old.len());
    for mixture in (1..1u32 << old.len().div_ceil(8).min(8)).step_by(5) {
        let mixed: Vec<u8> =
            (0..old.len()).map(|i| if mixture >> (i / 8 % 8) & 1 == 1 { new[i] } else { old[i] }).collect();
        let whole = mixed == new || mixed == old;
        let put = |bytes: &[u8]| built.memory.write_bytes(at.address.offset(), bytes).unwrap();
        let reset = || {
            built.rewrite(&KEY, 1, &Stored::External(at));
            put(&mixed);
        };
        // The new value's slot comes with the fifth READ.
        let before = |number| {
            if number == 5 {
                put(&new);
                built.rewrite(&KEY, 2, &Stored::External(extent_of(&built, &new)));
            }
        };
        in_every_way(&built, before, reset, |answer, context| {
            let expected = if whole { &mixed } else { &new };
            assert_eq!(answer.unwrap().as_ref(), Some(expected), "{mixture:b}, {context}");
        });
        in_every_way(
            &built,
            |_| {},
            reset,
            |answer, context| match answer {
                Err(ReadError::Contended { .. }) if !whole => {}
                other => panic!("{other:?}, {context}"),
            },
        );
    }
}

#[test]
fn what_a_record_became_while_its_value_was_fetched_is_the_answer() {
    let built = mixed();
    let (value, at) = (built.records[&KEY].clone(), built.extent_of(&KEY));
    let slot = built.slot_of(&KEY);
    let becomes = [Some(&b"short"[..]), None, Some(&b""[..])];
    for (new, since) in becomes.into_iter().flat_map(|new| (1..6).map(move |since| (new, since))) {
        let before = |number| {
            if number == since {
                match new {
                    Some(value) => built.write_slot(slot, &KEY, 2, &Stored::Here(value)),
                    None => built.memory.write_bytes(slot.0, &[0; SLOT_WORD_BYTES]).unwrap(),
                }
                built.memory.write_bytes(at.address.offset(), &[0xee; 41]).unwrap();
            }
        };
        let reset = || {
            built.memory.write_bytes(at.address.offset(), &value).unwrap();
            built.write_slot(slot, &KEY, 1, &Stored::External(at));
        };
        in_every_way(&built, before, reset, |answer, context| {
            let answer = answer.unwrap();
            let allowed = answer.as_deref() == new || answer.as_ref() == Some(&value);
            assert!(allowed, "{answer:?}, not {new:?}, before READ {since}, {context}");
        });
    }
}

/// Two fingerprints match, and between the looks at their slots the record moves from the one to
/// the other.
#[test]
fn an_external_value_is_never_an_answer_with_the_version_of_another_slot() {
    let built = mixed();
    let table = by(&built, Plan::TwoStage);
    let geometry = *table.view().geometry();
    let index_of = |key: &u64| {
        let probe = cache_probe(table.view(), key).unwrap();
        ((built.slot_of(key).0 - probe.slots) / geometry.slot_bytes as u64, probe.window)
    };
    // Another slot of the window comes after the key's.
    let is_before_another = |key: &u64| {
        let (index, window) = index_of(key);
        index < window.last.into() && built.records[key].len() > ROOM as usize
    };
    let key = *built.records.keys().find(|key| is_before_another(key)).unwrap();
    let (old, at, (index, _)) = (built.records[&key].clone(), built.extent_of(&key), index_of(&key));
    let (slot, generation) = built.slot_of(&key);
    let other = slot + geometry.slot_bytes as u64;
    // Fingerprints end where slots begin, packed but for their padding.
    let segment = built.descriptors.iter().rfind(|d| d.address.offset() < slot).unwrap();
    let fingerprint_at = segment.address.offset() + (SEGMENT_HEADER_BYTES + (index as usize + 1) * 8) as u64;
    built
        .memory
        .write_bytes(fingerprint_at, &geometry.width.of_hash(U64Keys::hash(&key)).to_le_bytes())
        .unwrap();
    let mut before_it_moved = vec![0; geometry.slot_bytes];
    built.memory.read_bytes(other, &mut before_it_moved).unwrap();
    for (moves, in_place) in (1..9).flat_map(|moves| [(moves, false), (moves, true)]) {
        built.write_slot((slot, generation), &key, 1, &Stored::External(at));
        built.memory.write_bytes(other, &before_it_moved).unwrap();
        let mut number = 0;
        let before = Box::new(|| {
            number += 1;
            if number == moves {
                built.memory.write_bytes(slot, &[0; SLOT_WORD_BYTES]).unwrap();
                built.write_slot((other, generation), &key, 2, &Stored::Here(b"short"));
            }
        });
        let mut endpoint = Interrupted { inner: built.endpoint(), before, in_place };
        let (outcome, found) = get(&mut endpoint, &table, &key).unwrap();
        match outcome.version {
            Some(1) => assert_eq!(found.as_ref(), Some(&old), "moved before look {moves}"),
            Some(2) => assert_eq!(found.as_deref(), Some(&b"short"[..]), "moved before look {moves}"),
            version => panic!("{version:?} with {found:?}, moved before look {moves}"),
        }
    }
}

#[test]
fn rounds_without_a_torn_record_are_no_attempts_at_one() {
    let built = mixed();
    let table = by(&built, Plan::TwoStage);
    let (slot, at) = (built.slot_of(&KEY), built.extent_of(&KEY));
    // Fingerprints, the slot, the window's slots, the value: the slot is torn once.
    let mut round = 0;
    let before = Box::new(|| {
        round += 1;
        match round {
            2 => built
                .memory
                .write_bytes(slot.0, &SlotWord::new(SlotState::Busy, 1, 0).to_bits().to_le_bytes())
                .unwrap(),
            3 => built.write_slot(slot, &KEY, 1, &Stored::External(at)),
            _ => {}
        }
    });
    let mut endpoint = Interrupted { inner: built.endpoint(), before, in_place: false };
    let mut scratch = LookupScratch::new(Matcher::detect());
    drive(&mut endpoint, &mut Lookup::new(&table, &mut scratch, [&KEY]).trying(2)).unwrap();
    let (_, value) = scratch.outcomes().next().unwrap();
    assert_eq!(value, Some(&*built.records[&KEY]));
}

#[test]
fn a_scan_keeps_what_it_found_before_a_value_that_does_not_prove_itself() {
    let built = mixed();
    let at = built.extent_of(&KEY);
    built.memory.write_bytes(at.address.offset(), &[0xee; 41]).unwrap();
    let view = TableView::<U64Keys>::open(&mut built.endpoint()).unwrap();
    let Scanned { records, uncovered, ended, .. } = scan(&mut built.endpoint(), &view, &0, 1000);
    assert!(matches!(ended, Err(ReadError::Contended { attempts: 100 })), "{ended:?}");
    assert_eq!(uncovered, Some(KEY));
    assert!(records.iter().map(|(key, value)| (key, value)).eq(built.records.range(..KEY)));
}

/// What comes with each attempt after it is more than a scan keeps before it pauses.
#[test]
fn a_scan_that_gets_no_further_than_a_value_that_does_not_prove_itself_ends_in_an_error() {
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 2048 };
    let parameters = TableParameters { shape, ..parameters(Some(8)) };
    let built = Built::<U64Keys>::new(
        (0..400).map(|i| (i * 3, value(i, if i == 0 { 4000 } else { 1900 }))).collect(),
        parameters,
    );
    built.memory.write_bytes(built.extent_of(&0).address.offset(), &[0xee; 41]).unwrap();
    let view = TableView::<U64Keys>::open(&mut built.endpoint()).unwrap();
    let Scanned { records, uncovered, ended, .. } = scan(&mut built.endpoint(), &view, &0, 1000);
    assert!(matches!(ended, Err(ReadError::Contended { attempts: 100 })), "{ended:?}");
    assert_eq!((records.len(), uncovered), (0, Some(0)));
}

#[test]
fn references_that_lie_end_in_an_error_and_are_not_followed_out_of_the_region() {
    let built = mixed();
    let (true_one, region) = (built.extent_of(&KEY), built.superblock.region_bytes);
    let at = |node, offset| SegmentAddress::new(node, offset).unwrap();
    let lies = [
        ValueExtent { address: at(0, region), ..true_one },
        ValueExtent { address: at(0, region - 8), ..true_one },
        ValueExtent { address: at(0, SegmentAddress::MAX_OFFSET & !7), ..true_one },
        ValueExtent { address: at(1, true_one.address.offset()), ..true_one },
        ValueExtent { address: at(0, true_one.address.offset() + 1), ..true_one },
        ValueExtent { address: at(0, true_one.address.offset() + 8), ..true_one },
        ValueExtent { bytes: true_one.bytes - 1, ..true_one },
        ValueExtent { bytes: true_one.bytes + 1, ..true_one },
        ValueExtent { bytes: 0, ..true_one },
        ValueExtent { bytes: MAX_VALUE_BYTES as u32, ..true_one },
        ValueExtent { bytes: MAX_VALUE_BYTES as u32 + 1, ..true_one },
        ValueExtent { bytes: u32::MAX, ..true_one },
        ValueExtent { checksum: true_one.checksum ^ 1, ..true_one },
        ValueExtent { address: at(0, 0), bytes: region as u32, ..true_one },
    ];
    let slot = built.slot_of(&KEY);
    for lie in lies {
        built.write_slot(slot, &KEY, 3, &Stored::External(lie));
        // A length that no record can have counts as half written where all slots are looked at.
        let makes_sense = lie.bytes as usize <= MAX_VALUE_BYTES;
        let check = |answer: Result<Option<Vec<u8>>, ReadError>, context: &str| match answer {
            Err(ReadError::Contended { .. }) => {}
            Ok(None) if !makes_sense => {}
            other => panic!("{other:?} for {lie:?}, {context}"),
        };
        in_every_way(&built, |_| {}, || {}, check);
    }
}

#[test]
#[cfg(feature = "sabotage")]
fn a_reader_that_believes_extents_unseen_is_caught() {
    use fpcache::sabotage::Sabotage;
    let built = mixed();
    let at = built.extent_of(&KEY);
    built.memory.write_bytes(at.address.offset(), &[0xee; 8]).unwrap();
    for (sabotage, believed) in [(None, false), (Some(Sabotage::UnprovenExtents), true)] {
        let options = TableOptions { sabotage, ..TableOptions::plan(PlanChoice::Auto) };
        let table = Table::<U64Keys>::open(&mut built.endpoint(), &options).unwrap();
        let alone = get(&mut built.endpoint(), &table, &KEY);
        let grouped = get_in_group(&mut built.endpoint(), &table, &[KEY]);
        let scanned = scan(&mut built.endpoint(), table.view(), &KEY, 1).ended;
        assert_eq!([alone.is_ok(), grouped.is_ok(), scanned.is_ok()], [believed; 3]);
    }
}

/// Lengths of values at which something begins or ends, for keys of `key_bytes` bytes.
fn lengths(key_bytes: usize) -> impl Strategy<Value = usize> {
    let room = ROOM as usize - key_bytes;
    prop_oneof![
        4 => prop::sample::select(vec![0, 1, 8, room - 16, room - 1, room, room + 1, room + 8]),
        4 => (1usize..40).prop_map(|words| words * 8),
        4 => 0usize..700,
        1 => Just(70_000),
    ]
}

/// Every way to read finds these records, and only them.
fn assert_reads<K: Cuts>(records: Records<K>, parameters: TableParameters) -> Result<(), TestCaseError> {
    let built = Built::<K>::new(records, parameters);
    let mut asked: Vec<K::Owned> = built.records.keys().cloned().collect();
    asked.extend(built.records.keys().flat_map(|key| K::neighbours(key.borrow())).take(40));
    let expected: BTreeMap<_, _> = built.records.clone();
    for plan in PLANS {
        let (table, mut endpoint) = (by(&built, plan), built.endpoint());
        for key in &asked {
            let (_, found) = get(&mut endpoint, &table, key.borrow()).unwrap();
            prop_assert_eq!(found.as_ref(), expected.get(key.borrow()), "{}", K::show(key.borrow()));
        }
        for (group, (key, found)) in asked
            .chunks(7)
            .flat_map(|group| {
                let found = get_in_group(&mut built.endpoint(), &table, group).unwrap();
                group.iter().zip(found).collect::<Vec<_>>()
            })
            .enumerate()
        {
            prop_assert_eq!(found.1.as_ref(), expected.get(key.borrow()), "{} of the groups", group);
        }
        for (start, limit) in asked.iter().step_by(5).zip([1, 3, 1000].into_iter().cycle()) {
            let found = scan(&mut endpoint, table.view(), start.borrow(), limit).records;
            let wanted = expected
                .range::<K::Key, _>((std::ops::Bound::Included(start.borrow()), std::ops::Bound::Unbounded));
            prop_assert!(found.iter().map(|(key, value)| (key, value)).eq(wanted.take(limit)));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn integers_with_values_of_any_length(lengths in prop::collection::btree_map(any::<u64>(), lengths(8), 1..80)) {
        let records = lengths.into_iter().map(|(key, bytes)| (key, value(key, bytes))).collect();
        assert_reads::<U64Keys>(records, parameters(Some(8)))?;
    }

    #[test]
    fn byte_strings_with_values_of_any_length(
        lengths in prop::collection::btree_map(prop::collection::vec(any::<u8>(), 1..=32), lengths(32), 1..80),
    ) {
        let records = lengths.into_iter().map(|(key, bytes)| (key, value(bytes as u64, bytes))).collect();
        assert_reads::<ByteKeys>(records, parameters(None))?;
    }
}
