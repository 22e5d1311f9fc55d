//! Access to an area where it lies, without a landing buffer.

use crate::error::FabricError;
use crate::memory::Words;

/// One area that the processor can load from where it lies.
///
/// What is looked at this way counts as READ: [`count`](Self::count) has the caller say of how many
/// requests it consists, and closes a round trip.
///
/// *What may be believed.* A word is of one moment, and words of different moments: nothing says
/// which of two was loaded first, not even that the stretch is loaded in any order at all. What
/// must be of one moment begins with a guard and is copied by [`record`](Self::record). Every
/// method that loads by itself ends in an acquire fence; after the loads of [`words`](Self::words)
/// the caller puts one before anything that is to be newer. See
/// [`Endpoint::load_after_reads`](crate::Endpoint::load_after_reads) for what that gives.
pub trait InPlace {
    /// Hints that `bytes` bytes at `offset` will be looked at soon. Out of bounds it does nothing.
    fn prefetch(&self, offset: u64, bytes: usize);

    /// Hints that the cache line at `offset` will be looked at soon, and `lines` of 64 bytes on
    /// either side of it. As [`prefetch`](Self::prefetch), in fewer instructions where `lines` is a
    /// constant.
    #[inline(always)]
    fn prefetch_around(&self, offset: u64, lines: usize) {
        self.prefetch(offset.saturating_sub(64 * lines as u64), 128 * lines + 8);
    }

    /// As [`prefetch`](Self::prefetch), of bytes that lie in two cache lines at most.
    #[inline(always)]
    fn prefetch_short(&self, offset: u64, bytes: usize) {
        self.prefetch(offset, bytes);
    }

    /// The words of `bytes` bytes at `offset`; both must be multiples of eight.
    ///
    /// The loads are the caller's, and so is the acquire fence after them.
    ///
    /// # Errors
    /// [`OutOfBounds`](FabricError::OutOfBounds), [`Misaligned`](FabricError::Misaligned), and for
    /// memory that only seems to be mapped what [`Endpoint::run`](crate::Endpoint::run) fails with.
    fn words(&mut self, offset: u64, bytes: usize) -> Result<Words<'_>, FabricError>;

    /// Copies one record with its guard, as [`Batch::read_records`](crate::Batch::read_records)
    /// does: [`CHANGED`](crate::CHANGED) lands in the place of the guard if the record kept
    /// changing.
    ///
    /// # Errors
    /// As for [`words`](Self::words).
    fn record(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError>;

    /// As [`record`](Self::record), of `N` words, which need not be in memory.
    ///
    /// # Errors
    /// As for [`words`](Self::words).
    #[inline(always)]
    fn record_of<const N: usize>(&mut self, offset: u64) -> Result<[u64; N], FabricError> {
        let mut out = [0; N];
        self.record(offset, &mut out)?;
        Ok(out)
    }

    /// Copies words that are no record.
    ///
    /// # Errors
    /// As for [`words`](Self::words), but any alignment will do.
    fn copy(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError>;

    /// Loads one aligned word after everything looked at before, as
    /// [`Endpoint::load_after_reads`](crate::Endpoint::load_after_reads) does.
    ///
    /// # Errors
    /// As for [`words`](Self::words).
    fn load_after_reads(&mut self, offset: u64) -> Result<u64, FabricError>;

    /// Counts what was looked at as `reads` READs in `round_trips` waits for memory.
    ///
    /// # Errors
    /// As for [`check_alive`](Self::check_alive).
    fn count(&mut self, round_trips: u32, reads: u32, bytes: u64) -> Result<(), FabricError>;

    /// Whether the memory node is there, after everything looked at before: memory outlives it
    /// where it is mapped, and a successor may have newer records.
    ///
    /// # Errors
    /// [`Disconnected`](FabricError::Disconnected) if it has gone.
    fn check_alive(&mut self) -> Result<(), FabricError>;
}

impl<L: InPlace> InPlace for &mut L {
    #[inline(always)]
    fn prefetch(&self, offset: u64, bytes: usize) {
        (**self).prefetch(offset, bytes);
    }

    #[inline(always)]
    fn prefetch_around(&self, offset: u64, lines: usize) {
        (**self).prefetch_around(offset, lines);
    }

    #[inline(always)]
    fn prefetch_short(&self, offset: u64, bytes: usize) {
        (**self).prefetch_short(offset, bytes);
    }

    #[inline(always)]
    fn words(&mut self, offset: u64, bytes: usize) -> Result<Words<'_>, FabricError> {
        (**self).words(offset, bytes)
    }

    #[inline(always)]
    fn record(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError> {
        (**self).record(offset, out)
    }

    #[inline(always)]
    fn record_of<const N: usize>(&mut self, offset: u64) -> Result<[u64; N], FabricError> {
        (**self).record_of(offset)
    }

    fn copy(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError> {
        (**self).copy(offset, out)
    }

    #[inline(always)]
    fn load_after_reads(&mut self, offset: u64) -> Result<u64, FabricError> {
        (**self).load_after_reads(offset)
    }

    #[inline(always)]
    fn count(&mut self, round_trips: u32, reads: u32, bytes: u64) -> Result<(), FabricError> {
        (**self).count(round_trips, reads, bytes)
    }

    #[inline(always)]
    fn check_alive(&mut self) -> Result<(), FabricError> {
        (**self).check_alive()
    }
}

/// The area of a fabric that maps none.
#[derive(Debug)]
pub enum NotMapped {}

impl InPlace for NotMapped {
    fn prefetch(&self, _: u64, _: usize) {
        match *self {}
    }

    fn words(&mut self, _: u64, _: usize) -> Result<Words<'_>, FabricError> {
        match *self {}
    }

    fn record(&mut self, _: u64, _: &mut [u64]) -> Result<(), FabricError> {
        match *self {}
    }

    fn copy(&mut self, _: u64, _: &mut [u64]) -> Result<(), FabricError> {
        match *self {}
    }

    fn load_after_reads(&mut self, _: u64) -> Result<u64, FabricError> {
        match *self {}
    }

    fn count(&mut self, _: u32, _: u32, _: u64) -> Result<(), FabricError> {
        match *self {}
    }

    fn check_alive(&mut self) -> Result<(), FabricError> {
        match *self {}
    }
}
