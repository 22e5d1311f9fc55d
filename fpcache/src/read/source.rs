//! The sources of lookups: memory in place, or what a doorbell batch brought.

use std::sync::atomic::{Ordering, fence};

use fpcache_fabric::{Batch, FabricError, InPlace, Landing, REGION, RemoteAddr, Words};

/// Bytes of the region that were asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requested {
    offset: u64,
    bytes: usize,
    /// Where they land, if they are fetched.
    landing: Landing,
}

impl Requested {
    /// Nothing was.
    pub(super) const NOTHING: Self = Self { offset: 0, bytes: 0, landing: Landing::NOTHING };
}

/// A source of bytes: those asked for in one round trip can be looked at after it.
pub(super) trait Source {
    /// Asks for `bytes` bytes at `offset` of the region.
    fn ask(&mut self, offset: u64, bytes: usize) -> Requested;

    /// Asks for slots, each guarded by its word.
    fn ask_slots(&mut self, offset: u64, bytes: usize, slot_bytes: usize) -> Requested;

    /// The words that were asked for: of many moments where they are looked at in place.
    fn words(&mut self, asked: &Requested) -> Result<Words<'_>, FabricError>;

    /// Copies the slot that lies `at` bytes after the beginning of what was asked for: whole, or
    /// with a busy word where that can be told.
    fn slot(&mut self, asked: &Requested, at: usize, out: &mut [u64]) -> Result<(), FabricError>;
}

/// Memory looked at in place: what is asked for is prefetched, because other bytes are looked at
/// before.
#[derive(Debug)]
pub(super) struct Mapped<L> {
    look: L,
    /// Whether slots are copied with their guards.
    guards: bool,
    /// READs asked for since the last round trip.
    reads: u32,
    bytes: u64,
}

impl<L: InPlace> Mapped<L> {
    #[inline(always)]
    pub(super) fn new(look: L, guards: bool) -> Self {
        Self { look, guards, reads: 0, bytes: 0 }
    }

    /// Closes a round trip.
    #[inline(always)]
    pub(super) fn end_trip(&mut self) -> Result<(), FabricError> {
        let (reads, bytes) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.bytes));
        fence(Ordering::Acquire);
        self.look.count(1, reads, bytes)
    }

    /// Whether the memory node is there, after everything that was looked at.
    #[inline(always)]
    pub(super) fn check_alive(&mut self) -> Result<(), FabricError> {
        self.look.check_alive()
    }

    /// The word at `offset`, after everything that was looked at.
    #[inline(always)]
    pub(super) fn load_after_reads(&mut self, offset: u64) -> Result<u64, FabricError> {
        self.look.load_after_reads(offset)
    }
}

impl<L: InPlace> Source for Mapped<L> {
    #[inline(always)]
    fn ask(&mut self, offset: u64, bytes: usize) -> Requested {
        self.reads += 1;
        self.bytes += bytes as u64;
        self.look.prefetch(offset, bytes);
        Requested { offset, bytes, landing: Landing::NOTHING }
    }

    #[inline(always)]
    fn ask_slots(&mut self, offset: u64, bytes: usize, _: usize) -> Requested {
        self.ask(offset, bytes)
    }

    #[inline(always)]
    fn words(&mut self, asked: &Requested) -> Result<Words<'_>, FabricError> {
        self.look.words(asked.offset, asked.bytes)
    }

    #[inline(always)]
    fn slot(&mut self, asked: &Requested, at: usize, out: &mut [u64]) -> Result<(), FabricError> {
        match self.guards {
            true => self.look.record(asked.offset + at as u64, out),
            false => self.look.copy(asked.offset + at as u64, out),
        }
    }
}

/// The bytes that landed with the last doorbell batch, and the next batch.
#[derive(Debug)]
pub(super) struct Landed<'a> {
    pub(super) landed: &'a Batch,
    pub(super) next: &'a mut Batch,
    pub(super) guards: bool,
}

impl Source for Landed<'_> {
    fn ask(&mut self, offset: u64, bytes: usize) -> Requested {
        let landing = self.next.read(RemoteAddr { area: REGION, offset }, bytes);
        Requested { offset, bytes, landing }
    }

    fn ask_slots(&mut self, offset: u64, bytes: usize, slot_bytes: usize) -> Requested {
        if !self.guards {
            return self.ask(offset, bytes);
        }
        let landing = self.next.read_records(RemoteAddr { area: REGION, offset }, bytes, slot_bytes);
        Requested { offset, bytes, landing }
    }

    fn words(&mut self, asked: &Requested) -> Result<Words<'_>, FabricError> {
        Ok(self.landed.words(asked.landing).into())
    }

    fn slot(&mut self, asked: &Requested, at: usize, out: &mut [u64]) -> Result<(), FabricError> {
        // The window's slots that were asked for have landed whole, each under its guard.
        let words = self.landed.words(asked.landing).get(at / 8..).unwrap_or_default();
        let some = words.len().min(out.len());
        out[..some].copy_from_slice(&words[..some]);
        out[some..].fill(0);
        Ok(())
    }
}
