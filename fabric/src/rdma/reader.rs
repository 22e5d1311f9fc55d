//! The client's end of a queue pair: batches as lists of work requests.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use super::completion::{remedy_for, text_of};
use super::device::Device;
use super::memory_region::{MemoryRegion, RegionRights};
use super::queue_pair::{CardVerb, DEPTH, QueuePair, WorkRequest};
use super::wire::{CardReply, CardRequest, RegisteredExtent};
use super::{CardCounters, CardFailure, Introduction, RdmaError, WaitLimit};
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::lease::LeasedWord;
use crate::memory::SharedMemory;
use crate::verbs::{Batch, PostedVerb, REGION, Verb};

/// Bytes that can be under way.
const ARENA: usize = 256 << 10;
/// Looks for a completion before other threads get their turn.
const LOOKS: u32 = 64;
/// How long completions may take before the device is asked what happened, and between two such
/// questions.
const EVENTS: Duration = Duration::from_millis(5);
/// How long nothing is asked of the memory node after it had nothing new registered: at first, and
/// in the end.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Where bytes are copied when a list is done.
#[derive(Clone, Copy, Debug)]
struct Land {
    arena: usize,
    /// The request in the batch, the byte of it, and how many.
    request: usize,
    at: usize,
    len: usize,
}

/// One end of a queue pair and the memory that READs land in.
///
/// One list is under way at a time, and the batch has what landed once it is done: the card never
/// addresses memory of a caller. The memory that it does address is given back after the queue
/// pair, in whatever state it is.
#[derive(Debug)]
pub(crate) struct Reader {
    // In this order: when the pair is gone nothing lands any more.
    pair: QueuePair,
    arena: MemoryRegion,
    way: Box<dyn Introduction>,
    extents: Vec<RegisteredExtent>,
    /// Where the watched word is.
    watched: Option<u64>,
    lease: LeasedWord,
    /// When the word's READ was posted that is under way; it lands first.
    renewed_at: Option<Instant>,
    /// READs of the word that are not counted yet.
    uncounted: u32,
    card_counters: Arc<CardCounters>,
    /// Counts lists.
    number: u64,
    list: Vec<WorkRequest>,
    lands: Vec<Land>,
    used: usize,
    asked: (Instant, Duration),
    /// How long the list was waited for that failed.
    waited: Duration,
    /// Bytes of the longest packets' payload.
    mtu: u32,
}

impl Reader {
    /// Has the memory node's card connect to a new queue pair of this one.
    pub(crate) fn connect(
        device: &Arc<Device>,
        mut way: Box<dyn Introduction>,
        watched: Option<u64>,
        card_counters: &Arc<CardCounters>,
        deadline: Deadline,
    ) -> Result<Self, FabricError> {
        let memory = Arc::new(SharedMemory::anonymous(ARENA)?);
        let mut pair = QueuePair::new(device, true)?;
        let arena = MemoryRegion::register(device, &memory, 0, ARENA as u64, RegionRights::Landing)?;
        let answer = way.exchange(&CardRequest::QueuePair(pair.end()).encode(), deadline)?;
        let CardReply { end, lease, extents } =
            CardReply::decode(&answer).map_err(|what| RdmaError::Introduction { what })?;
        let end = end.ok_or(RdmaError::Introduction { what: "an answer without a queue pair" })?;
        pair.connect(&end, end.depth.min(device.initiator_depth), 1)?;
        let mtu = pair.end().mtu.min(end.mtu);
        // The numbers are 1 to 5.
        let mtu = 128 << mtu;
        Ok(Self {
            pair,
            arena,
            way,
            extents,
            watched,
            lease: LeasedWord::new(lease),
            renewed_at: None,
            uncounted: 0,
            card_counters: Arc::clone(card_counters),
            number: 0,
            list: Vec::with_capacity(DEPTH),
            lands: Vec::with_capacity(DEPTH),
            used: 0,
            asked: (Instant::now(), PAUSES.0),
            waited: Duration::ZERO,
            mtu,
        })
    }

    /// Bytes of the longest packets' payload, as both cards have it.
    pub(crate) fn path_mtu(&self) -> u32 {
        self.mtu
    }

    /// How many bytes are registered from the region's begin on, in one piece.
    pub(crate) fn registered_from_begin(&self) -> u64 {
        self.extent(REGION.0, 0).map_or(0, |extent| extent.len)
    }

    /// How long the list was waited for that failed last.
    pub(crate) fn failed_wait(&self) -> Duration {
        self.waited
    }

