//! A value that is longer than a request goes ahead of it in pieces, before every sending of the
//! request and over the same connection; and one that the memory node's processor says is elsewhere
//! is read there: against a memory node that does what the test says.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Directory, PATIENCE, TestKeys, patient, set_once_sent_again, value_of, wait_until};
use fpcache::layout::SEGMENT_HEADER_BYTES;
use fpcache::message::{ErrorCode, Refusal, Request, Sent, ValuePiece, Write, encode_reply};
use fpcache::table_view::TableView;
use fpcache_client::{
    Client, ClientConfig, ClientError, ErrorKind, Plan, PlanChoice, RecordToken, TableName, U64Keys,
    WriteReply, WriteStatus,
};
use fpcache_fabric::shm::{ConnectOptions, ListenOptions, Listener, connect};
use fpcache_fabric::{
    ClientId, Connection, Export, Handled, HugePages, OneRegion, RegionName, Service, Serving, SharedMemory,
};
use fpcache_memserver::MemoryNode;

/// What the memory node does with a piece or a write, in the order in which they come.
#[derive(Clone, Copy, Debug)]
enum Act {
    Take,
    /// Takes it, and answers once it is let.
    Late,
    /// Ends without an answer.
    Die,
    Refuse(ErrorCode),
}
use Act::{Die, Late, Refuse, Take};

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// Which piece of its value, by its offset in mebibytes.
    Piece(usize),
    /// A write that says that it was sent before, or not.
    Write(bool),
}
use Came::Write as Wrote;

/// What outlives a memory node's process, but for the values that came ahead.
#[derive(Default)]
struct State {
    script: VecDeque<Act>,
    /// Whether it answers what it is to answer late.
    may_answer: Arc<AtomicBool>,
    came: Vec<Came>,
    ahead: HashMap<(ClientId, u64, u64, u32), Vec<u8>>,
    records: BTreeMap<u64, Vec<u8>>,
    replies: HashMap<u64, (u64, Vec<u8>)>,
    /// Replies to lookups: where the value lies, how long it is, and its checksum.
    elsewhere: VecDeque<(u64, u32, u64)>,
}

impl State {
    fn piece(&mut self, client: ClientId, piece: &ValuePiece<'_>) {
        self.came.push(Came::Piece(piece.offset as usize >> 20));
        let value = self.ahead.entry((client, piece.client, piece.request, piece.operation)).or_default();
        value.truncate(piece.offset as usize);
        assert_eq!(value.len(), piece.offset as usize, "in order");
        value.extend_from_slice(piece.bytes);
    }

    /// Makes a request's changes, or repeats what was said of them.
    fn write(&mut self, from: ClientId, write: &Write<'_>) -> Vec<u8> {
        if let Some((request, reply)) = self.replies.get(&write.client)
            && *request == write.request
        {
            return reply.clone();
        }
        let mut reply = Vec::new();
        for (operation, o) in (0..).zip(write.operations::<U64Keys>()) {
            let o = o.unwrap();
            let value = match o.value {
                Sent::Here(value) => value.to_vec(),
                Sent::Ahead(bytes) => {
                    let ahead = self.ahead.remove(&(from, write.client, write.request, operation));
                    ahead.filter(|value| value.len() == bytes as usize).expect("all of it came before")
                }
            };
            self.records.insert(o.key, value);
            let token = Some(RecordToken::of(1, b"any"));
            reply.extend(WriteReply { status: WriteStatus::Done, token }.encode());
        }
        self.replies.insert(write.client, (write.request, reply.clone()));
        reply
    }

    /// The reply to a lookup of one key, whose value lies where the test says.
    fn look_up(&mut self) -> Vec<u8> {
        let (address, bytes, checksum) = self.elsewhere.pop_front().expect("the test says where");
        let token = RecordToken::of(7, b"any").to_bits();
        [&[1, 0, 0, 0][..], &bytes.to_le_bytes(), &token.to_le_bytes(), &checksum.to_le_bytes()]
            .into_iter()
            .chain([&address.to_le_bytes()[..]])
            .collect::<Vec<_>>()
            .concat()
    }
}

