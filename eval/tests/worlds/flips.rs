//! Bits that flip in a region: of live records and their fingerprints, of values outside them, of
//! free slots, and of tables of groups.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use fpcache::layout::{RecordParts, SLOT_WORD_BYTES, SlotWord, Stored};
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_fabric::NodeMemory;
use fpcache_memserver::{MemoryNode, RecordPlace};
use fpcache_sim::{Random, SimMemory};

/// How many flip.
#[derive(Clone, Debug)]
pub struct Flips {
    /// One turn of the memory node's loop in this many has one flip, if there is something to flip.
    pub often: u64,
    /// How many there are at most.
    pub most: u64,
    /// The keys to whose records and segments that happens.
    pub keys: Vec<u64>,
    /// How often each of these is chosen, in proportion.
    pub targets: [(Target, u64); 4],
    /// Whether every record that is damaged still shows whose it is: neither its fingerprint nor
    /// its key is damaged.
    pub shows_keys: bool,
}

/// What flips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Record,
    Value,
    FreeSlot,
    Groups,
}

/// Those that have flipped.
#[derive(Clone, Debug, Default)]
pub struct Flipped {
    pub count: u64,
    pub of: BTreeMap<Target, u64>,
    /// The keys of damaged records, each with the number of its last flip.
    pub keys: BTreeMap<u64, u64>,
    /// Keys of records whose fingerprint it was, which no checksum covers, or the key itself, by
    /// which slots are searched; and where it became another one, that one.
    pub unsure: BTreeSet<u64>,
    /// Whether no more do.
    pub is_over: bool,
}

type Node<K> = MemoryNode<K, SimMemory>;

/// A bit of a region.
#[derive(Clone, Copy, Debug)]
struct Bit(u64);

impl Bit {
    fn byte(self) -> u64 {
        self.0 / 8
    }

    fn flip(self, region: &SimMemory) {
        let (word, bit) = (self.0 / 64 * 8, self.0 % 64);
        let bits = region.load_relaxed(word).unwrap();
        region.store_relaxed(word, bits ^ 1 << bit).unwrap();
    }
}

impl Flipped {
    /// Flips a bit of the record or the segment of some key, if there is one that is as it was
    /// written.
    pub fn one_more<K: NumberedKeys>(&mut self, flips: &Flips, node: &mut Node<K>, random: &mut Random) {
        if self.is_over || self.count >= flips.most {
            return;
        }
        let all = flips.targets.iter().map(|(_, weight)| weight).sum();
        let (mut target, mut at) = (Target::Record, random.below(all));
        for (this, weight) in flips.targets {
            if at < weight {
                target = this;
                break;
            }
            at -= weight;
        }
        // Few keys have values outside, and some segments no free slots.
        let first = random.below(flips.keys.len() as u64) as usize;
        let keys = flips.keys[first..].iter().chain(&flips.keys[..first]).take(8);
        let found = keys.copied().find_map(|key| {
            let bit = match target {
                Target::Groups => of_groups(node, key, random),
                Target::FreeSlot => of_free_slot(node, key, random),
                Target::Value | Target::Record => self.of_record(flips, node, (key, target), random),
            };
            bit.map(|bit| (key, bit))
        });
        let Some((key, bit)) = found else { return };
        bit.flip(node.region());
        self.count += 1;
        *self.of.entry(target).or_default() += 1;
        if matches!(target, Target::Record | Target::Value) {
            self.keys.insert(key, self.count);
        }
    }

    /// A bit of a key's record, or of what it has outside; notes the keys it makes unsure.
    fn of_record<K: NumberedKeys>(
        &mut self,
        flips: &Flips,
        node: &mut Node<K>,
        (key, target): (u64, Target),
        random: &mut Random,
    ) -> Option<Bit> {
        let place = node.place_of(K::key(key).borrow())?;
        let bit = match target {
            Target::Value => of_value(node, &place, random)?,
            _ => any_bit(&place, random),
        };
        let now = would_read_as(node, &place, bit);
        if now != Some(key) || place.fingerprint.contains(&bit.byte()) {
            if flips.shows_keys {
                return None;
            }
            self.keys.extend(now.map(|now| (now, self.count + 1)));
            self.unsure.extend(now.into_iter().chain([key]));
        }
        Some(bit)
    }

