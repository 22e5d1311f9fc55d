//! A connection to a simulated memory node.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fpcache_fabric::{Connection, Deadline, FabricError, Meter, MeterSnapshot, Posted};

use crate::anchor::Anchor;
use crate::calls::{MAX_MESSAGE, Patience};
use crate::endpoint::SimEndpoint;

/// A connection to one life of a simulated memory node. Closes when it and all its endpoints have
/// been dropped.
pub struct SimConnection {
    anchor: Arc<Anchor>,
    alive: Arc<AtomicBool>,
    incarnation: u64,
    call_meter: Meter,
}

impl fmt::Debug for SimConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimConnection").field("number", &self.anchor.connection).finish_non_exhaustive()
    }
}

impl SimConnection {
    pub(crate) fn new(anchor: Anchor) -> Self {
        let state = anchor.shared.lock();
        let link = &state.links[anchor.connection];
        let alive = Arc::clone(&link.alive);
        let incarnation = link.life + 1;
        drop(state);
        let (anchor, call_meter) = (Arc::new(anchor), Meter::new());
        Self { anchor, alive, incarnation, call_meter }
    }
}

impl Connection for SimConnection {
    type Endpoint = SimEndpoint;

    fn endpoint(&self) -> SimEndpoint {
        SimEndpoint::new(&self.anchor)
    }

    /// Costs on the meter what a request ring costs whose two sides spin. A request without a
    /// deadline is never lost.
    fn post(&self, request: &[u8], deadline: Deadline) -> Result<Posted, FabricError> {
        let Anchor { shared, connection, .. } = &*self.anchor;
        shared.post(*connection, request, deadline, &self.call_meter)
    }

    /// No time passes: a caller that looks again and again rests in between.
    fn poll(&self, posted: Posted, reply: &mut Vec<u8>) -> Result<Option<Posted>, FabricError> {
        let Anchor { shared, connection, .. } = &*self.anchor;
        match shared.wait_for_reply(*connection, &posted, reply, Patience::None, &self.call_meter) {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(posted)),
            Err(error) => Err(error),
        }
    }

    fn wait(&self, posted: Posted, reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError> {
        let Anchor { shared, connection, .. } = &*self.anchor;
        let patience = Patience::Until(deadline);
        shared.wait_for_reply(*connection, &posted, reply, patience, &self.call_meter).map(drop)
    }

    fn give_up(&self, posted: Posted) {
        let Anchor { shared, connection, .. } = &*self.anchor;
        shared.give_up(*connection, &posted);
    }

    fn max_request(&self) -> usize {
        MAX_MESSAGE
    }

    fn max_reply(&self) -> usize {
        MAX_MESSAGE
    }

    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// A simulated memory node has one region, which every life of it goes on with.
    fn creation(&self) -> u64 {
        0
    }

    fn call_meter(&self) -> MeterSnapshot {
        self.call_meter.snapshot()
    }
}
