//! The backend over sockets passes the suite, over TCP and over unix sockets.

use std::sync::Arc;

use fpcache_fabric::conformance::{self, Fixture, TestService};
use fpcache_fabric::tcp::{ConnectOptions, ListenOptions, Listener, TcpAddress, TcpConnection, connect};
use fpcache_fabric::{AreaId, Export, HugePages, OneRegion, RegionName, Serving, SharedMemory};

struct Node {
    region: Arc<SharedMemory>,
    serving: Option<Serving>,
    connection: TcpConnection,
    _directory: tempfile::TempDir,
}

impl Node {
    fn start(at: impl FnOnce(&tempfile::TempDir) -> TcpAddress) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (region, fd) = SharedMemory::create_memfd("region", 1 << 20, HugePages::No).unwrap();
        let region = Arc::new(region);
        let export = Export::new(&region, fd, 1).unwrap().with_watched(0);
        let scratch = Some(Arc::new(SharedMemory::anonymous(64 << 10).unwrap()));
        let options = ListenOptions { scratch, io_threads: 2, ..ListenOptions::default() };
        let listener = Listener::bind(&[at(&directory)], options).unwrap();
        let address = listener.addresses()[0].clone();
        let service = OneRegion::new(RegionName::default(), export, TestService::default());
        let serving = Some(listener.spawn(service).unwrap());
        let connection = connect(&address, ConnectOptions::default()).unwrap();
        Self { region, serving, connection, _directory: directory }
    }
}

macro_rules! fixture {
    ($name:ident, $at:expr) => {
        struct $name(Node);

        impl Fixture for $name {
            type Connection = TcpConnection;

            fn start() -> Self {
                Self(Node::start($at))
            }

            fn connection(&self) -> &TcpConnection {
                &self.0.connection
            }

            fn region(&self) -> &SharedMemory {
                &self.0.region
            }

            fn scratch(&self) -> (AreaId, u64) {
                (AreaId(2), 0)
            }

            fn stop_memory_node(&mut self) {
                self.0.serving.take().unwrap().stop().unwrap();
            }
        }
    };
}

fixture!(Tcp, |_| "tcp://127.0.0.1:0".parse().unwrap());
fixture!(Unix, |directory| TcpAddress::at_path(directory.path().join("node.sock")).unwrap());

#[test]
fn the_tcp_backend_conforms() {
    conformance::run_all::<Tcp>();
}

#[test]
fn the_tcp_backend_conforms_over_unix_sockets() {
    conformance::run_all::<Unix>();
}
