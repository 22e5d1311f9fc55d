//! Options of a memory node that serves sockets.

use std::sync::Arc;
use std::time::Duration;

use super::frame::Limits;
use super::tls::TlsServing;
use super::token::TokenSet;
use crate::descriptors::Descriptors;
use crate::memory::SharedMemory;

/// The limits of frames: batches of 4096 READs, and as long requests and answers of the service as
/// a ring has.
pub(super) const LIMITS: Limits =
    Limits { batch_bytes: 64 << 10, reply_bytes: 256 << 10, call_request: 1 << 20, call_reply: 1 << 20 };

/// How a memory node serves sockets, and what it bears of its clients.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Threads that serve READs. Default: the cores but one.
    pub io_threads: usize,
    /// How long a thread that has nothing to do goes on looking before it sleeps, while that pays
    /// off. Default 50 µs; zero saves processor time and costs a wake-up for every batch.
    pub spin: Duration,
    /// Connections at once that were let in: a client has one, and one more for each of its reading
    /// threads. Default 1024. Those that have not greeted or not proven their token do not count;
    /// there are a few of them at most.
    pub max_connections: usize,
    /// Bytes of requests to the service that may be under way, of all clients together, before the
    /// service has room for them; others wait. Requests to one region leave some to those to other
    /// regions. Default 16 MiB.
    pub request_memory: usize,
    /// How long a connection may take to greet. Default 2 s.
    pub greeting_time: Duration,
    /// How long a frame may take to arrive. Default 10 s.
    pub frame_time: Duration,
    /// How long replies may wait for their reader. Default 30 s.
    pub read_time: Duration,
    /// How long a memory node that stops waits for its clients to take what they were answered.
    /// Default 1 s.
    pub last_replies_time: Duration,
    /// How long a client may do nothing over any of its connections; `None`: for ever. Default one
    /// hour. Peers that are gone without a word are found out in about a minute whatever this is.
    pub idle_time: Option<Duration>,
    /// Over unix sockets: numeric ids of users that get in beside the owner of this process.
    /// Default: none.
    pub allowed_users: Vec<u32>,
    /// The tokens that let clients in, with their rights. Default: none.
    pub tokens: TokenSet,
    /// Whether a token is needed over the loopback interface too. Default: no.
    pub require_token: bool,
    /// The certificate shown at addresses `tcps://`, which need one. Default: none.
    pub tls: Option<TlsServing>,
    /// Memory that every client may read and change, as area 2. Default: none.
    pub scratch: Option<Arc<SharedMemory>>,
    /// Where each connection that is let in takes its descriptor; when none is left no more get in.
    /// [`Listener::own_descriptors`](super::Listener::own_descriptors) are needed beside it.
    /// Default: no limit.
    pub descriptors: Arc<Descriptors>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            io_threads: cores.saturating_sub(1).max(1),
            spin: Duration::from_micros(50),
            max_connections: 1024,
            request_memory: 16 << 20,
            greeting_time: Duration::from_secs(2),
            frame_time: Duration::from_secs(10),
            read_time: Duration::from_secs(30),
            last_replies_time: Duration::from_secs(1),
            idle_time: Some(Duration::from_secs(3600)),
            allowed_users: Vec::new(),
            tokens: TokenSet::default(),
            require_token: false,
            tls: None,
            scratch: None,
            descriptors: Descriptors::unlimited(),
        }
    }
}
