//! Changes take effect once however often they are sent, and a lookup's last resort is the memory
//! node's processor: against a memory node that does what the test says.

mod fake;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Directory, PATIENCE, TestKeys, patient, scattered, set_once_sent_again, value_of};
use fake::{Act, Came, Fake, State};
use fpcache::layout::SEGMENT_HEADER_BYTES;
use fpcache::message::ErrorCode;
use fpcache::table_view::TableView;
use fpcache_client::{
    ByteKeys, Changes, ClientConfig, ClientError, CompareAndSet, ErrorKind, Inserted, Plan, RecordToken,
    TableClient, WriteReply, WriteStatus,
};
use fpcache_fabric::shm::{ListenOptions, Listener, connect};
use fpcache_fabric::{Connection, Export, HugePages, OneRegion, Serving, SharedMemory};
use fpcache_memserver::MemoryNode;

for_both_kinds_of_keys!(
    every_kind_of_change_says_what_became_of_it,
    changes_go_together_in_as_few_requests_as_they_fit,
    a_request_without_a_reply_is_sent_again_and_takes_effect_once,
    a_request_is_sent_again_over_a_new_connection,
    an_outcome_that_nobody_tells_is_unknown,
    what_was_never_sent_is_not_unknown,
    refusals_are_typed_and_name_the_remedy,
    threads_write_under_numbers_of_their_own,
    a_segment_that_stays_frozen_is_read_by_the_memory_nodes_processor,
);

struct Setup<K: TestKeys> {
    directory: Directory,
    state: Arc<Mutex<State<K>>>,
    region: Arc<SharedMemory>,
    serving: Option<Serving>,
}

impl<K: TestKeys> Setup<K> {
    fn new() -> Self {
        let (directory, state) = (Directory::new(), Arc::<Mutex<State<K>>>::default());
        let (region, serving) = Self::serve(&directory, &state, 1);
        let setup = Self { directory, state, region, serving: Some(serving) };
        crate::common::load(&setup.client(), K::parameters(), scattered(500), 0).unwrap();
        setup
    }

    fn serve(directory: &Directory, state: &Arc<Mutex<State<K>>>, life: u64) -> (Arc<SharedMemory>, Serving) {
        let (region, fd) = SharedMemory::create_memfd("test", 1 << 20, HugePages::No).unwrap();
        let region = Arc::new(region);
        let node = MemoryNode::<K>::new(Arc::clone(&region), life, 0, Instant::now()).unwrap();
        let export = Export::new(&region, fd, life).unwrap();
        let listener = Listener::bind(&directory.address(), ListenOptions::default()).unwrap();
        let fake = Fake { node, state: Arc::clone(state) };
        (region, listener.spawn(OneRegion::new(crate::common::region_name(), export, fake)).unwrap())
    }

    /// Ends the memory node and starts another one that knows what it knew.
    fn restart(&mut self) {
        drop(self.serving.take());
        let (region, serving) = Self::serve(&self.directory, &self.state, 2);
        (self.region, self.serving) = (region, Some(serving));
    }

    fn client(&self) -> TableClient<K> {
        TableClient::connect_with(&self.directory.url(), ClientConfig::default()).unwrap()
    }

    fn script(&self, acts: impl IntoIterator<Item = Act>) {
        self.state.lock().unwrap().script.extend(acts);
    }

    fn came(&self) -> Vec<Came> {
        self.state.lock().unwrap().came.clone()
    }

    fn flags(&self) -> Vec<(u64, bool)> {
        self.came().iter().map(|came| (came.request, came.sent_before)).collect()
    }
}

