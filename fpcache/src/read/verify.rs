//! The decision what the bytes of a slot say.

use std::borrow::Borrow;

use zerocopy::IntoBytes;

use fpcache_fabric::InPlace;

use super::ReadError;
use crate::key_space::KeySpace;
use crate::layout::{RecordParts, RecordShape, SLOT_WORD_BYTES, SlotState, SlotWord, Stored};
use crate::sabotage::{Broken, Sabotage};
use crate::table_view::TableView;

/// The content of a slot's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotRead<'a> {
    /// A record, whole; its value may lie outside.
    Live { key: &'a [u8], version: u32, value: Stored<'a> },
    /// No record.
    Free,
    /// A record that is being written, or bytes of two moments: read again.
    Torn,
    /// The segment was replaced.
    Frozen,
}

/// The rules by which a table's slots are classified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) shape: RecordShape,
    broken: Broken,
}

impl Rules {
    #[inline(always)]
    pub(super) fn of<K: KeySpace>(view: &TableView<K>) -> Self {
        Self { shape: view.geometry().shape, broken: view.broken() }
    }

    #[inline(always)]
    fn skips_checksums(self) -> bool {
        self.broken.is(Sabotage::NoChecksum) || self.broken.is(Sabotage::Unguarded)
    }

    #[inline(always)]
    pub(super) fn is_proven(self, word: SlotWord, generation: u32, body: &[u8]) -> bool {
        self.skips_checksums() || word.is_proof_of(generation, body)
    }

    /// The same, for a slot of one word and a record of two.
    #[inline(always)]
    pub(super) fn is_pair_proven(self, word: SlotWord, generation: u32, slot: &[u64]) -> bool {
        self.skips_checksums()
            || matches!(slot, [_, first, second] if word.is_proof_of_pair(generation, [*first, *second]))
    }
}

/// Classifies `slot`, which lies in a segment of this generation. A record is accepted only if
/// state and checksum agree.
#[inline(always)]
pub(super) fn classify<K: KeySpace>(slot: &[u8], generation: u32, rules: Rules) -> SlotRead<'_> {
    let Some((word, body)) = slot.split_first_chunk::<SLOT_WORD_BYTES>() else { return SlotRead::Torn };
    let word = SlotWord::from_bits(u64::from_le_bytes(*word));
    match word.state() {
        SlotState::Free if word.is_free() => SlotRead::Free,
        // A free word with a checksum was a record's, of which nothing can be told.
        SlotState::Free | SlotState::Busy => SlotRead::Torn,
        SlotState::Frozen => SlotRead::Frozen,
        SlotState::Live => match rules.shape.parts::<K>(body) {
            Some(RecordParts { key, value }) if rules.is_proven(word, generation, body) => {
                SlotRead::Live { key, version: word.version(), value }
            }
            _ => SlotRead::Torn,
        },
    }
}

/// Whether these are a key's encoded bytes.
#[inline(always)]
fn is_key<K: KeySpace>(bytes: &[u8], key: &K::Key) -> bool {
    K::view(bytes).is_some_and(|view| view.borrow() == key)
}

/// Copies a slot: as of one moment, where slots are guarded.
// With assertions, as in tests, it is compiled once, not as part of each caller.
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn copy_slot<K: KeySpace, L: InPlace>(
    look: &mut L,
    view: &TableView<K>,
    offset: u64,
    room: &mut [u64],
) -> Result<(), ReadError> {
    // A length that is known makes the copy a few loads.
    match <&mut [u64; 3]>::try_from(&mut *room) {
        Ok(room) if view.guards_slots() => look.record(offset, room)?,
        _ if view.guards_slots() => look.record(offset, room)?,
        _ => look.copy(offset, room)?,
    }
    Ok(())
}

/// A slot's answer for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check<'s> {
    /// Its record.
    Found { version: u32, value: Stored<'s> },
    /// Another key's record.
    Other,
    /// No record.
    Nothing,
    /// It cannot be told: read again.
    Torn,
}

