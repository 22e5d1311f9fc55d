//! What lookups cost: dependent round trips, requests and bytes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{ThreadNode, scattered, value_of};
use fpcache::key_space::U64Keys;
use fpcache::matching::Matcher;
use fpcache::read::{Lookup, LookupScratch, Outcome, drive, look_up};
use fpcache::snapshot::Snapshot;
use fpcache::table::{self, TableOptions};
use fpcache_client::{
    Answers, Client, ClientConfig, Cost, FingerprintWidth, Found, Plan, PlanChoice, TableParameters,
};
use fpcache_fabric::shm::{ConnectOptions, ShmConnection, connect};
use fpcache_fabric::{Connection, Endpoint};

/// A table, and a second view of it from which a window's place can be computed.
struct Table {
    node: ThreadNode,
    connection: ShmConnection,
    snapshot: Snapshot<U64Keys>,
    keys: Vec<u64>,
}

impl Table {
    fn new(parameters: TableParameters) -> Self {
        let node = ThreadNode::start(4 << 20);
        let keys = scattered(5000);
        common::load(&node.client(), parameters, keys.iter().copied(), 0).unwrap();
        let connection = connect(&node.directory.address(), ConnectOptions::default()).unwrap();
        let snapshot = Snapshot::open(&mut connection.endpoint()).unwrap();
        Self { node, connection, snapshot, keys }
    }

    /// The same table, read by one plan.
    fn by(&self, plan: Plan) -> table::Table<U64Keys> {
        let options = TableOptions::plan(PlanChoice::Fixed(plan));
        table::Table::open(&mut self.connection.endpoint(), &options).unwrap()
    }

    fn client(&self, plan: Plan) -> Client {
        self.node.client_with(ClientConfig { plan: PlanChoice::Fixed(plan), ..ClientConfig::default() })
    }

    /// Bytes of the window's fingerprints, and of its slots.
    fn window_bytes(&self, key: u64) -> (u64, u64) {
        let window =
            self.snapshot.models().resident().unwrap().locate(&key).unwrap().entry.model().window(key);
        let geometry = self.snapshot.geometry();
        let slots = u64::from(window.len()) * self.slot_bytes();
        (geometry.fingerprint_span(window).len as u64, slots)
    }

    fn slot_bytes(&self) -> u64 {
        self.snapshot.geometry().slot_bytes as u64
    }
}

fn get(client: &Client, key: u64) -> Found {
    client.get_into(key, &mut Vec::new()).unwrap()
}

#[test]
fn two_round_trips_for_a_key_and_one_for_an_absent_one() {
    let table = Table::new(TableParameters::default());
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

#[test]
fn narrow_fingerprints_cost_false_candidates_but_no_more_round_trips() {
    for width in [FingerprintWidth::Bits8, FingerprintWidth::Bits16, FingerprintWidth::Bits32] {
        let table = Table::new(TableParameters { width, ..TableParameters::default() });
        let client = table.client(Plan::TwoStage);
        let mut candidates = 0;
        // In a window of a few slots two candidates are reason enough to read it all.
        let wide = |key: &&u64| table.window_bytes(**key).1 >= 40 * table.slot_bytes();
        let keys: Vec<u64> = table.keys.iter().filter(wide).copied().collect();
        for key in &keys {
            let (fingerprints, _) = table.window_bytes(*key);
            let found = get(&client, *key);
            assert_eq!((found.cost.round_trips, found.cost.fallbacks), (2, 0));
            // False candidates behind the record are fetched, but no longer looked at.
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

#[test]
fn a_range_read_is_one_round_trip_of_the_windows_slots() {
    let table = Table::new(TableParameters { value_bytes: 20, ..TableParameters::default() });
    let client = table.client(Plan::Range);
    for key in &table.keys {
        for (key, version) in [(*key, Some(1)), (key ^ 1, None)] {
            let (_, bytes) = table.window_bytes(key);
            let expected = Cost { round_trips: 1, reads: 1, bytes, ..Cost::default() };
            assert_eq!(get(&client, key), Found { version, plan: Plan::Range, cost: expected });
        }
    }
}

#[test]
fn keys_of_a_group_share_their_round_trips() {
    let table = Table::new(TableParameters::default());
    for (plan, round_trips) in [(Plan::TwoStage, 2), (Plan::Range, 1)] {
        let by_plan = table.by(plan);
        let mut endpoint = table.connection.endpoint();
        let mut scratch = LookupScratch::new(Matcher::detect());
        for keys in table.keys.chunks(32) {
            let before = endpoint.meter().snapshot();
            let asked = keys.iter().copied();
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

#[test]
fn what_a_lookup_tells_is_what_the_fabric_counted() {
    for width in [FingerprintWidth::Bits8, FingerprintWidth::Bits64] {
        let table = Table::new(TableParameters { width, ..TableParameters::default() });
        for plan in [Plan::TwoStage, Plan::Range] {
            let by_plan = table.by(plan);
            let mut endpoint = table.connection.endpoint();
            let mut scratch = LookupScratch::new(Matcher::detect());
            for key in table.keys.iter().flat_map(|key| [*key, key ^ 1]) {
                let before = endpoint.meter().snapshot();
                let tell = |outcome: &Outcome, _: Option<&[u8]>| outcome.cost;
                let told = look_up(&mut endpoint, &by_plan, &mut scratch, key, tell).unwrap();
                let spent = endpoint.meter().snapshot() - before;
                assert_eq!(u64::from(told.round_trips), spent.round_trips, "{plan:?}, {width}: {told:?}");
                assert_eq!((u64::from(told.reads), told.bytes), (spent.reads, spent.bytes_from));
                assert_eq!((spent.requests(), spent.bytes_to), (spent.reads, 0), "lookups only read");
            }
        }
    }
}

#[test]
fn the_cost_of_a_group_is_told_key_by_key() {
    let table = Table::new(TableParameters::default());
    let client = table.client(Plan::TwoStage);
    let mut answers = Answers::new();
    let (present, absent) = (table.keys[7], table.keys[7] ^ 1);
    client.multi_get_into(&[present, absent, present], &mut answers).unwrap();
    let trips: Vec<_> = (0..3).map(|i| answers.found(i).unwrap().cost.round_trips).collect();
    assert_eq!(trips, [2, 1, 2]);
    assert_eq!(answers.found(3), None);
}

#[test]
fn a_scan_of_a_few_records_is_one_round_trip() {
    let table = Table::new(TableParameters::default());
    let client = table.node.client();
    for start in table.keys.iter().step_by(100) {
        let cost = client.scan_with(*start, 10, |_, _| {}).unwrap();
        assert_eq!(cost.round_trips, 1, "{cost:?}");
    }
}
