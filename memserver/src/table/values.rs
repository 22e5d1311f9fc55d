//! External values: values too long for their slots.
//!
//! A value is written completely before a slot refers to it, and its memory is free as soon as no
//! slot does. A reader checks its bytes by the checksum in the slot, and reads the slot again if
//! they differ.

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Corrupt, SegmentAddress, Stored, ValueExtent};
use fpcache_fabric::NodeMemory;

use super::error::TableError;
use crate::space::{Extent, Space};
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

    /// A slot no longer names one value, and names another: the memory of the first is free, unless
    /// they are the same.
    pub(crate) fn exchange(&mut self, space: &mut Space, before: Option<&ValueExtent>, now: &Stored<'_>) {
        if let Some(before) = before {
            self.remove(before);
            if !matches!(now, Stored::External(now) if now.address == before.address) {
                space.put(memory_of(before));
            }
        }
        if let Stored::External(now) = now {
            self.add(now);
        }
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
pub(crate) fn read_value<K: BuildKeys, M: NodeMemory>(
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
