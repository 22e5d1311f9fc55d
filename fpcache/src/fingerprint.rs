//! Fingerprints: short hashes of keys, stored beside the slots they belong to.
//!
//! FPCache (Jia and Cai, Electronics 2026, §3.2) truncates CityHash64 of the key. Three values are
//! reserved for states of a slot that are not a key, so a hash that falls on one of them is moved
//! aside.

use std::fmt;

/// Width of a table's fingerprints.
///
/// Wider ones cost memory and bytes per lookup, narrower ones false candidates: with `n` live keys
/// in a window an absent key meets about `n / 2^bits` of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FingerprintWidth {
    /// 8 bits: the paper's choice for 8-byte keys.
    Bits8,
    /// 16 bits: the default. Of a thousand absent keys one meets a false candidate in a window of
    /// 65 slots.
    #[default]
    Bits16,
    /// 32 bits.
    Bits32,
    /// 64 bits: false candidates practically never happen.
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

    /// The width of this many bytes, if there is one.
    #[inline(always)]
    pub const fn of_bytes(bytes: usize) -> Option<Self> {
        match bytes {
            1 => Some(Self::Bits8),
            2 => Some(Self::Bits16),
            4 => Some(Self::Bits32),
            8 => Some(Self::Bits64),
            _ => None,
        }
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

    /// Bytes of `count` fingerprints.
    #[inline(always)]
    pub const fn bytes_of(self, count: usize) -> usize {
        // The widths are in order, each twice the one before.
        count << self as u32
    }

    /// All bits of this width set.
    #[inline]
    const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// The fingerprint of a free slot.
    pub const EMPTY: u64 = 0;

    /// The fingerprint every slot of a replaced segment carries: its reader must fetch the
    /// directory anew.
    #[inline]
    pub const fn frozen(self) -> u64 {
        self.mask()
    }

    /// Reserved for later use; no key has it.
    pub const SPARE: u64 = 1;

    /// Cuts a key's fingerprint from its hash: the low bits, with the top one flipped where they
    /// spell a reserved value. The three values that receive a second hash are twice as likely as
    /// others, which at 8 bits adds about one per cent to false candidates.
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

    /// How many of the first `count` fingerprints of an array are those of free slots.
    pub fn count_free(self, array: &[u8], count: usize) -> usize {
        fn zeros<const W: usize>(array: &[u8], count: usize) -> usize {
            let (all, _) = array.as_chunks::<W>();
            all.iter().take(count).filter(|fingerprint| **fingerprint == [0; W]).count()
        }
        match self {
            Self::Bits8 => zeros::<1>(array, count),
            Self::Bits16 => zeros::<2>(array, count),
            Self::Bits32 => zeros::<4>(array, count),
            Self::Bits64 => zeros::<8>(array, count),
        }
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

impl FingerprintWidth {
    /// The narrowest width with which a lookup reads no more than an eighth of a cache line in
    /// vain: in the widest window that `epsilon` allows, `(2ε + 1) / 2^bits` slots match by chance,
    /// of `slot_bytes` each. 8 bits for slots of a cache line up to ε 15, 16 bits for records of up
    /// to 8 KiB at ε 31.
    pub const fn suited_to(epsilon: u32, slot_bytes: usize) -> Self {
        let window = 2 * epsilon as u64 + 1;
        let lines = window.saturating_mul(slot_bytes.div_ceil(CACHE_LINE_BYTES) as u64);
        match lines.saturating_mul(8) {
            0..=0x100 => Self::Bits8,
            0x101..=0x1_0000 => Self::Bits16,
            0x1_0001..=0x1_0000_0000 => Self::Bits32,
            _ => Self::Bits64,
        }
    }
}

/// The unit in which memory is read.
const CACHE_LINE_BYTES: usize = 64;

/// Which width a table is to have, as options spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WidthChoice {
    /// The one that [suits](FingerprintWidth::suited_to) the table's windows and records.
    Auto,
    /// This one.
    Fixed(FingerprintWidth),
    /// No fingerprints are stored.
    None,
}

impl WidthChoice {
    /// The width for a table of this half-width of windows and these slots; where no fingerprints
    /// are stored, of those that a memory node makes for itself when it looks through a window.
    pub const fn of(self, epsilon: u32, slot_bytes: usize) -> FingerprintWidth {
        match self {
            Self::Auto => FingerprintWidth::suited_to(epsilon, slot_bytes),
            Self::Fixed(width) => width,
            Self::None => FingerprintWidth::Bits16,
        }
    }

    /// Whether tables store fingerprints.
    pub const fn is_stored(self) -> bool {
        !matches!(self, Self::None)
    }
}

impl Default for WidthChoice {
    fn default() -> Self {
        Self::Fixed(FingerprintWidth::default())
    }
}

impl fmt::Display for WidthChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(width) => write!(f, "{}", width.bits()),
            Self::None => f.write_str("none"),
        }
    }
}

/// A text that names no width.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no width of fingerprints: write 8, 16, 32 or 64, auto or none")]
pub struct UnknownChoice(String);

impl std::str::FromStr for WidthChoice {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        let width = || FingerprintWidth::from_bits(text.parse().ok()?).ok();
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => width().map(Self::Fixed).ok_or_else(|| UnknownChoice(text.to_owned())),
        }
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
    fn so_many_fingerprints_have_so_many_bytes() {
        assert!(FingerprintWidth::ALL.into_iter().all(|width| width.bytes_of(7) == 7 * width.bytes()));
    }

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

    #[test]
    fn free_slots_are_counted_at_every_width_as_far_as_told() {
        for w in FingerprintWidth::ALL {
            let mut array = vec![0; w.bytes_of(200)];
            // One byte of each of these is set, by turns another one.
            (0..200).step_by(3).for_each(|i| array[i * w.bytes() + i % w.bytes()] = 1);
            for count in [0, 1, 2, 3, 64, 65, 199, 200, 300] {
                let free = (0..count).filter(|i| w.get(&array, *i) == Some(FingerprintWidth::EMPTY)).count();
                assert_eq!(w.count_free(&array, count), free, "{w}, {count}");
            }
        }
    }

    #[test]
    fn the_suited_width_is_the_narrowest_that_reads_little_in_vain() {
        use FingerprintWidth::{Bits8, Bits16, Bits32};
        for (epsilon, slot_bytes, width) in [
            (8, 24, Bits8),
            (15, 64, Bits8),
            (16, 64, Bits16),
            (8, 128, Bits16),
            (32, 24, Bits16),
            (64, 24, Bits16),
            (32, 1040, Bits16),
            (4096, 24, Bits32),
            (32, 64 << 10, Bits32),
            (u32::MAX, usize::MAX, FingerprintWidth::Bits64),
        ] {
            assert_eq!(FingerprintWidth::suited_to(epsilon, slot_bytes), width, "{epsilon}, {slot_bytes}");
            assert_eq!(WidthChoice::Auto.of(epsilon, slot_bytes), width);
        }
    }

    #[test]
    fn choices_are_spelled_as_they_are_read() {
        for choice in FingerprintWidth::ALL
            .map(WidthChoice::Fixed)
            .into_iter()
            .chain([WidthChoice::Auto, WidthChoice::None])
        {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert_eq!(WidthChoice::default().of(8, 24), FingerprintWidth::Bits16);
        for text in ["", "12", "16 bits", "AUTO", "-8"] {
            assert!(text.parse::<WidthChoice>().is_err_and(|e| e.to_string().contains("8, 16, 32 or 64")));
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
