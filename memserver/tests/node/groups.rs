//! Tables with groups: one READ finds nearly every record, and whatever is in a table of groups,
//! every answer is right.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::common::keys::folders::Folders;
use crate::common::keys::{Integers, Strings, TestKeys};
use crate::common::requests::Writer;
use crate::common::{Fixture, GROUPS, Reader, TWO_STAGE, mix, scattered};
use fpcache::cache::{CacheConfig, Variant};
use fpcache::key_space::U64Keys;
use fpcache::layout::{GroupChoice, GroupForm, Grouping, RecordToken, TableParameters};
use fpcache::message::WriteKind;
use fpcache::models::Segment;
use fpcache::plan::Plan;
use fpcache::read::Outcome;
use fpcache_datasets::{OpenOptions, Spec, SpecKind};
use fpcache_fabric::{Service, SharedMemory, Work};
use fpcache_memserver::MemoryNode;

/// Groups of ten slots of two forms, and of one slot each.
const PLAIN: Grouping = Grouping::plain(9, 10);
const SEEDED: Grouping = Grouping::seeded(6, 10);
const PILOTS: Grouping = Grouping::pilots(32, 7);

fn fixture<T: TestKeys>(keys: u64, epsilon: u32, grouping: Grouping) -> Fixture<T> {
    let parameters = T::parameters(8);
    Fixture::new(scattered(keys), TableParameters { epsilon, groups: Some(grouping), ..parameters })
}

/// Looks up every key and as many others, compares all answers, and gives the shares of those that
/// took one READ.
fn shares_in_one_read<T: TestKeys>(f: &Fixture<T>, reader: &mut Reader<T>) -> (f64, f64) {
    let (mut present, mut absent) = (0, 0);
    let is_one = |outcome: &Outcome| {
        u32::from(outcome.cost.round_trips == 1 && outcome.cost.reads == 1 && outcome.plan == Plan::Groups)
    };
    for key in &f.keys {
        let (outcome, answer) = reader.get_with_outcome(*key).unwrap();
        assert_eq!(answer, Some((1, f.value(*key, 1))), "key {key}");
        present += is_one(&outcome);
        let other = key ^ 1;
        let expected = f.keys.binary_search(&other).ok().map(|_| (1, f.value(other, 1)));
        let (outcome, answer) = reader.get_with_outcome(other).unwrap();
        assert_eq!(answer, expected, "key {other}");
        absent += is_one(&outcome);
    }
    let share = |of: u32| f64::from(of) / f.keys.len() as f64;
    (share(present), share(absent))
}

fn nearly_every_record_takes_one_read<T: TestKeys>(grouping: Grouping, least: f64) {
    for way in GROUPS {
        let f = fixture::<T>(20_000, 32, grouping);
        let mut reader = f.reader(way);
        let (first, _) = shares_in_one_read(&f, &mut reader);
        assert!(first > least.min(0.9), "most keys come when their segment's table has: {first}");
        let (present, absent) = shares_in_one_read(&f, &mut reader);
        assert!(present >= least && absent >= least, "{way:?}: {present}, {absent}");
        let tables = reader.table.groups().expect("no budget").len();
        assert_eq!(tables, reader.table.view().models().resident().unwrap().len() as u64);
    }
}

#[test]
fn nearly_every_integer_takes_one_read() {
    nearly_every_record_takes_one_read::<Integers>(PLAIN, 0.999);
    nearly_every_record_takes_one_read::<Integers>(SEEDED, 0.999);
    nearly_every_record_takes_one_read::<Integers>(PILOTS, 0.99);
}

#[test]
fn nearly_every_string_takes_one_read() {
    nearly_every_record_takes_one_read::<Strings>(PLAIN, 0.9);
    nearly_every_record_takes_one_read::<Strings>(SEEDED, 0.9);
    nearly_every_record_takes_one_read::<Strings>(PILOTS, 0.9);
}

#[test]
fn most_strings_that_share_coordinates_take_one_read() {
    // Seventy of one coordinate: some lie in the blocks beside theirs, and mark groups of keys that
    // are absent.
    nearly_every_record_takes_one_read::<Folders>(PLAIN, 0.7);
    nearly_every_record_takes_one_read::<Folders>(SEEDED, 0.7);
    nearly_every_record_takes_one_read::<Folders>(Grouping::pilots(16, 4), 0.7);
}

