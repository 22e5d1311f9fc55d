//! A memory node needs hardly more memory than its tables may have, whatever its clients send.
#![cfg(feature = "cli")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use fpcache::key_space::{ByteKeys, KeyKind, KeySpace, U64Keys};
use fpcache::layout::{RecordShape, RecordToken, TableParameters};
use fpcache::message::keys::{put_key, put_record};
use fpcache::message::{
    AskedKeys, ErrorCode, RecordChunk, Refusal, Request, Sent, TablesRequest, ValuePiece, WriteBatch,
    WriteKind, WriteOperation, WriteReply, decode_reply,
};
use fpcache_fabric::shm::{ConnectOptions, ShmAddress, ShmConnection, connect};
use fpcache_fabric::{Connection, Deadline, RegionName, SHORT_BODY};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 16 * MIB;
/// What the process may have beside its tables.
const BESIDE: u64 = 64 * MIB;

/// A memory node over memory in a process of its own.
struct Node {
    child: Child,
    folder: TempDir,
}

impl Node {
    fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = crate::program();
        command.args(["--exit-with-parent", "--capacity", "16MiB", "--listen"]);
        command.arg(address(&folder).to_string()).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.into_iter().any(|line| line.starts_with("  next ")), "it did not start");
        Self { child, folder }
    }

    fn connect(&self, table: &str) -> Peer {
        let region = RegionName::new(table).unwrap();
        let options = ConnectOptions { region, deadline: deadline(), ..Default::default() };
        Peer(connect(&address(&self.folder), options).unwrap())
    }

    /// A table for byte strings beside `default`.
    fn create(&self, name: &str) {
        let (name, mut bytes) = (name.parse().unwrap(), Vec::new());
        TablesRequest::Create { name, kind: KeyKind::Bytes, region_bytes: None }.encode(&mut bytes);
        self.connect("").send(&bytes).unwrap();
    }

    /// The most bytes of memory that the process has had at once.
    fn most_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
    }

    /// That its memory stayed within bounds, and that it serves.
    #[track_caller]
    fn end_unharmed(mut self, by: &str) {
        let most = self.most_memory();
        println!("{by}: {:.1} MiB beside {} MiB of capacity", most as f64 / MIB as f64, CAPACITY / MIB);
        assert!(self.child.try_wait().unwrap().is_none(), "it ended");
        self.connect("default").call(&Request::Stats).unwrap();
        assert!(most <= CAPACITY + BESIDE, "{by}: {} MiB", most / MIB);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(folder: &TempDir) -> ShmAddress {
    ShmAddress::at_path(folder.path().join("node.sock")).unwrap()
}

fn deadline() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

struct Peer(ShmConnection);

impl Peer {
    fn send(&self, request: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut reply = Vec::new();
        self.0.call(request, &mut reply, deadline()).unwrap();
        decode_reply(&reply).map(<[u8]>::to_vec)
    }

    fn encoded<K: KeySpace>(&self, request: &Request<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        request.encode::<K>(self.0.creation(), &mut bytes);
        bytes
    }

    fn call(&self, request: &Request<'_>) -> Result<Vec<u8>, Refusal> {
        self.send(&self.encoded::<U64Keys>(request))
    }

    fn call_bytes(&self, request: &Request<'_>) -> Result<Vec<u8>, Refusal> {
        self.send(&self.encoded::<ByteKeys>(request))
    }
}

/// Values of any length, up to 16 MiB.
fn long_values() -> TableParameters {
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 24 };
    TableParameters { shape, ..TableParameters::default() }
}

fn begin(parameters: TableParameters) -> Request<'static> {
    Request::LoadBegin { load: 1, parameters, expected_keys: 0, encoders: &[] }
}

