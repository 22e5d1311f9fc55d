//! The wire format of questions to the memory node and of its replies, for both sides.
//!
//! ```text
//! question                                     reply, for each key in order
//! 0  2  version, 1                             0  1  0 not looked up, 1 there, 2 absent
//! 2  1  what is wanted: 0 values, 1 presence   1  3  bytes of the value, where that is wanted
//! 3  1  zero                                   4  4  version of the record, if it is there
//! 4  4  keys, 1 to 64                          8     the value, padded to 8 bytes
//! 8     these, as in requests
//! ```
//! What lies after the reply's end is zeros, so that keys without an answer were not looked up.

use zerocopy::IntoBytes;

use crate::key_space::KeySpace;
use crate::layout::{SegmentGeometry, TableParameters};
use crate::message::keys::{put_key, take_key};
use crate::plan::{MOST_KEYS, Plan};
use crate::read::outcome::Outcome;
use crate::read::records::Records;
use crate::read::scratch::LookupScratch;
use crate::read::{Cost, Wanted};

/// Most bytes of a question.
const MOST_BYTES: usize = 16 << 10;
/// Most words of a reply: more is for one-sided READs, which land where they are needed.
const MOST_WORDS: usize = 8 << 10;

const VERSION: u16 = 1;
const HEAD_BYTES: usize = 8;

const THERE: u8 = 1;
const ABSENT: u8 = 2;

/// Most bytes of slots that a question has copied, and with the fingerprints of their windows
/// looked at: what READs of one frame may come to.
const MOST_SLOT_BYTES: usize = 64 << 10;
pub(super) const MOST_LOOKED_AT: usize = 256 << 10;

/// Bytes that a lookup of `keys` keys looks at; `None` if that is more than a question may cost.
pub(super) fn looked_at(geometry: &SegmentGeometry, epsilon: u32, keys: usize) -> Option<usize> {
    let slot_bytes = geometry.slot_bytes;
    // At most 4096 slots to either side, and slots of 68 KiB.
    // Of a window whole words are looked at.
    let window = geometry.searched_bytes(2 * epsilon as usize + 1) + 16;
    let bytes = keys * (slot_bytes + window);
    (keys * slot_bytes <= MOST_SLOT_BYTES && bytes <= MOST_LOOKED_AT).then_some(bytes)
}

/// Writes a question for keys, and says how many words its reply has at most; `None` if they are
/// not for the memory node.
pub(super) fn put_question<'k, K: KeySpace>(
    geometry: &SegmentGeometry,
    epsilon: u32,
    wanted: Wanted,
    keys: impl ExactSizeIterator<Item = &'k K::Key>,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let (count, shape) = (keys.len(), &geometry.shape);
    let value_bytes = match wanted {
        Wanted::Presence => 0,
        Wanted::Value | Wanted::InSlot => shape.value_bytes.unwrap_or(shape.room) as usize,
    };
    let words = count * (1 + value_bytes.div_ceil(8));
    if !(1..=MOST_KEYS).contains(&count) || words > MOST_WORDS {
        return None;
    }
    looked_at(geometry, epsilon, count)?;
    out.clear();
    out.extend(VERSION.to_le_bytes());
    out.extend([u8::from(wanted == Wanted::Presence), 0]);
    // At most 64.
    out.extend((count as u32).to_le_bytes());
    for key in keys {
        // A key that no table can hold has no place in a question.
        if K::encoded_len(key) > TableParameters::MAX_KEY_BYTES as usize {
            return None;
        }
        put_key::<K>(key, out);
    }
    (out.len() <= MOST_BYTES).then_some(words)
}

/// A reply that is being written.
pub(super) struct Reply<'r> {
    words: &'r mut [u64],
    /// Words written so far.
    pub(super) used: usize,
}

impl<'r> Reply<'r> {
    pub(super) fn new(words: &'r mut [u64]) -> Self {
        Self { words, used: 0 }
    }

