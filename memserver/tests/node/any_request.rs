//! Whatever a peer sends, the memory node says something that can be read, once, and goes on
//! serving: requests of every kind in any order, whole or damaged, over several connections.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::keys::{Integers, TestKeys};
use crate::common::requests::{Writer, value};
use crate::common::world::World;
use fpcache::TableName;
use fpcache::key_space::{KeyKind, U64Keys};
use fpcache::layout::{RecordToken, TableParameters};
use fpcache::map::{MapState, RangeMap};
use fpcache::message::keys::{put_key, put_record};
use fpcache::message::{
    AskedKeys, NodeStats, RangeRequest, RecordChunk, Request, Sent, TablesPage, TablesRequest, ValuePiece,
    WriteBatch, WriteKind, WriteOperation, WriteStatus, decode_reply,
};
use fpcache_fabric::{ClientId, Handled, Service};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::{Catalogue, CatalogueConfig};

/// Worlds of each kind; many more with `FPCACHE_ANY_REQUEST`.
fn worlds() -> u64 {
    std::env::var("FPCACHE_ANY_REQUEST").ok().and_then(|count| count.parse().ok()).unwrap_or(6)
}

const REQUESTS: usize = 300;
const CONNECTIONS: u64 = 4;
/// Rounds in which every reply is there, also that of a load's records on the disk.
const PATIENCE: usize = 3000;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// A number that a length or a count may be damaged to.
    fn odd(&mut self) -> u64 {
        let some =
            [0, 1, 7, 8, 255, 1024, 1025, 65_535, 1 << 20, 1 << 24, u32::MAX.into(), 1 << 31, u64::MAX];
        some[self.below(some.len() as u64) as usize]
    }
}

/// Requests as clients make them, and as none would.
struct Peers<T> {
    random: Random,
    parameters: TableParameters,
    /// The last request of each writer, and what it says.
    requests: BTreeMap<u64, (u64, Vec<u8>)>,
    /// Records that a load has sent.
    loaded: u64,
    /// The request before, to be mixed with others.
    before: Vec<u8>,
    kind: std::marker::PhantomData<T>,
}

impl<T: TestKeys> Peers<T> {
    fn new(seed: u64, parameters: TableParameters) -> Self {
        let (requests, before) = (BTreeMap::new(), Vec::new());
        Self { random: Random(seed), parameters, requests, loaded: 0, before, kind: std::marker::PhantomData }
    }

    fn number(&mut self) -> u64 {
        if self.random.one_in(20) { self.random.odd() } else { self.random.below(600) * 5 }
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = self.random.below(most);
        (0..len).map(|_| self.random.below(256) as u8).collect()
    }

    /// The next request, damaged or not.
    fn next(&mut self) -> Vec<u8> {
        let mut bytes = self.valid();
        if self.random.one_in(3) {
            self.damage(&mut bytes);
        }
        self.before.clone_from(&bytes);
        bytes
    }

