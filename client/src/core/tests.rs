//! Threads that open, renew and reconnect concurrently share that work, as counted on an observed
//! connection.

mod first_call;
mod taking;

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use fpcache::cache::CacheConfig;
use fpcache::key_space::U64Keys;
use fpcache::layout::{RecordToken, TableParameters};
use fpcache::message::{RecordChunk, Sent, WriteKind, WriteOperation};
use fpcache::plan::PlanChoice;
use fpcache::read::ReadError;
use fpcache_fabric::local::LocalConnection;
use fpcache_fabric::{AreaId, Posted};

use super::recover::Retry;
use super::*;
use crate::embedded::EmbeddedNode;

const PATIENCE: Duration = Duration::from_secs(20);
const THREADS: usize = 16;
const KEYS: u64 = 2000;

/// What a test watches, and a gate that keeps those waiting who connect or have fetched a table.
#[derive(Default)]
struct Watch {
    connects: AtomicU64,
    tables: AtomicU64,
    /// Where the pages end that were mapped.
    read_to: AtomicU64,
    gate: Mutex<()>,
    /// A table that must be gone when a new one is about to be fetched.
    old: Mutex<Weak<Table<U64Keys>>>,
    held_two: AtomicBool,
}

/// A memory node that can be replaced.
struct Node {
    life: Arc<Mutex<EmbeddedNode>>,
    watch: Arc<Watch>,
}

struct Watched {
    connection: LocalConnection,
    watch: Arc<Watch>,
}

impl Connector for Node {
    type Connection = Watched;

    fn connect(&self, _: Deadline) -> Result<Watched, FabricError> {
        self.watch.connects.fetch_add(1, Ordering::SeqCst);
        drop(self.watch.gate.lock().expect("no panic"));
        let connection = self.life.lock().expect("no panic").connect()?;
        Ok(Watched { connection, watch: Arc::clone(&self.watch) })
    }
}

impl Connection for Watched {
    type Endpoint = <LocalConnection as Connection>::Endpoint;

    /// A context is about to be made.
    fn endpoint(&self) -> Self::Endpoint {
        if self.watch.old.lock().expect("no panic").strong_count() > 0 {
            self.watch.held_two.store(true, Ordering::SeqCst);
        }
        self.connection.endpoint()
    }

    /// A table has been fetched.
    fn will_read(&self, _: AreaId, offset: u64, len: u64) {
        self.watch.read_to.fetch_max(offset + len, Ordering::SeqCst);
        self.watch.tables.fetch_add(1, Ordering::SeqCst);
        drop(self.watch.gate.lock().expect("no panic"));
        // Any other thread that fetches it has the time to begin.
        thread::sleep(Duration::from_millis(5));
    }

    fn post(&self, request: &[u8], deadline: Deadline) -> Result<Posted, FabricError> {
        self.connection.post(request, deadline)
    }

    fn poll(&self, posted: Posted, reply: &mut Vec<u8>) -> Result<Option<Posted>, FabricError> {
        self.connection.poll(posted, reply)
    }

