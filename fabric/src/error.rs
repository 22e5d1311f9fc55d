//! Errors between a compute node and a memory node, and what the caller can do about them.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::memory::{AccessError, MemoryError};
use crate::rdma::error::RdmaError;
use crate::shm::AddressError;
use crate::tcp::TlsError;
use crate::tcp::address::error::TcpAddressError;
use crate::verbs::{AreaId, MAX_BATCH_BYTES, MAX_REQUEST_BYTES};

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Nothing is broken: the same call may succeed when repeated, perhaps after something else has
    /// finished.
    Retry,
    /// The connection is of no use any more; connect again, then repeat the call.
    Reconnect,
    /// The caller has no right to this; repeating does not help.
    Denied,
    /// The call itself is wrong (bounds, alignment, size); repeating does not help.
    Invalid,
    /// The deadline passed. Whether a request was executed is unknown.
    Deadline,
    /// The two sides do not speak the same protocol version; install the same version on both.
    Version,
    /// The operating system refused memory, descriptors or sockets.
    Resources,
}

/// An error of a verb, a request or a connection.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// A request reaches past the end of its area.
    #[error(
        "request of {len} bytes at offset {offset} leaves area {} of {area_len} bytes; \
         refresh the address: it may belong to an earlier memory node", area.0
    )]
    OutOfBounds {
        /// The area addressed.
        area: AreaId,
        /// Offset of the request in bytes.
        offset: u64,
        /// Length of the request in bytes.
        len: u64,
        /// Length of the area in bytes.
        area_len: u64,
    },
    /// The memory node has registered no such area for this endpoint.
    #[error("the memory node offers no area {}; ask `Endpoint::area` which it has", area.0)]
    NoSuchArea {
        /// The area addressed.
        area: AreaId,
    },
    /// An atomic verb needs an offset that is a multiple of eight.
    #[error("atomic at offset {offset} of area {} is not 8-byte aligned; align the word", area.0)]
    Misaligned {
        /// The area addressed.
        area: AreaId,
        /// Offset of the request in bytes.
        offset: u64,
    },
    /// A changing verb on an area that this endpoint may only read.
    #[error("area {} may only be read by this endpoint; send the change as a request instead", area.0)]
    AccessDenied {
        /// The area addressed.
        area: AreaId,
    },
    /// A request or a batch is larger than a landing buffer can be.
    #[error("a request or batch of {len} bytes exceeds the limit of {max} bytes; split it")]
    TooLong {
        /// Bytes asked for.
        len: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// More batches are in flight than the endpoint takes.
    #[error("{in_flight} batches are in flight already; poll completions before posting more")]
    QueueFull {
        /// Batches in flight.
        in_flight: usize,
    },
    /// The memory node has ended or closed the connection.
    #[error("memory node {peer} has gone; connect again once it runs")]
    Disconnected {
        /// The memory node's address.
        peer: Arc<str>,
    },
    /// The memory node serves from the process that this one was forked from, and has no thread
    /// here.
    #[error(
        "memory node {peer} stayed in the process that this one was forked from; make another one here, or have processes share \
         one that listens at an address"
    )]
    LeftBehind {
        /// The memory node's name.
        peer: Arc<str>,
    },
    /// The deadline passed before the memory node answered.
    #[error(
        "deadline passed while waiting for {waiting_for}; raise the deadline or look at the memory node's load"
    )]
    DeadlinePassed {
        /// What was waited for.
        waiting_for: &'static str,
    },
    /// The deadline passed before the listener at an address said that it is a memory node.
    #[error(
        "deadline passed while waiting for the listener at {address} to welcome this client; if that is no memory node, correct the \
         address, else raise the deadline or look at the memory node's load"
    )]
    NoWelcome {
        /// The address asked for.
        address: String,
    },
    /// The deadline passed while other calls of the same connection were being served. Nothing was
    /// sent.
    #[error(
        "deadline passed while other calls of this connection were served; raise the deadline or use more connections"
    )]
    Crowded,
    /// A reply was asked for over another connection than the request was posted to, or once more.
    #[error(
        "no such request is under way on this connection: ask the connection that it was posted to, once"
    )]
    NotPosted,
    /// A request does not fit the request buffer.
    #[error(
        "request of {len} bytes exceeds the ring's {max}; split it, or enlarge the ring at the memory node"
    )]
    RequestTooLong {
        /// Bytes of the request.
        len: u64,
        /// Bytes the ring takes.
        max: u64,
    },
    /// A reply does not fit the reply buffer. The request has been executed.
    #[error("reply of {len} bytes exceeds the ring's {max}; ask for less at once, or enlarge the ring")]
    ReplyTooLong {
        /// Bytes of the reply.
        len: u64,
        /// Bytes the ring takes.
        max: u64,
    },
    /// The memory node found a request damaged and did not execute it.
    #[error("the memory node received a damaged request and did not execute it; send it again")]
    DamagedRequest,
    /// The bytes of a reply do not match their checksum.
    #[error("the reply of memory node {peer} is damaged; connect again")]
    DamagedReply {
        /// The memory node's address.
        peer: Arc<str>,
    },
    /// Nothing listens at the address.
    #[error(
        "no memory node at {address} (socket {path}); start one that listens there, or correct the address{}",
        of_another_user(.address)
    )]
    NoMemoryNode {
        /// The address asked for.
        address: String,
        /// The socket file tried.
        path: String,
    },
    /// The peer speaks another version of the connection protocol.
    #[error(
        "{peer} speaks fabric protocol version {theirs}, this program version {ours}; \
         install the same version of compute node and memory node"
    )]
    VersionMismatch {
        /// Which peer.
        peer: String,
        /// The version of this program.
        ours: u32,
        /// The version of the peer.
        theirs: u32,
    },
    /// The memory node does not admit this user, or the compute node does not trust the memory
    /// node's.
    #[error("user {user} is not admitted at {address}; {remedy}")]
    UserRefused {
        /// Numeric user id that was refused.
        user: u32,
        /// The address asked for.
        address: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The memory node does not let clients in with this token, or without one; or it could not
    /// prove that it is the one meant.
    #[error("{address} {why}; {remedy}")]
    TokenRefused {
        /// The address asked for, or who asked.
        address: String,
        /// What is wrong.
        why: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// The memory node serves as many connections as it was told to.
    #[error(
        "memory node {address} serves its maximum of {max} connections, of which a client has one, and one more for each \
         thread that reads over sockets: close some, or raise the maximum, which the memory node's --max-connections (over \
         sockets) and its limit of open files (ulimit -n) set"
    )]
    TooManyClients {
        /// The address asked for.
        address: String,
        /// The maximum.
        max: u64,
    },
    /// The memory node lacks what it takes to let another client in.
    #[error("memory node {address} has no memory to map for another client; try again, or free some there")]
    NoResources {
        /// The address asked for.
        address: String,
    },
    /// All local ports are taken, as after many connections that were closed lately.
    #[error(
        "no local port is free to connect to {address}; try again in a minute, or keep connections longer"
    )]
    NoLocalPort {
        /// The address asked for.
        address: String,
    },
    /// The memory node has no region of the name asked for.
    #[error("memory node {address} has no region `{name}`; ask for one that it has")]
    NoSuchRegion {
        /// The address asked for.
        address: String,
        /// The name asked for, what is not ASCII escaped.
        name: String,
    },
    /// The peer sent something that is not of this protocol.
    #[error("{peer} does not speak the fabric protocol ({what}); check the address")]
    Protocol {
        /// Which peer.
        peer: String,
        /// What was wrong.
        what: &'static str,
    },
    /// A memory node ended a connection, because its peer did what it may not do or bear with.
    #[error("{peer} was hung up on: {why}")]
    HungUp {
        /// Which peer.
        peer: String,
        /// What it did.
        why: String,
    },
    /// A thread of the memory node has panicked.
    #[error(
        "a thread that serves sockets has panicked, and the memory node with it; start it again, and report what it said"
    )]
    ThreadPanicked,
    /// The address cannot be used.
    #[error("{0}")]
    Address(#[from] AddressError),
    /// The address over TCP cannot be used.
    #[error("{0}")]
    TcpAddress(Box<TcpAddressError>),
    /// There is no TLS where it was asked for.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A network card refused something.
    #[error("{0}")]
    Rdma(Arc<RdmaError>),
    /// Memory could not be had or mapped.
    #[error(transparent)]
    Memory(Arc<MemoryError>),
    /// Another error came up before there was a connection.
    #[error("connecting to {address}: {source}")]
    Connecting {
        /// The address asked for.
        address: String,
        /// The error.
        source: Box<FabricError>,
    },
    /// The operating system refused something else.
    #[error("{doing} failed: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The operating system's reason.
        source: Arc<io::Error>,
    },
}