fn v(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

fn every_kind_of_change_says_what_became_of_it<K: TestKeys>() {
    let setup = Setup::<K>::new();
    let client = setup.client();
    let k = K::key;
    assert_eq!(client.insert(k(1), &v(10)).unwrap(), Inserted::New);
    assert_eq!(client.insert(k(1), &v(11)).unwrap(), Inserted::Exists);
    assert!(client.update(k(1), &v(12)).unwrap() && !client.update(k(2), &v(20)).unwrap());
    client.put(k(2), &v(21)).unwrap();
    client.put(k(2), &v(22)).unwrap();
    assert!(client.delete(k(1)).unwrap() && !client.delete(k(1)).unwrap());
    let token = setup.state.lock().unwrap().token(k(2).borrow()).unwrap();
    let CompareAndSet::Done(next) = client.compare_and_set(k(2), token, &v(23)).unwrap() else {
        panic!("it was that")
    };
    assert_eq!(client.compare_and_set(k(2), token, &v(24)).unwrap(), CompareAndSet::Differs(next));
    assert_eq!(client.compare_and_set(k(9), token, &v(24)).unwrap(), CompareAndSet::Absent);
    assert_eq!(setup.state.lock().unwrap().records[k(2).borrow()].1, v(23));
    let came = setup.came();
    assert_eq!(came.iter().map(|c| c.request).collect::<Vec<_>>(), (1..=11).collect::<Vec<_>>());
    assert!(came.iter().all(|c| c.client == came[0].client && !c.sent_before));
}

fn changes_go_together_in_as_few_requests_as_they_fit<K: TestKeys>() {
    let setup = Setup::<K>::new();
    let k = K::key;
    let (mut changes, mut replies) =
        (Changes::<K>::default(), vec![WriteReply { status: WriteStatus::NoRoom, token: None }]);
    (0..2500).for_each(|key| _ = changes.insert(k(key), &v(key)));
    changes
        .delete(k(7))
        .delete(k(7))
        .put(k(8), &v(80))
        .compare_and_set(k(8), RecordToken::from_bits(5), &v(81))
        .update(k(9), &v(90));
    setup.client().apply(&changes, &mut replies).unwrap();
    let statuses: Vec<_> = replies[2500..].iter().map(|reply| reply.status).collect();
    use WriteStatus::{Absent, Differs, Done};
    assert_eq!(statuses, [Done, Absent, Done, Differs, Done]);
    assert!(replies[..2500].iter().all(|r| r.status == Done) && changes.len() == 2505);
    assert_eq!(setup.came().iter().map(|c| c.kinds.len()).collect::<Vec<_>>(), [1024, 1024, 457]);
    let state = setup.state.lock().unwrap();
    assert_eq!((state.records.len(), &state.records[k(8).borrow()].1[..]), (2499, &v(80)[..]));
    drop(state);
    setup.client().apply(&Changes::default(), &mut replies).unwrap();
    assert_eq!((replies.len(), setup.came().len()), (0, 3));
}

fn a_request_without_a_reply_is_sent_again_and_takes_effect_once<K: TestKeys>() {
    let setup = Setup::<K>::new();
    let client = setup.client();
    let may_answer = Arc::default();
    setup.script([Act::Late(Arc::clone(&may_answer))]);
    let inserted = set_once_sent_again(&client, &may_answer, || client.insert(K::key(1), &v(1)));
    assert!(inserted.unwrap().is_new(), "made once, and not there before");
    assert_eq!(setup.flags(), [(1, false), (1, true)]);
    assert_eq!(client.counters().resent, 1);
    assert!(!client.insert(K::key(1), &v(2)).unwrap().is_new());
    assert_eq!(setup.flags()[2..], [(2, false)]);
}

fn a_request_is_sent_again_over_a_new_connection<K: TestKeys>() {
    let mut setup = Setup::<K>::new();
    let client = setup.client();
    assert!(client.insert(K::key(5), &v(5)).unwrap().is_new());
    setup.script([Act::Die]);
    let waiting = thread::spawn(move || (client.insert(K::key(1), &v(1)), client.counters()));
    let begun = Instant::now();
    while setup.came().len() < 2 {
        assert!(begun.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
    setup.restart();
    let (inserted, counters) = waiting.join().unwrap();
    assert!(inserted.unwrap().is_new(), "the first life made it");
    assert_eq!(setup.flags(), [(1, false), (1, false), (1, true)], "the other thread counts for itself");
    assert!(counters.reconnects >= 1 && counters.resent >= 1, "{counters:?}");
}

fn an_outcome_that_nobody_tells_is_unknown<K: TestKeys>() {
    let setup = Setup::<K>::new();
    let client = setup.client();
    client.put(K::key(3), &v(3)).unwrap();
    let may_answer = Arc::new(AtomicBool::new(false));
    setup.script([Act::Late(Arc::clone(&may_answer))]);
    let error = client.with_deadline(Duration::from_millis(400)).put(K::key(1), &v(1)).unwrap_err();
    may_answer.store(true, Ordering::Relaxed);
    assert!(
        matches!(error, ClientError::OutcomeUnknown { .. }) && error.kind() == ErrorKind::Unknown,
        "{error}"
    );
    // What the answer to the request's repetition is.
    let repeated = |client: &TableClient<K>, value: u64, code: ErrorCode| {
        let may_answer = Arc::default();
        setup.script([Act::Late(Arc::clone(&may_answer)), Act::Refuse(code)]);
        set_once_sent_again(client, &may_answer, || client.put(K::key(1), &v(value))).unwrap_err()
    };
    // The memory node has forgotten who asks.
    let client = setup.client();
    client.put(K::key(4), &v(4)).unwrap();
    let error = repeated(&client, 2, ErrorCode::Forgotten);
    assert!(matches!(error, ClientError::OutcomeUnknown { .. }) && !error.is_retryable(), "{error}");
    // Later requests have later numbers.
    client.put(K::key(1), &v(3)).unwrap();
    assert_eq!(setup.flags().last(), Some(&(3, false)));
    // It is only the repetition that was refused.
    for code in
        [ErrorCode::Busy, ErrorCode::NoTable, ErrorCode::ReadOnly, ErrorCode::WrongRange { version: 2 }]
    {
        let error = repeated(&client, 4, code);
        assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{code:?}: {error}");
    }
}

fn what_was_never_sent_is_not_unknown<K: TestKeys>() {
    let mut setup = Setup::<K>::new();
    let client = setup.client();
    client.put(K::key(1), &v(1)).unwrap();
    drop(setup.serving.take());
    assert!(client.stats().is_err(), "now it knows");
    let error = client.put(K::key(1), &v(2)).unwrap_err();
    assert!(matches!(error, ClientError::Fabric(_)) && error.kind() == ErrorKind::Retry, "{error}");
}

fn refusals_are_typed_and_name_the_remedy<K: TestKeys>() {
    let setup = Setup::<K>::new();
    let client = setup.client();
    let k = K::key;
    for (act, kind, part) in [
        (Act::Say(WriteStatus::NoRoom), ErrorKind::Setup, "--capacity"),
        (Act::Say(WriteStatus::NoRoom), ErrorKind::Setup, "region.fpr"),
        (Act::Say(WriteStatus::DiskFull), ErrorKind::Setup, "--region-dir"),
        (Act::Say(WriteStatus::NotDurable), ErrorKind::Setup, "--data-dir"),
        (Act::Say(WriteStatus::Damaged), ErrorKind::Setup, "damaged"),
        (Act::Refuse(ErrorCode::NoTable), ErrorKind::Retry, "as the test has it"),
        // What was written down may be done later.
        (Act::Refuse(ErrorCode::NotDurable), ErrorKind::Unknown, "as the test has it"),
        (Act::Refuse(ErrorCode::Invalid), ErrorKind::Invalid, "as the test has it"),
        // A reply that makes no sense does not say what was made.
        (Act::Garble, ErrorKind::Unknown, "reply"),
    ] {
        setup.script([act.clone()]);
        let error = client.put(k(77), &v(1)).unwrap_err();
        assert_eq!(error.kind(), kind, "{act:?}: {error}");
        assert!(error.to_string().contains(part), "{act:?}: {error}");
    }
    let sent = setup.came().len();
    for value in [&[][..], &[1; 7], &[1; 9]] {
        let error = client.put(k(5), value).unwrap_err();
        let shown = K::show(k(5).borrow());
        assert!(
            matches!(&error, ClientError::ValueSize { key, expected: 8, .. } if *key == shown),
            "{error}"
        );
        assert!(client.insert(k(5), value).is_err() && client.update(k(5), value).is_err());
        let mut changes = Changes::<K>::default();
        changes.put(k(4), &v(4)).put(k(5), value);
        assert!(client.apply(&changes, &mut Vec::new()).is_err());
    }
    assert_eq!(setup.came().len(), sent, "nothing of it was sent");
}

fn threads_write_under_numbers_of_their_own<K: TestKeys>() {
    let setup = Setup::<K>::new();
    let client = setup.client();
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let client = &client;
            scope.spawn(move || {
                (0..50)
                    .for_each(|i| assert!(client.insert(K::key(1000 * thread + i), &v(i)).unwrap().is_new()));
            });
        }
    });
    let mut numbers: HashMap<u64, Vec<u64>> = HashMap::new();
    setup.came().iter().for_each(|came| numbers.entry(came.client).or_default().push(came.request));
    let total: usize = numbers.values().map(Vec::len).sum();
    assert!(total == 200 && numbers.len() <= 4, "{numbers:?}");
    assert!(numbers.values().all(|requests| requests.iter().copied().eq(1..=requests.len() as u64)));
}

