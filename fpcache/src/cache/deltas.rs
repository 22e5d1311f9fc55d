//! The offsets of slots from where the model puts them, as entries hold them.

use super::probe::CacheProbe;

/// Deltas of a table: how far slots lie from where the model puts them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deltas {
    pub(super) bias: u32,
    pub(super) bits: u32,
}

impl Deltas {
    /// Farther slots are not cached: as many bits as `d` has for a delta, and more than a table's
    /// greatest ε needs, groups included.
    const FARTHEST: u32 = (1 << 14) - 1;

    /// For windows of at most 2·`epsilon` + 1 slots.
    pub(super) fn new(epsilon: u32) -> Self {
        let bias = epsilon.min(Self::FARTHEST);
        Self { bias, bits: u32::BITS - (2 * bias).leading_zeros() }
    }

    #[inline]
    pub(super) fn encode(self, probe: &CacheProbe, slot: u32) -> Option<u64> {
        // A segment has fewer than 2^16 slots; for callers who say otherwise this is what `decode`
        // takes back.
        let delta = slot.wrapping_add(self.bias).wrapping_sub(probe.predicted);
        (delta <= 2 * self.bias).then_some(u64::from(delta))
    }

    #[inline]
    pub(super) fn decode(self, probe: &CacheProbe, delta: u64) -> Option<u32> {
        // At most 15 bits of delta beside a predicted slot: a segment has fewer than 2^16, and
        // hostile callers wrap.
        let slot = probe.predicted.wrapping_add(delta as u32).wrapping_sub(self.bias);
        probe.window.contains(slot).then_some(slot)
    }
}
