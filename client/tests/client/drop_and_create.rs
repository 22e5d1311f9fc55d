//! A table is dropped and made anew under its name while changes of its clients are under way: what
//! may have been made in the former one is not made in this one, and what was certainly not made
//! goes on.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{Directory, TestKeys, patient, value_in};
use fpcache_client::{
    Changes, ClientError, CreateOptions, ErrorKind, KeyKind, RecordShape, RecordToken, TableClient,
    TableName, TableParameters, Tables,
};
use fpcache_fabric::{ClientId, Export, Handled, Service, Serving, Waker, Work, shm, tcp};
use fpcache_memserver::{Catalogue, CatalogueConfig};

/// Operations of requests, as `fpcache::message` draws them.
const WRITE: u8 = 6;
pub const STATS: u8 = 1;
const VALUE: u8 = 11;
const LOAD_CHUNK: u8 = 3;
const LOAD_COMMIT: u8 = 4;

/// What is to happen to the next request of one operation: it is executed or not, and its table is
/// dropped and made anew before its client learns of either, if there is a reply at all.
struct Trap {
    operation: u8,
    executed: Executed,
    renew: Box<dyn FnOnce(&mut Catalogue) + Send>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Executed {
    Yes,
    No,
    Answered,
}

/// Where a drop stands still.
#[derive(Default)]
pub struct Halts {
    /// The memory node refuses what is asked of the table, whose memory is as it was.
    pub refuses: AtomicBool,
    /// No client is hung up on.
    pub keeps_clients: AtomicBool,
}

/// A catalogue behind a trap, and how many writes have reached it.
struct Trapped {
    catalogue: Catalogue,
    trap: Arc<Mutex<Option<Trap>>>,
    writes: Arc<AtomicU64>,
    halts: Arc<Halts>,
}

impl Service for Trapped {
    fn export(&mut self, name: &[u8]) -> Option<Export> {
        let is_refused = !name.is_empty() && self.halts.refuses.load(Ordering::Relaxed);
        if is_refused { None } else { self.catalogue.export(name) }
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.writes.fetch_add(u64::from(request[0] == WRITE), Ordering::Relaxed);
        let sprung = self.trap.lock().unwrap().take_if(|trap| trap.operation == request[0]);
        if self.halts.refuses.load(Ordering::Relaxed) {
            // As a client whose table it does not have any more.
            return self.catalogue.handle(ClientId(u64::MAX), request, reply);
        }
        let Some(Trap { executed, renew, .. }) = sprung else {
            return self.catalogue.handle(client, request, reply);
        };
        if executed != Executed::No {
            let handled = self.catalogue.handle(client, request, reply);
            while handled == Handled::Later && self.catalogue.next_reply(reply).is_none() {
                self.catalogue.work();
            }
            assert_eq!(reply[0], 0, "it is not refused");
        }
        self.catalogue.drop_table(&name()).unwrap();
        renew(&mut self.catalogue);
        if executed == Executed::Answered { Handled::Now } else { Handled::Later }
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        self.catalogue.next_reply(reply)
    }

    fn next_farewell(&mut self) -> Option<ClientId> {
        if self.halts.keeps_clients.load(Ordering::Relaxed) { None } else { self.catalogue.next_farewell() }
    }

    fn work(&mut self) -> Work {
        self.catalogue.work()
    }

    fn waker(&self) -> Option<Waker> {
        self.catalogue.waker()
    }

    fn connected(&mut self, client: ClientId, region: &[u8]) {
        self.catalogue.connected(client, region);
    }

    fn disconnected(&mut self, client: ClientId) {
        self.catalogue.disconnected(client);
    }
}

pub struct Node {
    _directory: Directory,
    url: String,
    pub tables: Tables,
    trap: Arc<Mutex<Option<Trap>>>,
    writes: Arc<AtomicU64>,
    pub halts: Arc<Halts>,
    _serving: Serving,
}

/// How clients reach a memory node.
#[derive(Clone, Copy)]
pub enum Over {
    SharedMemory,
    Sockets,
}

impl Node {
    fn start<K: TestKeys>(parameters: TableParameters) -> Self {
        Self::start_over::<K>(Over::SharedMemory, parameters)
    }