fn a_segment_that_stays_frozen_is_read_by_the_memory_nodes_processor<K: TestKeys>() {
    let setup = Setup::<K>::new();
    let numbers = scattered(500);
    let keys: Vec<K::Owned> = numbers.iter().copied().map(K::key).collect();
    let connection = connect(&setup.directory.address(), crate::common::options()).unwrap();
    let view = TableView::<K>::open(&mut connection.endpoint()).unwrap();
    let segment = view.models().resident().unwrap().locate(keys[250].borrow()).unwrap().entry;
    let fingerprints = segment.address().offset() + SEGMENT_HEADER_BYTES as u64;
    setup.region.fill_words(fingerprints, segment.model().cap.into(), u64::MAX).unwrap();
    for plan in [
        fpcache_client::PlanChoice::Fixed(Plan::TwoStage),
        fpcache_client::PlanChoice::Fixed(Plan::Speculative),
    ] {
        let config = patient().with_plan(plan);
        let client = TableClient::<K>::connect_with(&setup.directory.url(), config).unwrap();
        client.put(keys[250].clone(), &v(5)).unwrap();
        let absent = K::key(numbers[250] ^ 1);
        let mut value = Vec::new();
        if plan == fpcache_client::PlanChoice::Fixed(Plan::TwoStage) {
            let found = client.get_into(keys[250].clone(), &mut value).unwrap();
            assert_eq!(
                (found.plan, &value[..], found.version.is_some()),
                (Plan::ServerSide, &v(5)[..], true)
            );
            assert_eq!(client.get(absent.clone()).unwrap(), None);
            let (read, token) = client.get_versioned(keys[250].clone()).unwrap().unwrap();
            assert_eq!(read, v(5));
            assert!(matches!(
                client.compare_and_set(keys[250].clone(), token, &v(6)).unwrap(),
                CompareAndSet::Done(_)
            ));
        } else {
            assert!(!client.contains(absent.clone()).unwrap());
        }
        let group = client.multi_get(&[absent.clone(), keys[250].clone(), absent]).unwrap();
        assert_eq!(group.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
        // The key that is there may lie where it is predicted, which needs no fingerprint.
        assert!(client.counters().server_side >= 3, "{:?}", client.counters());
    }
    // A client that has had no trouble has not asked the memory node.
    let other = setup.client();
    let models = view.models().resident().unwrap();
    let far =
        numbers.iter().find(|number| models.locate(K::key(**number).borrow()).unwrap().entry != segment);
    if let Some(far) = far {
        assert_eq!(other.get(K::key(*far)).unwrap().unwrap(), value_of(*far, 0, 8));
        assert_eq!(other.counters(), Default::default());
    }
}

#[test]
fn a_key_that_no_table_holds_is_absent_to_the_memory_nodes_processor_too() {
    let setup = Setup::<ByteKeys>::new();
    let key = ByteKeys::key(scattered(500)[250]);
    let connection = connect(&setup.directory.address(), crate::common::options()).unwrap();
    let view = TableView::<ByteKeys>::open(&mut connection.endpoint()).unwrap();
    let segment = view.models().resident().unwrap().locate(&key).unwrap().entry;
    let fingerprints = segment.address().offset() + SEGMENT_HEADER_BYTES as u64;
    setup.region.fill_words(fingerprints, segment.model().cap.into(), u64::MAX).unwrap();
    let client = setup.client();
    client.put(&key, &v(5)).unwrap();
    // In the same segment, and longer than a request can say.
    let long = [&key[..], &[0; 70_000]].concat();
    assert_eq!(client.get(&long).unwrap(), None);
    assert_eq!(client.multi_get(&[&long, &key, &long]).unwrap(), [None, Some(v(5).to_vec()), None]);
    assert_eq!(client.counters().server_side, 1, "nobody is asked for the others: {:?}", client.counters());
}
