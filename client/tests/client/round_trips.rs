//! Costs of lookups: dependent round trips, requests and bytes.

use std::borrow::Borrow;

use crate::common::{TestKeys, ThreadNode, patient, scattered, value_of};
use fpcache::matching::Matcher;
use fpcache::read::{Lookup, LookupScratch, Outcome, cache_probe, drive, look_up};
use fpcache::table::{self, TableOptions};
use fpcache::table_view::TableView;
use fpcache_client::{
    Answers, ByteKeys, Cost, FingerprintWidth, Found, Plan, PlanChoice, RecordShape, TableClient,
    TableParameters,
};
use fpcache_fabric::shm::{ShmConnection, connect};
use fpcache_fabric::{Connection, Endpoint};

for_both_kinds_of_keys!(
    two_round_trips_for_a_key_and_one_for_an_absent_one,
    narrow_fingerprints_cost_false_candidates_but_no_more_round_trips,
    a_range_read_is_one_round_trip_of_the_windows_slots,
    keys_of_a_group_share_their_round_trips,
    what_a_lookup_tells_is_what_the_fabric_counted,
    the_cost_of_a_group_is_told_key_by_key,
    a_scan_of_a_few_records_is_one_round_trip,
);

/// A table, and a second view of it from which a window's place can be computed.
struct Table<K: TestKeys> {
    node: ThreadNode<K>,
    connection: ShmConnection,
    view: TableView<K>,
    /// The numbers that its keys stand for.
    keys: Vec<u64>,
}

impl<K: TestKeys> Table<K> {
    fn new(parameters: TableParameters) -> Self {
        let node = ThreadNode::start(4 << 20);
        let keys = scattered(5000);
        crate::common::load(&node.client(), parameters, keys.iter().copied(), 0).unwrap();
        let connection = connect(&node.directory.address(), crate::common::options()).unwrap();
        let view = TableView::open(&mut connection.endpoint()).unwrap();
        Self { node, connection, view, keys }
    }

    /// The same table, read by one plan.
    fn by(&self, plan: Plan) -> table::Table<K> {
        let options = TableOptions::plan(PlanChoice::Fixed(plan));
        table::Table::open(&mut self.connection.endpoint(), &options).unwrap()
    }

    fn client(&self, plan: Plan) -> TableClient<K> {
        self.node.client_with(patient().with_plan(PlanChoice::Fixed(plan)))
    }

    /// Bytes of the window's fingerprints, and of its slots.
    fn window_bytes(&self, key: u64) -> (u64, u64) {
        let window = cache_probe(&self.view, K::key(key).borrow()).unwrap().window;
        let geometry = self.view.geometry();
        let slots = u64::from(window.len()) * self.slot_bytes();
        (geometry.fingerprint_span(window).len as u64, slots)
    }

    fn slot_bytes(&self) -> u64 {
        self.view.geometry().slot_bytes as u64
    }
}

/// Parameters of a table without false candidates, whose costs are exact.
fn exact<K: TestKeys>() -> TableParameters {
    TableParameters { width: FingerprintWidth::Bits64, ..K::parameters() }
}

fn get<K: TestKeys>(client: &TableClient<K>, key: u64) -> Found {
    client.get_into(K::key(key), &mut Vec::new()).unwrap()
}

fn two_round_trips_for_a_key_and_one_for_an_absent_one<K: TestKeys>() {
    let table = Table::<K>::new(exact::<K>());
    let client = table.client(Plan::TwoStage);
    for key in &table.keys {
        let (fingerprints, _) = table.window_bytes(*key);
        let bytes = fingerprints + table.slot_bytes();
        let expected = Cost { round_trips: 2, reads: 2, bytes, ..Cost::default() };
        assert_eq!(get(&client, *key), Found { version: Some(1), plan: Plan::TwoStage, cost: expected });

        let absent = key ^ 1;
        let (bytes, _) = table.window_bytes(absent);
        let expected = Cost { round_trips: 1, reads: 1, bytes, ..Cost::default() };
        assert_eq!(get(&client, absent), Found { version: None, plan: Plan::TwoStage, cost: expected });
    }
}

