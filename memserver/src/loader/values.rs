//! External values of records being loaded. Long ones arrive ahead of their records, in pieces.

use fpcache::key_space::BuildKeys;
use fpcache::layout::{Stored, ValueExtent, ValuePlace};
use fpcache::message::{MAX_AHEAD_BYTES, Sent, ValuePiece};
use fpcache_fabric::NodeMemory;
use xxhash_rust::xxh3::xxh3_64;

use super::{LoadError, Loader};
use crate::allocator::Exhausted;
use crate::request_memory::Transit;
use crate::space::Extent;
use crate::table::values::value_at;
use crate::uploads::{MOST_VALUES, Upload};

impl<K: BuildKeys> Loader<K> {
    /// Takes a piece of the value of a record to come; `false` if it is not the next one.
    pub(crate) fn take_piece(
        &mut self,
        region: &impl NodeMemory,
        piece: &ValuePiece<'_>,
        transit: &Transit,
    ) -> Result<bool, LoadError> {
        if piece.offset == 0 {
            self.begin_value(piece, transit)?;
        }
        let Some(upload) = self.ahead.get_mut(&piece.operation) else { return Ok(false) };
        Ok(upload.add(region, piece)?)
    }

    /// Finds memory for a value whose first piece has come. What came of the same value before
    /// makes way for it: its memory is the value's if that is as long, and what the value does
    /// not need is the table's when the load ends.
    fn begin_value(&mut self, piece: &ValuePiece<'_>, transit: &Transit) -> Result<(), LoadError> {
        let bytes = piece.value_bytes;
        let before = self.ahead.remove(&piece.operation).filter(|before| {
            self.ahead_bytes -= u64::from(before.bytes());
            let is_enough = before.bytes() >= bytes;
            self.unused.extend(before.memory().filter(|_| !is_enough));
            is_enough
        });
        let is_full = self.ahead.len() >= MOST_VALUES;
        if is_full || self.ahead_bytes + u64::from(bytes) > MAX_AHEAD_BYTES as u64 {
            return Err(LoadError::TooMuchAhead);
        }
        let memory = match before.and_then(|before| before.memory()) {
            Some(memory) => {
                let len = ValueExtent::memory_bytes(bytes as usize) as u64;
                if memory.len > len {
                    self.unused.push(Extent { offset: memory.offset + len, len: memory.len - len });
                }
                Extent { len, ..memory }
            }
            None => self.allocate_value(bytes as usize)?,
        };
        self.ahead_bytes += u64::from(bytes);
        self.ahead.insert(piece.operation, Upload::begin(Some(memory), bytes, transit.hold_value()));
        Ok(())
    }

    fn allocate_value(&mut self, bytes: usize) -> Result<Extent, LoadError> {
        let len = ValueExtent::memory_bytes(bytes);
        let offset = self.allocator.allocate(len).map_err(|Exhausted| self.full())?;
        Ok(Extent { offset, len: len as u64 })
    }

    /// A value as its slot will have it: written to the region if it is to be external.
    pub(super) fn put_in_place<'v>(
        &mut self,
        region: &impl NodeMemory,
        place: ValuePlace,
        value: &Sent<'v>,
    ) -> Result<Stored<'v>, LoadError> {
        let extent = match (value, place) {
            (Sent::Here(value), ValuePlace::Here) => return Ok(Stored::Here(value)),
            (Sent::Here(value), ValuePlace::External) => {
                let memory = self.allocate_value(value.len())?;
                region.write_bytes(memory.offset, value)?;
                value_at(self.node, memory, value.len() as u32, xxh3_64(value)).ok_or_else(|| self.full())?
            }
            (Sent::Ahead(bytes), _) => {
                let upload = self.ahead.remove(&(self.keys as u32));
                self.ahead_bytes -= upload.as_ref().map_or(0, |upload| u64::from(upload.bytes()));
                if place != ValuePlace::External {
                    self.unused.extend(upload.as_ref().and_then(Upload::memory));
                }
                let upload = upload.filter(|_| place == ValuePlace::External);
                let extent = upload
                    .filter(|upload| upload.is_whole(*bytes))
                    .and_then(|upload| upload.finish(self.node));
                extent.ok_or(LoadError::NoValue { number: self.keys, bytes: *bytes })?
            }
        };
        self.external.add(&extent);
        Ok(Stored::External(extent))
    }
}
