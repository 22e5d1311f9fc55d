//! The memory node's side: listening, and the threads that serve.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;

use super::address::{Target, TcpAddress};
use super::counters::SocketCounters;
use super::desk::Desk;
use super::frame::Limits;
use super::io_thread::IoThread;
use super::newcomers::Newcomers;
use super::node::{Listening, Shared};
use super::socket;
use super::tls::{ServerSide, TlsError, TlsServing, TlsTrust};
use super::token::TokenSet;
use crate::descriptors::Descriptors;
use crate::error::FabricError;
use crate::memory::SharedMemory;
use crate::rdma::NodeCard;
use crate::server::{self, NoRings};
use crate::service::Service;
use crate::serving::{Serving, StopHandle};
use crate::shm::{ListenError, PathLock, os, remove_stale};

/// Connections that the kernel holds for a listening socket.
const BACKLOG: i32 = 256;
/// What the kernel may keep for a connection, each way; it doubles this for what it needs itself.
const SOCKET_BUFFER: usize = 256 << 10;
/// Bytes of a batch after its head: 4096 READs.
const BATCH_BYTES: u32 = 64 << 10;
/// Bytes of the reply to a batch.
const REPLY_BYTES: u32 = 256 << 10;

/// How a memory node serves sockets, and what it bears of its clients.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Threads that serve READs. Default: the cores but one.
    pub io_threads: usize,
    /// How long a thread that has nothing to do goes on looking before it sleeps, while that pays off. Default 50 µs; zero
    /// saves processor time and costs a wake-up for every batch.
    pub spin: Duration,
    /// Connections at once that were let in: a client has one, and one more for each of its threads. Default 1024. Those that
    /// have not greeted or not proven their token do not count; there are a few of them at most.
    pub max_connections: usize,
    /// Longest request to the service in bytes. Default 1 MiB, at most 1 GiB.
    pub request_bytes: u32,
    /// Longest answer of the service in bytes. Default 1 MiB, at most 1 GiB.
    pub reply_bytes: u32,
    /// Bytes of requests to the service that may be under way, of all clients together, before the service has
    /// room for them; others wait. Those to one region leave some to others. Default 16 MiB.
    pub request_memory: usize,
    /// How long a connection may take to greet. Default 2 s.
    pub greeting_time: Duration,
    /// How long a frame may take to arrive. Default 10 s.
    pub frame_time: Duration,
    /// How long replies may wait for their reader. Default 30 s.
    pub read_time: Duration,
    /// How long a client may do nothing over any of its connections; `None`: for ever. Default one hour. Peers that are gone
    /// without a word are found out in about a minute whatever this is.
    pub idle_time: Option<Duration>,
    /// Over unix sockets: numeric ids of users that get in beside the owner of this process. Default: none.
    pub allowed_users: Vec<u32>,
    /// The tokens that let somebody in, and what with. Default: none.
    pub tokens: TokenSet,
    /// Whether a token is needed over the loopback interface too. Default: no.
    pub require_token: bool,
    /// What is shown at addresses `tcps://`, which need it. Default: nothing.
    pub tls: Option<TlsServing>,
    /// Memory that every client may read and change, as area 2. Default: none.
    pub scratch: Option<Arc<SharedMemory>>,
    /// Where each connection that is let in takes its descriptor; when none is left no more get in.
    /// [`Listener::own_descriptors`] are needed beside it. Default: nobody counts.
    pub descriptors: Arc<Descriptors>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            io_threads: cores.saturating_sub(1).max(1),
            spin: Duration::from_micros(50),
            max_connections: 1024,
            request_bytes: 1 << 20,
            reply_bytes: 1 << 20,
            request_memory: 16 << 20,
            greeting_time: Duration::from_secs(2),
            frame_time: Duration::from_secs(10),
            read_time: Duration::from_secs(30),
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

impl ListenOptions {
    fn limits(&self) -> Limits {
        let most = crate::verbs::MAX_REQUEST_BYTES as u32;
        Limits {
            batch_bytes: BATCH_BYTES,
            reply_bytes: REPLY_BYTES,
            call_request: self.request_bytes.min(most),
            call_reply: self.reply_bytes.min(most),
        }
    }
}

/// The sockets of a memory node that is reached over TCP, or over unix sockets by the same protocol. Which regions there are
/// is its [`Service`]'s to say. Dropping it closes them.
#[derive(Debug)]
pub struct Listener {
    addresses: Vec<TcpAddress>,
    listening: Arc<[Listening]>,
    _files: Vec<SocketFile>,
    shared: Arc<Shared>,
    limits: Limits,
}

