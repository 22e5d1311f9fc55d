//! The parts of a region that are registered with a memory node's card.
//!
//! Registering takes a third of a microsecond per page and more, so it is done without the lock
//! that withdrawing takes, which the memory's only writer does: it waits for what overlaps, a piece
//! at most.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::RdmaError;
use super::device::Device;
use super::memory_region::{MemoryRegion, RegionRights};
use super::registration_plan::{next_step, next_step_beside, stretch_of};
use super::wire::RegisteredExtent;
use crate::lock::lock;
use crate::memory::{Registered, SharedMemory};

/// After this long a client is told what is registered so far; it asks again for the rest.
const AT_ONCE: Duration = Duration::from_millis(50);
/// How long nothing is registered after that has failed: at first, and in the end.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// At this number of pieces, only ones that replace others are made.
const MANY: usize = 1536;

/// The registered part of a region.
#[derive(Debug)]
pub(super) struct RegisteredRegion {
    device: Arc<Device>,
    pub(super) memory: Arc<SharedMemory>,
    backed_end: Arc<AtomicU64>,
    pub(super) rights: RegionRights,
    stretch: u64,
    pieces: Mutex<RegisteredPieces>,
    /// That something is not busy any more.
    done: Condvar,
}

#[derive(Debug, Default)]
struct RegisteredPieces {
    /// One after another from the region's begin.
    current: Vec<RegisteredPiece>,
    /// Replaced by others, the oldest first: they stay for those who were told of them and have not
    /// asked since.
    superseded: Vec<RegisteredPiece>,
    /// Pieces that are being registered or given back.
    busy: Vec<Busy>,
    /// Since when nothing more could be registered, and for how long that is not tried again.
    failed: Option<(Instant, Duration)>,
}

#[derive(Debug)]
struct RegisteredPiece {
    registered: MemoryRegion,
    /// Held by every client that was told of it.
    known: PieceUse,
}

/// Held by clients that were told of a piece.
pub(super) type PieceUse = Arc<()>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Busy {
    end: u64,
    registers: bool,
}

/// The answer to a client.
#[derive(Debug, Default)]
pub(super) struct RegisteredExtents {
    pub(super) extents: Vec<RegisteredExtent>,
    pub(super) known: Vec<PieceUse>,
}

/// Something that is done without the lock, until this is dropped.
struct RegistrationGuard<'r> {
    region: &'r RegisteredRegion,
    busy: Busy,
}

impl<'r> RegistrationGuard<'r> {
    fn begin(region: &'r RegisteredRegion, mut pieces: MutexGuard<'r, RegisteredPieces>, busy: Busy) -> Self {
        pieces.busy.push(busy);
        Self { region, busy }
    }

    /// Ends it under the lock.
    fn end(self) -> MutexGuard<'r, RegisteredPieces> {
        let pieces = self.take_back();
        std::mem::forget(self);
        pieces
    }

    fn take_back(&self) -> MutexGuard<'r, RegisteredPieces> {
        let mut pieces = lock(&self.region.pieces);
        if let Some(at) = pieces.busy.iter().position(|other| *other == self.busy) {
            pieces.busy.swap_remove(at);
        }
        self.region.done.notify_all();
        pieces
    }
}

impl Drop for RegistrationGuard<'_> {
    fn drop(&mut self) {
        drop(self.take_back());
    }
}

impl RegisteredPieces {
    fn ranges(&self) -> Vec<Range<u64>> {
        let range = |piece: &RegisteredPiece| piece.registered.offset..piece.registered.end();
        self.current.iter().map(range).collect()
    }

    /// Takes those out of the superseded ones that no client knows any more, and the oldest while
    /// they are more than `most` bytes.
    fn forgotten(&mut self, most: u64) -> Vec<RegisteredPiece> {
        let mut gone: Vec<RegisteredPiece> =
            self.superseded.extract_if(.., |piece| Arc::strong_count(&piece.known) == 1).collect();
        let mut bytes: u64 = self.superseded.iter().map(|piece| piece.registered.len).sum();
        while bytes > most {
            let oldest = self.superseded.remove(0);
            bytes -= oldest.registered.len;
            gone.push(oldest);
        }
        gone
    }
}

impl RegisteredRegion {
    /// Nothing is registered, to begin with.
    pub(super) fn new(
        device: &Arc<Device>,
        memory: &Arc<SharedMemory>,
        backed_end: &Arc<AtomicU64>,
        rights: RegionRights,
    ) -> Self {
        Self {
            device: Arc::clone(device),
            memory: Arc::clone(memory),
            backed_end: Arc::clone(backed_end),
            rights,
            stretch: stretch_of(memory.len() as u64),
            pieces: Mutex::default(),
            done: Condvar::new(),
        }
    }

