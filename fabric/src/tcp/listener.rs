//! The memory node's side: listening, and the threads that serve.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;

use super::address::TcpAddress;
use super::io_thread::IoThread;
use super::node::{Listening, ServingState};
use super::options::ListenOptions;
use super::service_end::ServiceSide;
use super::socket;
use super::stats::SocketCounters;
use super::tls::{ServerSide, TlsError, TlsServing, TlsTrust};
use super::token::TokenSet;
use super::unauthenticated::Newcomers;
use crate::error::FabricError;
use crate::process::Wait;
use crate::rdma::NodeCard;
use crate::server::{self, NoRings};
use crate::service::Service;
use crate::serving::{Serving, StopHandle};
use crate::shm::{
    ListenError, PathLock, give_mode, os, prepare_mode, refuse_others_name, remove_stale, socket_mode,
};
use crate::target::{self, Target};

/// Connections that the kernel holds for a listening socket.
const BACKLOG: i32 = 256;
/// What the kernel may keep for a connection, each way; it doubles this for what it needs itself.
const SOCKET_BUFFER: usize = 256 << 10;
/// How long an address that another process has is waited for. One that was killed has it until the
/// kernel has freed its memory, and of sockets nothing tells whose they are.
const PATIENCE: Duration = Duration::from_secs(2);

/// The sockets of a memory node that is reached over TCP, or over unix sockets by the same
/// protocol. Which regions there are is its [`Service`]'s to say. Dropping it closes them.
#[derive(Debug)]
pub struct Listener {
    addresses: Vec<TcpAddress>,
    listening: Arc<[Listening]>,
    _files: Vec<SocketFile>,
    shared: Arc<ServingState>,
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
    /// Descriptors that it has beside those of connections that were let in and of its listening
    /// sockets.
    #[must_use]
    pub fn own_descriptors(options: &ListenOptions) -> usize {
        // One has been accepted and has no place yet.
        2 * options.io_threads.max(1) + 2 + Newcomers::MAX + 1
    }

