//! Writes in flight: each ends as it would have ended by itself, in the order of its key, and is
//! seen by reads after it.
#![cfg(feature = "embedded")]

use std::collections::{BTreeMap, HashMap};

use crate::common::patient;
use fpcache_client::{
    Answers, Client, ClientError, CompareAndSet, Completed, MAX_IN_FLIGHT, Pipeline, RecordShape,
    TableParameters, WriteStatus, WriteTicket,
};
use proptest::prelude::*;

fn v(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

fn table() -> Client {
    let client = Client::embedded(8 << 20).unwrap();
    client.create(TableParameters { max_slots: 64, epsilon: 4, ..TableParameters::default() }).unwrap();
    client
}

/// A call of a pipeline.
#[derive(Clone, Debug)]
enum Call {
    Insert(u64),
    Put(u64),
    Update(u64),
    Delete(u64),
    /// Reads a record and replaces it if it is still the same.
    Replace(u64),
    Get(u64),
    MultiGet(u64, u64),
    Scan(u64, usize),
    Poll,
    Next,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let key = || 0..40u64;
    let call = prop_oneof![
        3 => key().prop_map(Call::Insert),
        3 => key().prop_map(Call::Put),
        3 => key().prop_map(Call::Update),
        2 => key().prop_map(Call::Delete),
        1 => key().prop_map(Call::Replace),
        4 => key().prop_map(Call::Get),
        1 => (key(), key()).prop_map(|(a, b)| Call::MultiGet(a, b)),
        1 => (key(), 1..50usize).prop_map(|(from, limit)| Call::Scan(from, limit)),
        2 => Just(Call::Poll),
        1 => Just(Call::Next),
    ];
    prop::collection::vec(call, 1..200)
}

/// A map, and what the writes posted so far must end as.
#[derive(Default)]
struct Model {
    records: BTreeMap<u64, u64>,
    expected: HashMap<WriteTicket, (u64, WriteStatus)>,
    last: Option<WriteTicket>,
}

impl Model {
    fn posted(&mut self, ticket: WriteTicket, key: u64, status: WriteStatus) {
        assert!(self.last < Some(ticket), "tickets count up");
        self.last = Some(ticket);
        self.expected.insert(ticket, (key, status));
    }

    fn ended(&mut self, Completed { ticket, key, outcome, .. }: Completed) {
        let status = outcome.unwrap().status;
        assert_eq!(self.expected.remove(&ticket), Some((key, status)), "{ticket:?}, told once");
    }

    fn value(&self, key: u64) -> Option<Vec<u8>> {
        self.records.get(&key).map(|value| v(*value).to_vec())
    }

    fn apply(&mut self, pipeline: &mut Pipeline, number: u64, call: &Call) {
        match *call {
            Call::Insert(key) => {
                let status =
                    if self.records.contains_key(&key) { WriteStatus::Exists } else { WriteStatus::Done };
                self.records.entry(key).or_insert(number);
                self.posted(pipeline.insert(key, &v(number)).unwrap(), key, status);
            }
            Call::Put(key) => {
                self.records.insert(key, number);
                self.posted(pipeline.put(key, &v(number)).unwrap(), key, WriteStatus::Done);
            }
            Call::Update(key) => {
                let there = self.records.get_mut(&key).map(|value| *value = number);
                let status = if there.is_some() { WriteStatus::Done } else { WriteStatus::Absent };
                self.posted(pipeline.update(key, &v(number)).unwrap(), key, status);
            }
            Call::Delete(key) => {
                let there = self.records.remove(&key);
                let status = if there.is_some() { WriteStatus::Done } else { WriteStatus::Absent };
                self.posted(pipeline.delete(key).unwrap(), key, status);
            }
            Call::Replace(key) => {
                let record = pipeline.get_versioned(key).unwrap();
                assert_eq!(record.as_ref().map(|(value, _)| value.clone()), self.value(key));
                if let Some((_, token)) = record {
                    self.records.insert(key, number);
                    let ticket = pipeline.compare_and_set(key, token, &v(number)).unwrap();
                    self.posted(ticket, key, WriteStatus::Done);
                }
            }
            Call::Get(key) => {
                assert_eq!(pipeline.get(key).unwrap(), self.value(key), "it sees its own writes")
            }
            Call::MultiGet(a, b) => {
                let mut answers = Answers::new();
                pipeline.multi_get_into(&[a, b], &mut answers).unwrap();
                let found: Vec<_> = answers.values().map(|value| value.map(<[u8]>::to_vec)).collect();
                assert_eq!(found, [self.value(a), self.value(b)]);
            }
            Call::Scan(from, limit) => {
                let mut found = Vec::new();
                pipeline.scan_with(from, limit, |key, value| found.push((key, value.to_vec()))).unwrap();
                let there =
                    self.records.range(from..).take(limit).map(|(key, value)| (*key, v(*value).to_vec()));
                assert!(there.eq(found));
            }
            Call::Poll => pipeline.poll().into_iter().for_each(|ended| self.ended(ended)),
            Call::Next => match pipeline.next() {
                Some(ended) => self.ended(ended),
                None => assert!(self.expected.is_empty(), "everything was told"),
            },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_pipeline_does_what_its_calls_would_do_one_by_one(calls in calls(), depth in 1..9usize) {
        let client = table();
        let mut pipeline = client.pipeline(depth).unwrap();
        let mut model = Model::default();
        for (number, call) in (0..).zip(&calls) {
            model.apply(&mut pipeline, number, call);
            prop_assert!(pipeline.in_flight() <= depth && pipeline.depth() == depth);
        }
        let ended = pipeline.finish();
        prop_assert!(ended.is_sorted_by_key(|ended| ended.ticket));
        ended.into_iter().for_each(|ended| model.ended(ended));
        prop_assert!(model.expected.is_empty(), "all were told");
        let all = client.scan(0, 100).unwrap();
        prop_assert!(all.into_iter().eq(model.records.iter().map(|(key, value)| (*key, v(*value).to_vec()))));
    }
}

#[test]
fn a_pipeline_that_is_dropped_has_made_its_writes() {
    let client = table();
    for round in 0..50u64 {
        let mut pipeline = client.pipeline(8).unwrap();
        for key in 0..20 {
            pipeline.put(key, &v(round)).unwrap();
        }
        drop(pipeline);
        assert_eq!(client.get(19).unwrap().unwrap(), v(round));
    }
    assert_eq!(client.scan(0, 100).unwrap().len(), 20);
    let lanes = client.stats().unwrap().clients;
    assert!(lanes <= 1 + 8, "{lanes} connections: lanes are used again");
}

#[test]
fn what_is_wrong_with_a_write_is_told_before_it_is_sent_and_keeps_no_others() {
    let client = table();
    assert!(matches!(client.pipeline(0).map(|pipeline| pipeline.depth()), Ok(1)));
    assert!(matches!(client.pipeline(10_000).map(|pipeline| pipeline.depth()), Ok(MAX_IN_FLIGHT)));
    let mut pipeline = client.pipeline(2).unwrap();
    pipeline.put(1, &v(1)).unwrap();
    let error = pipeline.put(2, &[0; 9]).unwrap_err();
    assert!(matches!(&error, ClientError::ValueSize { key, got: 9, expected: 8 } if key == "2"), "{error}");
    pipeline.put(3, &v(3)).unwrap();
    let (_, token) = pipeline.get_versioned(3).unwrap().unwrap();
    pipeline.put(3, &v(4)).unwrap();
    pipeline.compare_and_set(3, token, &v(5)).unwrap();
    pipeline.compare_and_set(7, token, &v(5)).unwrap();
    let ended: Vec<_> =
        pipeline.finish().into_iter().map(|ended| (ended.key, ended.outcome.unwrap())).collect();
    assert_eq!(ended.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [1, 3, 3, 3, 7]);
    assert!(matches!(CompareAndSet::of(&ended[3].1), Some(CompareAndSet::Differs(_))), "after the put");
    assert_eq!(CompareAndSet::of(&ended[4].1), Some(CompareAndSet::Absent));
    assert_eq!(client.get(2).unwrap(), None);
}

#[test]
fn a_full_memory_node_refuses_some_writes_and_the_others_go_on() {
    let client = Client::embedded_with(1 << 20, patient()).unwrap();
    client
        .create(TableParameters { shape: RecordShape::fixed(8, 1024), ..TableParameters::default() })
        .unwrap();
    let mut pipeline = client.pipeline(4).unwrap();
    for key in 0..2_000u64 {
        pipeline.put(key, &[7; 1024]).unwrap();
    }
    let (mut done, mut refused) = (0, 0);
    for Completed { key, outcome, .. } in pipeline.finish() {
        match outcome {
            Ok(_) => {
                done += 1;
                assert!(client.contains(key).unwrap());
            }
            Err(ClientError::NoRoom { key: of, .. }) => {
                refused += 1;
                assert_eq!(of, key.to_string());
                assert!(!client.contains(key).unwrap());
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(done > 100 && refused > 100, "{done} {refused}");
}

#[test]
fn threads_with_pipelines_of_their_own_do_not_meet() {
    let client = table();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let client = client.clone();
            scope.spawn(move || {
                let mut pipeline = client.pipeline(3).unwrap();
                for round in 0..300u64 {
                    let key = thread * 1_000 + round % 10;
                    pipeline.put(key, &v(round)).unwrap();
                    let other = thread * 1_000 + round * 7 % 10;
                    let last = (0..=round)
                        .rev()
                        .find(|round| round % 10 == other % 10)
                        .map(|round| v(round).to_vec());
                    assert_eq!(pipeline.get(other).unwrap(), last);
                }
                assert!(pipeline.finish().into_iter().all(|ended| ended.outcome.is_ok()));
            });
        }
    });
    assert_eq!(client.scan(0, 100).unwrap().len(), 40);
}
