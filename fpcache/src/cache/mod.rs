//! The hot cache: the slots of hot keys, in a few bytes each, within one budget.
//!
//! A [`HotCache`] answers one question before a lookup reads anything: which slot of its window the
//! key lies in. FPCache (§3.3) keeps a fingerprint and the offset from the predicted slot, 4 bytes,
//! where others keep a key and an address, 16; `variants/` has the other combinations of §4.3.2,
//! and LRU, to compare with. Entries lie in buckets of one cache line; a key's hash names the
//! bucket, and inside it every entry will do.
//!
//! **No entry is trusted.** An entry names a slot of the key's window, and the caller reads that
//! slot and compares the full key. An entry that is wrong, because two keys have one tag, the
//! record has moved, or memory was overwritten, costs that one READ and is dropped. Absence is
//! never concluded from the cache.
//!
//! **Hence no locks and no ordering.** All threads share the buckets; words are loaded and
//! compared-and-swapped with relaxed ordering. An entry's bits lie in one word and change by
//! compare-and-swap on it, so they are never torn and a neighbour's change in the same word never
//! lost. In the variants with full keys, key and bits are two words: two threads that fill one
//! entry at once may leave the key of one beside the bits of the other. That is a wrong entry like
//! any other: at worst it names a slot of the key's window that holds another key. Nor does
//! anything else depend on the order of words: a bucket that is read while it changes gives entries
//! that were there, if not at the same time. Where two newcomers want one place, one of them stays
//! out and is learned at its next miss.
//!
//! **The hit path hardly writes.** Levels ([`Policy`]) are logarithms of counts that rise by
//! chance, so a hot entry's cache line stays shared between processors; hits are counted in the
//! [`CacheHandle`], a line of the thread's own.

mod bucket;
mod config;
mod deltas;
mod entries;
mod exact_allocation;
mod fd;
mod handle;
mod heat;
mod hot_cache;
#[cfg(all(test, loom))]
mod loom_tests;
mod packing;
mod probe;
mod replacement;
mod shape;
mod sync;
mod variants;

pub use config::{
    CacheConfig, CacheStats, OnConflict, Policy, UnknownOnConflict, UnknownPolicy, UnknownVariant, Variant,
};
pub use entries::CachedSlot;
pub use handle::{CacheHandle, Counts};
pub use hot_cache::HotCache;
pub use probe::CacheProbe;
pub use shape::{CacheShape, NoCache};