    fn valid(&mut self) -> Vec<u8> {
        let encoded = |request: &Request<'_>| {
            let mut bytes = Vec::new();
            request.encode::<T::Space>(0, &mut bytes);
            bytes
        };
        match self.random.below(100) {
            0..45 => self.write(),
            45..60 => self.get(),
            60..75 => self.piece(),
            75..78 => encoded(&Request::Stats),
            78..80 => encoded(&Request::Sockets),
            80..88 => {
                self.loaded = 0;
                let mut parameters = self.parameters;
                if self.random.one_in(3) {
                    parameters.epsilon = self.random.odd() as u32;
                    parameters.max_slots = self.random.odd() as u16;
                    parameters.fill = self.random.below(12) as f64 / 10.0;
                    parameters.shape.room = self.random.odd() as u32;
                }
                let expected_keys =
                    if self.random.one_in(4) { self.random.odd() } else { self.random.below(1000) };
                let encoders = if self.random.one_in(6) { self.bytes(200) } else { Vec::new() };
                encoded(&Request::LoadBegin { load: 1, parameters, expected_keys, encoders: &encoders })
            }
            88..95 => self.chunk(),
            95..98 => encoded(&Request::LoadCommit(1)),
            _ => encoded(&Request::LoadAbort(1)),
        }
    }

    fn write(&mut self) -> Vec<u8> {
        let client = self.random.below(6);
        let (last, same) = self.requests.get(&client).cloned().unwrap_or_default();
        if self.random.one_in(8) && !same.is_empty() {
            return same;
        }
        let mut batch = WriteBatch::default();
        let operations = if self.random.one_in(30) { 1000 } else { self.random.below(12) };
        for _ in 0..operations {
            use WriteKind::{CompareAndSet, Delete, Insert, Put, Update};
            let kind = [Insert, Put, Update, Delete, CompareAndSet][self.random.below(5) as usize];
            let number = self.number();
            let most = [8, 8, 300, 5000][self.random.below(4) as usize];
            let value = value::<T>(number, last, most);
            let value = match self.random.below(12) {
                0 => Sent::Ahead(self.random.below(2000) as u32),
                _ => Sent::Here(&value),
            };
            let hint = self.random.one_in(3).then(|| self.random.odd() as u16);
            let expected = RecordToken::from_bits(self.random.below(3));
            batch.push::<T::Space>(&WriteOperation { kind, key: T::key(number), hint, expected, value });
        }
        let request = if self.random.one_in(10) { self.random.odd() } else { last + 1 };
        let mut bytes = Vec::new();
        batch.request(client, request, self.random.one_in(8)).encode::<T::Space>(0, &mut bytes);
        self.requests.insert(client, (request.min(1 << 40), bytes.clone()));
        bytes
    }

    fn get(&mut self) -> Vec<u8> {
        let (mut keys, mut bytes) = (Vec::new(), Vec::new());
        let most = if self.random.one_in(10) { 30_000 } else { 20 };
        let mut count = self.random.below(most) as u32;
        for _ in 0..count {
            let number = self.number();
            put_key::<T::Space>(std::borrow::Borrow::borrow(&T::key(number)), &mut keys);
        }
        if self.random.one_in(8) {
            count = self.random.odd() as u32;
        }
        Request::Get(AskedKeys { count, bytes: &keys }).encode::<T::Space>(0, &mut bytes);
        bytes
    }

    fn piece(&mut self) -> Vec<u8> {
        let client = self.random.below(6);
        let request = self.requests.get(&client).map_or(1, |(last, _)| last + 1) + self.random.below(3) / 2;
        let operation = self.random.below(4) as u32;
        let value_bytes = if self.random.one_in(6) { self.random.odd() } else { self.random.below(2000) };
        let value_bytes = value_bytes as u32;
        let offset = if self.random.one_in(4) { self.random.odd() as u32 } else { 0 };
        let most = if self.random.one_in(2) { u64::from(value_bytes.min(2000)) + 1 } else { 300 };
        let (piece, mut bytes) = (self.bytes(most), Vec::new());
        let piece = ValuePiece { client, request, operation, value_bytes, offset, bytes: &piece };
        Request::Value(piece).encode::<T::Space>(0, &mut bytes);
        bytes
    }

    fn chunk(&mut self) -> Vec<u8> {
        let (mut records, mut bytes) = (Vec::new(), Vec::new());
        let mut count = self.random.below(100) as u32;
        for at in 0..u64::from(count) {
            let number = (self.loaded + at) * 50;
            let value = value::<T>(number, 0, T::value_bytes(&self.parameters.shape));
            let key = T::key(number);
            let (key, value) = (std::borrow::Borrow::borrow(&key), Sent::Here(&value));
            put_record::<T::Space>(&self.parameters.shape, key, &value, &mut records);
        }
        let first = if self.random.one_in(10) { self.random.odd() } else { self.loaded };
        self.loaded += u64::from(count);
        if self.random.one_in(10) {
            count = self.random.odd() as u32;
        }
        Request::LoadChunk(1, RecordChunk { first, count, records: &records })
            .encode::<T::Space>(0, &mut bytes);
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.random.below(3) {
            let at = self.random.below(bytes.len() as u64) as usize;
            match self.random.below(6) {
                0 => bytes.truncate(at),
                1 => {
                    let more = self.bytes(40);
                    bytes.extend(more);
                }
                2 if !bytes.is_empty() => bytes[at] ^= 1 << self.random.below(8),
                3 if at + 4 <= bytes.len() => {
                    bytes[at..at + 4].copy_from_slice(&(self.random.odd() as u32).to_le_bytes());
                }
                4 => {
                    // The end of another one.
                    let from = self.random.below(self.before.len() as u64) as usize;
                    bytes.truncate(at);
                    bytes.extend_from_slice(&self.before[from..]);
                }
                5 if self.random.one_in(4) => *bytes = self.bytes(100),
                _ => {}
            }
        }
    }
}