/// Sends chunks of 1 MiB until the load is over.
fn load_until_full(
    chunk: impl Fn(&RecordChunk<'_>) -> Result<Vec<u8>, Refusal>,
    record: impl Fn(u64, &mut Vec<u8>),
) {
    const CHUNK: usize = (1 << 20) - 4096;
    let (mut first, mut records) = (0, Vec::new());
    for _ in 0..4096 {
        records.clear();
        let mut count = 0;
        loop {
            let before = records.len();
            record(first + u64::from(count), &mut records);
            if records.len() > CHUNK {
                records.truncate(before);
                break;
            }
            count += 1;
        }
        if chunk(&RecordChunk { first, count, records: &records }).is_err() {
            return;
        }
        first += u64::from(count);
    }
    panic!("4 GiB found room in {CAPACITY} bytes");
}

#[test]
fn loads_that_never_end() {
    let node = Node::start(&[]);
    // Records that stay in no segment as long as possible; then short ones, and slots that are much
    // longer than what they hold.
    let small = RecordShape::fixed(8, 0);
    let slots = RecordShape { key_bytes: Some(8), value_bytes: None, room: 4000 };
    for shape in [small, slots, RecordShape::fixed(8, 60_000)] {
        let (epsilon, max_slots) = (1024, u16::MAX);
        let parameters = TableParameters { shape, epsilon, max_slots, ..TableParameters::default() };
        let peer = node.connect("default");
        peer.call(&begin(parameters)).unwrap();
        let value = vec![1; shape.value_bytes.unwrap_or(1) as usize];
        load_until_full(
            |chunk| peer.call(&Request::LoadChunk(1, *chunk)),
            |number, out| put_record::<U64Keys>(&shape, &number, &Sent::Here(&value), out),
        );
    }
    node.end_unharmed("loads of integers");
}

#[test]
fn loads_of_byte_strings_that_never_end() {
    let node = Node::start(&[]);
    node.create("strings");
    for (room, prefix) in [(40, 0), (1100, 900), (60_000, 1000)] {
        let shape = RecordShape { key_bytes: None, value_bytes: None, room };
        let peer = node.connect("strings");
        let parameters = TableParameters { shape, ..TableParameters::default() };
        peer.call_bytes(&Request::LoadBegin { load: 1, parameters, expected_keys: 0, encoders: &[] })
            .unwrap();
        load_until_full(
            |chunk| peer.call_bytes(&Request::LoadChunk(1, *chunk)),
            |number, out| {
                let key = [vec![b'k'; prefix], format!("{number:016}").into_bytes()].concat();
                put_record::<ByteKeys>(&shape, key.as_slice(), &Sent::Here(b"v"), out);
            },
        );
    }
    node.end_unharmed("loads of byte strings");
}

#[test]
fn values_that_never_get_a_record() {
    let node = Node::start(&[]);
    let owner = node.connect("default");
    owner.call(&begin(long_values())).unwrap();
    owner.call(&Request::LoadCommit(1)).unwrap();
    let bytes = vec![9; 900 << 10];
    let peers: Vec<Peer> = (0..4).map(|_| node.connect("default")).collect();
    // 256 times 64 MiB, and as many short ones as there may be.
    for value in 0..1024u32 {
        let peer = &peers[value as usize % peers.len()];
        let piece = ValuePiece {
            client: 1 + u64::from(value) % 256,
            request: 1,
            operation: value / 256,
            value_bytes: 16 << 20,
            offset: 0,
            bytes: &bytes[..if value % 8 == 0 { bytes.len() } else { 100 }],
        };
        let _ = peer.call(&Request::Value(piece));
    }
    for value in 0..4096u32 {
        let peer = &peers[value as usize % peers.len()];
        let (client, operation) = (1000 + u64::from(value % 7), value % 1024);
        let piece =
            ValuePiece { client, request: 1, operation, value_bytes: 20, offset: 0, bytes: &bytes[..10] };
        let _ = peer.call(&Request::Value(piece));
    }
    drop(peers);
    node.end_unharmed("values ahead of nothing");
}

#[test]
fn lookups_of_very_many_keys_over_many_connections() {
    let node = Node::start(&[]);
    let owner = node.connect("default");
    owner.call(&begin(TableParameters::default())).unwrap();
    owner.call(&Request::LoadCommit(1)).unwrap();
    let mut keys = Vec::new();
    (0..65_000u64).for_each(|key| put_key::<U64Keys>(&key, &mut keys));
    let request = owner.encoded::<U64Keys>(&Request::Get(AskedKeys { count: 65_000, bytes: &keys }));
    let peers: Vec<Peer> = (0..48).map(|_| node.connect("default")).collect();
    ask_all_at_once(&peers, &request, 16 * 65_000);
    drop(peers);
    node.end_unharmed("48 connections that look up 65,000 keys each");
}

/// Has all peers ask the same at once, three times, and compares their replies' lengths.
fn ask_all_at_once(peers: &[Peer], request: &[u8], reply_bytes: usize) {
    for _ in 0..3 {
        // Posted, and waited for afterwards.
        let posted: Vec<_> = peers.iter().map(|peer| peer.0.post(request, deadline()).unwrap()).collect();
        let mut reply = Vec::new();
        for (peer, posted) in peers.iter().zip(posted) {
            peer.0.wait(posted, &mut reply, deadline()).unwrap();
            assert_eq!(decode_reply(&reply).unwrap().len(), reply_bytes);
        }
    }
}

#[test]
fn short_lookups_of_long_records_over_many_connections() {
    const VALUE: usize = 60_000;
    let node = Node::start(&[]);
    let owner = node.connect("default");
    let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: VALUE as u32 + 16 };
    owner.call(&begin(TableParameters { shape, ..TableParameters::default() })).unwrap();
    let value = vec![7; VALUE];
    let mut records = Vec::new();
    (0..17u64).for_each(|key| put_record::<U64Keys>(&shape, &key, &Sent::Here(&value), &mut records));
    let (first, rest) = records.split_at(records.len() / 17 * 9);
    for (chunk, records, count) in [(0, first, 9), (9, rest, 8)] {
        owner.call(&Request::LoadChunk(1, RecordChunk { first: chunk, count, records })).unwrap();
    }
    owner.call(&Request::LoadCommit(1)).unwrap();
    let mut keys = Vec::new();
    (0..17u64).for_each(|key| put_key::<U64Keys>(&key, &mut keys));
    let request = owner.encoded::<U64Keys>(&Request::Get(AskedKeys { count: 17, bytes: &keys }));
    let peers: Vec<Peer> = (0..48).map(|_| node.connect("default")).collect();
    ask_all_at_once(&peers, &request, 17 * (16 + VALUE));
    drop(peers);
    node.end_unharmed("48 connections that look up 17 long records each");
}

