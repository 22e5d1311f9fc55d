//! The start of a memory node's lives in a world.

use std::sync::{Arc, Weak};

use fpcache_fabric::Service;

use crate::baton::Shared;
use crate::clock::SimClock;
use crate::memory::SimMemory;
use crate::node::{Life, Start, StartedLife};
use crate::questions::SimRegion;

/// The start of a life of a memory node.
#[derive(Debug)]
pub struct NodeStart {
    /// Its memories, in the order of [`NodeOptions::memories`](crate::NodeOptions::memories),
    /// holding what survived.
    pub memories: Vec<Arc<SimMemory>>,
    /// Which life it is, from 1: its incarnation.
    pub life: u64,
    /// The world's clock.
    pub clock: SimClock,
    /// The region, as threads of the memory node's own read it, and where it is said who answers
    /// questions about it.
    pub region: SimRegion,
}

/// Has `start` begin the lives of a memory node in this world.
pub(crate) fn in_world(
    shared: Weak<Shared>,
    mut start: impl FnMut(NodeStart) -> Box<dyn Service> + Send + 'static,
) -> Start {
    Box::new(move |Life { memories, number, connection }| {
        let shared = shared.upgrade().ok_or("the world has ended")?;
        let region = SimRegion::new(Arc::clone(&shared), connection);
        let clock = SimClock { shared };
        let service = start(NodeStart { memories, life: number, clock, region: region.clone() });
        Ok(StartedLife { service, answers: region.take_offered() })
    })
}
