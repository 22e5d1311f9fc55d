//! The memory node's card: what is registered, and the ends of its clients' queue pairs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::Device;
use super::memory_region::{MemoryRegion, Rights};
use super::queue_pair::QueuePair;
use super::wire::{Answer, End, Extent, Request};
use super::{CardChoice, RdmaError, ServedAreas};
use crate::memory::{Registered, SharedMemory};

/// Registrations of one region, after which they are made anew as fewer.
const MANY: usize = 32;

/// The card of a memory node.
#[derive(Debug)]
pub(crate) struct NodeCard {
    device: Arc<Device>,
    /// Those whose regions somebody can still ask for.
    regions: Mutex<Vec<Arc<RegisteredRegion>>>,
}

/// The memory node's end of a queue pair, and the region it is for.
#[derive(Debug)]
pub(crate) struct PeerQueuePair {
    _pair: QueuePair,
    region: Arc<RegisteredRegion>,
}

/// What of a region is registered.
#[derive(Debug)]
struct RegisteredRegion {
    device: Arc<Device>,
    memory: Arc<SharedMemory>,
    backed_end: Arc<AtomicU64>,
    rights: Rights,
    /// One after another from the region's begin.
    extents: Mutex<Vec<MemoryRegion>>,
}

impl RegisteredRegion {
    fn lock(&self) -> MutexGuard<'_, Vec<MemoryRegion>> {
        // What was registered stays so if making more of it panics.
        self.extents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers what was granted since, and lists all.
    fn extents(&self, area: u32, into: &mut Vec<Extent>) -> Result<(), RdmaError> {
        let mut extents = self.lock();
        // Read under the lock: it is lowered before anything is withdrawn.
        let end = self.backed_end.load(Ordering::Acquire).min(self.memory.len() as u64);
        let mut from = extents.last().map_or(0, MemoryRegion::end);
        if end > from {
            if extents.len() >= MANY {
                // Clients that use those that go find out, and ask again.
                extents.truncate(1);
                from = extents[0].end();
            }
            extents.push(MemoryRegion::register(&self.device, &self.memory, from, end - from, self.rights)?);
        }
        into.extend(extents.iter().map(|extent| Extent {
            area,
            rkey: extent.rkey(),
            offset: extent.offset,
            len: extent.len,
            address: extent.address(),
        }));
        Ok(())
    }
}

impl Registered for RegisteredRegion {
    fn withdraw(&self, from: u64) {
        self.lock().retain(|extent| extent.end() <= from);
    }
}

impl NodeCard {
    /// The card of that choice.
    pub(crate) fn open(choice: &CardChoice) -> Result<Self, RdmaError> {
        Ok(Self { device: Arc::new(Device::open(choice)?), regions: Mutex::default() })
    }

    /// Answers a client's card. What is held for its socket is the node's end of its queue pair.
    pub(crate) fn answer(
        &self,
        areas: &ServedAreas<'_>,
        held: &mut Option<PeerQueuePair>,
        request: &[u8],
    ) -> Result<Vec<u8>, RdmaError> {
        let request = Request::decode(request).map_err(|what| RdmaError::Introduction { what })?;
        let end = match request {
            Request::QueuePair(other) => {
                // The one before it goes first: a client has one for each of its sockets.
                *held = None;
                let region = self.region(areas.region, areas.backed_end, Rights::RemoteRead);
                let (pair, end) = self.connect(&other)?;
                *held = Some(PeerQueuePair { _pair: pair, region });
                Some(end)
            }
            Request::Extents => None,
        };
        let Some(held) = held else {
            return Err(RdmaError::Introduction { what: "a question for extents before a queue pair" });
        };
        let mut extents = Vec::new();
        held.region.extents(0, &mut extents)?;
        if let Some(scratch) = areas.scratch {
            let whole = scratch.share_backed_end();
            self.region(scratch, &whole, Rights::RemoteChange).extents(2, &mut extents)?;
        }
        Ok(Answer { end, lease: areas.lease, extents }.encode())
    }

    fn connect(&self, other: &End) -> Result<(QueuePair, End), RdmaError> {
        let mut pair = QueuePair::new(&self.device, false)?;
        let answered = other.depth.min(self.device.responder_depth);
        pair.connect(other, 1, answered)?;
        let end = End { depth: answered, ..pair.end() };
        Ok((pair, end))
    }

    /// What is registered of a memory, for all clients together. Nothing is, to begin with.
    fn region(
        &self,
        memory: &Arc<SharedMemory>,
        backed_end: &Arc<AtomicU64>,
        rights: Rights,
    ) -> Arc<RegisteredRegion> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody can ask for one that only the card still has, and what it has pinned goes with it.
        let is_used = |region: &Arc<RegisteredRegion>| {
            Arc::strong_count(region) > 1 || region.rights == Rights::RemoteChange
        };
        regions.retain(|region| Arc::ptr_eq(&region.memory, memory) || is_used(region));
        if let Some(known) = regions.iter().find(|region| Arc::ptr_eq(&region.memory, memory)) {
            return Arc::clone(known);
        }
        let region = Arc::new(RegisteredRegion {
            device: Arc::clone(&self.device),
            memory: Arc::clone(memory),
            backed_end: Arc::clone(backed_end),
            rights,
            extents: Mutex::default(),
        });
        let registered: Arc<dyn Registered> = Arc::clone(&region) as _;
        memory.registrations().enter(&registered);
        regions.push(Arc::clone(&region));
        region
    }
}
