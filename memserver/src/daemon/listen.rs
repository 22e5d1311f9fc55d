//! The addresses a memory node listens at.

use std::fmt;
use std::str::FromStr;

use fpcache_fabric::shm::ShmAddress;
use fpcache_fabric::tcp::TcpAddress;

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