/// Makes tables as the real one does; changes and lookups are the test's.
struct Fake {
    node: MemoryNode<U64Keys>,
    state: Arc<Mutex<State>>,
}

impl Service for Fake {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        let mut state = self.state.lock().unwrap();
        let may_answer = Arc::clone(&state.may_answer);
        let decoded = Request::decode::<U64Keys>(0, request).unwrap();
        let act = match &decoded {
            Request::Value(_) | Request::Write(_) => state.script.pop_front().unwrap_or(Take),
            _ => Take,
        };
        let said = match (&decoded, act) {
            (Request::Value(piece), _) => {
                state.piece(client, piece);
                Vec::new()
            }
            (Request::Write(write), _) => {
                state.came.push(Wrote(write.sent_before));
                if matches!(act, Die | Refuse(_)) { Vec::new() } else { state.write(client, write) }
            }
            (Request::Get(keys), _) if keys.count == 1 => state.look_up(),
            _ => {
                drop(state);
                return self.node.handle(client, request, reply);
            }
        };
        drop(state);
        match act {
            Late => wait_until(|| may_answer.load(Ordering::Relaxed)),
            Die => panic!("as the test has it"),
            Refuse(code) => {
                encode_reply(Err(&Refusal::new(code, "as the test has it")), reply);
                return Handled::Now;
            }
            Take => {}
        }
        encode_reply(Ok(&said), reply);
        Handled::Now
    }

    fn disconnected(&mut self, client: ClientId) {
        if let Ok(mut state) = self.state.lock() {
            state.ahead.retain(|(owner, ..), _| *owner != client);
        }
    }
}

/// The region of the table that clients use unless told.
fn region_name() -> RegionName {
    RegionName::new(TableName::default().as_str().as_bytes()).unwrap()
}

struct Setup {
    directory: Directory,
    state: Arc<Mutex<State>>,
    region: Arc<SharedMemory>,
    serving: Option<Serving>,
}

impl Setup {
    fn new() -> Self {
        let (directory, state) = (Directory::new(), Arc::<Mutex<State>>::default());
        let (region, serving) = Self::serve(&directory, &state, 1);
        let setup = Self { directory, state, region, serving: Some(serving) };
        crate::common::load(&setup.client(), U64Keys::parameters_of(None), 0..100, 0).unwrap();
        setup
    }

    fn serve(directory: &Directory, state: &Arc<Mutex<State>>, life: u64) -> (Arc<SharedMemory>, Serving) {
        let (region, fd) = SharedMemory::create_memfd("test", 4 << 20, HugePages::No).unwrap();
        let region = Arc::new(region);
        let node = MemoryNode::<U64Keys>::new(Arc::clone(&region), life, 0, Instant::now()).unwrap();
        let export = Export::new(&region, fd, life).unwrap();
        let service = OneRegion::new(region_name(), export, Fake { node, state: Arc::clone(state) });
        let listener = Listener::bind(&directory.address(), ListenOptions::default()).unwrap();
        (region, listener.spawn(service).unwrap())
    }

    /// Ends the memory node and starts another one, without the values that came ahead.
    fn restart(&mut self) {
        drop(self.serving.take());
        self.state().ahead.clear();
        let (region, serving) = Self::serve(&self.directory, &self.state, 2);
        (self.region, self.serving) = (region, Some(serving));
    }