/// What keeps clients from a memory node that runs, where the address is `shm://NAME@UID`.
fn of_another_user(address: &str) -> &'static str {
    let name = address.strip_prefix("shm://").filter(|name| !name.starts_with('/') && name.contains('@'));
    name.map_or("", |_| "; another user's listens there only with --allow-user")
}

impl From<RdmaError> for FabricError {
    fn from(error: RdmaError) -> Self {
        Self::Rdma(Arc::new(error))
    }
}

impl FabricError {
    /// What a memory node reports of a peer that it turns away because it has `max` connections.
    pub(crate) fn beyond_maximum(peer: String, max: u64) -> Self {
        let why = format!(
            "the maximum of {max} connections is reached; close some, or raise it: --max-connections (over sockets), and the \
             limit of open files (ulimit -n)"
        );
        Self::HungUp { peer, why }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::QueueFull { .. }
            | Self::DamagedRequest
            | Self::TooManyClients { .. }
            | Self::NoResources { .. }
            | Self::NoLocalPort { .. } => ErrorKind::Retry,
            Self::Disconnected { .. } | Self::DamagedReply { .. } | Self::NoMemoryNode { .. } => {
                ErrorKind::Reconnect
            }
            // Known again soon, perhaps: names go with the machines that have them, and resolvers
            // fail.
            Self::TcpAddress(error) if matches!(**error, TcpAddressError::UnknownHost { .. }) => {
                ErrorKind::Reconnect
            }
            Self::AccessDenied { .. }
            | Self::UserRefused { .. }
            | Self::TokenRefused { .. }
            | Self::Tls(_) => ErrorKind::Denied,
            Self::OutOfBounds { .. }
            | Self::NoSuchArea { .. }
            | Self::Misaligned { .. }
            | Self::TooLong { .. }
            | Self::NotPosted
            | Self::LeftBehind { .. }
            | Self::RequestTooLong { .. }
            | Self::ReplyTooLong { .. }
            | Self::NoSuchRegion { .. }
            | Self::Protocol { .. }
            | Self::HungUp { .. }
            | Self::TcpAddress(_)
            | Self::Address(_) => ErrorKind::Invalid,
            Self::DeadlinePassed { .. } | Self::NoWelcome { .. } | Self::Crowded => ErrorKind::Deadline,
            Self::VersionMismatch { .. } => ErrorKind::Version,
            Self::Connecting { source, .. } => source.kind(),
            Self::Rdma(_) | Self::Memory(_) | Self::Io { .. } | Self::ThreadPanicked => ErrorKind::Resources,
        }
    }

    /// Whether the same call may succeed when repeated, after connecting again where
    /// [`kind`](Self::kind) says so.
    ///
    /// A request whose deadline passed counts as retryable; it may have been executed, so repeating
    /// is only right for requests that may be executed twice or carry an id.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind(), ErrorKind::Retry | ErrorKind::Reconnect | ErrorKind::Deadline)
    }

    /// What the operating system refused, and what was being done.
    #[must_use]
    pub fn os(doing: &'static str, source: io::Error) -> Self {
        Self::Io { doing, source: Arc::new(source) }
    }

    /// The same of connecting to an address, for errors that say nothing of it.
    pub(crate) fn connecting(self, address: &dyn fmt::Display) -> Self {
        match self {
            Self::DeadlinePassed { .. } | Self::Io { .. } => {
                Self::Connecting { address: address.to_string(), source: Box::new(self) }
            }
            of_address => of_address,
        }
    }

    /// What a memory says to an access of an area.
    #[must_use]
    pub fn of_access(area: AreaId, error: AccessError) -> Self {
        match error {
            AccessError::OutOfBounds(at) => {
                Self::OutOfBounds { area, offset: at.offset, len: at.len, area_len: at.memory_len }
            }
            AccessError::Misaligned { offset } => Self::Misaligned { area, offset },
            AccessError::ReadOnly => Self::AccessDenied { area },
        }
    }

    /// The error of a batch that is [too long](crate::Batch::oversize).
    #[must_use]
    pub fn oversize(len: u64) -> Self {
        let max = if len > MAX_BATCH_BYTES { MAX_BATCH_BYTES } else { MAX_REQUEST_BYTES as u64 };
        Self::TooLong { len, max }
    }

    /// The error of a client whose token was withdrawn.
    pub(crate) fn token_withdrawn(address: String) -> Self {
        let (why, remedy) = ("came in by a token that was withdrawn", "it needs one that is known");
        Self::TokenRefused { address, why, remedy }
    }

    pub(crate) fn io(doing: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::os(doing, errno.into())
    }
}