/// The answer of `slot` for the key, in a segment of this generation; a frozen one, that the
/// segment was replaced.
// With assertions, as in tests, it is compiled once, not as part of each caller.
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn check<'s, K: KeySpace>(
    slot: &'s [u64],
    generation: u32,
    wanted: &K::Key,
    rules: Rules,
) -> Result<Check<'s>, ReadError> {
    // The record most tables have, a word each of key and value, in as few instructions as that
    // takes.
    if let ([word, key, _], Some(wanted_word), Some(value_bytes)) =
        (slot, K::word(wanted), rules.shape.value_bytes)
        && *key == wanted_word
        && let word = SlotWord::from_bits(*word)
        && word.state() == SlotState::Live
        && rules.is_pair_proven(word, generation, slot)
    {
        let value = &slot.as_bytes()[2 * SLOT_WORD_BYTES..][..value_bytes.min(8) as usize];
        return Ok(Check::Found { version: word.version(), value: Stored::Here(value) });
    }
    check_any::<K>(slot.as_bytes(), generation, wanted, rules)
}

#[inline]
fn check_any<'s, K: KeySpace>(
    slot: &'s [u8],
    generation: u32,
    wanted: &K::Key,
    rules: Rules,
) -> Result<Check<'s>, ReadError> {
    match classify::<K>(slot, generation, rules) {
        SlotRead::Live { key, version, value } if is_key::<K>(key, wanted) => {
            Ok(Check::Found { version, value })
        }
        SlotRead::Live { .. } => Ok(Check::Other),
        SlotRead::Free => Ok(Check::Nothing),
        SlotRead::Torn => Ok(Check::Torn),
        SlotRead::Frozen => Err(ReadError::Stale),
    }
}

/// The word that slots show which hold the key, where a record begins with it.
#[inline(always)]
pub(super) fn shown_word<K: KeySpace>(key: &K::Key, view: &TableView<K>) -> Option<u64> {
    K::word(key).filter(|_| view.geometry().shape.is_fixed())
}