fn narrow_fingerprints_cost_false_candidates_but_no_more_round_trips<K: TestKeys>() {
    for width in [FingerprintWidth::Bits8, FingerprintWidth::Bits16, FingerprintWidth::Bits32] {
        let table = Table::<K>::new(TableParameters { width, ..K::parameters() });
        let client = table.client(Plan::TwoStage);
        let mut candidates = 0;
        // In a window of a few slots two candidates are reason enough to read it all.
        let wide = |key: &&u64| table.window_bytes(**key).1 >= 40 * table.slot_bytes();
        let keys: Vec<u64> = table.keys.iter().filter(wide).copied().collect();
        for key in &keys {
            let (fingerprints, _) = table.window_bytes(*key);
            let found = get(&client, *key);
            assert_eq!((found.cost.round_trips, found.cost.fallbacks), (2, 0));
            // False candidates after the record are fetched, but no longer looked at.
            let slots = u64::from(found.cost.reads - 1);
            assert!(slots > u64::from(found.cost.false_candidates), "{found:?}");
            assert_eq!(found.cost.bytes, fingerprints + slots * table.slot_bytes());

            let found = get(&client, key ^ 1);
            let false_candidates = found.cost.false_candidates;
            candidates += false_candidates;
            let trips = if false_candidates == 0 { 1 } else { 2 };
            assert_eq!((found.cost.round_trips, found.cost.reads), (trips, 1 + false_candidates));
        }
        // Each record of the window but the wanted one is a candidate once in 2^bits.
        let slots: u64 = keys.iter().map(|key| table.window_bytes(*key).1 / table.slot_bytes()).sum();
        let expected = 0.85 * slots as f64 / f64::from(width.bits()).exp2();
        let margin = 5.0 * expected.sqrt() + 1.0;
        assert!(
            (f64::from(candidates) - expected).abs() <= margin,
            "{candidates}, not {expected} at {width}"
        );
    }
}

fn a_range_read_is_one_round_trip_of_the_windows_slots<K: TestKeys>() {
    let table = Table::<K>::new(K::parameters_of(Some(20)));
    let client = table.client(Plan::Range);
    for key in &table.keys {
        for (key, version) in [(*key, Some(1)), (key ^ 1, None)] {
            let (_, bytes) = table.window_bytes(key);
            let expected = Cost { round_trips: 1, reads: 1, bytes, ..Cost::default() };
            assert_eq!(get(&client, key), Found { version, plan: Plan::Range, cost: expected });
        }
    }
}

fn keys_of_a_group_share_their_round_trips<K: TestKeys>() {
    let table = Table::<K>::new(exact::<K>());
    for (plan, round_trips) in [(Plan::TwoStage, 2), (Plan::Range, 1)] {
        let by_plan = table.by(plan);
        let mut endpoint = table.connection.endpoint();
        let mut scratch = LookupScratch::new(Matcher::detect());
        for keys in table.keys.chunks(32) {
            let before = endpoint.meter().snapshot();
            let asked: Vec<K::Owned> = keys.iter().copied().map(K::key).collect();
            let asked = asked.iter().map(Borrow::borrow);
            drive(&mut endpoint, &mut Lookup::new(&by_plan, &mut scratch, asked)).unwrap();
            let spent = endpoint.meter().snapshot() - before;
            let mut told = Cost::default();
            for ((outcome, value), key) in scratch.outcomes().zip(keys) {
                assert_eq!(value, Some(&value_of(*key, 0, 8)[..]));
                assert_eq!(u64::from(outcome.cost.round_trips), round_trips);
                told += outcome.cost;
            }
            assert_eq!(spent.round_trips, round_trips, "for all {} keys together", keys.len());
            assert_eq!((spent.reads, spent.bytes_from), (u64::from(told.reads), told.bytes));
            assert_eq!((spent.requests(), spent.bytes_to), (spent.reads, 0), "lookups only read");
        }
    }
}

fn what_a_lookup_tells_is_what_the_fabric_counted<K: TestKeys>() {
    for width in [FingerprintWidth::Bits8, FingerprintWidth::Bits64] {
        let table = Table::<K>::new(TableParameters { width, ..K::parameters() });
        for plan in [Plan::TwoStage, Plan::Range] {
            let by_plan = table.by(plan);
            let mut endpoint = table.connection.endpoint();
            let mut scratch = LookupScratch::new(Matcher::detect());
            for key in table.keys.iter().flat_map(|key| [*key, key ^ 1]) {
                let before = endpoint.meter().snapshot();
                let tell = |outcome: &Outcome, _: Option<&[u8]>| outcome.cost;
                let told =
                    look_up(&mut endpoint, &by_plan, &mut scratch, K::key(key).borrow(), tell).unwrap();
                let spent = endpoint.meter().snapshot() - before;
                assert_eq!(u64::from(told.round_trips), spent.round_trips, "{plan:?}, {width}: {told:?}");
                assert_eq!((u64::from(told.reads), told.bytes), (spent.reads, spent.bytes_from));
                assert_eq!((spent.requests(), spent.bytes_to), (spent.reads, 0), "lookups only read");
            }
        }
    }
}

