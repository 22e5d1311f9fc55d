//! A bounded reader of a region in the process of its memory node, which reads as clients that map
//! it do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::endpoint::{Another, AreaInfo, Completion, Endpoint, Rejected, Ticket};
use crate::error::FabricError;
use crate::in_place::InPlace;
use crate::mapped::{Area, Link, MappedEndpoint};
use crate::memory::{Access, SharedMemory, Words};
use crate::meter::Meter;
use crate::region::Export;
use crate::verbs::{AreaId, Batch, REGION, RemoteAddr, Request};

/// An endpoint that reads a region in the process of its memory node, and changes nothing: memory
/// that is mapped there, or that of a simulated memory node.
///
/// It touches nothing from the end of what is backed on, as the threads that serve sockets do not:
/// a READ that reaches there fails with [`OutOfBounds`](FabricError::OutOfBounds), where a client
/// that maps the region would find zeros.
#[derive(Debug)]
pub struct RegionReader<E = MappedEndpoint> {
    inner: E,
    backed_end: Arc<AtomicU64>,
    /// Bytes that may still be looked at.
    allowed: u64,
}

impl Export {
    /// An endpoint that reads the region in this process.
    ///
    /// # Errors
    /// If the operating system does not map the region, or has no page of memory.
    pub fn reader(&self) -> Result<RegionReader, FabricError> {
        let memory: Arc<SharedMemory> = self.map()?;
        let areas: Arc<[Area]> = [Area::new(memory, Access::ReadOnly)].into();
        let link = Arc::new(Link::new("in this process")?);
        let inner = MappedEndpoint::new(areas, link, None);
        Ok(RegionReader { inner, backed_end: self.backed_end(), allowed: u64::MAX })
    }
}

impl<E: Endpoint> From<E> for RegionReader<E> {
    /// Reads by this endpoint, whose region is backed as far as it reaches.
    fn from(inner: E) -> Self {
        Self { inner, backed_end: Arc::new(AtomicU64::new(u64::MAX)), allowed: u64::MAX }
    }
}

impl<E: Another> Another for RegionReader<E> {
    /// It has no limit.
    fn another(&self) -> Self {
        let (inner, backed_end) = (self.inner.another(), Arc::clone(&self.backed_end));
        Self { inner, backed_end, allowed: u64::MAX }
    }
}

impl<E> RegionReader<E> {
    /// Allows at most `bytes` bytes to be looked at from now on: what goes beyond them fails with
    /// [`TooLong`](FabricError::TooLong), and is not looked at.
    pub fn allow(&mut self, bytes: u64) {
        self.allowed = bytes;
    }

    /// How many of them are left.
    pub fn allowed(&self) -> u64 {
        self.allowed
    }
}

/// Takes bytes that are to be looked at from those that may be.
#[inline(always)]
fn spend(allowed: &mut u64, bytes: u64) -> Result<(), FabricError> {
    match allowed.checked_sub(bytes) {
        Some(left) => {
            *allowed = left;
            Ok(())
        }
        None => Err(not_allowed(bytes, *allowed)),
    }
}

#[cold]
fn not_allowed(len: u64, max: u64) -> FabricError {
    FabricError::TooLong { len, max }
}

/// That these bytes are backed.
#[inline(always)]
fn check(backed_end: &AtomicU64, offset: u64, len: u64) -> Result<(), FabricError> {
    let end = backed_end.load(Ordering::Acquire);
    match offset.checked_add(len) {
        Some(last) if last <= end => Ok(()),
        _ => Err(not_backed(offset, len, end)),
    }
}

#[cold]
fn not_backed(offset: u64, len: u64, area_len: u64) -> FabricError {
    FabricError::OutOfBounds { area: REGION, offset, len, area_len }
}

/// The region where it lies, up to the end of what is backed.
#[derive(Debug)]
pub struct BackedInPlace<'a, L> {
    inner: L,
    backed_end: &'a AtomicU64,
    allowed: &'a mut u64,
}

impl<L> BackedInPlace<'_, L> {
    /// That these bytes are backed, and may be looked at.
    #[inline(always)]
    fn check(&mut self, offset: u64, len: u64) -> Result<(), FabricError> {
        check(self.backed_end, offset, len)?;
        spend(self.allowed, len)
    }
}