    /// A memory node with a table of one record, the key of 7.
    pub fn start_over<K: TestKeys>(over: Over, parameters: TableParameters) -> Self {
        let directory = Directory::new();
        let config = CatalogueConfig::of(64 << 20);
        let (trap, writes) = (Arc::<Mutex<Option<Trap>>>::default(), Arc::<AtomicU64>::default());
        let mut catalogue = Catalogue::open(&config).unwrap();
        make::<K>(&mut catalogue, parameters);
        let halts = Arc::<Halts>::default();
        let trapped = Trapped {
            catalogue,
            trap: Arc::clone(&trap),
            writes: Arc::clone(&writes),
            halts: Arc::clone(&halts),
        };
        let (url, serving) = match over {
            Over::SharedMemory => {
                let listener =
                    shm::Listener::bind(&directory.address(), shm::ListenOptions::default()).unwrap();
                (directory.url(), listener.spawn(trapped).unwrap())
            }
            Over::Sockets => {
                let listener = tcp::Listener::bind(
                    &["tcp://127.0.0.1:0".parse().unwrap()],
                    tcp::ListenOptions::default(),
                )
                .unwrap();
                (listener.addresses()[0].to_string(), listener.spawn(trapped).unwrap())
            }
        };
        let tables = Tables::connect(&url).unwrap();
        Self { _directory: directory, url, tables, trap, writes, halts, _serving: serving }
    }

    pub fn client<K: TestKeys>(&self) -> TableClient<K> {
        let config = patient().with_table(name());
        TableClient::connect_with(&self.url, config).unwrap()
    }

    /// Makes the table anew, with one record of this edition.
    pub fn make_anew<K: TestKeys>(&self, edition: u64) {
        let kind = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap();
        self.tables.create(&name(), kind, CreateOptions::default()).unwrap();
        crate::common::load(&self.client::<K>(), K::parameters(), [7], edition).unwrap();
    }