    fn wait(&self, posted: Posted, reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError> {
        self.connection.wait(posted, reply, deadline)
    }

    fn give_up(&self, posted: Posted) {
        self.connection.give_up(posted);
    }

    fn max_request(&self) -> usize {
        self.connection.max_request()
    }

    fn max_reply(&self) -> usize {
        self.connection.max_reply()
    }

    fn is_alive(&self) -> bool {
        self.connection.is_alive()
    }

    fn incarnation(&self) -> u64 {
        self.connection.incarnation()
    }

    fn creation(&self) -> u64 {
        self.connection.creation()
    }

    fn call_meter(&self) -> fpcache_fabric::MeterSnapshot {
        self.connection.call_meter()
    }
}

/// A memory node whose keys are the odd numbers below `2 * KEYS`, each its own value.
fn loaded_node() -> EmbeddedNode {
    let node = EmbeddedNode::start::<U64Keys>(4 << 20).expect("memory");
    let connection = node.connect().expect("it serves");
    let record = |i: u64| [(2 * i + 1).to_le_bytes(); 2].concat();
    let records: Vec<u8> = (0..KEYS).flat_map(record).collect();
    let requests = [
        Request::LoadBegin {
            load: 1,
            parameters: TableParameters::default(),
            expected_keys: KEYS,
            encoders: &[],
        },
        Request::LoadChunk(1, RecordChunk { first: 0, count: KEYS as u32, records: &records }),
        Request::LoadCommit(1),
    ];
    for request in requests {
        let (mut asked, mut reply) = (Vec::new(), Vec::new());
        request.encode::<U64Keys>(connection.creation(), &mut asked);
        connection.call(&asked, &mut reply, Deadline::NONE).expect("an answer");
        decode_reply(&reply).expect("no refusal");
    }
    node
}

/// A client with a budget, and what the test holds of its memory node.
struct Setup {
    core: Arc<Core<U64Keys, Node>>,
    life: Arc<Mutex<EmbeddedNode>>,
    watch: Arc<Watch>,
}

impl Setup {
    fn new() -> Self {
        let (life, watch) = (Arc::new(Mutex::new(loaded_node())), Arc::new(Watch::default()));
        let connector = Node { life: Arc::clone(&life), watch: Arc::clone(&watch) };
        let options =
            TableOptions { cache: Some(CacheConfig::of(1 << 20)), ..TableOptions::plan(PlanChoice::Auto) };
        let core = Core::connect(connector, options, PATIENCE).expect("it serves");
        Self { core, life, watch }
    }

    /// Replaces the memory node by another one.
    fn restart(&self) {
        *self.life.lock().expect("no panic") = loaded_node();
    }

    fn counts(&self) -> (u64, u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        (count(&self.watch.connects), count(&self.watch.tables), self.core.number())
    }
}

fn look_up_within(core: &Core<U64Keys, Node>, within: Duration) -> Result<(), ClientError> {
    let value = core.here(|held| core.look_up(held, &7, within, |_, value| value.map(<[u8]>::to_vec)))?;
    assert_eq!(value, Some(7u64.to_le_bytes().to_vec()));
    Ok(())
}

fn look_up_one(core: &Core<U64Keys, Node>) {
    look_up_within(core, PATIENCE).expect("an answer");
}

/// The table of this thread's context; of no context, one that is gone.
fn table_here(core: &Core<U64Keys, Node>) -> Weak<Table<U64Keys>> {
    core.here(|held| core.with_context(held, PATIENCE, |context| Ok(Arc::downgrade(&context.table))))
        .unwrap_or_default()
}

#[test]
fn threads_that_open_at_once_fetch_the_table_once() {
    let setup = Setup::new();
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                look_up_one(&setup.core);
            });
        }
    });
    assert_eq!(setup.counts(), (1, 1, 0));
}

#[test]
fn threads_that_meet_a_restart_end_with_one_session_and_one_warm_table() {
    let setup = Setup::new();
    let barrier = Barrier::new(THREADS + 1);
    let rounds = 4;
    // Checked at the end: a thread that fails between two barriers would leave the others waiting.
    let (mut counted, others) = (Vec::new(), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..rounds {
                    barrier.wait();
                    let answer = look_up_within(&setup.core, PATIENCE);
                    let kept = setup.core.session().fetched().map(|table| Arc::downgrade(&table));
                    let is_shared = kept.is_some_and(|kept| kept.ptr_eq(&table_here(&setup.core)));
                    others.fetch_add(u64::from(answer.is_err() || !is_shared), Ordering::SeqCst);
                    barrier.wait();
                }
            });
        }
        for _ in 0..rounds {
            barrier.wait();
            barrier.wait();
            counted.push(setup.counts());
            setup.restart();
        }
    });
    assert_eq!(counted, (0..rounds).map(|round| (1 + round, 1 + round, round)).collect::<Vec<_>>());
    assert_eq!(others.into_inner(), 0, "threads with no answer or a table of their own");
}

