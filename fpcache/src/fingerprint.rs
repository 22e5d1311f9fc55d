//! Fingerprints: short hashes of keys, stored beside the slots they belong to.
//!
//! FPCache (Jia and Cai, Electronics 2026, §3.2) truncates CityHash64 of the key. Three values are reserved for states
//! of a slot that are not a key, so a hash that falls on one of them is moved aside.

use std::fmt;

/// Width of a table's fingerprints.
///
/// Wider ones cost memory and bytes per lookup, narrower ones false candidates: with `n` live keys in a window an
/// absent key meets about `n / 2^bits` of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FingerprintWidth {
    /// 8 bits: the paper's choice for 8-byte keys.
    Bits8,
    /// 16 bits.
    Bits16,
    /// 32 bits.
    Bits32,
    /// 64 bits: the default, false candidates practically never happen.
    #[default]
    Bits64,
}

/// A width other than 8, 16, 32 or 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fingerprints have 8, 16, 32 or 64 bits, not {0}")]
pub struct UnknownWidth(pub u32);

impl FingerprintWidth {
    /// All widths, narrowest first.
    pub const ALL: [Self; 4] = [Self::Bits8, Self::Bits16, Self::Bits32, Self::Bits64];

    /// The width with this many bits.
    pub fn from_bits(bits: u32) -> Result<Self, UnknownWidth> {
        Self::ALL.into_iter().find(|w| w.bits() == bits).ok_or(UnknownWidth(bits))
    }

    /// Bits per fingerprint.
    pub const fn bits(self) -> u32 {
        8 * self.bytes() as u32
    }

    /// Bytes per fingerprint.
    #[inline]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bits8 => 1,
            Self::Bits16 => 2,
            Self::Bits32 => 4,
            Self::Bits64 => 8,
        }
    }

    /// All bits of this width set.
    #[inline]
    const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// The fingerprint of a free slot.
    pub const EMPTY: u64 = 0;

    /// The fingerprint every slot of a replaced segment carries: whoever reads it must fetch the directory anew.
    #[inline]
    pub const fn frozen(self) -> u64 {
        self.mask()
    }

    /// Reserved for later use; no key has it.
    pub const SPARE: u64 = 1;

    /// Cuts a key's fingerprint from its hash: the low bits, with the top one flipped where they spell a reserved
    /// value. The three values that receive a second hash are twice as likely as others, which at 8 bits adds about
    /// one per cent to false candidates.
    #[inline]
    pub const fn of_hash(self, hash: u64) -> u64 {
        let cut = hash & self.mask();
        if cut <= Self::SPARE || cut == self.mask() { cut ^ (1 << (self.bits() - 1)) } else { cut }
    }

    /// Writes fingerprint `value` to position `index` of an array of fingerprints.
    ///
    /// # Panics
    /// If `index` lies outside `array`.
    #[inline]
    pub fn put(self, array: &mut [u8], index: usize, value: u64) {
        let w = self.bytes();
        array[index * w..][..w].copy_from_slice(&value.to_le_bytes()[..w]);
    }

    /// Reads the fingerprint at position `index` of an array, `None` outside it.
    #[inline]
    pub fn get(self, array: &[u8], index: usize) -> Option<u64> {
        let w = self.bytes();
        let mut bytes = [0; 8];
        bytes[..w].copy_from_slice(array.get(index * w..(index + 1) * w)?);
        Some(u64::from_le_bytes(bytes))
    }
}

impl fmt::Display for FingerprintWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bits", self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_cuts_of_one_hash() {
        let hash = 0x0123_4567_89ab_cdef;
        let cuts = FingerprintWidth::ALL.map(|w| w.of_hash(hash));
        assert_eq!(cuts, [0xef, 0xcdef, 0x89ab_cdef, hash]);
    }

    #[test]
    fn hashes_on_reserved_values_are_moved_aside() {
        for w in FingerprintWidth::ALL {
            let top = 1u64 << (w.bits() - 1);
            assert_eq!(w.of_hash(0), top);
            assert_eq!(w.of_hash(1), top | 1);
            assert_eq!(w.of_hash(u64::MAX), w.frozen() ^ top);
        }
    }

    proptest! {
        #[test]
        fn no_key_has_a_reserved_fingerprint(hash: u64) {
            for w in FingerprintWidth::ALL {
                let f = w.of_hash(hash);
                prop_assert!(f > FingerprintWidth::SPARE && f < w.frozen());
            }
        }

        #[test]
        fn arrays_give_back_what_was_put(index in 0usize..32, hash: u64) {
            for w in FingerprintWidth::ALL {
                let mut array = vec![0; 32 * w.bytes()];
                w.put(&mut array, index, w.of_hash(hash));
                prop_assert_eq!(w.get(&array, index), Some(w.of_hash(hash)));
                prop_assert_eq!(w.get(&array, 32), None);
            }
        }
    }
}