#[test]
fn a_read_of_a_group_brings_its_slots_and_no_more() {
    for (grouping, slots) in [(PLAIN, 10), (SEEDED, 10), (PILOTS, 1)] {
        let f = fixture::<Integers>(3000, 32, grouping);
        let mut reader = f.reader(GROUPS[1]);
        shares_in_one_read(&f, &mut reader);
        for key in &f.keys {
            let (outcome, _) = reader.get_with_outcome(*key).unwrap();
            if outcome.plan == Plan::Groups {
                assert!((outcome.cost.reads, outcome.cost.round_trips) == (1, 1));
                assert!(outcome.cost.bytes <= 24 * slots);
            }
        }
    }
}

/// Where the table of groups of a segment lies, and how many bytes it has.
fn table_of<T: TestKeys>(f: &Fixture<T>, segment: &Segment<T::Space>) -> (u64, usize) {
    let (geometry, cap) = (f.geometry(), segment.model().cap);
    (segment.address().offset() + geometry.table_offset(cap) as u64, geometry.table_bytes(cap))
}

fn every_bit_of_a_table_may_be_another_without_a_wrong_answer<T: TestKeys>(grouping: Grouping) {
    let f = fixture::<T>(120, 4, grouping);
    let view = f.open().unwrap();
    let segments: Vec<Segment<T::Space>> =
        view.models().resident().unwrap().iter().map(|(_, segment)| *segment).collect();
    for segment in segments.iter().take(2) {
        let (offset, len) = table_of(&f, segment);
        let whole = f.bytes(offset, len);
        for bit in 0..8 * len {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            f.with(offset, &bytes, || {
                for way in GROUPS {
                    let mut reader = f.reader(way);
                    shares_in_one_read(&f, &mut reader);
                    shares_in_one_read(&f, &mut reader);
                    let records = reader.scan(f.keys[10], 30).unwrap();
                    assert!(records.iter().map(|(key, _)| key).eq(&f.keys[10..40]), "bit {bit}");
                }
            });
        }
    }
}

#[test]
fn every_bit_of_a_table_of_integers_may_be_another() {
    every_bit_of_a_table_may_be_another_without_a_wrong_answer::<Integers>(Grouping::plain(4, 5));
    every_bit_of_a_table_may_be_another_without_a_wrong_answer::<Integers>(Grouping::seeded(2, 5));
    every_bit_of_a_table_may_be_another_without_a_wrong_answer::<Integers>(Grouping::pilots(8, 3));
}

#[test]
fn every_bit_of_a_table_of_strings_may_be_another() {
    every_bit_of_a_table_may_be_another_without_a_wrong_answer::<Strings>(Grouping::plain(4, 5));
    every_bit_of_a_table_may_be_another_without_a_wrong_answer::<Strings>(Grouping::seeded(2, 5));
    every_bit_of_a_table_may_be_another_without_a_wrong_answer::<Strings>(Grouping::pilots(8, 3));
}

#[test]
fn a_table_that_is_not_as_it_was_written_is_found_by_the_audit() {
    GroupForm::ALL.into_iter().for_each(a_table_that_is_not_as_it_was_written_is_found);
}

fn a_table_that_is_not_as_it_was_written_is_found(form: GroupForm) {
    let keys = scattered(120);
    let parameters =
        TableParameters { epsilon: 4, ..TableParameters::default() }.with_groups(GroupChoice::Fixed(form));
    let region = Arc::new(SharedMemory::anonymous(1 << 20).unwrap());
    let mut node = MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).unwrap();
    node.load_records(parameters, (), keys.iter().map(|key| (*key, key.to_le_bytes()))).unwrap();
    node.audit().unwrap();
    let f = Fixture::<Integers>::over(region, keys, parameters);
    let view = f.open().unwrap();
    let (_, segment) = view.models().resident().unwrap().iter().nth(1).unwrap();
    let (offset, len) = table_of(&f, segment);
    let whole = f.bytes(offset, len);
    for bit in 0..8 * len {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        f.with(offset, &bytes, || {
            let error = node.audit().unwrap_err().to_string();
            assert!(error.contains("table of groups"), "bit {bit}: {error}");
        });
    }
    node.audit().unwrap();
}

