//! The addresses a memory node listens at.

use std::fmt;
use std::str::FromStr;

use fpcache_fabric::shm::{self, ShmAddress};
use fpcache_fabric::tcp::{self, TcpAddress};
use fpcache_fabric::{FabricError, StopHandle};

use crate::catalogue::Catalogue;

/// An address that a memory node listens at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// `shm://NAME`: for clients that map its memory.
    Shm(ShmAddress),
    /// `tcp://HOST:PORT` or `tcp+unix:///PATH`: for clients that read over sockets;
    /// `rdma://HOST[:PORT]`: also for those that read by network cards.
    Sockets(TcpAddress),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some(("tcp" | "tcps" | "tcp+unix" | "rdma", _)) => {
                text.parse().map(Self::Sockets).map_err(|error| format!("{error}"))
            }
            _ => text
                .parse()
                .map(Self::Shm)
                .map_err(|error| format!("{error}; for clients over sockets, write tcp://127.0.0.1:7400")),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm(address) => address.fmt(f),
            Self::Sockets(address) => address.fmt(f),
        }
    }
}

/// Serves at these addresses until told to stop, and gives them up.
pub(super) fn serve(
    mut listener: Option<shm::Listener>,
    mut sockets: Option<tcp::Listener>,
    catalogue: &mut Catalogue,
    stop: &StopHandle,
) -> Result<(), FabricError> {
    match (&mut listener, &mut sockets) {
        (Some(listener), None) => listener.serve(catalogue, stop),
        (Some(listener), Some(sockets)) => listener.serve_beside(sockets, catalogue, stop),
        (None, Some(sockets)) => sockets.serve(catalogue, stop),
        // No client can come.
        (None, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fpcache_fabric::HugePages;

    use super::*;
    use crate::catalogue::CatalogueConfig;

    /// They did until the logs were on the disk and the memory was freed.
    #[test]
    fn addresses_accept_nobody_whom_nobody_answers_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let config = CatalogueConfig {
            capacity: 8 << 20,
            huge_pages: HugePages::No,
            durable: None,
            lease: Duration::ZERO,
        };
        let mut catalogue = Catalogue::open(&config).unwrap();
        let mapped = ShmAddress::at_path(folder.path().join("node.sock")).unwrap();
        let listener = shm::Listener::bind(&mapped, shm::ListenOptions::default()).unwrap();
        let addresses = [
            TcpAddress::at_path(folder.path().join("tcp.sock")).unwrap(),
            "tcp://127.0.0.1:0".parse().unwrap(),
        ];
        let sockets = tcp::Listener::bind(&addresses, tcp::ListenOptions::default()).unwrap();
        let addresses = sockets.addresses().to_vec();
        let stop = StopHandle::new().unwrap();
        stop.stop();
        serve(Some(listener), Some(sockets), &mut catalogue, &stop).unwrap();

        let error = shm::connect(&mapped, shm::ConnectOptions::default()).unwrap_err();
        assert!(matches!(error, FabricError::NoMemoryNode { .. }), "{error}");
        for address in addresses {
            let error = tcp::connect(&address, tcp::ConnectOptions::default()).unwrap_err();
            assert!(matches!(error, FabricError::NoMemoryNode { .. }), "{error}");
        }
    }
}