impl<L: InPlace> InPlace for BackedInPlace<'_, L> {
    #[inline(always)]
    fn prefetch(&self, offset: u64, bytes: usize) {
        // A prefetch takes no page.
        self.inner.prefetch(offset, bytes);
    }

    #[inline(always)]
    fn words(&mut self, offset: u64, bytes: usize) -> Result<Words<'_>, FabricError> {
        self.check(offset, bytes as u64)?;
        self.inner.words(offset, bytes)
    }

    #[inline(always)]
    fn record(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError> {
        self.check(offset, size_of_val(out) as u64)?;
        self.inner.record(offset, out)
    }

    fn copy(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError> {
        self.check(offset, size_of_val(out) as u64)?;
        self.inner.copy(offset, out)
    }

    #[inline(always)]
    fn load_after_reads(&mut self, offset: u64) -> Result<u64, FabricError> {
        check(self.backed_end, offset, 8)?;
        self.inner.load_after_reads(offset)
    }

    #[inline(always)]
    fn count(&mut self, round_trips: u32, reads: u32, bytes: u64) -> Result<(), FabricError> {
        self.inner.count(round_trips, reads, bytes)
    }

    #[inline(always)]
    fn check_alive(&mut self) -> Result<(), FabricError> {
        self.inner.check_alive()
    }
}

impl<E> RegionReader<E> {
    fn check_all(&mut self, batch: &Batch) -> Result<(), FabricError> {
        let Self { backed_end, allowed, .. } = self;
        batch.requests().try_for_each(|request| match request {
            Request::Read { from, len, .. } if from.area == REGION => {
                check(backed_end, from.offset, len as u64)?;
                spend(allowed, len as u64)
            }
            // The area says what is wrong with the others.
            _ => Ok(()),
        })
    }
}

impl<E: Endpoint> Endpoint for RegionReader<E> {
    type InPlace<'a>
        = BackedInPlace<'a, E::InPlace<'a>>
    where
        E: 'a;

    #[inline(always)]
    fn in_place(&mut self, area: AreaId) -> Result<Option<Self::InPlace<'_>>, FabricError> {
        let inner = self.inner.in_place(area)?;
        let (backed_end, allowed) = (&*self.backed_end, &mut self.allowed);
        Ok(inner.map(|inner| BackedInPlace { inner, backed_end, allowed }))
    }

    fn run(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        self.check_all(batch)?;
        self.inner.run(batch)
    }

    fn guards(&self) -> bool {
        self.inner.guards()
    }

    fn load_after_reads(&mut self, at: RemoteAddr) -> Result<u64, FabricError> {
        check(&self.backed_end, at.offset, 8)?;
        self.inner.load_after_reads(at)
    }

    fn post(&mut self, batch: Batch) -> Result<Ticket, Rejected> {
        match self.check_all(&batch) {
            Ok(()) => self.inner.post(batch),
            Err(error) => Err(Rejected { batch, error }),
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        self.inner.poll()
    }

    fn area(&self, area: AreaId) -> Option<AreaInfo> {
        self.inner.area(area)
    }

    fn meter(&self) -> &Meter {
        self.inner.meter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HugePages;

    #[test]
    fn no_more_is_looked_at_than_is_allowed() {
        let (region, fd) = SharedMemory::create_memfd("test", 1 << 20, HugePages::No).unwrap();
        let export = Export::new(&region, &fd, 1).unwrap();
        region.set_backed_end(1 << 20);
        let mut reader = export.reader().unwrap();
        let is_too_long = |outcome| matches!(outcome, Err(FabricError::TooLong { .. }));
        let mut words = [0; 2];
        for way in 0..3 {
            reader.allow(40);
            let mut look = reader.in_place(REGION).unwrap().unwrap();
            let mut once = || match way {
                0 => look.words(0, 16).map(drop),
                1 => look.record(0, &mut words),
                _ => look.copy(0, &mut words),
            };
            assert!(once().is_ok() && once().is_ok() && is_too_long(once()), "way {way}");
            assert_eq!(reader.allowed(), 8);
        }
        let mut batch = Batch::new();
        batch.read(RemoteAddr::region(0), 16);
        batch.read(RemoteAddr::region(64), 16);
        reader.allow(40);
        assert!(reader.run(&mut batch).is_ok() && is_too_long(reader.run(&mut batch)));
        assert!(reader.another().run(&mut batch).is_ok());
    }

    #[test]
    fn what_is_not_backed_is_not_touched() {
        let (region, fd) = SharedMemory::create_memfd("test", 1 << 20, HugePages::No).unwrap();
        region.store_relaxed(4096, 7).unwrap();
        let export = Export::new(&region, &fd, 1).unwrap();
        region.set_backed_end(8192);
        let mut reader = export.reader().unwrap();
        let mut words = [0; 2];
        reader.read_words(RemoteAddr::region(4096), &mut words).unwrap();
        assert_eq!(words, [7, 0]);
        let is_outside = |outcome| matches!(outcome, Err(FabricError::OutOfBounds { .. }));
        assert!(is_outside(reader.read_words(RemoteAddr::region(8184), &mut words)));
        assert!(is_outside(reader.load_after_reads(RemoteAddr::region(8192)).map(drop)));
        let mut look = reader.in_place(REGION).unwrap().unwrap();
        assert!(look.words(8184, 8).is_ok());
        assert!(is_outside(look.words(8184, 16).map(drop)));
        assert!(is_outside(look.record(8192, &mut words)) && is_outside(look.copy(u64::MAX - 7, &mut words)));
        assert!(is_outside(look.load_after_reads(8192).map(drop)));
        let mut batch = Batch::new();
        batch.read(RemoteAddr::region(0), 16);
        batch.read(RemoteAddr::region(8192), 1);
        assert!(is_outside(reader.run(&mut batch)));
        // What is granted later can be read.
        region.set_backed_end(1 << 20);
        assert!(reader.run(&mut batch).is_ok());
    }
}
