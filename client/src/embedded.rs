//! A memory node inside this process.

use std::sync::Arc;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache_fabric::local::{Hub, LocalConnection, LocalOptions};
use fpcache_fabric::{FabricError, HugePages, Serving, SharedMemory};
use fpcache_memserver::MemoryNode;

use crate::error::ClientError;

/// A memory node and the thread that answers its requests; both end when it is dropped.
#[derive(Clone)]
pub(crate) struct EmbeddedNode {
    hub: Hub,
    _serving: Arc<Serving>,
}

impl EmbeddedNode {
    pub(crate) fn start<K: BuildKeys>(capacity: usize) -> Result<Self, ClientError> {
        // No client outlives an embedded node, so any number serves as its incarnation.
        const INCARNATION: u64 = 1;
        let failed = |e: &dyn std::error::Error| ClientError::Embedded(e.to_string());
        let region =
            Arc::new(SharedMemory::anonymous_with(capacity, HugePages::IfAvailable).map_err(|e| failed(&e))?);
        let node = MemoryNode::<K>::new(Arc::clone(&region), INCARNATION, 0, Instant::now())
            .map_err(|e| failed(&e))?;
        let options = LocalOptions { incarnation: INCARNATION, ..Default::default() };
        let hub = Hub::new(region, options)?;
        let serving = hub.spawn(node)?;
        Ok(Self { hub, _serving: Arc::new(serving) })
    }

    pub(crate) fn connect(&self) -> Result<LocalConnection, FabricError> {
        self.hub.connect()
    }
}
