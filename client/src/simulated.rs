//! A client of a simulated memory node.

use std::sync::Arc;

use fpcache_fabric::{Clock, Deadline, FabricError};
use fpcache_sim::{NodeId, Sim, SimConnection};

use crate::core::Connector;

/// Connects to a memory node of a simulated world.
#[derive(Clone)]
pub(crate) struct SimulatedNode {
    sim: Sim,
    node: NodeId,
}

impl SimulatedNode {
    pub(crate) fn new(sim: &Sim, node: NodeId) -> Self {
        Self { sim: sim.clone(), node }
    }
}

impl Connector for SimulatedNode {
    type Connection = SimConnection;

    fn connect(&self, deadline: Deadline) -> Result<SimConnection, FabricError> {
        self.sim.connect(self.node, deadline)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.sim.clock())
    }

    fn identity(&self) -> Result<u64, FabricError> {
        Ok(self.sim.random().bits())
    }
}