/// Says which world it was when a test fails in it.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in {}", self.0);
        }
    }
}

/// Requests of several connections that each wait for their replies, and break now and then.
#[derive(Default)]
struct Exchange {
    /// The client that each connection is: a new one each time.
    clients: BTreeMap<u64, ClientId>,
    next: u64,
    owed: BTreeSet<ClientId>,
    refused: u64,
    done: u64,
}

impl Exchange {
    fn reconnect(&mut self, node: &mut impl Service, connection: u64, region: &[u8]) {
        self.next += 1;
        let client = ClientId(1000 + self.next);
        if let Some(gone) = self.clients.insert(connection, client) {
            node.disconnected(gone);
            self.owed.remove(&gone);
        }
        node.connected(client, region);
    }

    fn is_owed(&self, connection: u64) -> bool {
        self.owed.contains(&self.clients[&connection])
    }

    fn take(&mut self, reply: &[u8]) {
        match decode_reply(reply) {
            Ok(_) => self.done += 1,
            Err(refusal) => {
                assert!(!refusal.message.is_empty(), "a refusal without words");
                self.refused += 1;
            }
        }
    }

    fn collect(&mut self, node: &mut impl Service) {
        let mut reply = Vec::new();
        while let Some(client) = node.next_reply(&mut reply) {
            let is_there = self.clients.values().any(|there| *there == client);
            assert!(self.owed.remove(&client) || !is_there, "a reply that {client:?} does not wait for");
            self.take(&reply);
            reply.clear();
        }
    }

    fn send(&mut self, node: &mut impl Service, connection: u64, request: &[u8]) {
        let mut reply = Vec::new();
        let client = self.clients[&connection];
        match node.handle(client, request, &mut reply) {
            Handled::Now => self.take(&reply),
            Handled::Later => {
                self.owed.insert(client);
            }
        }
    }

    /// Has everything answered.
    fn settle(&mut self, node: &mut impl Service, patience: usize) {
        for _ in 0..patience {
            if self.owed.is_empty() {
                return;
            }
            node.work();
            self.collect(node);
        }
        panic!("{:?} get no reply", self.owed);
    }
}

fn any_request_is_answered_once_and_does_no_harm<T: TestKeys>() {
    let (mut refused, mut done, mut served) = (0, 0, 0);
    for seed in 0..worlds() {
        let _named = Named(format!("world {seed}"));
        let sync = [SyncPolicy::Always, SyncPolicy::Never][seed as usize % 2];
        let mut world = World::new(sync, seed);
        let (mut node, _) = world.begin::<T>();
        let parameters = TableParameters { epsilon: 4, max_slots: 64, ..T::parameters(100) };
        if seed % 3 != 0 {
            let records = (0..300).map(|i| (T::key(i * 50), value::<T>(i * 50, 0, 100)));
            let records: Vec<_> = records.collect();
            node.load_records(parameters, T::encoders(), records.into_iter()).expect("room");
        }
        let (mut peers, mut exchange) = (Peers::<T>::new(seed, parameters), Exchange::default());
        (0..CONNECTIONS).for_each(|connection| exchange.reconnect(&mut node, connection, b""));
        for _ in 0..REQUESTS {
            let connection = peers.random.below(CONNECTIONS);
            if peers.random.one_in(40) {
                exchange.reconnect(&mut node, connection, b"");
            } else if !exchange.is_owed(connection) {
                let request = peers.next();
                exchange.send(&mut node, connection, &request);
            }
            if peers.random.one_in(2) {
                node.work();
                exchange.collect(&mut node);
            }
        }
        exchange.settle(&mut node, PATIENCE);
        node.audit().expect("the table is whole");
        (refused, done) = (refused + exchange.refused, done + exchange.done);
        if node.audit().expect("whole").is_some() {
            // Another client finds it as ever.
            let mut writer = Writer::<T>::new(1 << 50);
            let new = value::<T>(77, 1, 100);
            // A load with parameters of its own may have made a table for other values.
            if let Ok(put) = writer.try_one(&mut node, WriteKind::Put, 77, RecordToken::default(), &new)
                && put.status != WriteStatus::NoRoom
            {
                assert_eq!(
                    (put.status, writer.get(&mut node, 77).map(|(found, _)| found)),
                    (WriteStatus::Done, Some(new))
                );
                served += 1;
            }
        }
    }
    assert!(refused > done / 10 && done > refused / 10, "{refused} refused, {done} done");
    assert!(2 * served >= worlds(), "{served} of {} tables took a record in the end", worlds());
}

