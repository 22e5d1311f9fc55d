//! The cross-process backend passes the suite.

use std::sync::Arc;

use crate::suite::{self, Fixture, TestService};
use fpcache_fabric::ring::BODIES;
use fpcache_fabric::shm::{ConnectOptions, ListenOptions, Listener, ShmAddress, ShmConnection, connect};
use fpcache_fabric::{AreaId, Export, HugePages, OneRegion, RINGS, RegionName, Serving, SharedMemory};

struct Shm {
    region: Arc<SharedMemory>,
    serving: Option<Serving>,
    connection: ShmConnection,
    _directory: tempfile::TempDir,
}

impl Fixture for Shm {
    type Connection = ShmConnection;

    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = ShmAddress::at_path(directory.path().join("node.sock")).unwrap();
        let (region, fd) = SharedMemory::create_memfd("region", 1 << 20, HugePages::IfAvailable).unwrap();
        let region = Arc::new(region);
        let export = Export::new(&region, fd, 1).unwrap();
        let listener = Listener::bind(&address, ListenOptions::default()).unwrap();
        let service = OneRegion::new(RegionName::default(), export, TestService::default());
        let serving = Some(listener.spawn(service).unwrap());
        let connection = connect(&address, ConnectOptions::default()).unwrap();
        Self { region, serving, connection, _directory: directory }
    }

    fn connection(&self) -> &ShmConnection {
        &self.connection
    }

    fn region(&self) -> &SharedMemory {
        &self.region
    }

    fn scratch(&self) -> (AreaId, u64) {
        (RINGS, BODIES)
    }

    fn stop_memory_node(&mut self) {
        self.serving.take().unwrap().stop().unwrap();
    }
}

#[test]
fn the_shm_backend_conforms() {
    suite::run_all::<Shm>();
}