    /// Runs `change`, whose first request of an operation goes into the trap.
    pub fn renew_during<R>(
        &self,
        (operation, executed): (u8, Executed),
        renew: impl FnOnce(&mut Catalogue) + Send + 'static,
        change: impl FnOnce() -> R,
    ) -> R {
        *self.trap.lock().unwrap() = Some(Trap { operation, executed, renew: Box::new(renew) });
        let ended = change();
        assert!(self.trap.lock().unwrap().is_none(), "no such request came");
        ended
    }
}

/// Makes a table without anything in it.
fn make_empty<K: TestKeys>(catalogue: &mut Catalogue) {
    let kind = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap();
    catalogue.create(name(), kind, None).unwrap();
}

/// Makes a table of one record.
pub fn make<K: TestKeys>(catalogue: &mut Catalogue, parameters: TableParameters) {
    make_empty::<K>(catalogue);
    let record = (K::key(7), value_in(&parameters.shape, 7, 1));
    let records = std::iter::once((record.0.borrow(), record.1));
    let node = catalogue.node::<K>(&name()).unwrap();
    node.load_records(parameters, K::Encoders::default(), records).unwrap();
}

pub fn name() -> TableName {
    "t".parse().unwrap()
}

/// Waits until a client has connected to the table that is there now.
fn until_noticed<K: TestKeys>(client: &TableClient<K>) {
    while client.stats().is_err() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn is_unknown<R>(ended: &Result<R, ClientError>) -> bool {
    matches!(ended, Err(ClientError::OutcomeUnknown { .. }))
}

/// A change of the records of 5 or 7, with a value and the token of the latter.
type Change<K> = fn(&TableClient<K>, &[u8], RecordToken) -> Result<(), ClientError>;

fn what_may_have_been_made_is_not_made_in_another_table<K: TestKeys, Other: TestKeys>() {
    let node = Node::start::<K>(K::parameters());
    let value = value_in(&K::shape(Some(8)), 5, 2);
    let client = node.client::<K>();
    let token = client.get_versioned(K::key(7)).unwrap().unwrap().1;
    let changes: [Change<K>; 6] = [
        |client, value, _| client.insert(K::key(5), value).map(drop),
        |client, value, _| client.put(K::key(5), value),
        |client, value, _| {
            let mut changes = Changes::default();
            changes.put(K::key(5), value);
            changes.insert(K::key(4), value);
            client.apply(&changes, &mut Vec::new())
        },
        |client, value, token| client.compare_and_set(K::key(7), token, value).map(drop),
        |client, _, _| client.delete(K::key(7)).map(drop),
        |client, value, _| {
            let mut pipeline = client.pipeline(2)?;
            pipeline.put(K::key(5), value)?;
            pipeline.finish().pop().unwrap().outcome.map(drop)
        },
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let renew = |catalogue: &mut Catalogue| make::<K>(catalogue, K::parameters());
        let ended = node.renew_during((WRITE, Executed::Yes), renew, || change(&client, &value, token));
        assert!(is_unknown(&ended), "change {i}");
        assert_eq!(client.get(K::key(5)).unwrap(), None, "change {i} is not made in this table");
        assert_eq!(client.get(K::key(7)).unwrap(), Some(value_in(&K::shape(Some(8)), 7, 1)), "change {i}");
        // The same client goes on.
        client.put(K::key(6), &value).unwrap();
        assert_eq!(client.get(K::key(6)).unwrap().as_deref(), Some(&value[..]));
    }

    // Other keys under the same name: not even the bytes of it arrive.
    let renew = |catalogue: &mut Catalogue| make::<Other>(catalogue, Other::parameters());
    let ended = node.renew_during((WRITE, Executed::Yes), renew, || client.put(K::key(5), &value));
    assert!(is_unknown(&ended));
    assert_eq!(node.client::<Other>().stats().unwrap().keys, 1);
    let error = client.put(K::key(5), &value).unwrap_err();
    assert!(matches!(error, ClientError::OtherKeys { .. }), "{error}");
}

/// The later requests of a batch were made in the new table, which so had the end of a batch alone.
fn a_batch_that_was_begun_in_one_table_does_not_go_on_in_another<K: TestKeys>() {
    const ALL: u64 = 10_000;
    let node = Node::start::<K>(K::parameters());
    let client = node.client::<K>();
    let mut changes = Changes::default();
    for key in 10..10 + ALL {
        changes.put(K::key(key), &value_in(&K::shape(Some(8)), key, 2));
    }
    let mut replies = Vec::new();
    // A request that is hung up on may have been executed.
    node.halts.keeps_clients.store(true, Ordering::Relaxed);
    let renew = |catalogue: &mut Catalogue| make::<K>(catalogue, K::parameters());
    let ended =
        node.renew_during((WRITE, Executed::Answered), renew, || client.apply(&changes, &mut replies));
    let error = ended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    assert!((1..ALL as usize).contains(&replies.len()), "{} of several requests", replies.len());
    assert_eq!(node.client::<K>().stats().unwrap().keys, 1);
    // The same client, and the same batch, are good for this table.
    client.apply(&changes, &mut replies).unwrap();
    assert_eq!(client.stats().unwrap().keys, 1 + ALL);
}

/// The table that a change was sent to is gone when it is sent again, and there is no other.
fn what_may_have_been_made_in_a_table_that_is_gone_is_unknown<K: TestKeys>() {
    let node = Node::start::<K>(K::parameters());
    let value = value_in(&K::shape(Some(8)), 5, 2);
    let changes: [Change<K>; 2] = [
        |client, value, _| client.put(K::key(5), value),
        |client, value, _| {
            let mut pipeline = client.pipeline(2)?;
            pipeline.put(K::key(5), value)?;
            pipeline.finish().pop().unwrap().outcome.map(drop)
        },
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let client = node.client::<K>();
        let token = client.get_versioned(K::key(7)).unwrap().unwrap().1;
        let ended = node.renew_during((WRITE, Executed::Yes), |_| (), || change(&client, &value, token));
        assert!(is_unknown(&ended), "change {i}: {ended:?}");
        let error = client.put(K::key(5), &value).unwrap_err();
        assert!(matches!(error, ClientError::NoSuchTable { .. }), "this one was not sent: {error}");
        node.make_anew::<K>(1);
    }
}

/// A value that goes ahead of its write, in pieces: the write itself has not been sent when its
/// table is dropped.
fn what_was_not_made_goes_on_in_the_table_that_is_there<K: TestKeys, Other: TestKeys>() {
    let parameters = K::parameters_of(None);
    let node = Node::start::<K>(parameters);
    let value = crate::common::value_of(5, 2, 3 << 20);
    let client = node.client::<K>();
    let single = || client.put(K::key(5), &value).map(drop);
    let piped = || {
        let mut pipeline = client.pipeline(2)?;
        pipeline.put(K::key(5), &value)?;
        pipeline.finish().pop().unwrap().outcome.map(drop)
    };
    let changes: [&dyn Fn() -> Result<(), ClientError>; 2] = [&single, &piped];
    for change in changes {
        let renew = move |catalogue: &mut Catalogue| make::<K>(catalogue, parameters);
        node.renew_during((VALUE, Executed::Yes), renew, change).unwrap();
        assert_eq!(client.get(K::key(5)).unwrap().as_deref(), Some(&value[..]));
        // Nor was anything left behind.
        let stats = client.stats().unwrap();
        assert_eq!((stats.keys, stats.external_values), (2, 1));
    }
    // A table with slots of another shape: the value's length is looked at anew.
    let renew = |catalogue: &mut Catalogue| make::<K>(catalogue, K::parameters());
    let error = node.renew_during((VALUE, Executed::No), renew, single).unwrap_err();
    assert!(matches!(error, ClientError::ValueSize { .. }), "{error}");
    node.tables.drop_table(&name()).unwrap();
    // One with other keys.
    let kind = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap();
    node.tables.create(&name(), kind, CreateOptions::default()).unwrap();
    crate::common::load(&node.client::<K>(), parameters, [7], 1).unwrap();
    until_noticed(&client);
    let before = node.writes.load(Ordering::Relaxed);
    let renew = |catalogue: &mut Catalogue| make::<Other>(catalogue, Other::parameters());
    let error = node.renew_during((VALUE, Executed::Yes), renew, piped).unwrap_err();
    assert!(matches!(error, ClientError::OtherKeys { .. }), "{error}");
    assert_eq!(node.writes.load(Ordering::Relaxed), before, "no write was sent");
}

/// What was loaded into the former table is not part of the other one, whose load must be begun
/// anew.
fn a_load_does_not_go_on_in_another_table<K: TestKeys>() {
    let node = Node::start::<K>(K::parameters());
    node.tables.drop_table(&name()).unwrap();
    let kind = KeyKind::ALL.into_iter().find(|kind| kind.is::<K>()).unwrap();
    let made = || node.tables.create(&name(), kind, CreateOptions::default()).unwrap();
    made();
    let client = node.client::<K>();
    let shape: RecordShape = K::shape(Some(8));
    let mut load = client.load(K::parameters(), 0).unwrap();
    load.push(K::key(1), &value_in(&shape, 1, 1)).unwrap();
    let ended = node.renew_during((LOAD_CHUNK, Executed::Yes), make_empty::<K>, || load.finish());
    assert!(ended.is_err());
    // One whose end may have been reached in a table that is gone.
    let mut load = client.load(K::parameters(), 0).unwrap();
    load.push(K::key(1), &value_in(&shape, 1, 1)).unwrap();
    let ended = node.renew_during((LOAD_COMMIT, Executed::No), |_| (), || load.finish());
    assert!(is_unknown(&ended), "{ended:?}");
    made();
    until_noticed(&client);
    // And one whose connection is lost between two requests.
    let mut load = client.load(K::parameters(), 0).unwrap();
    load.push(K::key(1), &value_in(&shape, 1, 1)).unwrap();
    node.tables.drop_table(&name()).unwrap();
    made();
    until_noticed(&client);
    let error = load.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    crate::common::load(&client, K::parameters(), 0..10, 3).unwrap();
    assert_eq!(client.stats().unwrap().keys, 10);
}

mod integer_keys {
    use fpcache_client::{ByteKeys, U64Keys};

    #[test]
    fn what_may_have_been_made_is_not_made_in_another_table() {
        super::what_may_have_been_made_is_not_made_in_another_table::<U64Keys, ByteKeys>();
    }

    #[test]
    fn a_batch_that_was_begun_in_one_table_does_not_go_on_in_another() {
        super::a_batch_that_was_begun_in_one_table_does_not_go_on_in_another::<U64Keys>();
    }

    #[test]
    fn what_may_have_been_made_in_a_table_that_is_gone_is_unknown() {
        super::what_may_have_been_made_in_a_table_that_is_gone_is_unknown::<U64Keys>();
    }

    #[test]
    fn what_was_not_made_goes_on_in_the_table_that_is_there() {
        super::what_was_not_made_goes_on_in_the_table_that_is_there::<U64Keys, ByteKeys>();
    }

    #[test]
    fn a_load_does_not_go_on_in_another_table() {
        super::a_load_does_not_go_on_in_another_table::<U64Keys>();
    }
}

mod byte_keys {
    use fpcache_client::{ByteKeys, U64Keys};

    #[test]
    fn what_may_have_been_made_is_not_made_in_another_table() {
        super::what_may_have_been_made_is_not_made_in_another_table::<ByteKeys, U64Keys>();
    }

    #[test]
    fn a_batch_that_was_begun_in_one_table_does_not_go_on_in_another() {
        super::a_batch_that_was_begun_in_one_table_does_not_go_on_in_another::<ByteKeys>();
    }

    #[test]
    fn what_may_have_been_made_in_a_table_that_is_gone_is_unknown() {
        super::what_may_have_been_made_in_a_table_that_is_gone_is_unknown::<ByteKeys>();
    }

    #[test]
    fn what_was_not_made_goes_on_in_the_table_that_is_there() {
        super::what_was_not_made_goes_on_in_the_table_that_is_there::<ByteKeys, U64Keys>();
    }

    #[test]
    fn a_load_does_not_go_on_in_another_table() {
        super::a_load_does_not_go_on_in_another_table::<ByteKeys>();
    }
}