#[test]
fn writes_of_long_requests_over_many_connections() {
    let node = Node::start(&[]);
    let owner = node.connect("default");
    owner.call(&begin(long_values())).unwrap();
    owner.call(&Request::LoadCommit(1)).unwrap();
    let value = vec![5; 900];
    let peers: Vec<Peer> = (0..24).map(|_| node.connect("default")).collect();
    for round in 1..2 {
        let posted: Vec<_> = peers
            .iter()
            .zip(1u64..)
            .map(|(peer, client)| {
                let mut batch = WriteBatch::default();
                for i in 0..1000 {
                    let (kind, key) = (WriteKind::Put, (client * 2 + round) * 1_000_003 + i * 977);
                    let (expected, value) = (RecordToken::default(), Sent::Here(&value));
                    batch.push::<U64Keys>(&WriteOperation { kind, key, hint: None, expected, value });
                }
                let request = peer.encoded::<U64Keys>(&batch.request(client, round, false));
                peer.0.post(&request, deadline()).unwrap()
            })
            .collect();
        let mut reply = Vec::new();
        for (peer, posted) in peers.iter().zip(posted) {
            peer.0.wait(posted, &mut reply, deadline()).unwrap();
        }
    }
    node.end_unharmed("24 connections that write until nothing fits");
}

