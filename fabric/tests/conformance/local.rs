//! The in-process backend passes the suite.

use std::sync::Arc;

use crate::suite::{self, Fixture, TestService};
use fpcache_fabric::local::{Hub, LocalConnection, LocalOptions};
use fpcache_fabric::ring::BODIES;
use fpcache_fabric::{AreaId, RINGS, Serving, SharedMemory};

struct Local {
    hub: Hub,
    serving: Option<Serving>,
    connection: LocalConnection,
}

impl Fixture for Local {
    type Connection = LocalConnection;

    fn start() -> Self {
        let region = Arc::new(SharedMemory::anonymous(1 << 20).unwrap());
        let hub = Hub::new(region, LocalOptions::default()).unwrap();
        let serving = Some(hub.spawn(TestService::default()).unwrap());
        let connection = hub.connect().unwrap();
        Self { hub, serving, connection }
    }

    fn connection(&self) -> &LocalConnection {
        &self.connection
    }

    fn region(&self) -> &SharedMemory {
        self.hub.region()
    }

    fn scratch(&self) -> (AreaId, u64) {
        (RINGS, BODIES)
    }

    fn stop_memory_node(&mut self) {
        self.serving.take().unwrap().stop().unwrap();
    }
}

#[test]
fn the_local_backend_conforms() {
    suite::run_all::<Local>();
}
