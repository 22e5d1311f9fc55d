//! The memory node's card: what is registered, and the ends of its clients' queue pairs.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use super::device::Device;
use super::memory_region::RegionRights;
use super::queue_pair::QueuePair;
use super::registered::{PieceUse, RegisteredExtents, RegisteredRegion};
use super::wire::{CardReply, CardRequest, QueuePairInfo};
use super::{CardAnswer, CardChoice, RdmaError, ServedAreas};
use crate::lock::lock;
use crate::memory::{Registered, SharedMemory};

/// The card of a memory node.
#[derive(Debug)]
pub(crate) struct NodeCard {
    /// Opened anew when it has gone.
    device: Mutex<Arc<Device>>,
    /// Those whose regions clients can still ask for.
    regions: Mutex<Vec<Arc<RegisteredRegion>>>,
}

/// The memory node's end of a queue pair, and the region it is for.
#[derive(Debug)]
pub(crate) struct PeerQueuePair {
    _pair: QueuePair,
    region: Arc<RegisteredRegion>,
    /// The pieces that its client was told of.
    known: Vec<PieceUse>,
}

impl PeerQueuePair {
    /// From here on its client knows these and no others.
    fn note_known(&mut self, known: Vec<PieceUse>) {
        self.known = known;
        self.region.release_replaced();
    }
}

impl Drop for PeerQueuePair {
    fn drop(&mut self) {
        self.note_known(Vec::new());
    }
}

impl NodeCard {
    /// The card of that choice.
    pub(crate) fn open(choice: &CardChoice) -> Result<Self, RdmaError> {
        Ok(Self { device: Mutex::new(Arc::new(Device::open(choice)?)), regions: Mutex::default() })
    }

    /// The device, as it is there now.
    pub(super) fn device(&self) -> Result<Arc<Device>, RdmaError> {
        let mut device = lock(&self.device);
        if device.is_gone() {
            *device = Arc::new(Device::open(&device.choice)?);
        }
        Ok(Arc::clone(&device))
    }

    /// Answers a client's card. What is held for its socket is the node's end of its queue pair.
    pub(crate) fn answer(
        &self,
        areas: &ServedAreas<'_>,
        held: &mut Option<PeerQueuePair>,
        request: &[u8],
    ) -> Result<CardAnswer, RdmaError> {
        let request = CardRequest::decode(request).map_err(|what| RdmaError::Introduction { what })?;
        let end = match request {
            CardRequest::QueuePair(other) => {
                // The one before it goes first: a client has one for each of its sockets.
                *held = None;
                let device = self.device()?;
                let region = self.region(&device, areas.region, areas.backed_end, RegionRights::RemoteRead);
                let (pair, end) = connect(&device, &other)?;
                *held = Some(PeerQueuePair { _pair: pair, region, known: Vec::new() });
                Some(end)
            }
            CardRequest::Extents => None,
        };
        let Some(held) = held else {
            return Err(RdmaError::Introduction { what: "a question for extents before a queue pair" });
        };
        let mut told = RegisteredExtents::default();
        let failed = held.region.tell(0, &mut told);
        if told.extents.is_empty()
            && let Some((trouble, _)) = failed
        {
            return Err(trouble);
        }
        // Those who cannot have it do without.
        let failed_too = areas.scratch.and_then(|scratch| {
            let whole = scratch.share_backed_end();
            let device = held.region.device();
            self.region(device, scratch, &whole, RegionRights::RemoteChange).tell(2, &mut told)
        });
        let new = [failed, failed_too].into_iter().flatten().find(|(_, is_new)| *is_new);
        held.note_known(told.known);
        let bytes = CardReply { end, lease: areas.lease, extents: told.extents }.encode();
        Ok(CardAnswer { bytes, trouble: new.map(|(trouble, _)| trouble) })
    }

    /// The registered part of a memory, for all clients together. At first it is empty.
    fn region(
        &self,
        device: &Arc<Device>,
        memory: &Arc<SharedMemory>,
        backed_end: &Arc<AtomicU64>,
        rights: RegionRights,
    ) -> Arc<RegisteredRegion> {
        // Given back after the lock.
        let _left: Vec<_>;
        let mut regions = lock(&self.regions);
        let is_it = |region: &RegisteredRegion| {
            Arc::ptr_eq(&region.memory, memory) && Arc::ptr_eq(region.device(), device)
        };
        // No client can ask for one that only the card still has, and what it has pinned goes with
        // it.
        let is_left = |region: &mut Arc<RegisteredRegion>| {
            let stays = region.rights == RegionRights::RemoteChange && Arc::ptr_eq(region.device(), device);
            let is_used = Arc::strong_count(region) > 1 || stays;
            !is_it(region) && !is_used
        };
        _left = regions.extract_if(.., is_left).collect();
        if let Some(known) = regions.iter().find(|region| is_it(region)) {
            return Arc::clone(known);
        }
        let region = Arc::new(RegisteredRegion::new(device, memory, backed_end, rights));
        let registered: Arc<dyn Registered> = Arc::clone(&region) as _;
        memory.registrations().enter(&registered);
        regions.push(Arc::clone(&region));
        region
    }
}

/// The memory node's end for that other one.
fn connect(device: &Arc<Device>, other: &QueuePairInfo) -> Result<(QueuePair, QueuePairInfo), RdmaError> {
    let mut pair = QueuePair::new(device, false)?;
    let answered = other.depth.min(device.responder_depth);
    pair.connect(other, 1, answered)?;
    let end = QueuePairInfo { depth: answered, ..pair.end() };
    Ok((pair, end))
}
