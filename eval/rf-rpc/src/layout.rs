//! The bytes of batches, and where they lie.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The version of the bytes.
pub const VERSION: u8 = 1;

/// Longest entry that passes through the buffers; longer ones go by server reply.
pub const ENTRY_MAX: usize = 8192;

/// Bytes of a batch before its payload.
pub(crate) const HEAD: usize = 24;
/// Bytes after a request's payload.
pub(crate) const TAIL: usize = 8;
/// In an entry's length: the result comes by server reply.
pub(crate) const LONG: u32 = 1 << 31;
const STATUS: u32 = 1 << 31;
/// In the kind of a result: there is no further batch.
const LAST: u8 = 1 << 7;

pub(crate) const SERVED: u8 = 0;
pub(crate) const DAMAGED: u8 = 1;
pub(crate) const TOO_LONG: u8 = 2;

/// Sizes of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Batches that a client may have in flight.
    pub slots: u16,
    /// Result batches of one call that the server holds ready at once.
    pub parts: u16,
    /// Bytes of a batch's payload at most; a multiple of 8.
    pub capacity: u32,
}

/// The largest payload capacity: what lies in memory for one client stays small.
const MOST_CAPACITY: u32 = 1 << 20;

impl Shape {
    /// Whether its sizes are possible.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let fits = (ENTRY_MAX as u32 + 8..=MOST_CAPACITY).contains(&self.capacity);
        (1..=1024).contains(&self.slots)
            && (1..=64).contains(&self.parts)
            && fits
            && self.capacity.is_multiple_of(8)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity as usize
    }

    fn request_bytes(&self) -> u64 {
        ((HEAD + TAIL) as u64 + u64::from(self.capacity)).next_multiple_of(64)
    }

    fn result_bytes(&self) -> u64 {
        (HEAD as u64 + u64::from(self.capacity)).next_multiple_of(64)
    }

    fn slot_bytes(&self) -> u64 {
        64 + self.request_bytes() + u64::from(self.parts) * self.result_bytes()
    }

    /// Bytes of a client's channel.
    #[must_use]
    pub fn channel_bytes(&self) -> u64 {
        u64::from(self.slots) * self.slot_bytes()
    }

    pub(crate) fn acknowledgement(&self, slot: u16) -> u64 {
        u64::from(slot) * self.slot_bytes()
    }

    pub(crate) fn request(&self, slot: u16) -> u64 {
        self.acknowledgement(slot) + 64
    }

    pub(crate) fn result(&self, slot: u16, part: u32) -> u64 {
        let part = u64::from(part) % u64::from(self.parts);
        self.request(slot) + self.request_bytes() + part * self.result_bytes()
    }
}

/// The head of a batch, without its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) bytes: u32,
    pub(crate) sequence: u32,
    /// Of a result the response time.
    pub(crate) auxiliary: u16,
    pub(crate) entries: u16,
    /// Of a request its RPC, of a result which of the call's batches it is.
    pub(crate) number: u16,
    /// Of a request its mode, of a result its outcome and whether it is the last.
    pub(crate) kind: u8,
}

impl Head {
    /// A head by its first two words, if they are one of this version.
    pub(crate) fn of(words: [u64; 2]) -> Option<Self> {
        let [first, second] = words;
        let status = first as u32;
        (status & STATUS != 0 && (second >> 56) as u8 == VERSION).then_some(Self {
            bytes: status & !STATUS,
            sequence: (first >> 32) as u32,
            auxiliary: second as u16,
            entries: (second >> 16) as u16,
            number: (second >> 32) as u16,
            kind: (second >> 48) as u8,
        })
    }

    pub(crate) fn words(&self) -> [u64; 2] {
        let first = u64::from(STATUS | self.bytes) | u64::from(self.sequence) << 32;
        let second = u64::from(self.auxiliary)
            | u64::from(self.entries) << 16
            | u64::from(self.number) << 32
            | u64::from(self.kind) << 48
            | u64::from(VERSION) << 56;
        [first, second]
    }

    pub(crate) fn of_result(last: bool, outcome: u8) -> u8 {
        if last { LAST | outcome } else { outcome }
    }

    pub(crate) fn is_last(&self) -> bool {
        self.kind & LAST != 0
    }

    pub(crate) fn outcome(&self) -> u8 {
        self.kind & !LAST
    }

    pub(crate) fn checksum(&self, key: u64, payload: &[u8]) -> u64 {
        let [first, second] = self.words();
        let mut head = [0; 16];
        head[..8].copy_from_slice(&first.to_le_bytes());
        head[8..].copy_from_slice(&second.to_le_bytes());
        xxh3_64_with_seed(payload, xxh3_64_with_seed(&head, key))
    }

    /// The batch's bytes up to the end of its payload.
    pub(crate) fn encode(&self, key: u64, payload: &[u8], out: &mut Vec<u8>) {
        for word in self.words() {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.checksum(key, payload).to_le_bytes());
        out.extend_from_slice(payload);
    }

    /// A batch of which nothing else follows, and its payload, if it is whole.
    pub(crate) fn decode(key: u64, bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, payload) = bytes.split_at_checked(HEAD)?;
        let word = |at: usize| u64_at(head, at);
        let checksum = word(16)?;
        let head = Self::of([word(0)?, word(8)?])?;
        let payload = payload.get(..head.bytes as usize)?;
        (head.checksum(key, payload) == checksum).then_some((head, payload))
    }
}