    /// A write of a key was done that began after `flips` flips: if it has had none since, its
    /// record is whole.
    pub fn is_written(&mut self, key: u64, flips: u64) {
        if self.keys.get(&key).is_some_and(|last| *last <= flips) {
            self.keys.remove(&key);
        }
    }
}

/// The key that a record has once this bit of it has flipped: writes of that one may take it for
/// theirs.
fn would_read_as<K: NumberedKeys>(node: &Node<K>, place: &RecordPlace, bit: Bit) -> Option<u64> {
    let mut slot = vec![0; (place.slot.end - place.slot.start) as usize];
    node.region().read_bytes(place.slot.start, &mut slot).unwrap();
    if place.slot.contains(&bit.byte()) {
        slot[(bit.byte() - place.slot.start) as usize] ^= 1 << (bit.0 % 8);
    }
    let key = K::small_segments().shape.key::<K>(&slot[SLOT_WORD_BYTES..])?;
    Some(K::number(K::view(key)?.borrow()))
}

/// A slot's state is the least bits of its word.
const STATE: u64 = 2;

/// A bit of a slot's word beside its state and the mark of a group, which is no part of the record.
fn any_of_word(word: u64, random: &mut Random) -> Bit {
    const MARK: u64 = 31;
    loop {
        match random.between(STATE, 63) {
            MARK => {}
            bit => return Bit(word + bit),
        }
    }
}

/// Which bit of a record: of the slot's state or the rest of its word, of what comes after it, or
/// of the fingerprint.
fn any_bit(place: &RecordPlace, random: &mut Random) -> Bit {
    let (word, end) = (place.slot.start * 8, place.slot.end * 8);
    let fingerprint = place.fingerprint.start * 8..place.fingerprint.end * 8;
    match random.below(4) {
        0 => Bit(word + random.below(STATE)),
        1 => any_of_word(word, random),
        2 if !fingerprint.is_empty() => Bit(random.between(fingerprint.start, fingerprint.end - 1)),
        _ => Bit(random.between(word + 64, end - 1)),
    }
}

/// A bit of a value outside, or of what its slot says of that: the state, or lengths and place.
fn of_value<K: NumberedKeys>(node: &Node<K>, place: &RecordPlace, random: &mut Random) -> Option<Bit> {
    let mut slot = vec![0; (place.slot.end - place.slot.start) as usize];
    node.region().read_bytes(place.slot.start, &mut slot).unwrap();
    let RecordParts { value, .. } = K::small_segments().shape.parts::<K>(&slot[SLOT_WORD_BYTES..])?;
    let Stored::External(extent) = value else { return None };
    let word = place.slot.start * 8;
    Some(match random.below(3) {
        0 => Bit(extent.address.offset() * 8 + random.below(u64::from(extent.bytes) * 8)),
        1 => Bit(word + random.below(STATE)),
        _ => Bit(word + 64 + random.below(64)),
    })
}

/// A bit of the word or the fingerprint of some free slot in a key's segment. The record that was
/// in it may be the key's own.
fn of_free_slot<K: NumberedKeys>(node: &Node<K>, key: u64, random: &mut Random) -> Option<Bit> {
    let slots = node.segment_of(K::key(key).borrow())?.slots;
    let RecordPlace { slot, fingerprint } = &slots[random.below(slots.len() as u64) as usize];
    let mut stored = vec![0; (fingerprint.end - fingerprint.start) as usize];
    node.region().read_bytes(fingerprint.start, &mut stored).unwrap();
    let word = SlotWord::from_bits(node.region().load_relaxed(slot.start).unwrap());
    if !word.is_free() || stored.iter().any(|byte| *byte != 0) {
        return None;
    }
    Some(match random.below(5) {
        0 | 1 => Bit(slot.start * 8 + random.below(STATE)),
        2 if !stored.is_empty() => Bit(random.between(fingerprint.start * 8, fingerprint.end * 8 - 1)),
        _ => any_of_word(slot.start * 8, random),
    })
}

/// A bit of the table of groups of a key's segment.
fn of_groups<K: NumberedKeys>(node: &Node<K>, key: u64, random: &mut Random) -> Option<Bit> {
    let table = node.segment_of(K::key(key).borrow())?.table;
    (!table.is_empty()).then(|| Bit(random.between(table.start * 8, table.end * 8 - 1)))
}
