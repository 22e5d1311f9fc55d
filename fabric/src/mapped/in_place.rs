//! An area of mapped memory, looked at where it lies.

use std::sync::atomic::{Ordering, fence};

use super::areas::{Area, Reach, fault};
use crate::error::FabricError;
use crate::in_place::InPlace;
use crate::memory::{OutOfBounds, PREFETCH_PER_READ, Words};
use crate::verbs::AreaId;

/// One mapped area of an endpoint with nothing in flight. Two pointers: what is handed on with
/// every lookup stays in registers.
#[derive(Debug)]
pub struct MappedInPlace<'a> {
    pub(super) area: &'a Area,
    pub(super) reach: &'a Reach,
}

impl MappedInPlace<'_> {
    /// The area's number.
    #[cold]
    fn id(&self) -> AreaId {
        let at = self.reach.areas.iter().position(|area| std::ptr::eq(area, self.area));
        // There are fewer than 2^16, and the area is one of them.
        AreaId(at.unwrap_or_default() as u16)
    }

    #[cold]
    fn outside(&self, error: OutOfBounds) -> FabricError {
        *fault(self.id(), error.into())
    }

    #[cold]
    fn misaligned(&self, offset: u64) -> FabricError {
        FabricError::Misaligned { area: self.id(), offset }
    }
}

impl InPlace for MappedInPlace<'_> {
    #[inline(always)]
    fn prefetch(&self, offset: u64, bytes: usize) {
        self.area.memory.prefetch(offset, bytes.min(PREFETCH_PER_READ));
    }

    #[inline(always)]
    fn prefetch_around(&self, offset: u64, lines: usize) {
        self.area.memory.prefetch_around(offset, lines);
    }

    #[inline(always)]
    fn prefetch_short(&self, offset: u64, bytes: usize) {
        self.area.memory.prefetch_short(offset, bytes);
    }

    #[inline(always)]
    fn words(&mut self, offset: u64, bytes: usize) -> Result<Words<'_>, FabricError> {
        if !(offset | bytes as u64).is_multiple_of(8) {
            return Err(self.misaligned(offset));
        }
        self.area.memory.words(offset, bytes).map_err(|error| self.outside(error))
    }

    #[inline(always)]
    fn record(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError> {
        let stride = out.len();
        self.area.memory.read_records(offset, out, stride).map_err(|error| self.outside(error))?;
        fence(Ordering::Acquire);
        Ok(())
    }

    #[inline(always)]
    fn record_of<const N: usize>(&mut self, offset: u64) -> Result<[u64; N], FabricError> {
        let record = self.area.memory.read_record(offset).map_err(|error| self.outside(error))?;
        fence(Ordering::Acquire);
        Ok(record)
    }

    fn copy(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError> {
        self.area.memory.read_words(offset, out).map_err(|error| self.outside(error))?;
        fence(Ordering::Acquire);
        Ok(())
    }

    #[inline(always)]
    fn load_after_reads(&mut self, offset: u64) -> Result<u64, FabricError> {
        fence(Ordering::Acquire);
        self.area.memory.load_acquire(offset).map_err(|error| *fault(self.id(), error))
    }

    #[inline(always)]
    fn count(&mut self, round_trips: u32, reads: u32, bytes: u64) -> Result<(), FabricError> {
        self.reach.meter.record_reads(round_trips, reads, bytes);
        self.check_alive()
    }

    #[inline(always)]
    fn check_alive(&mut self) -> Result<(), FabricError> {
        let link = &self.reach.link;
        if link.is_alive() { Ok(()) } else { Err(link.disconnected()) }
    }
}