impl From<MemoryError> for FabricError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(Arc::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_node_of_another_user_that_is_not_found_may_admit_no_others() {
        for (address, is_anothers) in [("shm://x@0", true), ("shm://x", false), ("shm:///a@b.sock", false)] {
            assert_eq!(of_another_user(address).contains("--allow-user"), is_anothers, "{address}");
        }
    }

    #[test]
    fn kinds_tell_what_to_do() {
        let gone = FabricError::Disconnected { peer: "shm://x".into() };
        assert_eq!(gone.kind(), ErrorKind::Reconnect);
        assert!(gone.is_retryable());
        let denied = FabricError::AccessDenied { area: AreaId(0) };
        assert_eq!(denied.kind(), ErrorKind::Denied);
        assert!(!denied.is_retryable());
        let late = FabricError::DeadlinePassed { waiting_for: "a reply" };
        assert!(late.is_retryable() && late.to_string().contains("while waiting for a reply;"));
        let late = late.connecting(&"tcp://x");
        assert!(
            late.is_retryable() && late.to_string().starts_with("connecting to tcp://x: deadline passed")
        );
        assert!(matches!(gone.connecting(&"tcp://x"), FabricError::Disconnected { .. }), "it says so itself");
    }

    #[test]
    fn an_error_stays_small_on_the_read_path() {
        assert!(size_of::<FabricError>() <= 64, "{}", size_of::<FabricError>());
    }
}
