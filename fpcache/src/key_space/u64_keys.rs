//! What a table needs to know about its keys.

use std::fmt::Debug;
use std::hash::Hash;

/// The kind of keys a table holds: their order, the number a model sees, the bytes that are hashed, and their encoding
/// in a slot.
///
/// Everything else in this crate is written against this trait, so that tables over other kinds of keys share one
/// implementation of layout, plans and protocol.
pub trait KeySpace: Copy + Debug + Default + Send + Sync + 'static {
    /// A key as callers hold it.
    type Key: Ord + Copy + Debug + Hash + Send + Sync + 'static;

    /// Identifies the key space in a table record, so that a client never reads a table with another's rules.
    const ID: u32;
    /// Name for people, as `stats` prints it.
    const NAME: &'static str;
    /// Bytes a key takes in a slot; a multiple of eight keeps slots aligned.
    const KEY_BYTES: usize;
    /// The key every other key is greater than or equal to.
    const LOWEST: Self::Key;

    /// The number a model sees. Must not decrease as keys grow; for the models' bound to hold, distinct keys of one
    /// table must have distinct coordinates.
    fn coordinate(key: &Self::Key) -> u64;

    /// The key with this coordinate, as descriptors hold the first key of a range.
    fn from_coordinate(x: u64) -> Self::Key;

    /// CityHash64 of the key's canonical bytes, from which fingerprints are cut.
    fn hash(key: &Self::Key) -> u64;

    /// Writes the key's slot encoding into `out`, which is [`Self::KEY_BYTES`] long.
    fn encode(key: &Self::Key, out: &mut [u8]);

    /// The key's slot encoding as one little-endian word, if that is what it takes.
    fn word(key: &Self::Key) -> Option<u64>;

    /// Reads a key from its slot encoding; `None` if `bytes` is too short.
    fn decode(bytes: &[u8]) -> Option<Self::Key>;

    /// The least key greater than `key`, if there is one; scans resume there.
    fn successor(key: &Self::Key) -> Option<Self::Key>;
}

/// Unsigned 64-bit integer keys: the coordinate is the key, the canonical bytes are its little-endian form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct U64Keys;

impl KeySpace for U64Keys {
    type Key = u64;

    const ID: u32 = 1;
    const NAME: &'static str = "u64";
    const KEY_BYTES: usize = 8;
    const LOWEST: u64 = 0;

    #[inline]
    fn coordinate(key: &u64) -> u64 {
        *key
    }

    #[inline]
    fn from_coordinate(x: u64) -> u64 {
        x
    }

    #[inline]
    fn hash(key: &u64) -> u64 {
        cityhasher::hash::<u64>(key.to_le_bytes())
    }

    #[inline]
    fn encode(key: &u64, out: &mut [u8]) {
        out.copy_from_slice(&key.to_le_bytes());
    }

    #[inline]
    fn word(key: &u64) -> Option<u64> {
        Some(*key)
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Option<u64> {
        bytes.first_chunk().map(|b| u64::from_le_bytes(*b))
    }

    #[inline]
    fn successor(key: &u64) -> Option<u64> {
        key.checked_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_cityhash64_of_the_little_endian_bytes() {
        // Golden: a change here would make every stored fingerprint unfindable.
        for (key, hash) in GOLDEN_HASHES {
            assert_eq!(U64Keys::hash(&key), hash, "key {key:#x}");
        }
    }

    /// From Google's CityHash v1.1 through another language's binding.
    const GOLDEN_HASHES: [(u64, u64); 5] = [
        (0, 0x1439_7a23_417a_f284),
        (1, 0x523b_e90b_b03b_5a61),
        (0x0123_4567_89ab_cdef, 0x5756_e430_0150_a3d1),
        (1 << 63, 0x692d_baa4_2bc6_9d1a),
        (u64::MAX, 0x2fff_e7a4_1fb5_9155),
    ];

    #[test]
    fn encoding_round_trips_and_short_bytes_are_refused() {
        let mut bytes = [0; 8];
        for key in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            U64Keys::encode(&key, &mut bytes);
            assert_eq!(U64Keys::decode(&bytes), Some(key));
        }
        assert_eq!(U64Keys::decode(&bytes[..7]), None);
    }
}