fn the_cost_of_a_group_is_told_key_by_key<K: TestKeys>() {
    let table = Table::<K>::new(exact::<K>());
    let client = table.client(Plan::TwoStage);
    let mut answers = Answers::new();
    let (present, absent) = (table.keys[7], table.keys[7] ^ 1);
    client.multi_get_into(&[present, absent, present].map(K::key), &mut answers).unwrap();
    let trips: Vec<_> = (0..3).map(|i| answers.found(i).unwrap().cost.round_trips).collect();
    assert_eq!(trips, [2, 1, 2]);
    assert_eq!(answers.found(3), None);
}

fn a_scan_of_a_few_records_is_one_round_trip<K: TestKeys>() {
    let table = Table::<K>::new(exact::<K>());
    let client = table.node.client();
    for start in table.keys.iter().step_by(100) {
        let cost = client.scan_with(K::key(*start), 10, |_, _| {}).unwrap();
        assert_eq!(cost.round_trips, 1, "{cost:?}");
    }
}

/// What lookups of these keys cost beside the record's slot, and a slot's bytes, in a table of this
/// shape.
fn beside_the_record(shape: RecordShape, keys: &[Vec<u8>]) -> (Vec<Cost>, u64) {
    let node = ThreadNode::<ByteKeys>::start(64 << 20);
    let plan = PlanChoice::Fixed(Plan::TwoStage);
    let client = node.client_with(patient().with_plan(plan));
    let parameters = TableParameters { shape, width: FingerprintWidth::Bits64, ..TableParameters::default() };
    let mut load = client.load_like(parameters, 0, keys.iter().map(Vec::as_slice)).unwrap();
    let value = vec![7; shape.value_bytes.unwrap_or(8) as usize];
    keys.iter().for_each(|key| load.push(key, &value).unwrap());
    load.finish().unwrap();
    let connection = connect(&node.directory.address(), crate::common::options()).unwrap();
    let view = TableView::<ByteKeys>::open(&mut connection.endpoint()).unwrap();
    let slot = view.geometry().slot_bytes as u64;
    let mut value = Vec::new();
    let cost = |key: &Vec<u8>| {
        let cost = client.get_into(key, &mut value).unwrap().cost;
        assert_eq!((cost.round_trips, cost.reads), (2, 2));
        Cost { bytes: cost.bytes - slot, ..cost }
    };
    (keys.iter().map(cost).collect(), slot)
}

#[test]
fn bytes_per_lookup_grow_with_the_record_alone() {
    // The same numbers, in keys that are short, long, and of any length; and values that are short,
    // and long.
    let numbers = scattered(2000);
    let short = |n: &u64| n.to_be_bytes().to_vec();
    let long = |n: &u64| [&[b'/'; 300][..], &n.to_be_bytes(), &[b'.'; 200]].concat();
    let varying = |n: &u64| [&n.to_be_bytes()[..], &vec![b'.'; (n % 400) as usize]].concat();
    let keys: Vec<Vec<u8>> = numbers.iter().map(short).collect();
    let (expected, slot) = beside_the_record(RecordShape::fixed(8, 8), &keys);
    assert_eq!(slot, 24);
    // As long as all of them fit one segment, which has a mebibyte at most.
    let (costs, slot) = beside_the_record(RecordShape::fixed(8, 400), &keys);
    assert!(slot == 416 && costs == expected, "the same models, the same windows");
    let vary = RecordShape { key_bytes: None, value_bytes: None, room: 1500 };
    let cases = [
        (RecordShape::fixed(508, 8), numbers.iter().map(long).collect::<Vec<_>>()),
        (vary, numbers.iter().map(varying).collect()),
    ];
    for (shape, keys) in cases {
        // Coordinates of other keys are other numbers, and their models' windows may differ; but
        // not by the keys' length.
        let (costs, slot) = beside_the_record(shape, &keys);
        let mean =
            |costs: &[Cost]| costs.iter().map(|cost| cost.bytes).sum::<u64>() as f64 / costs.len() as f64;
        let widest = 8 * (2 * u64::from(TableParameters::default().epsilon) + 1);
        assert!(slot >= 524 && costs.iter().all(|cost| cost.bytes <= widest), "{shape:?}");
        assert!(
            mean(&costs) < 1.5 * mean(&expected),
            "{shape:?}: {} and {} bytes",
            mean(&costs),
            mean(&expected)
        );
    }
}