/// The same for requests about tables, which come and go meanwhile.
#[test]
fn any_request_about_tables_is_answered_once_and_does_no_harm() {
    for seed in 0..worlds().div_ceil(3) {
        let _named = Named(format!("world {seed}"));
        let config = CatalogueConfig::of(32 << 20);
        let mut catalogue = Catalogue::open(&config).expect("memory");
        let names: Vec<TableName> =
            ["a", "b", "c"].iter().map(|name| name.parse().expect("a name")).collect();
        let (mut peers, mut exchange) =
            (Peers::<Integers>::new(seed, Integers::parameters(8)), Exchange::default());
        (0..CONNECTIONS).for_each(|connection| exchange.reconnect(&mut catalogue, connection, b""));
        for round in 0..REQUESTS {
            let (connection, name) =
                (peers.random.below(CONNECTIONS), names[peers.random.below(names.len() as u64) as usize]);
            let kind = [KeyKind::U64, KeyKind::Bytes][round % 2];
            if exchange.is_owed(connection) {
                catalogue.work();
                exchange.collect(&mut catalogue);
                continue;
            }
            if peers.random.one_in(6) {
                // To another table, or the lobby.
                let region: &[u8] = if peers.random.one_in(3) { b"" } else { name.as_str().as_bytes() };
                exchange.reconnect(&mut catalogue, connection, region);
            }
            let region_bytes = (!peers.random.one_in(3)).then(|| peers.random.odd());
            let is_of_range = peers.random.one_in(6);
            let request = match peers.random.below(6) {
                0 => Some(TablesRequest::Create { name, kind, region_bytes }),
                1 => Some(TablesRequest::Drop { name }),
                2 => Some(TablesRequest::List { after: peers.random.one_in(2).then_some(name) }),
                _ => None,
            };
            let mut bytes = Vec::new();
            match request {
                Some(request) => {
                    request.encode(&mut bytes);
                    if is_of_range {
                        range_request(&mut peers.random, name, kind).encode(&mut bytes);
                    }
                    if peers.random.one_in(3) {
                        peers.damage(&mut bytes);
                    }
                }
                None => bytes = peers.next(),
            }
            exchange.send(&mut catalogue, connection, &bytes);
            while catalogue.next_farewell().is_some() {}
        }
        // Tables are made and dropped on a thread.
        let began = std::time::Instant::now();
        while !exchange.owed.is_empty() && began.elapsed().as_secs() < 20 {
            catalogue.work();
            exchange.collect(&mut catalogue);
        }
        assert!(exchange.owed.is_empty(), "{:?} get no reply", exchange.owed);
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        TablesRequest::List { after: None }.encode(&mut bytes);
        catalogue.connected(ClientId(99), b"");
        assert_eq!(catalogue.handle(ClientId(99), &bytes, &mut reply), Handled::Now);
        let page = TablesPage::decode(decode_reply(&reply).expect("a list")).expect("a page");
        // And two ranges of each.
        assert!(page.tables.len() <= 3 * names.len() && page.granted_bytes <= page.capacity_bytes);
        Request::Stats.encode::<U64Keys>(0, &mut bytes);
        reply.clear();
        assert_eq!(catalogue.handle(ClientId(99), &bytes, &mut reply), Handled::Now);
        NodeStats::decode(decode_reply(&reply).expect("counters")).expect("counters");
    }
}

/// A request about one of two ranges of a table over two memory nodes.
fn range_request(random: &mut Random, name: TableName, kind: KeyKind) -> RangeRequest {
    let nodes = ["shm://one".to_owned(), "shm://two".to_owned()];
    let creation = 1 + u64::from(random.one_in(2));
    let map = RangeMap::divide(name, kind, creation, &nodes, &[vec![7; 8]]).expect("a map");
    let map = if random.one_in(2) { map } else { map.next(MapState::Whole).unwrap() };
    let number = u32::from(random.one_in(2));
    match random.one_in(2) {
        true => RangeRequest::Create { map, number, region_bytes: None },
        false => RangeRequest::Map { map, number },
    }
}

for_all_keys_and_long_values!(any_request_is_answered_once_and_does_no_harm,);