#[test]
fn a_failure_of_a_session_that_was_replaced_replaces_nothing() {
    let setup = Setup::new();
    look_up_one(&setup.core);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| setup.core.renew(0, Deadline::NONE).expect("it serves"));
        }
    });
    look_up_one(&setup.core);
    let warm = table_here(&setup.core);
    setup.core.renew(0, Deadline::NONE).expect("it serves");
    setup.core.reconnect(0, Deadline::NONE).expect("it serves");
    look_up_one(&setup.core);
    assert!(Weak::ptr_eq(&warm, &table_here(&setup.core)));
    assert_eq!(setup.counts(), (1, 2, 1));
}

#[test]
fn a_thread_drops_the_old_table_before_it_fetches_the_new_one() {
    let setup = Setup::new();
    for restarts in [false, true] {
        look_up_one(&setup.core);
        let old = table_here(&setup.core);
        *setup.watch.old.lock().expect("no panic") = Weak::clone(&old);
        match restarts {
            true => setup.restart(),
            false => setup.core.renew(setup.core.number(), Deadline::NONE).expect("it serves"),
        }
        look_up_one(&setup.core);
        assert!(old.upgrade().is_none());
        assert!(!setup.watch.held_two.load(Ordering::SeqCst), "restarts: {restarts}");
    }
}

#[test]
fn a_session_that_was_renewed_is_gone_while_an_idle_thread_keeps_its_table_until_its_next_call() {
    let setup = Setup::new();
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            look_up_one(&setup.core);
            barrier.wait();
            barrier.wait();
            look_up_one(&setup.core);
        });
        barrier.wait();
        let session = Arc::downgrade(&*setup.core.session());
        let table = Arc::downgrade(&setup.core.session().fetched().expect("a table"));
        setup.core.renew(0, Deadline::NONE).expect("it serves");
        assert!(session.upgrade().is_none(), "no context keeps a session");
        assert_eq!(table.strong_count(), 1, "the idle thread's");
        *setup.watch.old.lock().expect("no panic") = table;
        barrier.wait();
    });
    assert!(setup.watch.old.lock().expect("no panic").upgrade().is_none());
    assert!(!setup.watch.held_two.load(Ordering::SeqCst));
}

#[test]
fn a_thread_that_ended_keeps_no_table() {
    let setup = Setup::new();
    let core = Arc::clone(&setup.core);
    let table = thread::spawn(move || {
        look_up_one(&core);
        table_here(&core)
    });
    let table = table.join().expect("no panic");
    assert_eq!(table.strong_count(), 1, "the session's");
    setup.core.renew(0, Deadline::NONE).expect("it serves");
    assert!(table.upgrade().is_none());
}

#[test]
fn a_reader_keeps_its_table_until_its_next_call_or_its_end_and_never_two() {
    let setup = Setup::new();
    let look_up = |held: &mut HeldContext<U64Keys, Node>| {
        setup.core.look_up(held, &7, PATIENCE, |_, value| value.is_some()).expect("an answer")
    };
    let (mut held, mut other) = (None, None);
    assert!(look_up(&mut held) && look_up(&mut other));
    let table = Arc::downgrade(&held.as_ref().expect("a context").table);
    setup.core.renew(0, Deadline::NONE).expect("it serves");
    assert_eq!(table.strong_count(), 2, "the readers', not the session's");
    drop(other);
    assert_eq!(table.strong_count(), 1);
    *setup.watch.old.lock().expect("no panic") = table;
    assert!(look_up(&mut held));
    assert!(setup.watch.old.lock().expect("no panic").upgrade().is_none());
    assert!(!setup.watch.held_two.load(Ordering::SeqCst));
    assert_eq!(setup.counts(), (1, 2, 1), "the thread itself has held nothing");
}

#[test]
fn a_thread_outlives_the_clients_it_used() {
    thread::spawn(|| {
        let gone = Setup::new();
        look_up_one(&gone.core);
        let core = Arc::downgrade(&gone.core);
        drop(gone);
        assert!(core.upgrade().is_none());
        // Another one, which ends with its last thread.
        look_up_one(&Setup::new().core);
    })
    .join()
    .expect("no panic");
}

