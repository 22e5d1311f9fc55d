//! The window of slots in which a key can be.

use fpcache_index::Window;
use fpcache_index::groups::finest;

use crate::cache::CacheProbe;
use crate::group_tables::SegmentName;
use crate::key_space::KeySpace;
use crate::layout::SegmentGeometry;
use crate::models::{Page, Segment};
use crate::plan::Plan;
use crate::table_view::TableView;

/// Where a key must be, if it is anywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotWindow {
    /// Offset of its segment in the region.
    pub(super) segment: u64,
    pub(super) generation: u32,
    pub(super) cap: u16,
    pub(super) predicted: u32,
    pub(super) window: Window,
    /// The line's value at the key, in fractions of [`finest`].
    pub(super) finest: i64,
}

impl SlotWindow {
    /// A key whose place is not known yet.
    pub(super) const UNKNOWN: Self = {
        let window = Window { first: 0, last: 0 };
        Self { segment: 0, generation: 0, cap: 0, predicted: 0, window, finest: 0 }
    };

    /// The only place where `key` can be in the table; `None` if the page of the directory for it
    /// is not here.
    // With assertions, as in tests, it is compiled once, not as part of each caller.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn of<K: KeySpace>(view: &TableView<K>, key: &K::Key) -> Option<Self> {
        view.models()
            .with_segment(key, |segment, shared| Self::in_segment(segment, key, shared, view.encoders()))
    }

    /// The only place where `key` can be, given the page of the directory for it.
    pub(super) fn in_page<K: KeySpace>(page: &Page<K>, key: &K::Key, encoders: &K::Encoders) -> Self {
        let (segment, shared) = page.find_shared(key);
        Self::in_segment(segment, key, shared, encoders)
    }

    /// The only place in `segment` where `key` can be.
    // With assertions, as in tests, it is compiled once, not as part of each caller.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn in_segment<K: KeySpace>(
        segment: &Segment<K>,
        key: &K::Key,
        shared: usize,
        encoders: &K::Encoders,
    ) -> Self {
        let model = segment.model();
        let x = segment.coordinate(key, shared, encoders);
        let predicted = model.predict(x);
        Self {
            segment: segment.address().offset(),
            generation: segment.generation(),
            cap: model.cap,
            predicted,
            window: model.window_around(predicted),
            finest: finest(&model, x),
        }
    }

    /// The name of its segment.
    #[inline(always)]
    pub(super) fn name(&self) -> SegmentName {
        SegmentName { address: self.segment, generation: self.generation, cap: self.cap }
    }

    /// Bytes that `plan` reads for the key once its window is known: what the hot cache saves.
    #[inline]
    pub(super) fn bytes_by(&self, plan: Plan, geometry: &SegmentGeometry) -> u32 {
        let bytes = match plan {
            Plan::Range => self.window.len() as usize * geometry.slot_bytes,
            _ => geometry.fingerprint_span(self.window).len + geometry.slot_bytes,
        };
        // A window has fewer than 2^16 slots of at most 68 KiB and a few bytes: beyond 4 GiB all
        // are as dear.
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// The probe of the hot cache for the key.
    #[inline(always)]
    pub(super) fn cache_probe<K: KeySpace>(
        &self,
        (key, hash): (&K::Key, u64),
        geometry: &SegmentGeometry,
    ) -> CacheProbe {
        CacheProbe {
            hash,
            key: K::tag(key),
            predicted: self.predicted,
            window: self.window,
            slots: self.segment + geometry.slots_offset(self.cap) as u64,
            slot_bytes: geometry.slot_bytes as u32,
        }
    }
}

/// The probe of the hot cache for `key`. `None` where the page of the directory for it is not here.
pub fn cache_probe<K: KeySpace>(view: &TableView<K>, key: &K::Key) -> Option<CacheProbe> {
    Some(SlotWindow::of(view, key)?.cache_probe::<K>((key, K::hash(key)), view.geometry()))
}