#[test]
fn the_hot_cache_holds_records_farther_from_their_prediction_than_the_epsilon_of_their_table() {
    const EPSILON: u32 = 8;
    let f = fixture::<Integers>(500, EPSILON, PLAIN);
    let is_far = |key: &u64| {
        let (segment, _) = f.window_of(*key);
        segment.model().predict(*key).abs_diff(f.place_of(*key).index) > EPSILON
    };
    let far: Vec<u64> = f.keys.iter().copied().filter(is_far).collect();
    assert!(far.len() > 5, "{} of {} keys are farther", far.len(), f.keys.len());
    for variant in Variant::ALL {
        let config = CacheConfig::of(1 << 20).with_variant(*variant);
        let mut reader = f.cached_reader(TWO_STAGE[0], config);
        for key in &far {
            reader.get(*key).unwrap();
            let (outcome, answer) = reader.get_with_outcome(*key).unwrap();
            assert_eq!((outcome.plan, answer), (Plan::Cached, Some((1, f.value(*key, 1)))), "{variant:?}");
        }
    }
}

#[test]
fn a_budget_without_room_for_all_tables_has_some_of_them() {
    let f = fixture::<Integers>(30_000, 8, PLAIN);
    let table_of = |budget: u64| f.cached_reader(GROUPS[0], CacheConfig::of(budget));
    let whole = table_of(1 << 30);
    let (models, all) = (whole.table.view().model_bytes() as u64, whole.table.groups().unwrap().most_bytes());
    // From one segment to another, as lookups of many callers go.
    let share_in_one_read = |reader: &mut Reader<Integers>| {
        let count = f.keys.len();
        let is_one = |at: usize| {
            let other = f.keys[at * 7919 % count] ^ 1;
            let expected = f.keys.binary_search(&other).ok().map(|_| (1, f.value(other, 1)));
            let (outcome, answer) = reader.get_with_outcome(other).unwrap();
            assert_eq!(answer, expected, "key {other}");
            u32::from(outcome.plan == Plan::Groups && outcome.cost.reads == 1)
        };
        f64::from((0..count).map(is_one).sum::<u32>()) / count as f64
    };
    let mut before = 0.0;
    for parts in [1, 4, 8] {
        let budget = models + models / 8 + 1000 + all * parts / 8;
        let mut reader = table_of(budget);
        share_in_one_read(&mut reader);
        let share = share_in_one_read(&mut reader);
        let least = 0.6 * parts as f64 / 8.0;
        assert!(share > least && share > before, "{share} of the absent keys with {parts}/8 of the bytes");
        assert!(reader.table.size_in_bytes() <= budget);
        before = share;
    }
    let mut reader = table_of(models + models / 8 + 1000);
    assert!(reader.table.groups().is_none() && share_in_one_read(&mut reader) == 0.0);
}

/// Records copied by rebuilds for each that is inserted in order, between two that were loaded.
fn copies_of_a_run(parameters: TableParameters) -> f64 {
    const RUN: u64 = 4000;
    let keys = scattered(1000);
    let region = Arc::new(SharedMemory::anonymous(4 << 20).unwrap());
    let mut node = MemoryNode::<U64Keys>::new(region, 1, 0, Instant::now()).unwrap();
    let mut writer = Writer::<Integers>::new(1);
    node.load_records(parameters, (), keys.iter().map(|key| (*key, key.to_le_bytes()))).unwrap();
    for n in 1..=RUN {
        let key = keys[500] + n;
        writer.one(&mut node, WriteKind::Insert, key, RecordToken::default(), &key.to_le_bytes());
        if n % 16 == 0 {
            node.work();
        }
    }
    node.audit().unwrap();
    node.stats().copies as f64 / RUN as f64
}

#[test]
fn runs_of_inserts_keep_the_slots_ahead_of_them() {
    let parameters = TableParameters::default();
    let without = copies_of_a_run(parameters);
    for form in GroupForm::ALL {
        let with = copies_of_a_run(parameters.with_groups(GroupChoice::Fixed(form)));
        println!("copies for each insert: {without:.2} without groups, {with:.2} with {form} ones");
        assert!(with <= 1.15 * without, "{with} for each insert, {without} without groups, {form}");
    }
}

