//! The backend over sockets passes the suite, over TCP and over unix sockets.

use std::sync::Arc;

use crate::suite::{self, Fixture, TestService};
use fpcache_fabric::tcp::{
    ConnectOptions, ListenOptions, Listener, TcpAddress, TcpConnection, TlsServing, connect,
};
use fpcache_fabric::{AreaId, Export, HugePages, OneRegion, RegionName, Serving, SharedMemory};

struct Node {
    region: Arc<SharedMemory>,
    serving: Option<Serving>,
    connection: TcpConnection,
    _directory: tempfile::TempDir,
}

impl Node {
    fn start(at: impl FnOnce(&tempfile::TempDir) -> TcpAddress, tls: Option<TlsServing>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (region, fd) = SharedMemory::create_memfd("region", 1 << 20, HugePages::No).unwrap();
        let region = Arc::new(region);
        let export = Export::new(&region, fd, 1).unwrap().with_watched(0);
        let scratch = Some(Arc::new(SharedMemory::anonymous(64 << 10).unwrap()));
        let options = ListenOptions { scratch, io_threads: 2, tls, ..ListenOptions::default() };
        let listener = Listener::bind(&[at(&directory)], options).unwrap();
        let address = listener.addresses()[0].clone().trusting(crate::tcp_tls::trust());
        let service = OneRegion::new(RegionName::default(), export, TestService::default());
        let serving = Some(listener.spawn(service).unwrap());
        let connection = connect(&address, ConnectOptions::default()).unwrap();
        Self { region, serving, connection, _directory: directory }
    }
}

macro_rules! fixture {
    ($name:ident, $at:expr, $tls:expr) => {
        struct $name(Node);

        impl Fixture for $name {
            type Connection = TcpConnection;

            fn start() -> Self {
                Self(Node::start($at, $tls))
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

fixture!(Tcp, |_| "tcp://127.0.0.1:0".parse().unwrap(), None);
fixture!(Unix, |directory| TcpAddress::at_path(directory.path().join("node.sock")).unwrap(), None);
#[cfg(feature = "tls")]
fixture!(Tls, |_| "tcps://127.0.0.1:0".parse().unwrap(), Some(crate::tcp_tls::serving()));

#[test]
fn the_tcp_backend_conforms() {
    suite::run_all::<Tcp>();
}

#[test]
fn the_tcp_backend_conforms_over_unix_sockets() {
    suite::run_all::<Unix>();
}

#[cfg(feature = "tls")]
#[test]
fn the_tcp_backend_conforms_beneath_tls() {
    suite::run_all::<Tls>();
}
