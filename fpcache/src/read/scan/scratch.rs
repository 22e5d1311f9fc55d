//! The buffers that scans keep between their steps and between calls: stretches that were asked
//! for, and records that were found.

use fpcache_fabric::{Batch, Landing};

use super::stretch::Stretch;
use crate::key_space::KeySpace;
use crate::layout::{Stored, ValueExtent};
use crate::read::{Cost, MAX_ATTEMPTS, ReadError};

/// Bytes of records after which a scan stops, so that the caller takes them before there are more.
const PAUSE_BYTES: usize = 16 << 20;
/// Bytes of records that there is room for from one scan to the next.
const KEPT_BYTES: usize = 4 << 20;

/// Buffers of scans, kept between calls.
#[derive(Debug, Default)]
pub struct ScanScratch<K: KeySpace> {
    pub(super) batch: Batch,
    pub(super) stretches: Vec<Stretch<K>>,
    pub(super) found: Vec<ScannedRecord<K>>,
    pub(super) records: Vec<ScannedRecord<K>>,
    /// Keys that have bytes, and values.
    pub(super) arena: Vec<u8>,
    /// Where values lie that are outside the slots of the stretches.
    pub(super) extents: Vec<ValueExtent>,
    /// The landings of values that were asked for.
    pub(super) landings: Vec<Landing>,
}

/// How far a scan has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// How many records are whole; the values of those after are missing, or of some.
    pub(super) whole: usize,
    pub(super) attempts: u32,
    pub(super) cost: Cost,
}

impl Progress {
    /// How many records are whole while what could not be told is read again; `None` while nothing
    /// is.
    pub(super) fn stuck_at(&self) -> Option<usize> {
        (self.attempts > 0).then_some(self.whole)
    }

    /// Counts another attempt at what could not be told.
    pub(super) fn try_again(&mut self) -> Result<(), ReadError> {
        self.attempts += 1;
        match self.attempts {
            MAX_ATTEMPTS.. => Err(ReadError::Contended { attempts: self.attempts }),
            _ => Ok(()),
        }
    }
}

/// A record that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScannedRecord<K: KeySpace> {
    pub(super) key: K::Kept,
    pub(super) value: ScannedValue,
}

impl<K: KeySpace> ScannedRecord<K> {
    #[inline]
    pub(super) fn key<'k>(&'k self, arena: &'k [u8]) -> &'k K::Key {
        K::kept(&self.key, arena)
    }
}

/// Where a scan has the value of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScannedValue {
    /// Where it starts in the arena, or the number of its extent.
    pub(super) start: usize,
    bytes: u32,
    is_external: bool,
}

impl ScannedValue {
    /// Puts a value into the arena, or its extent to the others.
    #[inline]
    pub(super) fn keep(value: &Stored<'_>, arena: &mut Vec<u8>, extents: &mut Vec<ValueExtent>) -> Self {
        match value {
            Stored::Here(value) => Self::of(value, arena),
            Stored::External(extent) => {
                extents.push(*extent);
                Self { start: extents.len() - 1, bytes: extent.bytes, is_external: true }
            }
        }
    }

    #[inline]
    pub(super) fn of(value: &[u8], arena: &mut Vec<u8>) -> Self {
        let start = arena.len();
        arena.extend_from_slice(value);
        // Values have at most 16 MiB.
        Self { start, bytes: value.len() as u32, is_external: false }
    }

    /// The value; nothing of one that is outside.
    #[inline]
    fn value(self, arena: &[u8]) -> &[u8] {
        if self.is_external { &[] } else { &arena[self.start..][..self.bytes as usize] }
    }

    /// That of a record of which no more is wanted than its key.
    pub(super) const NOT_WANTED: Self = Self { start: 0, bytes: 0, is_external: false };

    #[inline]
    pub(super) fn is_here(&self) -> bool {
        !self.is_external
    }
}

impl<K: KeySpace> ScanScratch<K> {
    /// Forgets what the last scan found, and lets go of its memory, if that is much.
    pub fn clear(&mut self) {
        self.records.clear();
        self.records.shrink_to(KEPT_BYTES / size_of::<ScannedRecord<K>>());
        self.arena.clear();
        self.arena.shrink_to(KEPT_BYTES);
        self.stretches.clear();
        self.batch.clear();
        self.landings.clear();
    }

    /// Whether so much was found that it should be taken before there is more.
    pub(super) fn is_enough(&self) -> bool {
        self.arena.len() + self.records.len() * size_of::<ScannedRecord<K>>() > PAUSE_BYTES
    }

    /// The first key, in the order of the scan, whose value is missing.
    pub(super) fn first_missing(&self, progress: &Progress) -> Option<&K::Key> {
        self.records.get(progress.whole).map(|found| found.key(&self.arena))
    }

    /// The records that are whole.
    pub(super) fn whole(&self, progress: &Progress) -> impl ExactSizeIterator<Item = (&K::Key, &[u8])> {
        let Self { records, arena, .. } = self;
        let whole = &records[..progress.whole];
        whole.iter().map(move |found| (found.key(arena), found.value.value(arena)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_space::U64Keys;

    /// Of keys without values any number was kept, and threads kept the memory of their longest
    /// scan.
    #[test]
    fn a_scan_has_enough_after_so_many_bytes_of_records_and_lets_go_of_them() {
        let mut scratch = ScanScratch::<U64Keys>::default();
        let key = U64Keys::keep(&7, &mut scratch.arena);
        let found = ScannedRecord { key, value: ScannedValue::NOT_WANTED };
        scratch.records = vec![found; PAUSE_BYTES / size_of::<ScannedRecord<U64Keys>>()];
        assert!(!scratch.is_enough());
        scratch.arena.extend([0; size_of::<ScannedRecord<U64Keys>>()]);
        assert!(scratch.is_enough());
        scratch.arena.reserve(PAUSE_BYTES);
        scratch.clear();
        assert!(!scratch.is_enough());
        let kept =
            scratch.arena.capacity() + scratch.records.capacity() * size_of::<ScannedRecord<U64Keys>>();
        assert!(kept <= 2 * KEPT_BYTES, "{kept}");
    }
}