    /// Appends what the last lookup found.
    pub(super) fn push_all<K: KeySpace>(&mut self, scratch: &LookupScratch<K>, wanted: Wanted) {
        for (outcome, value) in scratch.outcomes() {
            let value = value.filter(|_| wanted != Wanted::Presence).unwrap_or_default();
            match outcome.version {
                _ if outcome.is_external => self.push(0, &[], 0),
                None => self.push(ABSENT, &[], 0),
                Some(version) => self.push(THERE, value, version),
            }
        }
    }

    /// Appends that a key was not looked up, if there is room for more.
    pub(super) fn push_unanswered(&mut self) {
        self.push(0, &[], 0);
    }

    /// Appends one key's answer; that it was not looked up if there is no room for more.
    fn push(&mut self, status: u8, value: &[u8], version: u32) {
        let words = 1 + value.len().div_ceil(8);
        if self.words.len() - self.used < words {
            if status != 0 {
                self.push(0, &[], 0);
            }
            return;
        }
        let room = &mut self.words[self.used..self.used + words];
        // Values of slots are shorter than 2^24 bytes.
        room[0] = u64::from(status) | (value.len() as u64) << 8 | u64::from(version) << 32;
        if let Some(last) = room[1..].last_mut() {
            *last = 0;
        }
        room[1..].as_mut_bytes()[..value.len()].copy_from_slice(value);
        self.used += words;
    }
}

/// The keys of a question, how many, and what is wanted of them.
pub(super) fn take_question<'q, K: KeySpace>(
    question: &'q [u8],
    keys: &mut [Option<K::View<'q>>; MOST_KEYS],
) -> Option<(usize, Wanted)> {
    let (head, mut rest) = question.split_first_chunk::<HEAD_BYTES>()?;
    let wanted = match head[2] {
        0 => Wanted::InSlot,
        1 => Wanted::Presence,
        _ => return None,
    };
    let count = u32::from_le_bytes(*head.last_chunk()?) as usize;
    if head[..2] != VERSION.to_le_bytes() || head[3] != 0 || !(1..=MOST_KEYS).contains(&count) {
        return None;
    }
    for place in &mut keys[..count] {
        let (key, after) = take_key::<K>(rest)?;
        (*place, rest) = (Some(key), after);
    }
    rest.is_empty().then_some((count, wanted))
}

/// The answers in a reply, key by key.
pub(super) struct Answers<'w> {
    rest: &'w [u64],
}

impl<'w> Answers<'w> {
    pub(super) fn of(words: &'w [u64]) -> Self {
        Self { rest: words }
    }

