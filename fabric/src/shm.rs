//! The cross-process backend on one machine: memory files handed over a unix socket.
//!
//! A memory node listens on a socket file ([`ShmAddress`]). A client that connects is checked
//! (protocol version, user), names a region ([`RegionName`](crate::RegionName)) and gets two
//! descriptors: the region, opened for reading only, and its own request ring ([`crate::ring`]), a
//! memory file of its own. Both are memfds, so the size of `/dev/shm` does not matter. From then on
//! the client reads the region directly, and the socket carries only wake-ups; when either process
//! ends, however, the kernel closes it, which tells the other.
//!
//! **What the read-only descriptor protects against.** Accidents: writing through it, or mapping it
//! writable, fails, and the file's permissions forbid opening it again for writing. A process of
//! the same user, or root, can restore those permissions; clients of the owner's user are trusted
//! not to.
//!
//! | | |
//! |---|---|
//! | [`ShmAddress`] | `shm://NAME`, `shm://NAME@UID` or `shm:///absolute/path.sock` |
//! | [`Listener`] | the memory node's side |
//! | [`connect`], [`ShmConnection`] | the client's side |

mod address;
mod client;
mod handshake;
mod listener;
mod socket_file;

pub use address::{AddressError, ShmAddress};
pub use client::{ConnectOptions, ShmConnection, connect};
pub use handshake::PROTOCOL_VERSION;
pub use listener::{ListenOptions, Listener, Scratch};
pub use socket_file::ListenError;
pub(crate) use socket_file::{
    PathLock, give_mode, os, prepare_mode, refuse_others_name, remove_stale, socket_mode,
};