/// A request batch with its tail, as a client WRITEs it.
pub(crate) fn encode_request(head: &Head, key: u64, payload: &[u8], out: &mut Vec<u8>) {
    head.encode(key, payload, out);
    out.resize(HEAD + payload.len().next_multiple_of(8), 0);
    out.extend_from_slice(&head.words()[0].to_le_bytes());
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The sequence after another; zero is none.
pub(crate) fn next_sequence(sequence: u32) -> u32 {
    sequence.wrapping_add(1).max(1)
}

/// The sequence before the first of a channel of this key: numbers that the client that had the
/// channel before has hardly used.
pub(crate) fn first_sequence(key: u64) -> u32 {
    (key >> 32) as u32
}

/// Whether a sequence comes after another, which wraps. Zero is none.
pub(crate) fn is_newer(sequence: u32, than: u32) -> bool {
    sequence != 0 && (1..1 << 31).contains(&sequence.wrapping_sub(than))
}

/// An entry of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry<'a> {
    Short(&'a [u8]),
    /// The length of one that a server reply brings.
    Long(u64),
}

pub(crate) fn push_entry(payload: &mut Vec<u8>, entry: &[u8]) {
    // Shorter than a batch, whose length fits 31 bits.
    payload.extend_from_slice(&(entry.len() as u32).to_le_bytes());
    payload.extend_from_slice(entry);
}

pub(crate) fn push_long(payload: &mut Vec<u8>, len: u64) {
    payload.extend_from_slice(&(LONG | 8).to_le_bytes());
    payload.extend_from_slice(&len.to_le_bytes());
}

/// Takes the first entry of a payload.
pub(crate) fn take_entry<'a>(payload: &mut &'a [u8]) -> Option<Entry<'a>> {
    let (size, rest) = payload.split_at_checked(4)?;
    let size = u32::from_le_bytes(size.try_into().ok()?);
    let (entry, rest) = rest.split_at_checked((size & !LONG) as usize)?;
    *payload = rest;
    if size & LONG == 0 {
        return Some(Entry::Short(entry));
    }
    Some(Entry::Long(u64::from_le_bytes(entry.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD_OF_ALL: Head =
        Head { bytes: 9, sequence: 0x0403_0201, auxiliary: 0x0605, entries: 1, number: 0x0807, kind: 0x81 };

    #[test]
    fn bytes_of_batches_are_the_documented_ones() {
        let mut payload = Vec::new();
        push_entry(&mut payload, b"hello");
        let mut request = Vec::new();
        encode_request(&HEAD_OF_ALL, 7, &payload, &mut request);
        let golden = b"\x09\0\0\x80\x01\x02\x03\x04\x05\x06\x01\0\x07\x08\x81\x01";
        assert_eq!(request[..16], *golden);
        assert_eq!(u64_at(&request, 16), Some(0x9c20_f620_861e_7657));
        assert_eq!(request[24..40], *b"\x05\0\0\0hello\0\0\0\0\0\0\0");
        assert_eq!(request[40..], golden[..8]);
        let mut long = Vec::new();
        push_long(&mut long, 9000);
        assert_eq!(long, *b"\x08\0\0\x80\x28\x23\0\0\0\0\0\0");
    }

    #[test]
    fn buffers_of_a_channel_lie_apart() {
        let shape = Shape { slots: 3, parts: 2, capacity: 8200 };
        assert!(shape.is_possible());
        let mut stretches = Vec::new();
        for slot in 0..3 {
            stretches.push((shape.acknowledgement(slot), 8));
            stretches.push((shape.request(slot), (HEAD + TAIL + 8200) as u64));
            stretches.extend((0..2).map(|part| (shape.result(slot, part), HEAD as u64 + 8200)));
        }
        assert!(stretches.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{stretches:?}");
        assert!(stretches.iter().all(|(at, _)| at % 64 == 0));
        let (at, len) = stretches[stretches.len() - 1];
        assert!(at + len <= shape.channel_bytes());
        assert_eq!(shape.result(1, 2), shape.result(1, 0), "parts take turns");
        for bad in [
            Shape { slots: 0, ..shape },
            Shape { parts: 0, ..shape },
            Shape { capacity: 8192, ..shape },
            Shape { capacity: 1 << 21, ..shape },
        ] {
            assert!(!bad.is_possible(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn batches_come_back_as_they_went(
            entries in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            (sequence, auxiliary, number, kind, key) in any::<(u32, u16, u16, u8, u64)>(),
        ) {
            let mut payload = Vec::new();
            entries.iter().for_each(|entry| push_entry(&mut payload, entry));
            let (bytes, count) = (payload.len() as u32, entries.len() as u16);
            let head = Head { bytes, sequence, auxiliary, entries: count, number, kind };
            let mut whole = Vec::new();
            head.encode(key, &payload, &mut whole);
            let (found, mut rest) = Head::decode(key, &whole).unwrap();
            prop_assert_eq!(found, head);
            for entry in &entries {
                prop_assert_eq!(take_entry(&mut rest), Some(Entry::Short(entry)));
            }
            prop_assert!(rest.is_empty() && take_entry(&mut rest).is_none());
            prop_assert!(Head::decode(key ^ 1, &whole).is_none(), "another client's");
        }

        #[test]
        fn a_changed_or_shortened_batch_is_none(
            payload in prop::collection::vec(any::<u8>(), 0..100), bit in 0usize..992, cut in 0usize..124,
        ) {
            let head = Head { bytes: payload.len() as u32, ..HEAD_OF_ALL };
            let mut whole = Vec::new();
            head.encode(3, &payload, &mut whole);
            let cut = cut % whole.len();
            prop_assert!(Head::decode(3, &whole[..cut]).is_none());
            let bit = bit % (whole.len() * 8);
            whole[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Head::decode(3, &whole).is_none(), "bit {}", bit);
        }

        #[test]
        fn any_payload_has_entries_or_an_end(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut rest = &bytes[..];
            while take_entry(&mut rest).is_some() {}
            prop_assert!(rest.len() <= bytes.len());
        }
    }
}
