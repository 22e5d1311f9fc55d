//! A connection to a memory node whose areas are mapped into this process.

use std::sync::Arc;

use super::areas::{Area, will_read};
use super::endpoint::{Anchor, MappedEndpoint};
use super::link::Link;
use crate::bell::Bell;
use crate::clock::Deadline;
use crate::connection::{Connection, Posted};
use crate::error::FabricError;
use crate::memory::SharedMemory;
use crate::meter::{Meter, MeterSnapshot};
use crate::ring::RingLayout;
use crate::rpc::Caller;
use crate::turns::SharedCaller;
use crate::verbs::AreaId;

/// The parts of a new connection, however it was made.
pub(crate) struct Parts {
    /// The region, then the request ring.
    pub(crate) areas: Arc<[Area]>,
    pub(crate) link: Arc<Link>,
    pub(crate) layout: RingLayout,
    pub(crate) bell: Bell,
    pub(crate) incarnation: u64,
    pub(crate) creation: u64,
    /// The memory node's process, where it is another one and the operating system tells.
    pub(crate) node_process: Option<u32>,
    /// Lives as long as the connection and its endpoints.
    pub(crate) anchor: Option<Arc<dyn Send + Sync + Anchor>>,
}

/// A connection to a memory node of this process or of another one on this machine. Closes when it
/// and all its endpoints have been dropped.
#[derive(Debug)]
pub struct MappedConnection {
    areas: Arc<[Area]>,
    link: Arc<Link>,
    layout: RingLayout,
    incarnation: u64,
    creation: u64,
    node_process: Option<u32>,
    anchor: Option<Arc<dyn Send + Sync + Anchor>>,
    caller: SharedCaller<Caller>,
    bell: Bell,
    call_meter: Arc<Meter>,
}

impl Drop for MappedConnection {
    fn drop(&mut self) {
        if self.link.is_inherited() {
            // The memory node must notice when the process ends whose connection it is.
            self.bell.detach_inherited();
        }
    }
}

impl MappedConnection {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { areas, link, layout, bell, incarnation, creation, node_process, anchor } = parts;
        // The caller's endpoint lives inside the connection, which holds the anchor itself.
        let endpoint = MappedEndpoint::new(Arc::clone(&areas), Arc::clone(&link), None).outliving();
        let call_meter = endpoint.shared_meter();
        let caller = Caller::new(endpoint, bell.clone(), Arc::clone(&link), layout);
        let caller = SharedCaller::new(caller);
        Self { areas, link, layout, incarnation, creation, node_process, anchor, caller, bell, call_meter }
    }

    /// The memory node's process id, where it is another process and the operating system tells.
    #[must_use]
    pub fn node_process(&self) -> Option<u32> {
        self.node_process
    }

    /// The region as mapped here: to ask for its length and pages.
    #[must_use]
    pub fn region(&self) -> &SharedMemory {
        &self.areas[0].memory
    }
}

impl Connection for MappedConnection {
    type Endpoint = MappedEndpoint;

    fn endpoint(&self) -> MappedEndpoint {
        MappedEndpoint::new(Arc::clone(&self.areas), Arc::clone(&self.link), self.anchor.clone())
    }

    fn post(&self, request: &[u8], deadline: Deadline) -> Result<Posted, FabricError> {
        self.caller.post(request, deadline)
    }

    fn poll(&self, posted: Posted, reply: &mut Vec<u8>) -> Result<Option<Posted>, FabricError> {
        self.caller.poll(posted, reply)
    }

    fn wait(&self, posted: Posted, reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError> {
        self.caller.wait(posted, reply, deadline)
    }

    fn give_up(&self, posted: Posted) {
        self.caller.give_up(&posted);
    }

    fn max_request(&self) -> usize {
        self.layout.request_capacity()
    }

    fn max_reply(&self) -> usize {
        self.layout.reply_capacity()
    }

    #[inline]
    fn is_alive(&self) -> bool {
        self.link.is_alive()
    }

    fn will_read(&self, area: AreaId, offset: u64, len: u64) {
        will_read(&self.areas, area, offset, len);
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn creation(&self) -> u64 {
        self.creation
    }

    fn call_meter(&self) -> MeterSnapshot {
        self.call_meter.snapshot()
    }
}
