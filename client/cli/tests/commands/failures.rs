//! Commands that fail in their midst.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fpcache::message::{WriteReply, WriteStatus, encode_reply};
use fpcache_fabric::{ClientId, Export, Handled, Service, Waker, Work};
use serde_json::Value;

use super::*;

/// Requests that change records, as `fpcache::message` draws them.
const WRITE: u8 = 6;

/// A memory node that cannot log the second of three changes once its disk is full.
struct OnADisk {
    catalogue: Catalogue,
    is_full: Arc<AtomicBool>,
}

impl Service for OnADisk {
    fn export(&mut self, name: &[u8]) -> Option<Export> {
        self.catalogue.export(name)
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        if request[0] != WRITE || !self.is_full.load(Ordering::SeqCst) {
            return self.catalogue.handle(client, request, reply);
        }
        let said = [WriteStatus::Done, WriteStatus::NotDurable, WriteStatus::Absent]
            .map(|status| WriteReply { status, token: None }.encode());
        encode_reply(Ok(said.as_flattened()), reply);
        Handled::Now
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
    let node = Node::serving::<U64Keys, _>(8 << 20, |catalogue| OnADisk {
        catalogue,
        is_full: Arc::clone(&is_full),
    });
    node.ends_with(0, "create");
    is_full.store(true, Ordering::SeqCst);
    let output = node.run(["del", "1", "2", "3", "--json"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.code() == Some(2) && err.contains("removal of key 2"), "{output:?}");
    let told: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{out}: {error}"));
    let done: Vec<bool> = told.as_array().unwrap().iter().map(|d| d["done"].as_bool().unwrap()).collect();
    assert_eq!(done, [true, false, false]);
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
