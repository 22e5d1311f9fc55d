//! Unsigned 64-bit integer keys.

use super::KeySpace;

/// Unsigned 64-bit integer keys: the coordinate is the key, the encoded form is little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct U64Keys;

impl KeySpace for U64Keys {
    type Key = u64;
    type Owned = u64;
    type View<'a> = u64;
    type Kept = u64;
    type Tail = ();
    type Separators = Box<[u64]>;
    type Encoders = ();

    const ID: u32 = 1;
    const NAME: &'static str = "u64";
    const FIXED_BYTES: Option<usize> = Some(8);
    const PAGE_BYTES: usize = 4096;

    fn lowest() -> &'static u64 {
        &0
    }

    fn highest() -> &'static u64 {
        &u64::MAX
    }

    #[inline]
    fn successor(key: &u64) -> Option<u64> {
        key.checked_add(1)
    }

    #[inline]
    fn coordinate(key: &u64, _: usize, (): (), (): &()) -> u64 {
        *key
    }

    #[inline]
    fn shared(_: &u64, _: &u64) -> usize {
        0
    }

    /// CityHash64 (Pike and Alakuijala, CityHash v1.1, `HashLen0to16`) of eight bytes, for the one
    /// length lookups hash.
    #[inline(always)]
    fn hash(key: &u64) -> u64 {
        const K2: u64 = 0x9ae1_6a3b_2f90_404f;
        const MUL: u64 = K2.wrapping_add(16);
        let (a, b) = (key.wrapping_add(K2), *key);
        let c = b.rotate_right(37).wrapping_mul(MUL).wrapping_add(a);
        let d = a.rotate_right(25).wrapping_add(b).wrapping_mul(MUL);
        let mixed = (c ^ d).wrapping_mul(MUL);
        let mixed = (d ^ mixed ^ mixed >> 47).wrapping_mul(MUL);
        (mixed ^ mixed >> 47).wrapping_mul(MUL)
    }

    #[inline]
    fn tag(key: &u64) -> u64 {
        *key
    }

    #[inline]
    fn word(key: &u64) -> Option<u64> {
        Some(*key)
    }

    #[inline]
    fn encoded_len(_: &u64) -> usize {
        8
    }

    #[inline]
    fn encode(key: &u64, out: &mut [u8]) {
        out.copy_from_slice(&key.to_le_bytes());
    }

    #[inline]
    fn view(bytes: &[u8]) -> Option<u64> {
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    #[inline]
    fn as_view(key: &u64) -> u64 {
        *key
    }

    #[inline]
    fn keep(key: &u64, _: &mut Vec<u8>) -> u64 {
        *key
    }

    #[inline]
    fn kept<'a>(kept: &'a u64, _: &'a [u8]) -> &'a u64 {
        kept
    }

    fn boundary_id(key: &u64) -> u64 {
        *key
    }

    fn show(key: &u64) -> String {
        key.to_string()
    }

    fn heap_bytes(_: &u64) -> usize {
        0
    }

    fn put_separator(start: &u64, (): (), _: Option<&u64>, out: &mut Vec<u8>) {
        out.extend(start.to_le_bytes());
    }

    fn take_separator<'b>(_: Option<&u64>, bytes: &'b [u8]) -> Option<(u64, (), &'b [u8])> {
        let (start, rest) = bytes.split_first_chunk()?;
        Some((u64::from_le_bytes(*start), (), rest))
    }

    fn encode_encoders((): &()) -> Vec<u8> {
        Vec::new()
    }

    fn decode_encoders(bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() { Ok(()) } else { Err("integer keys have no encoders".into()) }
    }

    fn encoders_bytes((): &()) -> usize {
        0
    }

    fn knows((): &(), (): ()) -> bool {
        true
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

    proptest::proptest! {
        #[test]
        fn hashes_are_those_of_the_library_for_any_length(key: u64) {
            proptest::prop_assert_eq!(U64Keys::hash(&key), cityhasher::hash::<u64>(key.to_le_bytes()));
        }
    }

    #[test]
    fn encoding_round_trips_and_short_bytes_are_refused() {
        let mut bytes = [0; 8];
        for key in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            U64Keys::encode(&key, &mut bytes);
            assert_eq!(U64Keys::view(&bytes), Some(key));
        }
        assert_eq!(U64Keys::view(&bytes[..7]), None);
    }
}
