//! Bits of records that are flipped in memory, and what is written beside them.

use std::borrow::Borrow;

use fpcache::key_space::KeySpace;
use fpcache::layout::{RecordToken, SLOT_WORD_BYTES};
use fpcache::message::{WriteKind, WriteStatus};
use fpcache_fabric::{NodeMemory, Service};
use fpcache_memserver::durability::Disk;

use super::keys::TestKeys;
use super::requests::{Writer, value};
use super::world::{Mortal, Node, REGION, World};

/// The key whose record is damaged: one that is loaded, in the middle of the table.
pub const KEY: u64 = 25_000;
/// Keys are loaded so far apart.
pub const APART: u64 = 50;

/// Bits that are flipped: twice, and the record is whole again.
pub struct Flip {
    pub what: &'static str,
    pub at: u64,
    pub mask: u8,
    /// Whether the slot still says whose record it is.
    pub has_key: bool,
}

impl Flip {
    pub fn apply(&self, region: &Mortal) {
        let mut byte = [0];
        region.read_bytes(self.at, &mut byte).expect("inside");
        region.write_bytes(self.at, &[byte[0] ^ self.mask]).expect("inside");
    }
}

/// What of the key's record is damaged, one after the other.
pub fn flips<T: TestKeys>(region: &Mortal) -> Vec<Flip> {
    flips_of::<T>(region, KEY, 0)
}

/// The encoded key and the value of a key's record after its `n`-th write.
pub fn record_of<T: TestKeys>(key: u64, n: u64) -> Vec<u8> {
    let encoded = T::key(key);
    let mut record = vec![0; T::Space::encoded_len(encoded.borrow())];
    T::Space::encode(encoded.borrow(), &mut record);
    record.extend(value::<T>(key, n, 8));
    record
}

/// Where a record lies in a live slot.
pub fn place_of<T: TestKeys>(region: &Mortal, record: &[u8]) -> u64 {
    let mut all = vec![0; REGION];
    region.read_bytes(0, &mut all).expect("all of it");
    let word = |at: usize| at - T::shape(8).head_bytes() - SLOT_WORD_BYTES;
    let is_live = |at: &usize| all[word(*at)] & 3 == 2;
    let mut found = (64..all.len() - record.len()).filter(|at| all[*at..].starts_with(record));
    found.find(is_live).expect("it lies somewhere") as u64
}

pub fn flips_of<T: TestKeys>(region: &Mortal, key: u64, n: u64) -> Vec<Flip> {
    let record = record_of::<T>(key, n);
    let at = place_of::<T>(region, &record);
    let end = at + record.len() as u64;
    let shape = T::shape(8);
    let body = at - shape.head_bytes() as u64;
    let flip = |what, at, mask| Flip { what, at, mask, has_key: true };
    let state = body - SLOT_WORD_BYTES as u64;
    let mut flips = vec![
        flip("the value", end - 1, 0xff),
        flip("the slot's state, which is that of a frozen one", state, 1),
        flip("the slot's state, which is that of a free one", state, 2),
        flip("the slot's state, which is that of a busy one", state, 3),
        flip("the version", state + 1, 0x10),
        Flip { has_key: false, ..flip("the key", at, 0x20) },
    ];
    if shape.key_bytes.is_none() {
        let of_key = if shape.value_bytes.is_none() { 5 } else { 1 };
        flips.push(Flip { has_key: false, ..flip("the key's length", body + of_key, 0x40) });
    }
    if shape.value_bytes.is_none() {
        flips.push(flip("the value's length", body + 3, 0x40));
    }
    flips
}

pub fn put<T: TestKeys>(writer: &mut Writer<T>, node: &mut Node<T>, key: u64) -> WriteStatus {
    writer.one(node, WriteKind::Put, key, RecordToken::default(), &value::<T>(key, 1, 8)).status
}

/// Keys that belong beside the damaged one's, and are not loaded.
pub fn around() -> impl Iterator<Item = u64> {
    (KEY - 300..KEY + 300).filter(|key| key % APART != 0)
}

pub fn take_snapshot<T: TestKeys>(node: &mut Node<T>) {
    node.begin_snapshot();
    (0..1000).for_each(|_| _ = node.work());
}

pub fn snapshots(world: &World) -> Vec<String> {
    let names = world.disk.list().expect("a disk");
    names.into_iter().filter(|name| name.ends_with(".fps")).collect()
}