#[test]
fn short_writes_of_very_many_operations_that_wait_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let options = ["--data-dir", data.to_str().unwrap(), "--fsync", "always", "--load", "sequential:2000"];
    let node = Node::start(&options);
    let peers: Vec<Peer> = (0..256).map(|_| node.connect("default")).collect();
    let expected = RecordToken::default();
    for round in 1..4 {
        let posted = peers.iter().zip(1u64..).map(|(peer, client)| {
            let mut batch = WriteBatch::default();
            let (kind, value) = (WriteKind::Put, Sent::Here(&[7; 8]));
            batch.push::<U64Keys>(&WriteOperation { kind, key: client, hint: None, expected, value });
            for key in 1 << 50..(1 << 50) + 900 {
                let (kind, value) = (WriteKind::Delete, Sent::Here(&[]));
                batch.push::<U64Keys>(&WriteOperation { kind, key, hint: None, expected, value });
            }
            let request = peer.encoded::<U64Keys>(&batch.request(client, round, false));
            assert!(request.len() <= SHORT_BODY);
            peer.0.post(&request, deadline()).unwrap()
        });
        let (posted, mut reply) = (posted.collect::<Vec<_>>(), Vec::new());
        for (peer, posted) in peers.iter().zip(posted) {
            peer.0.wait(posted, &mut reply, deadline()).unwrap();
            assert_eq!(decode_reply(&reply).unwrap().len(), 901 * WriteReply::BYTES);
        }
    }
    drop(peers);
    node.end_unharmed("256 connections whose short writes of 901 operations wait for the disk");
}

/// Replies are kept in case their requests come again: only up to a limit, whatever the clients and
/// tables.
#[test]
fn requests_of_very_many_operations_of_very_many_clients_to_several_tables() {
    let node = Node::start(&[]);
    let mut batch = WriteBatch::default();
    for key in 0..1024 {
        let (kind, expected, value) = (WriteKind::Delete, RecordToken::default(), Sent::Here(&[][..]));
        batch.push::<U64Keys>(&WriteOperation { kind, key, hint: None, expected, value });
    }
    for table in 0..3 {
        let name = format!("t{table}");
        let mut bytes = Vec::new();
        let create =
            TablesRequest::Create { name: name.parse().unwrap(), kind: KeyKind::U64, region_bytes: None };
        create.encode(&mut bytes);
        node.connect("").send(&bytes).unwrap();
        let peer = node.connect(&name);
        peer.call(&begin(TableParameters::default())).unwrap();
        peer.call(&Request::LoadCommit(1)).unwrap();
        for client in 1..=250 {
            assert_eq!(peer.call(&batch.request(client, 1, false)).unwrap().len(), 1024 * WriteReply::BYTES);
        }
        // The last one's are there, and the first one's are not said to be new.
        assert!(peer.call(&batch.request(250, 1, true)).is_ok());
        let refusal = peer.call(&batch.request(1, 1, true)).expect_err("its replies were let go");
        assert_eq!(refusal.code, ErrorCode::Forgotten);
        assert!(peer.call(&batch.request(1, 2, false)).is_ok());
    }
    node.end_unharmed("requests of 750 clients whose replies are kept");
}

#[test]
fn garbage_over_connections_that_come_and_go() {
    let node = Node::start(&[]);
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for _ in 0..300 {
        let peer = node.connect(if random() % 4 == 0 { "" } else { "default" });
        for _ in 0..8 {
            let len = [0, 3, 40, 5000, 900_000][(random() % 5) as usize];
            let mut bytes: Vec<u8> = Vec::with_capacity(len);
            // A header that is believed, as often as not, and lengths that are not.
            if random() % 2 == 0 {
                bytes = peer.encoded::<U64Keys>(&Request::Stats);
                bytes[0] = (random() % 13) as u8;
            }
            bytes.resize_with(len.max(bytes.len()), || random() as u8);
            let _ = peer.send(&bytes);
        }
    }
    node.end_unharmed("garbage");
}

#[test]
fn connections_that_say_nothing() {
    let node = Node::start(&[]);
    let peers: Vec<Peer> = (0..300).map(|_| node.connect("default")).collect();
    for peer in &peers {
        peer.call(&Request::Stats).unwrap();
    }
    drop(peers);
    node.end_unharmed("300 connections");
}