/// A socket file, removed when this is dropped, and the right to it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    _lock: PathLock,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The lock is still held, so the file is ours.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Listener {
    /// Descriptors that it has beside those of connections that were let in and of its listening sockets.
    #[must_use]
    pub fn own_descriptors(options: &ListenOptions) -> usize {
        // One has been accepted and has no place yet.
        2 * options.io_threads.max(1) + 2 + Newcomers::MAX + 1
    }

    /// Listens at `addresses`. Port 0 means one that is free; [`addresses`](Self::addresses) tells which. Every process of this
    /// machine, of whatever user, can connect to a loopback address unless tokens are required; at one that other machines reach
    /// nobody gets in without a token, and there must be some. A unix socket is for the owner of this process, and for users
    /// that are named. If one of the addresses is read by a network card, it is of the first one's choice.
    ///
    /// # Errors
    /// See [`ListenError`]; nothing is left behind.
    pub fn bind(addresses: &[TcpAddress], options: ListenOptions) -> Result<Self, ListenError> {
        let (mut listening, mut bound, mut files) = (Vec::new(), Vec::new(), Vec::new());
        if options.require_token && options.tokens.is_empty() {
            return Err(ListenError::NoTokens);
        }
        let chosen = addresses.iter().find_map(TcpAddress::card);
        let card =
            chosen.map(NodeCard::open).transpose().map_err(|error| ListenError::Card(Box::new(error)))?;
        let tls = options.tls.as_ref().map(ServerSide::of).transpose()?;
        let user = rustix::process::geteuid().as_raw();
        for address in addresses {
            if let Some(owner) = address.owner().filter(|owner| *owner != user) {
                return Err(ListenError::OthersName { address: address.to_string(), owner, user });
            }
            let is_tls = address.trust().is_some();
            if address.trust().is_some_and(|trust| *trust != TlsTrust::default()) {
                return Err(TlsError::OfClients { address: address.to_string() }.into());
            }
            if is_tls && tls.is_none() {
                return Err(TlsError::NoIdentity { address: address.to_string() }.into());
            }
            let targets = address.targets()?;
            let is_beyond = |target: &&Target| !socket::is_local(target);
            if let Some(target) = targets.iter().find(is_beyond).filter(|_| options.tokens.is_empty()) {
                let (address, target) = (address.to_string(), target.to_string());
                return Err(ListenError::BeyondThisMachine { address, target });
            }
            if let Some(path) = address.path() {
                let lock = PathLock::take(path, address, &[path])?;
                remove_stale(path, address)?;
                files.push(SocketFile { path: path.to_owned(), _lock: lock });
            }
            let socket = listen_at_one(address, &targets, !options.allowed_users.is_empty())?;
            let (at, name) = match (&socket.1, rustix::net::getsockname(&socket.0)) {
                (Target::Internet(_), Ok(name)) => match name.try_into() {
                    Ok(found) => (Target::Internet(found), address.found_at(found)),
                    Err(_) => (socket.1.clone(), address.clone()),
                },
                _ => (socket.1.clone(), address.clone()),
            };
            let needs_token = match &at {
                Target::Internet(_) => options.require_token || !socket::is_local(&at),
                Target::Unix(_) => false,
            };
            listening.push(Listening { socket: socket.0, target: at, is_tls, needs_token });
            bound.push(name);
        }
        let limits = options.limits();
        let shared =
            Shared::new(options, card, tls).map_err(|error| ListenError::Threads(error.to_string()))?;
        Ok(Self {
            addresses: bound,
            listening: listening.into(),
            _files: files,
            shared: Arc::new(shared),
            limits,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[TcpAddress] {
        &self.addresses
    }

    /// Where its sockets are counted.
    #[must_use]
    pub fn counters(&self) -> SocketCounters {
        SocketCounters { shared: Arc::clone(&self.shared) }
    }

    /// Changes who gets in, also while it serves.
    #[must_use]
    pub fn access_keeper(&self) -> AccessKeeper {
        AccessKeeper { shared: Arc::clone(&self.shared) }
    }

    /// Serves clients until stopped: requests on this thread, READs on threads of its own. Clients are disconnected when it
    /// returns; it does not serve again.
    ///
    /// # Errors
    /// If no thread or descriptor can be had, or the operating system cannot wait for descriptors.
    pub fn serve<S: Service>(&mut self, service: &mut S, stop: &StopHandle) -> Result<(), FabricError> {
        let mut threads = self.start(stop)?;
        let served = server::serve(&mut NoRings, Some(&mut threads.desk), service, stop);
        served.and(threads.finish())
    }

    /// Serves clients on new threads.
    ///
    /// # Errors
    /// As for [`serve`](Self::serve).
    pub fn spawn<S: Service + 'static>(mut self, mut service: S) -> Result<Serving, FabricError> {
        Serving::spawn("fpcache-serve", move |stop| self.serve(&mut service, stop))
    }

    /// Starts the threads that serve sockets. One that ends before it was to stops the memory node, which could not be reached
    /// by all of its clients any more.
    pub(crate) fn start(&mut self, stop: &StopHandle) -> Result<Threads, FabricError> {
        let desk = Desk::new(Arc::clone(&self.shared), self.limits);
        let mut threads = Threads { desk, shared: Arc::clone(&self.shared), handles: Vec::new() };
        for index in 0..self.shared.threads.len() {
            // One accepts for all.
            let listening = if index == 0 { Arc::clone(&self.listening) } else { Arc::from([]) };
            let stop = stop.clone();
            let thread = IoThread::new(index, Arc::clone(&self.shared), listening, &self.limits)?;
            let handle = std::thread::Builder::new()
                .name(format!("fpcache-io-{index}"))
                .spawn(move || {
                    let _ended = Ended(stop);
                    thread.run()
                })
                .map_err(|source| FabricError::os("starting a thread for sockets", source))?;
            threads.handles.push(handle);
        }
        Ok(threads)
    }
}

/// Listens at the first target that lets it.
fn listen_at_one(
    address: &TcpAddress,
    targets: &[Target],
    lets_others_in: bool,
) -> Result<(OwnedFd, Target), ListenError> {
    let mut last = None;
    for target in targets {
        match listen_at(target, lets_others_in) {
            Ok(socket) => return Ok((socket, target.clone())),
            Err(Errno::ADDRINUSE) => {
                last = Some(ListenError::InUse { address: address.to_string(), pid: None })
            }
            Err(errno) => last = Some(os("listening at", std::path::Path::new(&target.to_string()))(errno)),
        }
    }
    // An address has a target.
    Err(last.unwrap_or_else(|| ListenError::InUse { address: address.to_string(), pid: None }))
}

fn listen_at(target: &Target, lets_others_in: bool) -> Result<OwnedFd, Errno> {
    let socket = socket::open(target)?;
    if let Target::Internet(_) = target {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    // Before connections come, which inherit them.
    socket::bound_buffers(&socket, SOCKET_BUFFER)?;
    socket::bind(&socket, target)?;
    if let Target::Unix(path) = target {
        // Who may connect is decided by the peer's credentials; the file's mode only spares others the attempt.
        let mode = rustix::fs::Mode::from_raw_mode(if lets_others_in { 0o666 } else { 0o600 });
        rustix::fs::chmod(path, mode)?;
    }
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The threads that serve sockets; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) desk: Desk,
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<Result<(), FabricError>>>,
}

impl Threads {
    /// Ends them, after what they were told last, and says what one of them has ended of before.
    ///
    /// # Errors
    /// Its error.
    pub(crate) fn finish(mut self) -> Result<(), FabricError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), FabricError> {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.threads.iter().for_each(super::mailbox::Mailbox::wake);
        let mut outcome = Ok(());
        for handle in self.handles.drain(..) {
            outcome = outcome.and(handle.join().unwrap_or(Err(FabricError::ThreadPanicked)));
        }
        outcome
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Somebody else's error ends them, or a panic.
        let _ = self.end();
    }
}

/// Stops the memory node when a thread that serves sockets ends, also by a panic. The node is stopping already unless that
/// was too early.
struct Ended(StopHandle);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Changes the tokens of a memory node, and the certificate that it shows.
#[derive(Clone)]
pub struct AccessKeeper {
    shared: Arc<Shared>,
}

impl AccessKeeper {
    /// From here on these tokens let somebody in and no others. Clients that came in by one that is not among them, or that has
    /// other rights now, are hung up on. Without tokens nobody gets in who needs one.
    pub fn replace_tokens(&self, tokens: TokenSet) {
        self.shared.set_tokens(tokens);
    }

    /// From here on this certificate is shown, read from its files anew. Connections that there are stay.
    ///
    /// # Errors
    /// [`TlsError`] if there is none in the files; that of before stays.
    pub fn replace_certificate(&self, serving: &TlsServing) -> Result<(), TlsError> {
        self.shared.set_tls(ServerSide::of(serving)?);
        Ok(())
    }
}

impl fmt::Debug for AccessKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKeeper").field("tokens", &self.shared.tokens()).finish()
    }
}