    fn client(&self) -> Client {
        Client::connect_with(&self.directory.url(), ClientConfig::default()).unwrap()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Has the next pieces and writes answered so, and nothing before remembered.
    fn script(&self, acts: &[Act]) {
        let mut state = self.state();
        state.script = acts.iter().copied().collect();
        state.may_answer = Arc::default();
        state.came.clear();
    }

    /// Puts the long value of key 5, and has what is to be answered late answered once it was sent
    /// again.
    fn put_again(&self, put: Put) -> Result<(), ClientError> {
        let (client, may_answer) = (self.client(), Arc::clone(&self.state().may_answer));
        set_once_sent_again(&client, &may_answer, || put(&client, 5))
    }

    fn came(&self) -> Vec<Came> {
        self.state().came.clone()
    }
}

/// A value of three pieces.
fn long(seed: u64) -> Vec<u8> {
    value_of(seed, 1, 5 << 18)
}

/// How one sending of it comes.
fn once(sent_before: bool) -> [Came; 4] {
    // A piece has half a mebibyte.
    [Came::Piece(0), Came::Piece(0), Came::Piece(1), Wrote(sent_before)]
}

/// Puts the long value of a key in some way.
type Put = fn(&Client, u64) -> Result<(), ClientError>;

/// By itself, and in flight.
const WAYS: [Put; 2] = [
    |client, key| client.put(key, &long(key)),
    |client, key| {
        let mut pipeline = client.pipeline(2)?;
        pipeline.put(key, &long(key))?;
        pipeline.finish().into_iter().try_for_each(|ended| ended.outcome.map(drop))
    },
];

#[test]
fn pieces_come_in_order_and_then_the_write() {
    for put in WAYS {
        let setup = Setup::new();
        put(&setup.client(), 5).unwrap();
        assert_eq!(setup.came(), once(false));
        assert!(setup.state().records[&5] == long(5) && setup.state().ahead.is_empty());
    }
}

#[test]
fn a_value_that_fits_its_request_does_not_go_ahead() {
    let setup = Setup::new();
    let client = setup.client();
    client.put(5, &value_of(5, 1, 1_000_000)).unwrap();
    assert_eq!(setup.came(), [Wrote(false)]);
    assert!(setup.state().records[&5] == value_of(5, 1, 1_000_000));
}

#[test]
fn a_piece_without_a_reply_is_sent_again_from_the_beginning_and_the_write_was_not_sent_before() {
    for (put, acts) in WAYS.into_iter().flat_map(|put| [[Late, Take], [Take, Late]].map(|acts| (put, acts))) {
        let setup = Setup::new();
        setup.script(&acts);
        setup.put_again(put).unwrap();
        let before = acts.iter().position(|act| matches!(act, Late)).unwrap() + 1;
        let expected = [&[Came::Piece(0), Came::Piece(0)][..before], &once(false)].concat();
        assert_eq!(setup.came(), expected);
        assert!(setup.state().records[&5] == long(5));
    }
}

#[test]
fn a_write_without_a_reply_is_sent_again_after_its_pieces() {
    for put in WAYS {
        let setup = Setup::new();
        setup.script(&[Take, Take, Take, Late]);
        setup.put_again(put).unwrap();
        assert_eq!(setup.came(), [once(false), once(true)].concat());
        assert!(setup.state().records[&5] == long(5));
    }
}

#[test]
fn all_of_it_is_sent_over_a_new_connection() {
    for (put, died) in WAYS.into_iter().flat_map(|put| [1, 4].map(|died| (put, died))) {
        let mut setup = Setup::new();
        setup.script(&[[Take; 3].as_slice(), &[Die]].concat()[4 - died..]);
        let client = setup.client();
        let waiting = thread::spawn(move || put(&client, 5));
        let begun = Instant::now();
        while setup.came().len() < died {
            assert!(begun.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        setup.restart();
        waiting.join().unwrap().unwrap();
        let was_sent = died == 4;
        assert_eq!(setup.came(), [&once(false)[..died], &once(was_sent)].concat());
        assert!(setup.state().records[&5] == long(5));
    }
}

#[test]
fn a_piece_that_is_refused_ends_the_write_before_it_was_sent() {
    for put in WAYS {
        let setup = Setup::new();
        let client = setup.client();
        setup.script(&[Take, Refuse(ErrorCode::NoTable)]);
        let error = put(&client, 5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        assert!(error.to_string().contains("as the test has it"));
        assert_eq!(setup.came(), [Came::Piece(0), Came::Piece(0)]);
        put(&client, 6).unwrap();
        assert!(!setup.state().records.contains_key(&5) && setup.state().records[&6] == long(6));
    }
}

#[test]
fn after_a_write_that_may_have_arrived_a_refused_piece_tells_nothing_of_its_outcome() {
    for put in WAYS {
        let setup = Setup::new();
        setup.script(&[Take, Take, Take, Late, Refuse(ErrorCode::Internal)]);
        let error = setup.put_again(put).unwrap_err();
        assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{error}");
    }
}

#[test]
fn pieces_that_take_longer_than_the_deadline_leave_nothing_unknown() {
    for put in WAYS {
        let setup = Setup::new();
        setup.script(&[Late; 2]);
        let error = put(&setup.client().with_deadline(Duration::from_millis(300)), 5).unwrap_err();
        setup.state().may_answer.store(true, Ordering::Relaxed);
        assert!(matches!(error, ClientError::Fabric(_)) && error.is_retryable(), "{error}");
        assert!(!setup.came().iter().any(|came| matches!(came, Wrote(_))));
    }
}

#[test]
fn a_value_that_the_memory_nodes_processor_says_is_elsewhere_is_read_there() {
    let setup = Setup::new();
    let connection =
        connect(&setup.directory.address(), ConnectOptions { region: region_name(), ..Default::default() })
            .unwrap();
    let view = TableView::<U64Keys>::open(&mut connection.endpoint()).unwrap();
    for (_, segment) in view.models().resident().unwrap().range_from(&0) {
        let fingerprints = segment.address().offset() + SEGMENT_HEADER_BYTES as u64;
        setup.region.fill_words(fingerprints, segment.model().cap.into(), u64::MAX).unwrap();
    }
    let (value, at) = (value_of(5, 1, 300_001), 3 << 20);
    setup.region.write_bytes(at, &value).unwrap();
    // What identifies a record with a value elsewhere ends with the value's checksum.
    let identity = U64Keys::shape(None).identity::<U64Keys>(&5, &value);
    let right = (at, value.len() as u32, u64::from_le_bytes(*identity.last_chunk().unwrap()));
    // Where it was, past the region, and of another checksum: it is asked for again.
    let answers = [(at + 8, right.1, right.2), (1 << 40, right.1, right.2), (at, right.1, 1), right];
    let config = patient().with_plan(PlanChoice::Fixed(Plan::TwoStage));
    let client: Client = Client::connect_with(&setup.directory.url(), config).unwrap();
    setup.state().elsewhere.extend(answers);
    assert!(client.get(5).unwrap() == Some(value.clone()));
    setup.state().elsewhere.extend(answers);
    assert!(client.multi_get(&[5]).unwrap() == [Some(value.clone())]);
    setup.state().elsewhere.extend([right]);
    let (found, token) = client.get_versioned(5).unwrap().unwrap();
    assert!(found == value && token.version() == 7);
    setup.state().elsewhere.extend([right]);
    let cost = client.get_into(5, &mut Vec::new()).unwrap().cost;
    assert_eq!(
        (cost.round_trips, cost.reads, cost.bytes),
        (2, 1, value.len() as u64),
        "the request and a READ"
    );
    setup.state().elsewhere.extend([answers[1]]);
    assert!(client.contains(5).unwrap(), "wherever its value is");
    assert!(setup.state().elsewhere.is_empty());
    // What stays wrong ends with the call's time.
    setup.state().elsewhere.extend(std::iter::repeat_n(answers[0], 100_000));
    let error = client.with_deadline(Duration::from_millis(100)).get(5).unwrap_err();
    assert!(error.is_retryable(), "{error}");
}
