//! The cross-process backend passes the suite.

use std::sync::Arc;
use std::time::Duration;

use crate::suite::{self, Fixture, TestService};
use fpcache_fabric::ring::BODIES;
use fpcache_fabric::shm::{ConnectOptions, ListenOptions, Listener, ShmAddress, ShmConnection, connect};
use fpcache_fabric::{
    AreaId, Deadline, Export, FabricError, HugePages, OneRegion, RINGS, RegionName, Serving, SharedMemory,
};

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

#[test]
fn whoever_listens_and_says_nothing_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("something.sock");
    let _silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let address = ShmAddress::at_path(&path).unwrap();
    let deadline = Deadline::after(Duration::from_millis(50));
    let error = connect(&address, ConnectOptions { deadline, ..Default::default() }).unwrap_err();
    assert!(matches!(error, FabricError::NoWelcome { .. }), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let address = ShmAddress::at_path(missing.join("node.sock")).unwrap();
    let error = Listener::bind(&address, ListenOptions::default()).unwrap_err();
    assert!(error.to_string().contains(&format!("no directory {} for", missing.display())), "{error}");
}
