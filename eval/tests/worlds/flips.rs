//! Bits that flip in a region, of live records and their fingerprints.

use std::borrow::Borrow;
use std::collections::BTreeSet;

use fpcache::layout::SLOT_WORD_BYTES;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_fabric::NodeMemory;
use fpcache_memserver::{MemoryNode, RecordPlace};
use fpcache_sim::{Random, SimMemory};

/// How many flip.
#[derive(Clone, Debug)]
pub struct Flips {
    /// One turn of the memory node's loop in so many has one flip, if there is a record.
    pub often: u64,
    /// How many there are at most.
    pub most: u64,
    /// The keys to whose records that happens.
    pub keys: Vec<u64>,
}

/// Those that have flipped.
#[derive(Clone, Debug, Default)]
pub struct Flipped {
    pub count: u64,
    /// The keys of these records.
    pub keys: BTreeSet<u64>,
    /// Those of them whose fingerprint it was, which no checksum covers, or the key itself, by which slots
    /// are searched; and where it became another one, that one.
    pub unsure: BTreeSet<u64>,
    /// Whether no more do.
    pub is_over: bool,
}

impl Flipped {
    /// Flips a bit of the record of some key, if that has one that is whole.
    pub fn one_more<K: NumberedKeys>(
        &mut self,
        flips: &Flips,
        node: &mut MemoryNode<K, SimMemory>,
        random: &mut Random,
    ) {
        if self.is_over || self.count >= flips.most {
            return;
        }
        let key = flips.keys[random.below(flips.keys.len() as u64) as usize];
        let Some(place) = node.place_of(K::key(key).borrow()) else { return };
        let at = any_bit(&place, random);
        let (word, bit) = (at / 64 * 8, at % 64);
        let bits = node.region().load_relaxed(word).unwrap();
        node.region().store_relaxed(word, bits ^ 1 << bit).unwrap();
        self.count += 1;
        self.keys.insert(key);
        let now = reads_as(node, &place);
        self.keys.extend(now);
        if now != Some(key) || place.fingerprint.contains(&(at / 8)) {
            self.unsure.extend(now.into_iter().chain([key]));
        }
    }
}

/// The key that a record has by now: writes of that one may take it for theirs.
fn reads_as<K: NumberedKeys>(node: &MemoryNode<K, SimMemory>, place: &RecordPlace) -> Option<u64> {
    let mut slot = vec![0; (place.slot.end - place.slot.start) as usize];
    node.region().read_bytes(place.slot.start, &mut slot).unwrap();
    let key = K::small_segments().shape.key::<K>(&slot[SLOT_WORD_BYTES..])?;
    Some(K::number(K::view(key)?.borrow()))
}

/// Which bit of the region: of the slot's state or the rest of its word, of what comes after it, or of
/// the fingerprint.
fn any_bit(place: &RecordPlace, random: &mut Random) -> u64 {
    const STATE: u64 = 2;
    /// The mark of a group, which is no part of the record.
    const MARK: u64 = 31;
    let (word, end) = (place.slot.start * 8, place.slot.end * 8);
    let fingerprint = place.fingerprint.start * 8..place.fingerprint.end * 8;
    match random.below(4) {
        0 => word + random.below(STATE),
        1 => loop {
            match random.between(STATE, 63) {
                MARK => {}
                bit => return word + bit,
            }
        },
        2 if !fingerprint.is_empty() => random.between(fingerprint.start, fingerprint.end - 1),
        _ => random.between(word + 64, end - 1),
    }
}