    /// The device that it is registered with.
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    fn wait<'r>(&self, pieces: MutexGuard<'r, RegisteredPieces>) -> MutexGuard<'r, RegisteredPieces> {
        self.done.wait(pieces).unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers what was granted since, and tells all. What went wrong, and whether that is new.
    pub(super) fn tell(&self, area: u32, told: &mut RegisteredExtents) -> Option<(RdmaError, bool)> {
        let failed = self.grow();
        let pieces = lock(&self.pieces);
        told.known.extend(pieces.current.iter().map(|piece| Arc::clone(&piece.known)));
        told.extents.extend(pieces.current.iter().map(|RegisteredPiece { registered, .. }| {
            RegisteredExtent {
                area,
                rkey: registered.rkey(),
                offset: registered.offset,
                len: registered.len,
                address: registered.address(),
            }
        }));
        failed
    }

    /// Registers what was granted since, for as long as a client waits.
    fn grow(&self) -> Option<(RdmaError, bool)> {
        let (began, mut has_room) = (Instant::now(), true);
        let mut pieces = lock(&self.pieces);
        loop {
            let has_some = !pieces.current.is_empty();
            let rests = pieces.failed.is_some_and(|(since, pause)| since.elapsed() < pause);
            if has_some && (rests || began.elapsed() > AT_ONCE) {
                return None;
            }
            if pieces.busy.iter().any(|busy| busy.registers) {
                if has_some {
                    return None;
                }
                pieces = self.wait(pieces);
                continue;
            }
            // Read under the lock: it is lowered before anything is withdrawn.
            let end = self.backed_end.load(Ordering::Acquire).min(self.memory.len() as u64);
            let next = if has_room { next_step } else { next_step_beside };
            let step = next(&pieces.ranges(), end, self.stretch)?;
            let (from, takes_place) = (step.range.start, step.keeps < pieces.current.len());
            let work = RegistrationGuard::begin(self, pieces, Busy { end: step.range.end, registers: true });
            let len = step.range.end - from;
            let made = MemoryRegion::register(&self.device, &self.memory, from, len, self.rights);
            pieces = work.end();
            match made {
                Ok(registered) => {
                    // The others stay registered, so that clients that know them go on.
                    let replaced = pieces.current.drain(step.keeps..).collect::<Vec<_>>();
                    pieces.superseded.extend(replaced);
                    pieces.current.push(RegisteredPiece { registered, known: PieceUse::default() });
                    if has_room {
                        pieces.failed = None;
                    }
                }
                // Both at once may be too much, and what is new alone not.
                Err(_) if takes_place && pieces.current.len() < MANY => has_room = false,
                Err(error) => {
                    let (is_new, pause) = pieces
                        .failed
                        .map_or((true, PAUSES.0), |(_, pause)| (false, (pause * 2).min(PAUSES.1)));
                    pieces.failed = Some((Instant::now(), pause));
                    return Some((error, is_new));
                }
            }
        }
    }

    /// Gives back what was replaced and is not needed any more.
    pub(super) fn release_replaced(&self) {
        let mut pieces = lock(&self.pieces);
        let gone = pieces.forgotten(2 * self.stretch);
        self.give_back(pieces, gone);
    }

    /// Up to where a card can read at most.
    #[cfg(test)]
    pub(super) fn reach(&self) -> u64 {
        let pieces = lock(&self.pieces);
        let known = pieces.current.iter().chain(&pieces.superseded);
        known.map(|piece| piece.registered.end()).max().unwrap_or(0)
    }

    /// Gives these back without the lock; a withdrawal meanwhile waits for it.
    fn give_back(&self, pieces: MutexGuard<'_, RegisteredPieces>, gone: Vec<RegisteredPiece>) {
        let Some(end) = gone.iter().map(|piece| piece.registered.end()).max() else { return };
        let work = RegistrationGuard::begin(self, pieces, Busy { end, registers: false });
        drop(gone);
        drop(work);
    }
}

impl Registered for RegisteredRegion {
    fn withdraw(&self, from: u64) {
        let mut pieces = lock(&self.pieces);
        while pieces.busy.iter().any(|busy| busy.end > from) {
            pieces = self.wait(pieces);
        }
        let reaches = |piece: &mut RegisteredPiece| piece.registered.end() > from;
        let mut gone: Vec<RegisteredPiece> = pieces.current.extract_if(.., reaches).collect();
        gone.extend(pieces.superseded.extract_if(.., reaches));
        self.give_back(pieces, gone);
    }
}