    /// Executes the first `count` requests of a batch, which keep to their areas. Nothing of a
    /// batch has been executed if it reaches where nothing is registered.
    pub(crate) fn run(
        &mut self,
        batch: &mut Batch,
        count: usize,
        waiting: &WaitLimit<'_>,
    ) -> Result<(), CardFailure> {
        let is_known = |reader: &Self| batch.requests[..count].iter().all(|posted| reader.has(posted));
        if !is_known(self) {
            let has_more = self.ask_again(waiting)?;
            if !has_more || !is_known(self) {
                return Err(CardFailure::NotRegistered);
            }
        }
        self.begin_list();
        if count > 0 {
            self.renew_lease();
        }
        for index in 0..count {
            self.add(batch, index, waiting)?;
        }
        self.finish_list(batch, waiting)
    }

    /// The watched word, if it is known well enough to judge READs that have completed by now.
    pub(crate) fn leased_word(&self) -> Option<u64> {
        self.lease.value(Instant::now())
    }

    /// READs of the watched word that went with those that were asked for, since this was asked
    /// last.
    pub(crate) fn take_uncounted(&mut self) -> u32 {
        std::mem::take(&mut self.uncounted)
    }

    /// Has the watched word READ with the list that begins, if what is known of it will soon be too
    /// old.
    fn renew_lease(&mut self) {
        let now = Instant::now();
        let Some(watched) = self.watched.filter(|_| self.lease.is_due(now)) else { return };
        let Some(extent) =
            self.extent(REGION.0, watched).filter(|extent| watched - extent.offset + 8 <= extent.len)
        else {
            return;
        };
        let (remote, rkey) = (extent.address + (watched - extent.offset), extent.rkey);
        let local = self.arena.address();
        self.list.push(WorkRequest { work: CardVerb::Read, local, len: 8, remote, rkey, is_fenced: false });
        self.used = 8;
        self.renewed_at = Some(now);
    }

    /// Whether all of what a request addresses is registered.
    fn has(&self, posted: &PostedVerb) -> bool {
        let end = posted.offset + u64::from(posted.len);
        let mut at = posted.offset;
        while at < end {
            match self.extent(posted.area.0, at) {
                Some(extent) => at = extent.offset + extent.len,
                None => return false,
            }
        }
        true
    }

    fn extent(&self, area: u16, at: u64) -> Option<&RegisteredExtent> {
        // They are in order.
        let place = (u32::from(area), at);
        let after = self.extents.partition_point(|extent| (extent.area, extent.offset) <= place);
        let extent = self.extents[..after].last()?;
        (extent.area == place.0 && at - extent.offset < extent.len).then_some(extent)
    }

    /// Asks what is registered now, unless that was in vain a moment ago. Whether anything changed.
    #[cold]
    fn ask_again(&mut self, waiting: &WaitLimit<'_>) -> Result<bool, CardFailure> {
        let (when, pause) = self.asked;
        if when.elapsed() < pause {
            return Ok(false);
        }
        let deadline = Deadline::after(waiting.patience);
        let answer = match self.way.exchange(&CardRequest::Extents.encode(), deadline) {
            Ok(answer) => answer,
            Err(error @ FabricError::Rdma(_)) => return Err(CardFailure::Broken(error)),
            Err(FabricError::DeadlinePassed { .. }) => return Err(CardFailure::Silent),
            Err(_) => return Err(CardFailure::Gone),
        };
        let answer = CardReply::decode(&answer)
            .map_err(|what| CardFailure::Broken(RdmaError::Introduction { what }.into()))?;
        let is_new = answer.extents != self.extents;
        self.extents = answer.extents;
        self.asked = (Instant::now(), if is_new { PAUSES.0 } else { (pause * 2).min(PAUSES.1) });
        Ok(is_new)
    }

    fn begin_list(&mut self) {
        self.list.clear();
        self.lands.clear();
        self.used = 0;
        self.renewed_at = None;
    }

    /// Adds a request of a batch to the list, which goes to the card whenever it is full.
    fn add(&mut self, batch: &mut Batch, index: usize, waiting: &WaitLimit<'_>) -> Result<(), CardFailure> {
        let posted = batch.requests[index];
        let (len, mut at) = (posted.len as usize, 0);
        while at < len {
            if self.list.len() == DEPTH || self.used + 8 > ARENA {
                self.finish_list(batch, waiting)?;
            }
            let place = posted.offset + at as u64;
            let Some(extent) = self.extent(posted.area.0, place) else {
                return Err(CardFailure::NotRegistered);
            };
            let (within, rkey) = (place - extent.offset, extent.rkey);
            let remote = extent.address + within;
            // Not longer than the arena.
            let part = (extent.len - within).min((len - at).min(ARENA - self.used) as u64) as usize;
            let word = posted.word as usize;
            let work = match posted.verb {
                Verb::Read => CardVerb::Read,
                Verb::Write => CardVerb::Write,
                Verb::CompareSwap => {
                    CardVerb::CompareSwap { expected: batch.buffer[word + 1], new: batch.buffer[word + 2] }
                }
            };
            if work == CardVerb::Write {
                let from = word * 8 + at;
                let bytes = &batch.buffer.as_bytes()[from..from + part];
                // Inside the arena.
                self.arena
                    .memory
                    .write_bytes(self.used as u64, bytes)
                    .map_err(|_| CardFailure::NotRegistered)?;
            } else {
                self.lands.push(Land { arena: self.used, request: index, at, len: part });
            }
            // READs and WRITEs may pass an atomic that is under way; changes take effect in order
            // all the same.
            let is_change = work != CardVerb::Read;
            let is_fenced = is_change
                && self.list.iter().any(|before| matches!(before.work, CardVerb::CompareSwap { .. }));
            let local = self.arena.address() + self.used as u64;
            self.list.push(WorkRequest { work, local, len: part as u32, remote, rkey, is_fenced });
            self.used += part.next_multiple_of(8);
            at += part;
        }
        Ok(())
    }