#[test]
fn what_segments_take_is_foretold_however_few_keys_they_have() {
    let of = |(epsilon, keys)| [PLAIN, SEEDED, PILOTS].map(|grouping| (epsilon, keys, grouping));
    for (epsilon, keys, grouping) in [(1, 3000), (4, 3000), (32, 3000), (4, 12)].into_iter().flat_map(of) {
        let f = fixture::<Integers>(keys, epsilon, grouping);
        let (geometry, view) = (f.geometry(), f.open().unwrap());
        let segments = view.models().resident().unwrap();
        let bytes: usize = segments.iter().map(|(_, s)| geometry.segment_bytes(s.model().cap) + 56).sum();
        let each = keys as f64 / segments.len() as f64;
        let foretold = f.parameters.estimated_bytes(keys, each) as f64;
        println!(
            "{grouping:?}, epsilon {epsilon}, {each:.0} keys a segment: {bytes} bytes, {foretold} foretold"
        );
        assert!((0.9..1.1).contains(&(foretold / bytes as f64)), "{bytes} bytes, {foretold} foretold");
    }
}

/// What lookups of keys that are there, and of twice as many that are not, cost when tables of
/// groups are here.
#[derive(Debug)]
struct Shares {
    /// Those that one READ answered, of either kind.
    present: f64,
    absent: f64,
    /// Of the compute node, for each record: models, and tables of groups with their room to grow.
    models: f64,
    tables: f64,
    /// READ for a key that is there.
    bytes: f64,
}

/// Compares all answers with those of a map.
fn shares_of(
    region: &Arc<SharedMemory>,
    model: &BTreeMap<u64, Vec<u8>>,
    parameters: TableParameters,
) -> Shares {
    let f = Fixture::<Integers>::over(Arc::clone(region), Vec::new(), parameters);
    let mut reader = f.reader(GROUPS[1]);
    let one = |reader: &mut Reader, key: u64| {
        let (outcome, answer) = reader.get_with_outcome(key).unwrap();
        assert_eq!(answer.as_ref().map(|(_, value)| value), model.get(&key), "key {key}");
        let is_one = outcome.cost.round_trips == 1 && outcome.plan == Plan::Groups;
        (f64::from(u8::from(is_one)), outcome.cost.bytes)
    };
    let mut bytes = 0;
    let mut pass = |reader: &mut Reader| {
        let (mut present, mut absent) = ((0.0, 0), (0.0, 0));
        bytes = 0;
        let next = model.keys().skip(1).chain([&u64::MAX]);
        // Beside each, and in the middle between it and the next.
        let asked = model.keys().zip(next).flat_map(|(key, next)| [*key, key ^ 1, key + (next - key) / 2]);
        for key in asked {
            let (is_one, read) = one(reader, key);
            let of = if model.contains_key(&key) {
                bytes += read;
                &mut present
            } else {
                &mut absent
            };
            of.0 += is_one;
            of.1 += 1;
        }
        (present.0 / f64::from(present.1), absent.0 / f64::from(absent.1))
    };
    pass(&mut reader);
    let (present, absent) = pass(&mut reader);
    let per_record = |bytes: u64| bytes as f64 / model.len() as f64;
    Shares {
        present,
        absent,
        models: per_record(reader.table.view().model_bytes() as u64),
        tables: per_record(reader.table.groups().unwrap().size_in_bytes()),
        bytes: per_record(bytes),
    }
}

#[test]
fn writes_in_any_order_leave_nearly_every_record_a_read_away_and_every_answer_right() {
    GroupForm::ALL.into_iter().for_each(writes_in_any_order);
}

