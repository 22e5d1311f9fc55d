//! External values: values too long for their slots.
//!
//! A value is written completely before a slot refers to it, and its memory is free as soon as no
//! slot does. A reader checks its bytes by the checksum in the slot, and reads the slot again if
//! they differ.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Corrupt, SegmentAddress, Stored, ValueExtent};
use fpcache_fabric::NodeMemory;

use super::error::TableError;
use super::segments::Segments;
use super::segments::copied::extents_in;
use crate::space::Extent;

/// External values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExternalValues {
    /// How many.
    pub(crate) values: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

impl ExternalValues {
    pub(crate) fn add(&mut self, extent: &ValueExtent) {
        self.values += 1;
        self.bytes += u64::from(extent.bytes);
    }

    fn remove(&mut self, extent: &ValueExtent) {
        self.values = self.values.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(u64::from(extent.bytes));
    }

    /// A slot no longer names one value, and names another.
    pub(crate) fn exchange(&mut self, before: Option<&ValueExtent>, now: &Stored<'_>) {
        if let Some(before) = before {
            self.remove(before);
        }
        if let Stored::External(now) = now {
            self.add(now);
        }
    }
}

/// What of a record lies outside its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExternalPart {
    Nothing,
    /// Its value.
    Value(ValueExtent),
    /// The slot is damaged, and does not tell.
    Unknown,
}

/// External values being counted again, segment by segment, while records change.
#[derive(Debug)]
struct Recounting<K: BuildKeys> {
    /// The least key whose value is still to be counted.
    next: K::Owned,
    /// Those of lesser keys.
    counted: ExternalValues,
}

/// The external values of a table, as its slots name them.
#[derive(Debug)]
pub(crate) struct Values<K: BuildKeys> {
    pub(crate) counted: ExternalValues,
    /// How far they have been counted again, after a damaged slot had none to tell.
    recounting: Option<Recounting<K>>,
}

impl<K: BuildKeys> Values<K> {
    pub(super) fn new(counted: ExternalValues) -> Self {
        Self { counted, recounting: None }
    }

    /// A slot of this key no longer has what was outside it before, and has this value. Returns the
    /// memory of the first, which is free, unless they are the same.
    #[inline]
    pub(super) fn exchange(
        &mut self,
        key: &K::Key,
        before: ExternalPart,
        now: &Stored<'_>,
    ) -> Option<Extent> {
        let before = match before {
            ExternalPart::Nothing if matches!(now, Stored::Here(_)) => return None,
            ExternalPart::Nothing => None,
            ExternalPart::Value(before) => Some(before),
            ExternalPart::Unknown => {
                // Whatever it was no longer counts.
                self.count_again();
                None
            }
        };
        self.counted.exchange(before.as_ref(), now);
        if let Some(recounting) = &mut self.recounting
            && key < recounting.next.borrow()
        {
            recounting.counted.exchange(before.as_ref(), now);
        }
        let is_same =
            |before: &ValueExtent| matches!(now, Stored::External(now) if now.address == before.address);
        before.filter(|before| !is_same(before)).as_ref().map(memory_of)
    }

    /// Has external values counted again from the start.
    #[cold]
    pub(super) fn count_again(&mut self) {
        let next = K::lowest().to_owned();
        self.recounting = Some(Recounting { next, counted: ExternalValues::default() });
    }

    /// Counts the external values of some more segments, if they are being counted again; `false`
    /// if they are not.
    pub(super) fn step_recounting<M: NodeMemory>(
        &mut self,
        segments: &Segments<K, M>,
    ) -> Result<bool, TableError> {
        /// Bytes of slots that are read in one step, but for those of a single segment.
        const MOST_READ: usize = 256 << 10;
        let Some(mut recounting) = self.recounting.take() else { return Ok(false) };
        let geometry = segments.geometry;
        let mut bytes = Vec::new();
        let mut read = 0;
        while read < MOST_READ {
            let Some(located) = segments.directory.locate(recounting.next.borrow()) else { break };
            segments.slots(located.entry).read_all(&mut bytes)?;
            read += bytes.len();
            for extent in extents_in::<K>(&geometry, located.entry.generation(), &bytes) {
                let (key, extent) = extent;
                if key.borrow() >= recounting.next.borrow() {
                    recounting.counted.add(&extent);
                }
            }
            let Some(end) = located.end else {
                self.counted = recounting.counted;
                return Ok(true);
            };
            recounting.next = end;
        }
        self.recounting = Some(recounting);
        Ok(true)
    }
}

/// The memory of a value.
pub(crate) fn memory_of(value: &ValueExtent) -> Extent {
    let bytes = ValueExtent::memory_bytes(value.bytes as usize);
    Extent { offset: value.address.offset(), len: bytes as u64 }
}

/// A value of a table of this region, where it is still to be published.
pub(crate) fn value_at(node: u16, memory: Extent, bytes: u32, checksum: u64) -> Option<ValueExtent> {
    Some(ValueExtent { address: SegmentAddress::new(node, memory.offset)?, bytes, checksum })
}

/// Reads an external value, and appends it to `out`.
pub(crate) fn read_value(
    region: &impl NodeMemory,
    extent: &ValueExtent,
    out: &mut Vec<u8>,
) -> Result<(), TableError> {
    let at = out.len();
    out.resize(at + extent.bytes as usize, 0);
    region.read_bytes(extent.address.offset(), &mut out[at..])?;
    if extent.is_proof_of(&out[at..]) {
        return Ok(());
    }
    Err(Corrupt::new("value", extent.address.offset(), "its checksum does not match").into())
}
