//! Where a key can be.

use fpcache_fabric::REGION;
use fpcache_fabric::RemoteAddr;
use fpcache_index::Window;

use super::Plan;
use crate::cache::Spot;
use crate::key_space::KeySpace;
use crate::layout::SegmentGeometry;
use crate::models::{Models, Page, Segment};
use crate::snapshot::Snapshot;

/// A key and where it must be, if it is anywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<K: KeySpace> {
    pub(super) key: K::Key,
    /// Offset of its segment in the region.
    pub(super) segment: u64,
    pub(super) generation: u32,
    pub(super) cap: u16,
    pub(super) predicted: u32,
    pub(super) window: Window,
}

impl<K: KeySpace> Target<K> {
    /// The only place where `key` can be in the table; `None` if the page of the directory for it is
    /// not here.
    #[inline(always)]
    pub(super) fn of(snapshot: &Snapshot<K>, key: K::Key) -> Option<Self> {
        match snapshot.models() {
            Models::Resident(directory) => Some(Self::in_segment(directory.find(&key)?, key)),
            Models::Paged(models) => Some(Self::in_page(&*models.kept(models.page_of(&key))?, key)),
        }
    }

    /// The only place where `key` can be, given the page of the directory for it.
    pub(super) fn in_page(page: &Page<K>, key: K::Key) -> Self {
        Self::in_segment(page.locate(&key), key)
    }

    /// A key whose place is not known yet.
    pub(super) fn unknown(key: K::Key) -> Self {
        let window = Window { first: 0, last: 0 };
        Self { key, segment: 0, generation: 0, cap: 0, predicted: 0, window }
    }

    /// The only place in `segment` where `key` can be.
    #[inline(always)]
    pub(super) fn in_segment(segment: &Segment, key: K::Key) -> Self {
        let model = segment.model();
        let predicted = model.predict(K::coordinate(&key));
        Self {
            segment: segment.address().offset(),
            generation: segment.generation(),
            cap: model.cap,
            predicted,
            window: model.window_around(predicted),
            key,
        }
    }

    /// Whether its place is known: no segment is without slots.
    pub(super) fn is_known(&self) -> bool {
        self.cap > 0
    }

    /// The address of what lies `offset` bytes into the segment.
    #[inline]
    pub(super) fn at(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { area: REGION, offset: self.segment + offset as u64 }
    }

    /// Bytes that `plan` reads for the key once its window is known: what a hint of the hot cache saves.
    #[inline]
    pub(super) fn bytes_by(&self, plan: Plan, geometry: &SegmentGeometry) -> u32 {
        let bytes = match plan {
            Plan::Range => self.window.len() as usize * geometry.slot_bytes,
            _ => geometry.fingerprint_span(self.window).len + geometry.slot_bytes,
        };
        // A window has fewer than 2^16 slots of at most 64 KiB and a few bytes: beyond 4 GiB all are as dear.
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// What the hot cache knows the key by; `None` for keys that are longer than a word.
    #[inline(always)]
    pub(super) fn spot(&self, geometry: &SegmentGeometry) -> Option<Spot> {
        Some(Spot {
            hash: K::hash(&self.key),
            key: K::word(&self.key)?,
            predicted: self.predicted,
            window: self.window,
            slots: self.segment + geometry.slots_offset(self.cap) as u64,
            slot_bytes: geometry.slot_bytes as u32,
        })
    }
}

/// What the hot cache knows `key` by. `None` where the page of the directory for it is not here, and for keys longer than
/// a word.
pub fn spot_of<K: KeySpace>(snapshot: &Snapshot<K>, key: K::Key) -> Option<Spot> {
    Target::of(snapshot, key)?.spot(snapshot.geometry())
}