fn writes_in_any_order(form: GroupForm) {
    let keys = scattered(8000);
    let parameters = TableParameters::default().with_groups(GroupChoice::Fixed(form));
    let region = Arc::new(SharedMemory::anonymous(2 << 20).unwrap());
    let mut node = MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).unwrap();
    let mut writer = Writer::<Integers>::new(1);
    let value = |key: u64, n: u64| (key ^ n << 56).to_le_bytes().to_vec();
    let loaded = keys.iter().step_by(2).map(|key| (*key, value(*key, 0)));
    let mut model: BTreeMap<u64, Vec<u8>> = loaded.collect();
    node.load_records(parameters, (), model.iter().map(|(key, value)| (*key, value))).unwrap();
    let mut rest: Vec<u64> = keys.into_iter().skip(1).step_by(2).collect();
    rest.sort_unstable_by_key(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // There is not a pilot for every bucket, and an insert finds the one slot that its pilot gives
    // it taken as often as the table is full.
    let [at_load, after_a_tenth, doubled] =
        if form == GroupForm::Pilots { [0.998, 0.92, 0.85] } else { [0.999, 0.97, 0.9] };
    let steps = [(0..0, (at_load, at_load)), (0..400, (after_a_tenth, 0.85)), (400..4000, (doubled, 0.6))];
    for (part, least) in steps {
        for (n, key) in (1..).zip(&rest[part]) {
            let new = value(*key, n % 5);
            writer.one(&mut node, WriteKind::Insert, *key, RecordToken::default(), &new);
            model.insert(*key, new);
            if n % 7 == 0 {
                // One that is near goes, and comes again later or never.
                let gone = *model.range(key..).next().unwrap().0;
                writer.one(&mut node, WriteKind::Delete, gone, RecordToken::default(), &[]);
                model.remove(&gone);
            }
            if n % 64 == 0 {
                while node.work() == Work::More {}
            }
        }
        node.audit().unwrap();
        let shares = shares_of(&region, &model, parameters);
        println!("{} records: {shares:?}", model.len());
        assert!(shares.present >= least.0 && shares.absent >= least.1, "{} records: {shares:?}", model.len());
    }
}

/// What documentation quotes: `cargo test --release -p fpcache-memserver --test node -- --ignored
/// --nocapture groups::the_figures`.
#[test]
#[ignore = "minutes"]
fn the_figures() {
    for (kind, name) in [(SpecKind::Fb, "fb"), (SpecKind::Wiki, "wiki"), (SpecKind::Uniform, "uniform")] {
        for (epsilon, form) in
            [32, 64, 128].into_iter().flat_map(|epsilon| GroupForm::ALL.map(|form| (epsilon, form)))
        {
            figures_of(kind.clone(), &format!("{name}, {form}, epsilon {epsilon}"), (epsilon, form));
        }
    }
}

fn figures_of(kind: SpecKind, name: &str, (epsilon, form): (u32, GroupForm)) {
    const LOADED: usize = 400_000;
    let keys = Spec::new(kind, Some(2 * LOADED as u64)).open(&OpenOptions::default()).unwrap().into_keys();
    let parameters =
        TableParameters { epsilon, ..TableParameters::default() }.with_groups(GroupChoice::Fixed(form));
    let region = Arc::new(SharedMemory::anonymous(96 << 20).unwrap());
    let mut node = MemoryNode::<U64Keys>::new(Arc::clone(&region), 1, 0, Instant::now()).unwrap();
    let mut writer = Writer::<Integers>::new(1);
    let value = |key: u64| key.to_le_bytes().to_vec();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    // Multiples of a number alone come as evenly as the points of a low-discrepancy sequence, and
    // fill groups more evenly than chance.
    order.sort_unstable_by_key(|at| mix(*at as u64));
    let mut model: BTreeMap<u64, Vec<u8>> =
        order[..LOADED].iter().map(|at| (keys[*at], value(keys[*at]))).collect();
    let begun = Instant::now();
    node.load_records(parameters, (), model.iter().map(|(key, value)| (*key, value))).unwrap();
    let load_ns = begun.elapsed().as_nanos() as usize / LOADED;
    let mut inserted = 0;
    for percent in [0, 10, 50, 100] {
        let until = LOADED * percent / 100;
        let begun = Instant::now();
        for at in &order[LOADED + inserted..LOADED + until] {
            writer.one(&mut node, WriteKind::Insert, keys[*at], RecordToken::default(), &value(keys[*at]));
            model.insert(keys[*at], value(keys[*at]));
            inserted += 1;
            if inserted % 16 == 0 {
                node.work();
            }
        }
        let insert_ns = begun.elapsed().as_nanos() as usize / inserted.max(1);
        let copies = node.stats().copies as f64 / inserted.max(1) as f64;
        let Shares { present, absent, models, tables, bytes } = shares_of(&region, &model, parameters);
        println!(
            "{name}, {percent} % inserted: {present:.4} of present and {absent:.4} of absent keys in one READ, {bytes:.0} B READ; models \
             {models:.3} B/key, tables {tables:.3}; load {load_ns} ns/key, insert {insert_ns} ns, {copies:.2} copies"
        );
    }
    node.audit().unwrap();
}