/// Whether a slot read as part of a range needs [`classify`]: it shows the key, or is frozen. A
/// slot that is being written shows another key only while the wanted key is not yet, or no longer,
/// in it; so the checksum is computed only for the slot that matters.
#[inline]
pub(super) fn shows<K: KeySpace>(slot: &[u8], key: &K::Key, shape: RecordShape) -> bool {
    let Some((word, body)) = slot.split_first_chunk::<SLOT_WORD_BYTES>() else { return true };
    // Where the key's length makes no sense the record is half written, and has no valid key yet. A
    // value's length may be what is damaged.
    shape.key::<K>(body).is_some_and(|shown| is_key::<K>(shown, key))
        || SlotWord::from_bits(u64::from_le_bytes(*word)).state() == SlotState::Frozen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::{ByteKeys, U64Keys};
    use crate::layout::{SegmentAddress, ValueExtent};

    const FIXED: RecordShape = RecordShape::fixed(8, 8);

    fn rules(shape: RecordShape) -> Rules {
        Rules { shape, broken: Broken::default() }
    }

    fn slot(state: SlotState) -> [u8; 24] {
        let mut s = [0; 24];
        s[8..16].copy_from_slice(&42u64.to_le_bytes());
        s[16..24].copy_from_slice(&7u64.to_le_bytes());
        let live = SlotWord::live(5, 1, &s[8..]);
        let word = SlotWord::new(state, live.version(), live.checksum());
        s[..8].copy_from_slice(&word.to_bits().to_le_bytes());
        s
    }

    #[test]
    fn only_a_live_slot_with_its_checksum_is_a_record() {
        let live = slot(SlotState::Live);
        let value = Stored::Here(&[7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            classify::<U64Keys>(&live, 5, rules(FIXED)),
            SlotRead::Live { key: &42u64.to_le_bytes(), version: 1, value }
        );
        assert_eq!(classify::<U64Keys>(&live, 6, rules(FIXED)), SlotRead::Torn, "another generation");
        assert_eq!(classify::<U64Keys>(&[0; 24], 5, rules(FIXED)), SlotRead::Free);
        assert_eq!(
            classify::<U64Keys>(&slot(SlotState::Free), 5, rules(FIXED)),
            SlotRead::Torn,
            "its state is damaged"
        );
        assert_eq!(classify::<U64Keys>(&slot(SlotState::Busy), 5, rules(FIXED)), SlotRead::Torn);
        assert_eq!(classify::<U64Keys>(&slot(SlotState::Frozen), 5, rules(FIXED)), SlotRead::Frozen);
        assert_eq!(classify::<U64Keys>(&live[..20], 5, rules(FIXED)), SlotRead::Torn, "cut short");
        assert_eq!(classify::<U64Keys>(&live[..3], 5, rules(FIXED)), SlotRead::Torn, "no word");
    }

    #[test]
    fn every_torn_mixture_of_two_records_is_unsettled() {
        let (a, mut b) = (slot(SlotState::Live), slot(SlotState::Live));
        b[16] = 8;
        let word = SlotWord::live(5, 2, &b[8..]);
        b[..8].copy_from_slice(&word.to_bits().to_le_bytes());
        for cut in 1..24 {
            let mut torn = a;
            torn[cut..].copy_from_slice(&b[cut..]);
            if torn != a && torn != b {
                assert_eq!(classify::<U64Keys>(&torn, 5, rules(FIXED)), SlotRead::Torn, "cut at {cut}");
            }
        }
    }

    const VARIES: RecordShape = RecordShape { key_bytes: None, value_bytes: None, room: 40 };

    fn bytes_slot(version: u32, key: &[u8], value: &[u8]) -> [u8; 56] {
        stored_slot(version, key, &Stored::Here(value))
    }

    fn outside_slot(version: u32, key: &[u8], bytes: u32) -> [u8; 56] {
        let (address, checksum) = (SegmentAddress::from_bits(bytes.into()), u64::from(bytes) << 7);
        stored_slot(version, key, &Stored::External(ValueExtent { address, bytes, checksum }))
    }

    fn stored_slot(version: u32, key: &[u8], value: &Stored<'_>) -> [u8; 56] {
        let mut s = [0; 56];
        VARIES.fill::<ByteKeys>(&mut s[8..], key, value);
        let word = SlotWord::live(5, version, &s[8..]);
        s[..8].copy_from_slice(&word.to_bits().to_le_bytes());
        s
    }

    #[test]
    fn every_mixture_of_words_of_two_records_of_other_lengths_is_one_of_them_or_unsettled() {
        let records = [
            bytes_slot(1, b"key", b"a value"),
            bytes_slot(2, b"key", b"another value of other length"),
            bytes_slot(3, b"key\0", b""),
            bytes_slot(4, b"ke", b"y"),
            bytes_slot(5, b"another key altogether", b"v"),
            outside_slot(6, b"key", 100),
            outside_slot(7, b"key", 8_000),
        ];
        for (a, b) in records.iter().flat_map(|a| records.iter().map(move |b| (a, b))) {
            for mixture in 0..1u32 << 7 {
                let mut mixed = *a;
                for word in (0..7).filter(|word| mixture >> word & 1 == 1) {
                    mixed[word * 8..][..8].copy_from_slice(&b[word * 8..][..8]);
                }
                let read = classify::<ByteKeys>(&mixed, 5, rules(VARIES));
                if [a, b].contains(&&mixed) {
                    assert!(matches!(read, SlotRead::Live { .. }));
                } else {
                    assert_eq!(read, SlotRead::Torn, "{mixture:b} of {a:?} and {b:?}");
                }
            }
        }
    }

    #[test]
    fn a_slot_that_holds_a_key_shows_it_whatever_part_of_its_value_was_replaced() {
        let records = [
            bytes_slot(1, b"the key", b"a"),
            bytes_slot(2, b"the key", b"much more than that"),
            outside_slot(3, b"the key", 1 << 20),
        ];
        let pairs =
            [(0, 1), (0, 2), (2, 1)].into_iter().flat_map(|pair| (0..1u32 << 7).map(move |m| (pair, m)));
        for ((one, other), mixture) in pairs {
            let mut mixed = records[one];
            for word in (0..7).filter(|word| mixture >> word & 1 == 1) {
                mixed[word * 8..][..8].copy_from_slice(&records[other][word * 8..][..8]);
            }
            assert!(shows::<ByteKeys>(&mixed, b"the key", VARIES), "{mixture:b}");
            assert!(!shows::<ByteKeys>(&mixed, b"the ke", VARIES), "{mixture:b}");
        }
    }

    #[test]
    fn a_slot_whose_value_has_a_damaged_length_shows_its_key_and_is_torn() {
        let whole = bytes_slot(1, b"the key", b"a");
        // The value's length, and where it is.
        for bit in (8 * 8..12 * 8).chain(14 * 8..16 * 8) {
            let mut damaged = whole;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(shows::<ByteKeys>(&damaged, b"the key", VARIES), "bit {bit}");
            assert_eq!(classify::<ByteKeys>(&damaged, 5, rules(VARIES)), SlotRead::Torn, "bit {bit}");
        }
    }
}
