//! Deciding whether a slot's bytes are a record.

use crate::key_space::KeySpace;
use crate::layout::{SLOT_WORD_BYTES, SlotState, SlotWord};

/// What a slot's bytes turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict<'a, Key> {
    /// A record, whole.
    Record { key: Key, version: u32, value: &'a [u8] },
    /// No record.
    Free,
    /// A record that is being written, or bytes of two moments: read again.
    Unsettled,
    /// The segment was replaced.
    Frozen,
}

/// Judges `slot`, which lies in a segment of this generation. A record is accepted only if state and checksum agree.
#[inline(always)]
pub(super) fn judge<K: KeySpace>(slot: &[u8], generation: u32, value_bytes: usize) -> Verdict<'_, K::Key> {
    let Some((word, body)) = slot.split_first_chunk::<SLOT_WORD_BYTES>() else { return Verdict::Unsettled };
    let word = SlotWord::from_bits(u64::from_le_bytes(*word));
    match word.state() {
        SlotState::Free => Verdict::Free,
        SlotState::Busy => Verdict::Unsettled,
        SlotState::Frozen => Verdict::Frozen,
        SlotState::Live => {
            let value = body.get(K::KEY_BYTES..K::KEY_BYTES + value_bytes);
            match (K::decode(body), value) {
                (Some(key), Some(value)) if word.vouches_for(generation, body) => {
                    Verdict::Record { key, version: word.version(), value }
                }
                _ => Verdict::Unsettled,
            }
        }
    }
}

/// Whether a slot read as part of a range needs [`judge`]: it shows the key, or is frozen. A slot that is being written
/// shows another key only while the wanted key is not yet, or no longer, in it; so the checksum is computed only for
/// the slot that matters.
#[inline]
pub(super) fn shows<K: KeySpace>(slot: &[u8], key: K::Key) -> bool {
    let Some((word, body)) = slot.split_first_chunk::<SLOT_WORD_BYTES>() else { return true };
    K::decode(body) == Some(key)
        || SlotWord::from_bits(u64::from_le_bytes(*word)).state() == SlotState::Frozen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::U64Keys;

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
        let value = &7u64.to_le_bytes()[..];
        assert_eq!(judge::<U64Keys>(&live, 5, 8), Verdict::Record { key: 42, version: 1, value });
        assert_eq!(judge::<U64Keys>(&live, 6, 8), Verdict::Unsettled, "another generation");
        assert_eq!(judge::<U64Keys>(&slot(SlotState::Free), 5, 8), Verdict::Free);
        assert_eq!(judge::<U64Keys>(&slot(SlotState::Busy), 5, 8), Verdict::Unsettled);
        assert_eq!(judge::<U64Keys>(&slot(SlotState::Frozen), 5, 8), Verdict::Frozen);
        assert_eq!(judge::<U64Keys>(&live[..20], 5, 8), Verdict::Unsettled, "cut short");
        assert_eq!(judge::<U64Keys>(&live[..3], 5, 8), Verdict::Unsettled, "no word");
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
                assert_eq!(judge::<U64Keys>(&torn, 5, 8), Verdict::Unsettled, "cut at {cut}");
            }
        }
    }
}
