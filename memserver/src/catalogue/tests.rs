use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpcache::key_space::KeyKind;
use fpcache::map::RangeMap;
use fpcache::message::tables::MOST_LISTED;
use fpcache::message::{NodeStats, RangeRequest, TablesPage};
use fpcache_fabric::SharedMemory;

use crate::budget::Grant;
use crate::catalogue::CatalogueConfig;
use crate::catalogue::closed::ClosedTable;
use crate::catalogue::error::TableOpenError;
use crate::catalogue::hosted::{Hosted, HostedTable};

/// What a table of a test says about its work, and how often it was asked.
#[derive(Debug)]
pub(super) struct Script {
    asked: AtomicU32,
    says: Mutex<Work>,
    has_no_room: AtomicBool,
    pub(super) panics_at_end: AtomicBool,
    /// How often it was asked what it holds.
    counted: AtomicU32,
}

impl Script {
    fn new(says: Work) -> Arc<Self> {
        Arc::new(Self {
            asked: AtomicU32::new(0),
            says: Mutex::new(says),
            has_no_room: AtomicBool::default(),
            panics_at_end: AtomicBool::default(),
            counted: AtomicU32::new(0),
        })
    }

    fn asked(&self) -> u32 {
        self.asked.swap(0, Ordering::Relaxed)
    }
}

/// A table that does what its script says, and answers later than asked.
#[derive(Debug)]
struct Scripted {
    script: Arc<Script>,
    region: Arc<SharedMemory>,
    owed: Vec<ClientId>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        assert!(!self.script.panics_at_end.load(Ordering::Relaxed), "a panic of a test");
    }
}

impl Service for Scripted {
    fn has_room(&self, _: ClientId, _: usize) -> bool {
        !self.script.has_no_room.load(Ordering::Relaxed)
    }

    fn handle(&mut self, client: ClientId, _: &[u8], _: &mut Vec<u8>) -> Handled {
        self.owed.push(client);
        Handled::Later
    }

    fn next_reply(&mut self, _: &mut Vec<u8>) -> Option<ClientId> {
        self.owed.pop()
    }

    fn work(&mut self) -> Work {
        self.script.asked.fetch_add(1, Ordering::Relaxed);
        *self.script.says.lock().expect("no panic while it was held")
    }
}

impl Hosted for Scripted {
    fn stats(&self) -> NodeStats {
        self.script.counted.fetch_add(1, Ordering::Relaxed);
        NodeStats::default()
    }

    fn region(&self) -> &Arc<SharedMemory> {
        &self.region
    }

    fn grant(&self) -> Arc<Grant> {
        Grant::whole(self.region.len() as u64)
    }
}

pub(super) fn name(i: usize) -> TableName {
    format!("t{i}").parse().expect("a name")
}

/// A catalogue of tables that say this, each asked once.
pub(super) fn catalogue(says: &[Work]) -> (Catalogue, Vec<Arc<Script>>) {
    let config = CatalogueConfig::of(1 << 20);
    let mut catalogue = Catalogue::open(&config).expect("memory");
    let scripts: Vec<_> = says.iter().map(|says| Script::new(*says)).collect();
    for (i, script) in scripts.iter().enumerate() {
        let region = Arc::new(SharedMemory::anonymous(4096).expect("memory"));
        let node = Box::new(Scripted { script: Arc::clone(script), region, owed: Vec::new() });
        let (export, waker) = (catalogue.lobby.export(), catalogue.waker.beside());
        let (name, kind) = (name(i), KeyKind::U64);
        let table =
            HostedTable { name, kind, node, export, waker, recovery: None, descriptors: None, map: None };
        catalogue.tables.push(Some(table));
        catalogue.numbers.insert(name, i);
        catalogue.work_queue.touch(i);
    }
    (catalogue, scripts)
}

