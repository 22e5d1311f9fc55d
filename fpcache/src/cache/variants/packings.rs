//! The packings of larger entries.
//!
//! An entry is some bits of one word and, in the variants that hold full keys, a word for the key:
//!
//! | variant | entries | bits | high to low | words |
//! |---|---|---|---|---|
//! | `f`    |  8 | 64 bits | level 4 · address/8 45 · tag 15 | one entry a word |
//! | `d`    |  6 | 20 bits | level 4 · live 1 · delta 15 | keys in words 0–5, three entries' bits each in words 6 and 7 |
//! | `full` |  4 | 64 bits | level 4 · live 1 · unused 11 · address 48 | key in the even word, bits in the odd |
//!
//! Deltas and tags are those of the entries that are used, and a live bit is set in every entry
//! that means something. No variant has room for one entry more: five `full` ones would take 565
//! bits of 512, seven `d` ones 525 at epsilon 32, nine `f` ones leave 8 bits of tag.

use crate::cache::deltas::Deltas;
use crate::cache::packing::Packing;
use crate::cache::probe::CacheProbe;

/// Offset in the region of `slot`.
#[inline]
fn address(probe: &CacheProbe, slot: u32) -> Option<u64> {
    let address = probe.slots.checked_add(u64::from(slot) * u64::from(probe.slot_bytes))?;
    (address < 1 << 48).then_some(address)
}

/// The slot of the key's window at offset `address` of the region.
#[inline]
fn slot_at(probe: &CacheProbe, address: u64) -> Option<u32> {
    let bytes = u32::try_from(address.checked_sub(probe.slots)?).ok()?;
    let slot = bytes.checked_div(probe.slot_bytes)?;
    (slot * probe.slot_bytes == bytes && probe.window.contains(slot)).then_some(slot)
}

/// Fingerprint and full address.
#[derive(Clone, Copy, Debug)]
pub(super) struct F;

impl F {
    const TAG_BITS: u32 = 15;
}

impl From<Deltas> for F {
    #[inline]
    fn from(_: Deltas) -> Self {
        Self
    }
}

impl Packing for F {
    const ENTRIES: usize = 8;
    const BITS: u32 = 64;

    #[inline]
    fn word(entry: usize) -> usize {
        entry
    }

    #[inline]
    fn shift(_: usize) -> u32 {
        0
    }

    #[inline]
    fn key_word(_: usize) -> Option<usize> {
        None
    }

    #[inline]
    fn mask(&self) -> u64 {
        (1 << Self::TAG_BITS) - 1
    }

    #[inline]
    fn wanted(&self, probe: &CacheProbe) -> u64 {
        (probe.hash & self.mask()).max(1)
    }

    #[inline]
    fn encode_slot(&self, probe: &CacheProbe, slot: u32) -> Option<u64> {
        // Slots lie at multiples of eight.
        let address = address(probe, slot).filter(|address| address.is_multiple_of(8))?;
        Some(((address / 8) << Self::TAG_BITS) | self.wanted(probe))
    }

    #[inline]
    fn slot(&self, probe: &CacheProbe, entry_bits: u64) -> Option<u32> {
        slot_at(probe, (Self::without_level(entry_bits) >> Self::TAG_BITS) * 8)
    }
}

/// Full key and offset from the predicted slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct D(Deltas);

impl D {
    const LIVE: u64 = 1 << 15;
}

impl From<Deltas> for D {
    #[inline]
    fn from(deltas: Deltas) -> Self {
        Self(deltas)
    }
}

impl Packing for D {
    const ENTRIES: usize = 6;
    const BITS: u32 = 20;

    #[inline]
    fn word(entry: usize) -> usize {
        6 + entry / 3
    }

    #[inline]
    fn shift(entry: usize) -> u32 {
        entry as u32 % 3 * 20
    }

    #[inline]
    fn key_word(entry: usize) -> Option<usize> {
        Some(entry)
    }

    #[inline]
    fn mask(&self) -> u64 {
        Self::LIVE
    }

    #[inline]
    fn wanted(&self, _: &CacheProbe) -> u64 {
        Self::LIVE
    }

    #[inline]
    fn encode_slot(&self, probe: &CacheProbe, slot: u32) -> Option<u64> {
        Some(self.0.encode(probe, slot)? | Self::LIVE)
    }

    #[inline]
    fn slot(&self, probe: &CacheProbe, entry_bits: u64) -> Option<u32> {
        self.0.decode(probe, entry_bits & (Self::LIVE - 1))
    }
}

/// Full key and full address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full;

impl Full {
    const LIVE: u64 = 1 << 59;
}

impl From<Deltas> for Full {
    #[inline]
    fn from(_: Deltas) -> Self {
        Self
    }
}

impl Packing for Full {
    const ENTRIES: usize = 4;
    const BITS: u32 = 64;

    #[inline]
    fn word(entry: usize) -> usize {
        2 * entry + 1
    }

    #[inline]
    fn shift(_: usize) -> u32 {
        0
    }

    #[inline]
    fn key_word(entry: usize) -> Option<usize> {
        Some(2 * entry)
    }

    #[inline]
    fn mask(&self) -> u64 {
        Self::LIVE
    }

    #[inline]
    fn wanted(&self, _: &CacheProbe) -> u64 {
        Self::LIVE
    }

    #[inline]
    fn encode_slot(&self, probe: &CacheProbe, slot: u32) -> Option<u64> {
        Some(address(probe, slot)? | Self::LIVE)
    }

    #[inline]
    fn slot(&self, probe: &CacheProbe, entry_bits: u64) -> Option<u32> {
        slot_at(probe, entry_bits & ((1 << 48) - 1))
    }
}
