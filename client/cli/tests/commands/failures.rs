//! Commands that fail midway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fpcache::message::{ErrorCode, NodeStats, Refusal, WriteReply, WriteStatus, decode_reply, encode_reply};
use fpcache_fabric::{ClientId, Export, Handled, Service, Waker, Work};
use serde_json::Value;

use super::*;

/// Requests, as `fpcache::message` draws them: for figures, with records of a load and for its end,
/// and to change records.
pub const STATS: u8 = 1;
const LOAD_CHUNK: u8 = 3;
const LOAD_COMMIT: u8 = 4;
const WRITE: u8 = 6;

/// A memory node with other answers to some requests.
pub struct Otherwise<F> {
    pub catalogue: Catalogue,
    pub handle: F,
}

impl<F> Service for Otherwise<F>
where
    F: FnMut(&mut Catalogue, ClientId, &[u8], &mut Vec<u8>) -> Handled + Send,
{
    fn export(&mut self, name: &[u8]) -> Option<Export> {
        self.catalogue.export(name)
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        (self.handle)(&mut self.catalogue, client, request, reply)
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        self.catalogue.next_reply(reply)
    }

    fn next_farewell(&mut self) -> Option<ClientId> {
        self.catalogue.next_farewell()
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

#[test]
fn removals_that_are_not_logged_are_told_among_the_others_in_json() {
    let is_full = Arc::new(AtomicBool::new(false));
    let disk = Arc::clone(&is_full);
    // The second of three changes finds no room in the log.
    let handle = move |catalogue: &mut Catalogue, client, request: &[u8], reply: &mut Vec<u8>| {
        if request[0] != WRITE || !disk.load(Ordering::SeqCst) {
            return catalogue.handle(client, request, reply);
        }
        let said = [WriteStatus::Done, WriteStatus::NotDurable, WriteStatus::Absent]
            .map(|status| WriteReply { status, token: None }.encode());
        encode_reply(Ok(said.as_flattened()), reply);
        Handled::Now
    };
    let node = Node::serving::<U64Keys, _>(8 << 20, |catalogue| Otherwise { catalogue, handle });
    node.ends_with(0, "create");
    is_full.store(true, Ordering::SeqCst);
    let output = node.run(["del", "1", "2", "3", "--json"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.code() == Some(2) && err.contains("could not log the write of key 2"),
        "{output:?}"
    );
    let told: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{out}: {error}"));
    let done: Vec<bool> = told.as_array().unwrap().iter().map(|d| d["done"].as_bool().unwrap()).collect();
    assert_eq!(done, [true, false, false]);
}

/// Makes figures those of a table without segments, as of one that is given its parameters just
/// after.
fn without_segments(reply: &mut Vec<u8>) {
    let (told, mut body) = (NodeStats::decode(decode_reply(reply).unwrap()).unwrap(), Vec::new());
    NodeStats { segments: 0, ..told }.encode(&mut body);
    encode_reply(Ok(&body), reply);
}

/// A memory node that tells no figures once records were sent, and no segments before.
fn taciturn() -> Node {
    let mut is_sent = false;
    let handle = move |catalogue: &mut Catalogue, client, request: &[u8], reply: &mut Vec<u8>| {
        is_sent |= matches!(request[0], LOAD_CHUNK | WRITE);
        if request[0] == STATS && is_sent {
            encode_reply(Err(&Refusal::new(ErrorCode::Internal, "nothing more is told")), reply);
            return Handled::Now;
        }
        let handled = catalogue.handle(client, request, reply);
        if request[0] == STATS {
            without_segments(reply);
        }
        handled
    };
    Node::serving::<U64Keys, _>(16 << 20, |catalogue| Otherwise { catalogue, handle })
}

#[test]
fn a_load_that_is_done_is_no_failure_though_its_figures_cannot_be_asked() {
    let node = taciturn();
    let (out, _) = node.ends_with(0, "load sequential:1000");
    assert!(out.contains("keys        1000\nsegments    ") && !out.contains("memory"), "{out}");
    let node = taciturn();
    let told = node.json(0, "load sequential:1000 --json");
    assert!(told["segments"].is_u64() && told["keys_per_segment"].is_f64(), "{told}");
    assert!(told["used_bytes"].is_null() && told["bytes_per_key"].is_null(), "{told}");
    // One that has parameters by the time records come has them inserted.
    let node = taciturn();
    node.ends_with(0, "create");
    let (out, _) = node.ends_with(0, "load sequential:1000");
    assert!(out.contains("keys        1000\n"), "{out}");
    assert!(!out.contains("segments") && !out.contains("memory"), "{out}");
    assert_eq!(node.ends_with(0, "count").0, "1000\n");
    let node = taciturn();
    node.ends_with(0, "create");
    let told = node.json(0, "load sequential:1000 --json");
    assert!(told["segments"].is_null() && told["keys_per_segment"].is_null(), "{told}");
}

#[test]
fn a_load_without_an_answer_may_be_there_only_if_all_of_it_was_sent() {
    let is_told = |silent, may_be_there| {
        let handle = move |catalogue: &mut Catalogue, client, request: &[u8], reply: &mut Vec<u8>| {
            if request[0] == silent { Handled::Later } else { catalogue.handle(client, request, reply) }
        };
        let node = Node::serving::<U64Keys, _>(16 << 20, |catalogue| Otherwise { catalogue, handle });
        let (_, err) = node.ends_with(2, "load sequential:1000 --table new --deadline 3s");
        assert_eq!(err.contains("may have succeeded"), may_be_there, "{err}");
        let tables = node.ends_with(0, "tables").0;
        assert_eq!(tables.contains("\nnew "), may_be_there, "{tables}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| is_told(LOAD_CHUNK, false));
        scope.spawn(|| is_told(LOAD_COMMIT, true));
    });
}

/// Into a table that has its parameters records are inserted as they come.
#[test]
fn of_a_load_that_breaks_off_midway_a_part_may_be_there() {
    let mut writes = 0;
    let handle = move |catalogue: &mut Catalogue, client, request: &[u8], reply: &mut Vec<u8>| {
        writes += usize::from(request[0] == WRITE);
        if writes > 1 && request[0] == WRITE {
            return Handled::Later;
        }
        let handled = catalogue.handle(client, request, reply);
        if request[0] == STATS {
            without_segments(reply);
        }
        handled
    };
    let node = Node::serving::<U64Keys, _>(64 << 20, |catalogue| Otherwise { catalogue, handle });
    node.ends_with(0, "create");
    let (_, err) = node.ends_with(2, "load sequential:200000 --deadline 3s");
    assert!(err.contains("a part of the records may be there"), "{err}");
    assert!(!err.contains("may have succeeded"), "{err}");
    assert_ne!(node.ends_with(0, "count").0, "0\n");
}

/// All that was said was to read "the record" before writing it again.
#[test]
fn records_that_were_being_added_are_to_be_added_again() {
    let mut writes = 0;
    let handle = move |catalogue: &mut Catalogue, client, request: &[u8], reply: &mut Vec<u8>| {
        writes += usize::from(request[0] == WRITE);
        if writes > 1 && request[0] == WRITE {
            Handled::Later
        } else {
            catalogue.handle(client, request, reply)
        }
    };
    let node = Node::serving::<U64Keys, _>(64 << 20, |catalogue| Otherwise { catalogue, handle });
    node.ends_with(0, "create");
    let (_, err) = node.ends_with(2, "load sequential:200000 --deadline 3s");
    assert!(
        err.contains("a part of the records may be there") && err.contains("same command again"),
        "{err}"
    );
    assert!(err.contains("and the first 1024 are") && !err.contains("read the record"), "{err}");
}

#[test]
fn json_is_whole_though_a_value_cannot_be_shown() {
    let node = Node::start(8 << 20);
    node.ends_with(0, "create --value-bytes vary");
    node.ends_with(0, "put 1 short");
    node.ends_with(0, "put 2 longer_than_a_number");
    let told = node.json(2, "scan --json --format int");
    assert_eq!(told.as_array().unwrap().len(), 1, "{told}");
}