#[test]
fn a_table_with_endless_work_keeps_no_other_from_its_turn() {
    let (mut catalogue, scripts) = catalogue(&[Work::More, Work::More, Work::Nothing]);
    for _ in 0..100 {
        assert_eq!(catalogue.work(), Work::More);
    }
    assert_eq!(scripts.iter().map(|script| script.asked()).collect::<Vec<_>>(), [50, 50, 1]);
    // A request to the third one is looked after in the next round but one at the latest.
    catalogue.connected(ClientId(1), b"t2");
    assert_eq!(catalogue.handle(ClientId(1), b"", &mut Vec::new()), Handled::Later);
    catalogue.work();
    catalogue.work();
    catalogue.work();
    assert_eq!(scripts[2].asked(), 1);
}

#[test]
fn tables_that_have_nothing_to_do_are_not_asked() {
    let (mut catalogue, scripts) = catalogue(&[Work::Nothing; 50]);
    let asked = |scripts: &[Arc<Script>]| -> Vec<usize> {
        (0..scripts.len()).filter(|i| scripts[*i].asked() > 0).collect()
    };
    assert_eq!(catalogue.work(), Work::Nothing);
    assert_eq!(asked(&scripts).len(), 50);
    assert_eq!(catalogue.work(), Work::Nothing);
    assert_eq!(asked(&scripts), []);
    // But for a request of their own, a wake, and a time that has come.
    catalogue.connected(ClientId(1), b"t7");
    catalogue.handle(ClientId(1), b"", &mut Vec::new());
    catalogue.work();
    assert_eq!(asked(&scripts), [7]);
    assert_eq!(catalogue.next_reply(&mut Vec::new()), Some(ClientId(1)));
    assert_eq!(catalogue.next_reply(&mut Vec::new()), None);
    let waker = catalogue.tables[9].as_ref().expect("it is there").waker.clone();
    let at = Instant::now() + Duration::from_millis(5);
    *scripts[9].says.lock().expect("free") = Work::At(at);
    waker.wake();
    assert_eq!(catalogue.work(), Work::At(at));
    assert_eq!(asked(&scripts), [9]);
    *scripts[9].says.lock().expect("free") = Work::Nothing;
    std::thread::sleep(Duration::from_millis(6));
    assert_eq!(catalogue.work(), Work::Nothing);
    assert_eq!(asked(&scripts), [9]);
}

/// A request about tables, as a client sends it.
pub(super) fn ask(catalogue: &mut Catalogue, client: u64, request: &TablesRequest) -> (Handled, Vec<u8>) {
    let (mut bytes, mut reply) = (Vec::new(), Vec::new());
    request.encode(&mut bytes);
    let handled = catalogue.handle(ClientId(client), &bytes, &mut reply);
    (handled, reply)
}

/// A table whose end takes long, and says so.
#[derive(Debug)]
struct Lasting(Scripted, Arc<AtomicU32>);

impl Service for Lasting {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        self.0.handle(client, request, reply)
    }
}

impl Hosted for Lasting {
    fn stats(&self) -> NodeStats {
        self.0.stats()
    }

    fn region(&self) -> &Arc<SharedMemory> {
        self.0.region()
    }

