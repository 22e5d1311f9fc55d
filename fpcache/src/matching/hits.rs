//! The results of matching.

/// Where a window shows what is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// How many fingerprints match, or how many slots show the key.
    pub count: u32,
    /// Position of the first that does, from the window's start: among fingerprints, or of the
    /// slot's first word. Meaningless without one.
    pub first: u32,
    /// Whether any fingerprint is FROZEN; or whether no slot shows the key, and any is frozen: one
    /// that shows it speaks for itself.
    pub frozen: bool,
}

/// Hits in two registers, in which functions that are not inlined return them: how many, with
/// whether any is frozen in the highest bit, and the first.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct PackedHits(u32, u32);

#[cfg(target_arch = "x86_64")]
impl From<Hits> for PackedHits {
    #[inline(always)]
    fn from(hits: Hits) -> Self {
        // No window has 2^31 fingerprints.
        Self(hits.count | u32::from(hits.frozen) << 31, hits.first)
    }
}

#[cfg(target_arch = "x86_64")]
impl From<PackedHits> for Hits {
    #[inline(always)]
    fn from(PackedHits(count, first): PackedHits) -> Self {
        Self { count: count & u32::MAX >> 1, first, frozen: count >> 31 != 0 }
    }
}
