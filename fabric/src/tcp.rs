//! The backend across machines: batches as frames over TCP, or over unix sockets by the same
//! protocol.
//!
//! A memory node listens at [`TcpAddress`]es. A client that connects names a region
//! ([`RegionName`](crate::RegionName)) and has from then on a socket for requests to the service;
//! each of its endpoints connects another one that joins it. READs are answered by threads of their
//! own straight from the region, and never meet the thread that runs the service.
//!
//! **Who gets in.** Over a unix socket the memory node's own user, and those that are named. Over
//! the loopback interface every process of the machine, unless a token is required; at addresses
//! that other machines reach, clients that know a [`Token`], with the rights that it has.
//!
//! | | |
//! |---|---|
//! | [`TcpAddress`] | `tcp://HOST:PORT`, `tcps://HOST:PORT` or `tcp+unix:///absolute/path.sock` |
//! | [`Listener`] | the memory node's side |
//! | [`connect`], [`TcpConnection`], [`TcpEndpoint`] | the client's side |
//! | [`Token`], [`TokenSet`], [`AccessKeeper`] | who gets in |
//!
//! **TLS** (feature `tls`) at addresses `tcps://`: the memory node shows a certificate
//! ([`TlsServing`]) and may ask clients for one; a client believes the authorities that it is told
//! of ([`TlsTrust`]), or the system's.
//!
//! The bytes are drawn in `tcp/handshake.rs` and `tcp/frame.rs`.

pub(crate) mod address;
#[cfg(test)]
mod any_bytes;
mod areas;
mod calls;
mod card;
mod card_reads;
mod channel;
mod client;
mod connection;
mod counters;
mod encode;
mod endpoint;
mod failed_logins;
mod frame;
mod handshake;
mod io_thread;
mod listener;
mod mailbox;
mod node;
mod options;
mod peer;
mod private_file;
mod request_memory;
mod resolving;
mod round_trip;
mod service_end;
mod silence;
mod socket;
mod stats;
mod stream;
mod tls;
mod token;
mod unauthenticated;

pub use address::TcpAddress;
pub use address::error::TcpAddressError;
pub use client::{ConnectOptions, connect};
pub use connection::TcpConnection;
pub use counters::HangUp;
pub use endpoint::TcpEndpoint;
pub use listener::{AccessKeeper, Listener};
pub use options::ListenOptions;
pub(crate) use service_end::ServiceSide;
pub use stats::{SocketCounters, SocketStats};
pub use tls::{TlsError, TlsIdentity, TlsServing, TlsTrust};
pub use token::{Rights, Token, TokenError, TokenSet};