    fn grant(&self) -> Arc<Grant> {
        self.0.grant()
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        while self.1.load(Ordering::Acquire) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_table_that_is_made_or_dropped_keeps_no_other_waiting() {
    let (mut catalogue, scripts) = catalogue(&[Work::Nothing, Work::More]);
    let may_end = Arc::new(AtomicU32::new(0));
    let table = catalogue.tables[0].as_mut().expect("it is there");
    let region = Arc::new(SharedMemory::anonymous(4096).expect("memory"));
    let scripted = Scripted { script: Script::new(Work::Nothing), region, owed: Vec::new() };
    table.node = Box::new(Lasting(scripted, Arc::clone(&may_end)));
    for (client, region) in [(1, &b"t0"[..]), (2, b"t1"), (3, b"")] {
        catalogue.connected(ClientId(client), region);
    }
    let (dropped, made) =
        (name(0), TablesRequest::Create { name: name(0), kind: KeyKind::U64, region_bytes: None });
    assert_eq!(ask(&mut catalogue, 3, &TablesRequest::Drop { name: dropped }).0, Handled::Later);
    // The table's name is taken until it is gone.
    assert_eq!(ask(&mut catalogue, 2, &made).0, Handled::Later);
    let (handled, reply) = ask(&mut catalogue, 1, &TablesRequest::List { after: None });
    assert_eq!((handled, fpcache::message::decode_reply(&reply).is_ok()), (Handled::Now, true));
    scripts[1].asked();
    for _ in 0..100 {
        assert_eq!(catalogue.work(), Work::More);
        assert_eq!(catalogue.next_reply(&mut reply.clone()), None);
        assert_eq!(catalogue.next_farewell(), None, "not before it is gone");
    }
    assert_eq!(scripts[1].asked(), 100);
    may_end.store(1, Ordering::Release);
    let mut answered = Vec::new();
    while answered.len() < 2 {
        catalogue.work();
        let mut reply = Vec::new();
        while let Some(client) = catalogue.next_reply(&mut reply) {
            answered.push((client, fpcache::message::decode_reply(&reply).is_ok()));
        }
    }
    assert_eq!(answered, [(ClientId(3), true), (ClientId(2), true)]);
    assert_eq!(catalogue.next_farewell(), Some(ClientId(1)));
    assert!(catalogue.export(b"t0").is_some());
    let (handled, reply) = ask(&mut catalogue, 3, &made);
    let refusal = fpcache::message::decode_reply(&reply).expect_err("it is there");
    assert_eq!((handled, refusal.code), (Handled::Now, ErrorCode::TableExists));
}

/// Each page asked all tables after it what they hold.
#[test]
fn a_page_of_the_list_asks_as_many_tables_as_it_names() {
    let (mut catalogue, scripts) = catalogue(&[Work::Nothing; 1200]);
    for i in 2000..2600 {
        let why = TableOpenError::Descriptors { needed: 8, left: 0 };
        catalogue.closed.insert(name(i), ClosedTable { kind: KeyKind::U64, why, left: None });
    }
    let (mut after, mut listed) = (None, Vec::new());
    loop {
        let (_, reply) = ask(&mut catalogue, 1, &TablesRequest::List { after });
        let page =
            TablesPage::decode(fpcache::message::decode_reply(&reply).expect("a page")).expect("a page");
        let counted: u32 = scripts.iter().map(|script| script.counted.swap(0, Ordering::Relaxed)).sum();
        assert!(counted as usize <= MOST_LISTED + 1, "{counted} tables");
        listed.extend(page.tables.iter().map(|table| table.name));
        after = listed.last().copied();
        if !page.has_more {
            break;
        }
    }
    let all: BTreeSet<TableName> = (0..1200).chain(2000..2600).map(name).collect();
    assert!(listed.into_iter().eq(all));
}

#[test]
fn clients_of_a_dropped_table_are_parted_with_and_their_requests_refused() {
    let (mut catalogue, _) = catalogue(&[Work::More, Work::More]);
    for (client, region) in [(1, &b"t0"[..]), (2, b"t1"), (3, b"t0"), (4, b"")] {
        assert!(catalogue.export(region).is_some());
        catalogue.connected(ClientId(client), region);
    }
    catalogue.drop_table(&name(0)).expect("it is there");
    assert!(catalogue.export(b"t0").is_none() && catalogue.export(b"t1").is_some());
    let mut reply = Vec::new();
    assert_eq!(catalogue.handle(ClientId(1), &[1, 0, 5, 0, 0, 0, 0, 0], &mut reply), Handled::Now);
    let refusal = fpcache::message::decode_reply(&reply).expect_err("its table is gone");
    assert_eq!(refusal.code, ErrorCode::NoSuchTable);
    let mut parted = Vec::from_iter(std::iter::from_fn(|| catalogue.next_farewell()));
    parted.sort();
    assert_eq!(parted, [ClientId(1), ClientId(3)]);
    parted.into_iter().for_each(|client| catalogue.disconnected(client));
    // Its number may be another's by now.
    assert_eq!(catalogue.work(), Work::More);
    assert_eq!(catalogue.handle(ClientId(2), b"", &mut reply), Handled::Later);
    for region in [&b"t0"[..], b"../t1", b"t1\0", &[0xff; 65]] {
        assert!(catalogue.export(region).is_none());
    }
}

#[test]
fn a_table_without_room_for_long_requests_keeps_only_its_own_clients_waiting() {
    let (mut catalogue, scripts) = catalogue(&[Work::Nothing; 3]);
    let clients = [(1, "t0"), (2, "t1"), (3, "t0"), (4, ""), (5, "t2"), (6, "")];
    for (client, region) in clients {
        catalogue.connected(ClientId(client), region.as_bytes());
    }
    let room = |catalogue: &Catalogue, client| catalogue.room_of(ClientId(client));
    for (client, region) in clients {
        for (other, of_other) in clients {
            let is_same = room(&catalogue, client) == room(&catalogue, other);
            assert_eq!(is_same, region == of_other, "{client} and {other}");
        }
    }
    scripts[0].has_no_room.store(true, Ordering::Relaxed);
    let have_room =
        |catalogue: &Catalogue| [1, 2, 3, 4, 5].map(|client| catalogue.has_room(ClientId(client), 1 << 20));
    assert_eq!(have_room(&catalogue), [false, true, false, true, true]);
    // A client whose table is gone waits for no room, and is not taken for a client of the next
    // table of that number.
    catalogue.drop_table(&name(0)).expect("it is there");
    assert_eq!(have_room(&catalogue), [true; 5]);
    catalogue.create(name(8), KeyKind::U64, None).expect("room");
    catalogue.connected(ClientId(7), b"t8");
    assert_ne!(room(&catalogue, 7), room(&catalogue, 1));
    assert!(room(&catalogue, 7) != room(&catalogue, 2) && room(&catalogue, 1) == room(&catalogue, 4));
}

#[test]
fn a_map_that_names_files_of_its_readers_is_refused() {
    let (mut catalogue, _) = catalogue(&[]);
    let refusal = |catalogue: &mut Catalogue, node: &str| {
        let nodes = [node.to_owned(), "tcps://two:1".to_owned()];
        let map = RangeMap::divide(name(7), KeyKind::U64, 5, &nodes, &[vec![7; 8]]).expect("a map");
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        RangeRequest::Create { map, number: 0, region_bytes: None }.encode(&mut request);
        if catalogue.handle(ClientId(1), &request, &mut reply) == Handled::Later {
            while catalogue.next_reply(&mut reply).is_none() {
                catalogue.work();
            }
        }
        fpcache::message::decode_reply(&reply).map(drop)
    };
    for node in ["tcps://one:1?ca=/etc/passwd", "tcps://one:1?cert=c.pem&key=k.pem"] {
        let refusal = refusal(&mut catalogue, node).expect_err("it names files");
        assert_eq!(refusal.code, ErrorCode::Invalid);
        assert!(refusal.message.contains(node) && refusal.message.contains("FPCACHE_TLS_CA"), "{refusal}");
    }
    refusal(&mut catalogue, "rdma://one:7471?gid=1").expect("which card is no secret");
}

/// A copy of the folder would lack what its notes alone have.
#[test]
fn a_closed_table_whose_notes_alone_have_entries_is_no_good_end() {
    use crate::durability::{DiskError, LogError};
    use crate::recovery::RecoverError;
    let (mut catalogue, _) = catalogue(&[Work::Nothing]);
    assert!(catalogue.end_logs().is_ok());
    let full = DiskError::new("appending to", "a log", std::io::ErrorKind::StorageFull.into());
    let source =
        RecoverError::NotOnDisk { first: 3, last: 7, source: LogError::Write { from: 3, source: full } };
    let why = TableOpenError::Recover { folder: "a".into(), source: Box::new(source) };
    catalogue.closed.insert(name(7), ClosedTable { kind: KeyKind::U64, why, left: None });
    let told = catalogue.end_logs().expect_err("entries are in its notes alone").to_string();
    assert!(told.contains("`t7` 5 entries") && told.contains("notes.fpn alone"), "{told}");
}
