//! The probe of a hot cache: a key, its window and where the segment lies. Made by the read path
//! for every lookup; buckets, packings and heat are looked up by it.

use fpcache_index::Window;

/// A key as the read path knows it before it reads: all that an entry is relative to.
#[derive(Clone, Copy, Debug)]
pub struct CacheProbe {
    /// The key's 64-bit hash: the bucket comes from its high bits, tags from its low ones.
    pub hash: u64,
    /// The key's slot encoding as a word.
    pub key: u64,
    /// The slot the model predicts.
    pub predicted: u32,
    /// The slots in which the key can lie.
    pub window: Window,
    /// Offset of the segment's slot 0 in the region, in bytes.
    pub slots: u64,
    /// Bytes from one slot to the next.
    pub slot_bytes: u32,
}
