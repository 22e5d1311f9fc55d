//! External values: one more READ, after the slot's.
//!
//! The slot vouches for the value's checksum and the checksum for the value, so that nothing else
//! is asked of the bytes that arrive. If they are not the value, the record has changed since its
//! slot was read, and is read again as one that was being written; what keeps failing ends in
//! [`ReadError::Contended`]. Most tables have no such values: all of this is kept apart from the
//! ways of those. What a lookup does about them is in the engine, what scans do in
//! `scan/values.rs`.

use fpcache_fabric::{Batch, Endpoint, REGION, RemoteAddr};
use zerocopy::IntoBytes;

use super::ReadError;
use crate::key_space::KeySpace;
use crate::layout::{MAX_VALUE_BYTES, ValueExtent};
use crate::sabotage::{Broken, Sabotage};
use crate::table_view::TableView;

/// Most bytes that a group's keys ask for with one doorbell, of slots and windows and of values; a
/// value that is longer comes alone.
pub(super) const GROUP_BYTES: u64 = 64 << 20;
/// Most requests of a doorbell with which another key begins.
const GROUP_READS: u32 = 1 << 16;
/// Bytes and requests for which buffers keep room from one long value, or from one long group, to
/// the next.
const KEPT_BYTES: usize = 1 << 20;
const KEPT_READS: u32 = 1 << 14;

/// Whether no further key may begin with this doorbell, where `slot_bytes` are the bytes of the
/// slots that keys under way may ask for with the next one.
#[inline]
pub(super) fn is_full(batch: &Batch, slot_bytes: u64) -> bool {
    batch.tally().bytes_from.max(slot_bytes) > GROUP_BYTES || batch.tally().reads >= GROUP_READS
}

/// Clears a batch, without keeping the room for what was long.
#[inline]
pub(super) fn clear(batch: &mut Batch) {
    let tally = batch.tally();
    match tally.bytes_from > KEPT_BYTES as u64 || tally.reads > KEPT_READS {
        true => *batch = Batch::new(),
        false => batch.clear(),
    }
}

/// The rules by which a table's extents are classified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    region_bytes: u64,
    broken: Broken,
}

impl Extents {
    pub(super) fn of<K: KeySpace>(view: &TableView<K>) -> Self {
        Self { region_bytes: view.superblock().region_bytes, broken: view.broken() }
    }

    /// Where to READ an extent, and how many bytes; `None` if no memory node's slot says so,
    /// whatever its checksum.
    pub(super) fn place(self, extent: ValueExtent) -> Option<(RemoteAddr, usize)> {
        let (bytes, offset) = (ValueExtent::memory_bytes(extent.bytes as usize), extent.address.offset());
        let end = offset.checked_add(bytes as u64)?;
        let lies_inside = extent.address.node() == 0 && offset.is_multiple_of(8) && end <= self.region_bytes;
        let lies_inside = lies_inside && extent.bytes as usize <= MAX_VALUE_BYTES;
        lies_inside.then_some((RemoteAddr { area: REGION, offset }, bytes))
    }

    /// The value in the words that were read of an extent, if that is what they are.
    pub(super) fn value(self, extent: ValueExtent, words: &[u8]) -> Option<&[u8]> {
        self.proves(extent, words).then(|| &words[..extent.bytes as usize])
    }

    /// Whether words that were read of an extent begin with its value.
    pub(super) fn proves(self, extent: ValueExtent, words: &[u8]) -> bool {
        let Some(value) = words.get(..extent.bytes as usize) else { return false };
        self.broken.is(Sabotage::UnprovenExtents) || extent.is_proof_of(value)
    }
}

/// READs a value by what a slot, or the memory node's reply to a lookup, says of it: one round
/// trip. `None` if it is not there, because its record has changed since. The buffer is one to be
/// kept.
///
/// # Errors
/// If the fabric fails.
pub fn fetch_value<'b, K: KeySpace, E: Endpoint>(
    endpoint: &mut E,
    view: &TableView<K>,
    extent: ValueExtent,
    buffer: &'b mut Vec<u64>,
) -> Result<Option<&'b [u8]>, ReadError> {
    let extents = Extents::of(view);
    let Some((from, bytes)) = extents.place(extent) else { return Ok(None) };
    if bytes <= KEPT_BYTES && buffer.len() > KEPT_BYTES / 8 {
        *buffer = Vec::new();
    }
    if buffer.len() < bytes / 8 {
        buffer.resize(bytes / 8, 0);
    }
    let words = &mut buffer[..bytes / 8];
    endpoint.read_words(from, words)?;
    Ok(extents.value(extent, words.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{MAX_VALUE_BYTES, SegmentAddress};

    #[test]
    fn what_no_memory_node_writes_is_not_asked_for() {
        let extents = Extents { region_bytes: 4096, broken: Broken::default() };
        let place = |node, offset, bytes| {
            let address = SegmentAddress::new(node, offset).expect("48 bits");
            let placed = extents.place(ValueExtent { address, bytes, checksum: 0 });
            placed.map(|(from, bytes)| (from.offset, bytes))
        };
        assert_eq!(place(0, 8, 17), Some((8, 24)), "whole words");
        assert_eq!(place(0, 4072, 24), Some((4072, 24)), "up to the end");
        assert_eq!(place(0, 4072, 25), None, "past the end");
        assert_eq!(place(0, 12, 8), None, "between words");
        assert_eq!(place(1, 8, 8), None, "another memory node");
        assert_eq!(place(0, SegmentAddress::MAX_OFFSET - 7, MAX_VALUE_BYTES as u32), None);
    }
}