    /// Has the card do what the list says, and gives the batch what landed.
    fn finish_list(&mut self, batch: &mut Batch, waiting: &WaitLimit<'_>) -> Result<(), CardFailure> {
        if !self.list.is_empty() {
            self.number += 1;
            self.card_counters.count_doorbell(self.list.len());
            let lkey = self.arena.lkey();
            self.post(lkey).map_err(|error| self.broken(waiting, "posting work requests", error))?;
            self.wait(waiting)?;
        }
        if let Some(posted) = self.renewed_at {
            // At the arena's begin.
            let word = self.arena.memory.load_acquire(0).map_err(|_| CardFailure::NotRegistered)?;
            self.lease.learn(word, posted);
            self.uncounted += 1;
        }
        for land in &self.lands {
            let from = batch.requests[land.request].word as usize * 8 + land.at;
            let (arena, memory) = (land.arena as u64, &self.arena.memory);
            let read = if from.is_multiple_of(8) && land.len.is_multiple_of(8) {
                memory.read_words(arena, &mut batch.buffer[from / 8..(from + land.len) / 8])
            } else {
                memory.read_bytes(arena, &mut batch.buffer.as_mut_bytes()[from..from + land.len])
            };
            // Inside the arena.
            read.map_err(|_| CardFailure::NotRegistered)?;
        }
        self.begin_list();
        Ok(())
    }

    #[allow(unsafe_code)]
    fn post(&mut self, lkey: u32) -> io::Result<()> {
        // SAFETY: all local places lie in the arena, which is registered by `lkey` until after the
        // pair is gone. Nothing looks at it before the completion, or writes to it but for the next
        // list; if the wait for it ends without one the reader is dropped, and the pair with it.
        unsafe { self.pair.post(&self.list, lkey, self.number) }
    }

    /// Waits until the list is done.
    fn wait(&mut self, waiting: &WaitLimit<'_>) -> Result<(), CardFailure> {
        let began = Instant::now();
        let outcome = self.wait_since(began, waiting);
        if outcome.is_err() {
            self.waited = began.elapsed();
        }
        outcome
    }

    fn wait_since(&mut self, began: Instant, waiting: &WaitLimit<'_>) -> Result<(), CardFailure> {
        let mut events_at = EVENTS;
        loop {
            for _ in 0..LOOKS {
                match self.pair.poll() {
                    Ok(None) => std::hint::spin_loop(),
                    Ok(Some(done)) if done.status != 0 => {
                        // What the device tells of is the cause.
                        self.pair.look_at_events().map_err(|event| CardFailure::Broken(event.into()))?;
                        return Err(CardFailure::Broken(
                            RdmaError::Completion {
                                peer: waiting.link.peer().to_string(),
                                status: done.status,
                                text: text_of(done.status),
                                remedy: remedy_for(done.status),
                            }
                            .into(),
                        ));
                    }
                    Ok(Some(done)) if done.number == self.number => {
                        // What the card wrote before it said so is looked at after.
                        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
                        return Ok(());
                    }
                    Ok(Some(_)) => {}
                    Err(error) => return Err(self.broken(waiting, "looking for completions", error)),
                }
            }
            if !waiting.link.is_alive() {
                return Err(CardFailure::Gone);
            }
            let waited = began.elapsed();
            if waited > events_at {
                self.pair.look_at_events().map_err(|event| CardFailure::Broken(event.into()))?;
                events_at = waited + EVENTS;
            }
            if waited > waiting.patience {
                return Err(CardFailure::Silent);
            }
            std::thread::yield_now();
        }
    }

    #[cold]
    fn broken(&self, waiting: &WaitLimit<'_>, doing: &'static str, source: io::Error) -> CardFailure {
        CardFailure::Broken(
            RdmaError::Refused { device: waiting.link.peer().to_string(), doing, source }.into(),
        )
    }
}