    /// The next key's answer, its value kept among `records`; `None` if it was not looked up.
    pub(super) fn next(&mut self, records: &mut Records) -> Option<Outcome> {
        let (head, rest) = self.rest.split_first()?;
        let head = head.to_le_bytes();
        let bytes = usize::from(head[1]) | usize::from(head[2]) << 8 | usize::from(head[3]) << 16;
        let Some((value, after)) = rest.split_at_checked(bytes.div_ceil(8)) else {
            // It is no reply: nothing after it is one.
            self.rest = &[];
            return None;
        };
        self.rest = after;
        let version = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let cost = Cost { bytes: 8 * (1 + value.len() as u64), ..Outcome::begun(Plan::AtNode).cost };
        let begun = Outcome { cost, ..Outcome::begun(Plan::AtNode) };
        match head[0] {
            THERE => {
                let value = records.push(&value.as_bytes()[..bytes]);
                Some(Outcome { version: Some(version), value, ..begun })
            }
            ABSENT => Some(begun),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::FingerprintWidth;
    use crate::key_space::{ByteKeys, U64Keys};
    use crate::layout::RecordShape;
    use proptest::prelude::*;

    fn question<K: KeySpace>(
        keys: &[&K::Key],
        shape: RecordShape,
        wanted: Wanted,
    ) -> Option<(Vec<u8>, usize)> {
        let geometry = SegmentGeometry::new(FingerprintWidth::Bits8, shape);
        let (mut bytes, keys) = (Vec::new(), keys.iter().copied());
        put_question::<K>(&geometry, 32, wanted, keys, &mut bytes).map(|words| (bytes, words))
    }

    #[test]
    fn a_question_is_in_the_drawn_order() {
        let shape = RecordShape::fixed(8, 9);
        let (bytes, words) = question::<U64Keys>(&[&7, &256], shape, Wanted::Value).expect("short");
        assert_eq!(bytes, *b"\x01\0\0\0\x02\0\0\0\x07\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0");
        assert_eq!(words, 6);
        let (bytes, words) = question::<ByteKeys>(&[b"ab"], shape, Wanted::Presence).expect("short");
        assert_eq!((&bytes[..], words), (&b"\x01\0\x01\0\x01\0\0\0\x02\0ab"[..], 1));
    }

    #[test]
    fn what_is_too_much_is_not_asked() {
        let shape = RecordShape::fixed(8, 8);
        let keys = [&7u64; 65];
        assert!(question::<U64Keys>(&keys[..64], shape, Wanted::Value).is_some());
        assert!(question::<U64Keys>(&keys, shape, Wanted::Value).is_none());
        assert!(question::<U64Keys>(&[], shape, Wanted::Value).is_none());
        let long = RecordShape::fixed(8, 1 << 12);
        assert!(question::<U64Keys>(&keys[..64], long, Wanted::Value).is_none(), "a long reply");
        assert!(question::<U64Keys>(&keys[..64], long, Wanted::Presence).is_none(), "long slots");
        assert!(question::<U64Keys>(&keys[..15], long, Wanted::Presence).is_some());
        let key = [7; TableParameters::MAX_KEY_BYTES as usize + 1];
        assert!(question::<ByteKeys>(&[&key[1..]], shape, Wanted::Value).is_some());
        assert!(question::<ByteKeys>(&[&key], shape, Wanted::Value).is_none(), "no table has it");
        assert!(question::<ByteKeys>(&[&key[1..]; 5], shape, Wanted::Value).is_none(), "a long question");
    }

    /// 64 times one key, whether it is there: 528 bytes had 4.3 MiB copied.
    #[test]
    fn a_short_question_about_long_slots_has_no_megabytes_looked_at() {
        for width in [FingerprintWidth::Bits8, FingerprintWidth::Bits64] {
            for (room, epsilon) in [(8, 0), (8, 32), (900, 32), (68 << 10, 32), (8, 4096), (60 << 10, 4096)] {
                let geometry = SegmentGeometry::new(width, RecordShape::fixed(8, room));
                for keys in 1..=MOST_KEYS {
                    let least = keys * (geometry.slot_bytes + (2 * epsilon as usize + 1) * width.bytes());
                    match looked_at(&geometry, epsilon, keys) {
                        Some(bytes) => assert!((least..=256 << 10).contains(&bytes)),
                        None => assert!(least > 250 << 10 || keys * geometry.slot_bytes > 64 << 10),
                    }
                }
            }
        }
    }

    proptest! {
        /// Whatever bytes come, they are keys or nothing.
        #[test]
        fn any_question_ends(mut bytes in prop::collection::vec(any::<u8>(), 0..600), good: bool) {
            if let (true, Some(head)) = (good, bytes.first_chunk_mut::<HEAD_BYTES>()) {
                *head = [1, 0, 0, 0, head[4] % 70, 0, 0, 0];
            }
            let mut keys = [None; MOST_KEYS];
            if let Some((count, _)) = take_question::<ByteKeys>(&bytes, &mut keys) {
                prop_assert!(keys[..count].iter().all(Option::is_some));
            }
            let mut keys = [None; MOST_KEYS];
            prop_assert!(take_question::<U64Keys>(&bytes, &mut keys).is_none_or(|(n, _)| bytes.len() == 8 + 8 * n));
        }

        /// Whatever words come, they are answers or none, and end.
        #[test]
        fn any_reply_ends(words in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..0x1000], 0..40)) {
            let (mut answers, mut records) = (Answers::of(&words), Records::default());
            for _ in 0..MOST_KEYS {
                if let Some(outcome) = answers.next(&mut records) {
                    prop_assert!(records.bytes(outcome.value.clone()).len() <= words.len() * 8);
                }
            }
        }
    }
}
