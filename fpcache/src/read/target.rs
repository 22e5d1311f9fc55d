//! Where a key can be.

use fpcache_index::Window;

use crate::fingerprint::FingerprintWidth;
use crate::key_space::KeySpace;
use crate::snapshot::Snapshot;

/// A key and where it must be, if it is anywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<K: KeySpace> {
    pub(super) key: K::Key,
    /// Offset of its segment in the region.
    pub(super) segment: u64,
    pub(super) generation: u32,
    pub(super) cap: u16,
    pub(super) window: Window,
}

impl<K: KeySpace> Target<K> {
    /// The only place where `key` can be in the table; `None` if the table has no segments, which none has.
    #[inline]
    pub(super) fn of(snapshot: &Snapshot<K>, key: K::Key) -> Option<Self> {
        let segment = snapshot.directory().locate(&key)?.entry;
        let model = segment.model();
        Some(Self {
            segment: segment.address().offset(),
            generation: segment.generation(),
            cap: model.cap,
            window: model.window(K::coordinate(&key)),
            key,
        })
    }

    /// The key's fingerprint.
    #[inline]
    pub(super) fn fingerprint(&self, width: FingerprintWidth) -> u64 {
        width.of_hash(K::hash(&self.key))
    }
}

/// Whether one request for the whole window beats one per candidate: past half of it.
pub(super) fn too_many(candidates: usize, window: Window) -> bool {
    candidates > 1 && candidates * 2 > window.len() as usize
}