    /// Listens at `addresses`. Port 0 means one that is free; [`addresses`](Self::addresses) tells
    /// which. Every process of this machine, of whatever user, can connect to a loopback address
    /// unless tokens are required; at one that other machines reach no client gets in without a
    /// token, and there must be tokens. A unix socket is for the owner of this process, and for
    /// users that are named. If one of the addresses is read by a network card, it is of the first
    /// one's choice.
    ///
    /// # Errors
    /// See [`ListenError`]; nothing is left behind.
    pub fn bind(addresses: &[TcpAddress], options: ListenOptions) -> Result<Self, ListenError> {
        let (mut listening, mut bound, mut files) = (Vec::new(), Vec::new(), Vec::new());
        if options.require_token && options.tokens.is_empty() {
            return Err(ListenError::Unfit(
                "a token is required of all clients over TCP, and there are no tokens: make one with `fpcache-cli token new`, \
                 and name a file with a line `write TOKEN` with --token-file"
                    .to_owned(),
            ));
        }
        let chosen = addresses.iter().find_map(TcpAddress::card);
        let card =
            chosen.map(NodeCard::open).transpose().map_err(|error| ListenError::Card(Box::new(error)))?;
        let tls = options.tls.as_ref().map(ServerSide::of).transpose()?;
        for address in addresses {
            refuse_others_name(address, address.owner())?;
            check_tls(address, tls.is_some())?;
            let targets = address.targets()?;
            let is_beyond = |target: &&Target| !target::is_local(target);
            if let Some(target) = targets.iter().find(is_beyond).filter(|_| options.tokens.is_empty()) {
                return Err(beyond_this_machine(address, target));
            }
            if let Some(path) = address.path() {
                targets.iter().try_for_each(|target| refuse_twice(address, target, &listening))?;
                let lock = PathLock::take(path, address, &[path])?;
                remove_stale(path, address)?;
                files.push(SocketFile { path: path.to_owned(), _lock: lock });
            }
            let socket = listen_at_one(address, &targets, &listening, !options.allowed_users.is_empty())?;
            let (at, name) = match (&socket.1, rustix::net::getsockname(&socket.0)) {
                (Target::Internet(_), Ok(name)) => match name.try_into() {
                    Ok(found) => (Target::Internet(found), address.found_at(found)),
                    Err(_) => (socket.1.clone(), address.clone()),
                },
                _ => (socket.1.clone(), address.clone()),
            };
            let needs_token = match &at {
                Target::Internet(_) => options.require_token || !target::is_local(&at),
                Target::Unix(_) => false,
            };
            let is_tls = address.trust().is_some();
            listening.push(Listening { socket: socket.0, target: at, is_tls, needs_token });
            bound.push(name);
        }
        let shared = ServingState::new(options, card, tls)
            .map_err(|error| ListenError::Unfit(format!("serving sockets cannot begin: {error}")))?;
        Ok(Self { addresses: bound, listening: listening.into(), _files: files, shared: Arc::new(shared) })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[TcpAddress] {
        &self.addresses
    }

    /// Where it listens on TCP, and whether a token is required there.
    pub fn token_rules(&self) -> impl Iterator<Item = (&TcpAddress, bool)> {
        let all = self.addresses.iter().zip(&*self.listening);
        all.filter(|(_, at)| matches!(at.target, Target::Internet(_)))
            .map(|(name, at)| (name, at.needs_token))
    }

    /// Connections at once that it lets in.
    #[must_use]
    pub fn max_connections(&self) -> usize {
        self.shared.options.max_connections
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

    /// Serves clients until stopped: requests on this thread, READs on threads of its own. Clients
    /// are disconnected when it returns; it does not serve again.
    ///
    /// # Errors
    /// If no thread or descriptor can be had, or the operating system cannot wait for descriptors.
    pub fn serve<S: Service>(&mut self, service: &mut S, stop: &StopHandle) -> Result<(), FabricError> {
        let mut threads = self.start(stop)?;
        let served = server::serve(&mut NoRings, Some(&mut threads.service_side), service, stop);
        served.and(threads.finish())
    }

    /// Serves clients on new threads.
    ///
    /// # Errors
    /// As for [`serve`](Self::serve).
    pub fn spawn<S: Service + 'static>(mut self, mut service: S) -> Result<Serving, FabricError> {
        Serving::spawn("fpcache-serve", move |stop| self.serve(&mut service, stop))
    }

    /// Starts the threads that serve sockets. One that ends before it was to stops the memory node,
    /// which could not be reached by all of its clients any more.
    pub(crate) fn start(&mut self, stop: &StopHandle) -> Result<Threads, FabricError> {
        let service_side = ServiceSide::new(Arc::clone(&self.shared));
        let mut threads = Threads { service_side, shared: Arc::clone(&self.shared), handles: Vec::new() };
        for index in 0..self.shared.threads.len() {
            // One accepts for all.
            let listening = if index == 0 { Arc::clone(&self.listening) } else { Arc::from([]) };
            let stop = stop.clone();
            let thread = IoThread::new(index, Arc::clone(&self.shared), listening)?;
            let handle = std::thread::Builder::new()
                .name(format!("fpcache-io-{index}"))
                .spawn(move || {
                    let _ended = StopOnDrop(stop);
                    thread.run()
                })
                .map_err(|source| FabricError::os("starting a thread for sockets", source))?;
            threads.handles.push(handle);
        }
        Ok(threads)
    }
}

/// Refuses an address beneath which there can be no TLS as it asks for.
fn check_tls(address: &TcpAddress, has_certificate: bool) -> Result<(), TlsError> {
    match address.trust() {
        Some(trust) if *trust != TlsTrust::default() => Err(TlsError(format!(
            "what {address} says of certificates is for clients; at a listener name them by --tls-cert, --tls-key and \
             --tls-client-ca"
        ))),
        // A certificate named to a program without TLS was made in vain.
        Some(_) if !cfg!(feature = "tls") => Err(TlsError::not_built(&address.to_string())),
        Some(_) if !has_certificate => Err(TlsError(format!(
            "{address} asks for TLS, and there is no certificate to show; name one with its key (--tls-cert, --tls-key)"
        ))),
        _ => Ok(()),
    }
}

/// No client would need a token there.
fn beyond_this_machine(address: &TcpAddress, target: &Target) -> ListenError {
    ListenError::Unfit(format!(
        "{address} means {target}, which other machines reach, and there are no tokens by which a memory node could tell who \
         may use it: make one with `fpcache-cli token new`, write it into a file of this user alone as a line `write TOKEN`, \
         and name that with --token-file; or listen at tcp://127.0.0.1:PORT or tcp+unix:///absolute/path.sock"
    ))
}

/// Listens at the first of an address's targets that this machine has and this process may listen
/// at. One that another process has is waited for, as a path's lock has been: clients would find
/// that process at it, and not this one at another.
fn listen_at_one(
    address: &TcpAddress,
    targets: &[Target],
    own: &[Listening],
    lets_others_in: bool,
) -> Result<(OwnedFd, Target), ListenError> {
    let mut wait = Wait::with_patience(PATIENCE);
    loop {
        match try_to_listen(address, targets, own, lets_others_in) {
            Err(ListenError::InUse { .. }) if address.path().is_none() && wait.goes_on(None) => {}
            outcome => return outcome,
        }
    }
}

fn try_to_listen(
    address: &TcpAddress,
    targets: &[Target],
    own: &[Listening],
    lets_others_in: bool,
) -> Result<(OwnedFd, Target), ListenError> {
    let in_use = || ListenError::InUse { address: address.to_string(), pid: None };
    let mut told = None;
    for target in targets {
        match listen_at(target, lets_others_in) {
            Ok(socket) => return Ok((socket, target.clone())),
            Err(Errno::ADDRINUSE) => match refuse_twice(address, target, own) {
                Ok(()) => return Err(in_use()),
                // Clients of the name find this memory node there, and at the next one.
                Err(twice) => told = Some(twice),
            },
            Err(errno @ (Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT)) => {
                told.get_or_insert_with(|| refused(target, errno));
            }
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => told = Some(refused(target, errno)),
            Err(errno) => return Err(refused(target, errno)),
        }
    }
    // An address has a target.
    Err(told.unwrap_or_else(in_use))
}

/// Refuses a target at which one of this memory node's own sockets listens.
fn refuse_twice(address: &TcpAddress, target: &Target, own: &[Listening]) -> Result<(), ListenError> {
    match own.iter().any(|one| one.target.overlaps(target)) {
        true => Err(ListenError::Unfit(format!(
            "{address} means {target}, where this memory node listens already: name it once"
        ))),
        false => Ok(()),
    }
}

fn refused(target: &Target, errno: Errno) -> ListenError {
    match target {
        Target::Internet(at) if errno == Errno::ACCESS && at.port() < 1024 => ListenError::Unfit(format!(
            "listening at {at} is not permitted: ports below 1024 are for root and for programs that have the capability \
                 CAP_NET_BIND_SERVICE; listen at a higher one"
        )),
        _ => os("listening at", Path::new(&target.to_string()))(errno),
    }
}

fn listen_at(target: &Target, lets_others_in: bool) -> Result<OwnedFd, Errno> {
    let socket = target::open(target)?;
    if let Target::Internet(_) = target {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    // Before connections come, which inherit them.
    socket::bound_buffers(&socket, SOCKET_BUFFER)?;
    let mode = socket_mode(lets_others_in);
    if let Target::Unix(_) = target {
        prepare_mode(&socket, mode)?;
    }
    target::bind(&socket, target)?;
    if let Target::Unix(path) = target {
        give_mode(path, mode)?;
    }
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The threads that serve sockets; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) service_side: ServiceSide,
    shared: Arc<ServingState>,
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
        // Another thread's error ends them, or a panic.
        let _ = self.end();
    }
}

/// Stops the memory node when a thread that serves sockets ends, also by a panic. The node is
/// stopping already unless that was too early.
struct StopOnDrop(StopHandle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Changes the tokens of a memory node, and the certificate that it shows.
#[derive(Clone)]
pub struct AccessKeeper {
    shared: Arc<ServingState>,
}

impl AccessKeeper {
    /// From here on only these tokens let clients in. Clients that came in by one that is not among
    /// them, or that has other rights now, are hung up on. Without tokens no client gets in that
    /// needs one.
    pub fn replace_tokens(&self, tokens: TokenSet) {
        self.shared.set_tokens(tokens);
    }

    /// From here on this certificate is shown, read from its files anew. Existing connections stay.
    ///
    /// # Errors
    /// [`TlsError`] if the files hold no certificate; the one before stays.
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

#[cfg(test)]
mod tests;
