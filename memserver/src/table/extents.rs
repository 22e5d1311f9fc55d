//! External values.
//!
//! An extent is written whole before a slot names it, and its memory is free as soon as none does: its bytes prove
//! themselves by the checksum in the slot, so readers who come late read the slot again.

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Corrupt, RecordParts, SegmentAddress, Stored, ValueExtent};
use fpcache_fabric::{AccessError, NodeMemory};
use xxhash_rust::xxh3::xxh3_64;

use super::slots::{LiveRecord, Slots, live_records};
use super::{Table, TableError};
use crate::space::Extent;
use crate::superblock_writer::SuperblockWriter;

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

impl<K: BuildKeys> Table<K> {
    /// Free memory for a value.
    pub(crate) fn allocate_value<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        bytes: usize,
    ) -> Result<Extent, TableError> {
        let len = ValueExtent::memory_bytes(bytes) as u64;
        if self.is_known_too_long(len) {
            return Err(self.no_room(superblock));
        }
        self.note_value(len);
        let memory = self.allocate_for_records(superblock, len)?;
        if SegmentAddress::new(self.node, memory.offset).is_none() {
            self.space.put(memory);
            return Err(self.no_room(superblock));
        }
        Ok(memory)
    }

    /// Does some more of what can make room for a value that found none; whether it helped, once that is known. No slot may be
    /// spoken for.
    pub(crate) fn make_room_for_value<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        bytes: usize,
    ) -> Result<Option<bool>, TableError> {
        let len = ValueExtent::memory_bytes(bytes) as u64;
        let made = match self.is_known_too_long(len) && !self.is_searching() {
            true => Some(false),
            false => self.step_search(superblock, len)?,
        };
        if made == Some(false) {
            self.note_too_long(len);
        }
        Ok(made)
    }

    /// Gives the memory of a value back that no slot names.
    pub(crate) fn free_value(&mut self, memory: Extent) {
        self.space.put(memory);
    }

    /// Writes a value that is to be external into free memory.
    pub(crate) fn write_value<M: NodeMemory>(
        &mut self,
        superblock: &mut SuperblockWriter<K, M>,
        value: &[u8],
    ) -> Result<ValueExtent, TableError> {
        let memory = self.allocate_value(superblock, value.len())?;
        superblock.region.write_bytes(memory.offset, value)?;
        // Values have at most 16 MiB; and the address was looked at.
        let extent = value_at(self.node, memory, value.len() as u32, xxh3_64(value));
        extent.ok_or_else(|| self.no_room(superblock))
    }

    /// The value that a live slot names, if its value is external.
    #[inline]
    pub(super) fn value_of<M: NodeMemory>(
        &mut self,
        slots: &Slots<'_, M>,
        slot: u32,
    ) -> Result<Option<ValueExtent>, AccessError> {
        if self.geometry.shape.value_bytes.is_some() || !slots.names_extent(slot)? {
            return Ok(None);
        }
        self.extent_in(slots, slot)
    }

    #[cold]
    fn extent_in<M: NodeMemory>(
        &mut self,
        slots: &Slots<'_, M>,
        slot: u32,
    ) -> Result<Option<ValueExtent>, AccessError> {
        let (body, shape) = (&mut self.scratch.body, self.geometry.shape);
        body.resize(shape.body_bytes(), 0);
        slots.read_body(slot, body)?;
        // Memory is not freed on the word of a slot that is damaged.
        let is_whole = slots.vouches_for(slot, body)?;
        Ok(match shape.parts::<K>(body) {
            Some(RecordParts { value: Stored::External(extent), .. }) if is_whole => Some(extent),
            _ => None,
        })
    }

    /// A slot no longer names one value, and names another: the memory of the first is free, unless they are the same.
    pub(super) fn exchange(&mut self, before: Option<&ValueExtent>, now: &Stored<'_>) {
        if let Some(before) = before {
            self.external.remove(before);
            if !matches!(now, Stored::External(now) if now.address == before.address) {
                self.space.put(memory_of(before));
            }
        }
        if let Stored::External(now) = now {
            self.external.add(now);
        }
    }

    /// External values.
    pub(crate) fn external(&self) -> ExternalValues {
        self.external
    }

    /// Calls `each` with the value of every live record that has it outside its slot.
    pub(super) fn each_extent<M: NodeMemory>(
        &self,
        superblock: &SuperblockWriter<K, M>,
        mut each: impl FnMut(ValueExtent) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        if self.geometry.shape.value_bytes.is_some() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for (_, segment) in &self.directory {
            Slots::of(&*superblock.region, self.geometry, segment).read_all(&mut bytes)?;
            for LiveRecord { word, body, parts, .. } in live_records::<K>(&self.geometry, &bytes) {
                // A slot that is damaged names nothing: nobody can read its record either.
                if let Stored::External(extent) = parts.value
                    && word.vouches_for(segment.generation(), body)
                {
                    each(extent)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the memory of all external values from what counts as free: everything but the segments, so far.
    pub(crate) fn claim_extents<M: NodeMemory>(
        &mut self,
        superblock: &SuperblockWriter<K, M>,
    ) -> Result<(), TableError> {
        let mut found = Vec::new();
        self.each_extent(superblock, |extent| {
            found.push(memory_of(&extent));
            Ok(())
        })?;
        for extent in found {
            if !self.space.claim(extent) {
                let why = "a slot names memory beyond the region, or in use for something else";
                return Err(Corrupt::new("value", extent.offset, why).into());
            }
        }
        Ok(())
    }

    /// Reads an external value, and appends it to `out`.
    pub(crate) fn read_value<M: NodeMemory>(
        &self,
        superblock: &SuperblockWriter<K, M>,
        extent: &ValueExtent,
        out: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        let at = out.len();
        out.resize(at + extent.bytes as usize, 0);
        superblock.region.read_bytes(extent.address.offset(), &mut out[at..])?;
        if extent.vouches_for(&out[at..]) {
            return Ok(());
        }
        Err(Corrupt::new("value", extent.address.offset(), "its checksum does not match").into())
    }

    /// Checks every external value: its bytes, and that its memory is not free and no other value's.
    pub(super) fn audit_extents<M: NodeMemory>(
        &self,
        superblock: &SuperblockWriter<K, M>,
    ) -> Result<ExternalValues, TableError> {
        let (mut external, mut all, mut value) = (ExternalValues::default(), Vec::new(), Vec::new());
        self.each_extent(superblock, |extent| {
            value.clear();
            self.read_value(superblock, &extent, &mut value)?;
            external.add(&extent);
            all.push(memory_of(&extent));
            Ok(())
        })?;
        all.sort_unstable();
        let damaged = |extent: &Extent, why: &str| Err(Corrupt::new("value", extent.offset, why).into());
        if let Some(pair) = all.windows(2).find(|pair| pair[0].offset + pair[0].len > pair[1].offset) {
            return damaged(&pair[1], "two slots name its memory");
        }
        if let Some(extent) = all.iter().find(|extent| self.space.overlaps(**extent)) {
            return damaged(extent, "its memory counts as free");
        }
        if external != self.external {
            let why = format!("there are {external:?}, and {:?} are counted", self.external);
            return Err(Corrupt::new("value", 0, why).into());
        }
        Ok(external)
    }
}