/// While a thread is kept at the gate, which it has come to once `is_there`, another one ends with
/// its deadline.
fn stretches_nobodys_deadline<G>(setup: &Setup, gate: G, is_there: impl Fn() -> bool, waiting_for: &str) {
    thread::scope(|scope| {
        let patient = scope.spawn(|| look_up_one(&setup.core));
        let begun = Instant::now();
        while !is_there() {
            assert!(begun.elapsed() < PATIENCE, "nobody comes to the gate");
            thread::sleep(Duration::from_millis(1));
        }
        let (done, is_done) = std::sync::mpsc::channel();
        scope.spawn({
            let core = &setup.core;
            move || {
                let error = look_up_within(core, Duration::from_millis(50)).expect_err("nobody is let in");
                assert!(error.is_retryable() && error.to_string().contains(waiting_for), "{error}");
                // What needs no connection does not wait for one.
                core.clear_cache();
                assert!(core.max_request() > 0);
                done.send(()).expect("somebody waits");
            }
        });
        let hurried = is_done.recv_timeout(Duration::from_secs(5));
        drop(gate);
        hurried.expect("within its deadline");
        patient.join().expect("no panic");
    });
}

#[test]
fn a_thread_that_connects_stretches_nobodys_deadline() {
    let setup = Setup::new();
    look_up_one(&setup.core);
    setup.restart();
    let gate = setup.watch.gate.lock().expect("no panic");
    stretches_nobodys_deadline(&setup, gate, || setup.counts().0 == 2, "another thread, which connects");
    assert_eq!(setup.counts(), (2, 2, 1));
}

#[test]
fn a_thread_that_fetches_the_table_stretches_nobodys_deadline() {
    let setup = Setup::new();
    let session = Arc::clone(&setup.core.session());
    let turn = session.opening(PATIENCE, &fpcache_fabric::SystemClock).expect("nobody has it");
    stretches_nobodys_deadline(&setup, turn, || true, "another thread, which fetches the table");
    assert_eq!(setup.counts(), (1, 1, 0));
}

#[test]
fn what_is_read_by_parts_has_its_deadline_anew_with_each_part() {
    let setup = Setup::new();
    // Six parts take more than `within` together, and each far less.
    let read = |gets_on: bool, within: Duration| {
        let mut attempts = 0;
        setup.core.here(|held| {
            setup.core.by_parts(held, within, |_, _, progressed| {
                attempts += 1;
                thread::sleep(within / 4);
                *progressed |= gets_on;
                if attempts < 6 { Err(ReadError::Contended { attempts }) } else { Ok(attempts) }
            })
        })
    };
    assert_eq!(read(true, Duration::from_secs(3)).expect("each part comes in time"), 6);
    let error = read(false, Duration::from_millis(600)).expect_err("nothing comes");
    assert!(matches!(error, ClientError::Deadline { .. }), "{error}");
}

#[test]
fn whoever_waits_half_of_its_time_for_a_turn_is_still_served() {
    const WITHIN: Duration = Duration::from_secs(8);
    let setup = Setup::new();
    look_up_one(&setup.core);
    let connection = Arc::clone(&setup.core.session().connection);
    let mut asked = Vec::new();
    Request::Stats.encode::<U64Keys>(connection.creation(), &mut asked);
    let posted = connection.post(&asked, Deadline::NONE).expect("its turn");
    let (kind, key, expected) = (WriteKind::Put, &7, RecordToken::default());
    let bytes = 8u64.to_le_bytes();
    let value = Sent::Here(&bytes);
    thread::scope(|scope| {
        let put = scope.spawn(|| {
            let change = WriteOperation { kind, key, hint: None, expected, value };
            setup.core.write_one(change, WITHIN)
        });
        let has = |key: u64| {
            let core = &setup.core;
            move || core.here(|held| core.contains_server_side(held, &key, &mut Retry::new(WITHIN)))
        };
        let is_there = [scope.spawn(has(7)), scope.spawn(has(6))];
        thread::sleep(WITHIN / 2);
        connection.give_up(posted);
        put.join().expect("no panic").expect("it was made");
        let found = is_there.map(|asked| asked.join().expect("no panic").expect("an answer"));
        assert_eq!(found, [true, false]);
    });
}
