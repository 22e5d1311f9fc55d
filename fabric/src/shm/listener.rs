//! The memory node's side: letting clients in and serving them.

mod greeting;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use zerocopy::IntoBytes;

use self::greeting::{Greeting, Progress};
use super::ShmAddress;
use super::handshake::{
    ADMITTED, Hello, MAGIC, MAX_GREETING_BYTES, NO_SUCH_REGION, OTHER_VERSION, PROTOCOL_VERSION,
    TOO_MANY_CLIENTS, USER_REFUSED, Welcome, admits, send_with_fds,
};
use super::socket_file::{
    ListenError, Passage, PathLock, listener, open_socket, prepare_directory, refuse_others_name,
    remove_stale, socket_mode,
};
use crate::bell::Bell;
use crate::credentials::{PeerProcess, peer_of};
use crate::descriptors::{Descriptors, TakenDescriptors};
use crate::error::FabricError;
use crate::eviction_choice::{GRACE, MAX_GREETING, first_of_most};
use crate::memory::{Access, HugePages, SharedMemory};
use crate::region::{Export, RegionName};
use crate::ring::RingLayout;
use crate::server::{self, Acceptor, RingSession};
use crate::service::{ClientId, Service};
use crate::serving::{Serving, StopHandle};

/// Clients that are accepted in a round.
const MAX_ACCEPTED: usize = 64;
/// How long a client may take to greet.
const GREETING_TIME: Duration = Duration::from_secs(2);
/// How long no client is accepted after the process ran out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a memory node listens.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Numeric ids of users that get in beside the owner of this process. Default: none; root is
    /// not implied.
    pub allowed_users: Vec<u32>,
    /// Clients served at once. Default 1024.
    pub max_clients: usize,
    /// Where each client takes the descriptor of its socket; when none is left no more clients are
    /// let in. Default: no limit. [`Listener::GREETING_DESCRIPTORS`] are needed beside it.
    pub descriptors: Arc<Descriptors>,
    /// Memory that every client may read and change, as area 2. Default: none.
    pub scratch: Option<Scratch>,
}

/// Memory that clients may read and change, and the descriptor by which they map it.
#[derive(Clone, Debug)]
pub struct Scratch {
    memory: Arc<SharedMemory>,
    fd: Arc<OwnedFd>,
}

impl Scratch {
    /// An export of what [`SharedMemory::create_memfd`] returned.
    #[must_use]
    pub fn new(memory: Arc<SharedMemory>, fd: OwnedFd) -> Self {
        Self { memory, fd: Arc::new(fd) }
    }
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            allowed_users: Vec::new(),
            max_clients: 1024,
            descriptors: Descriptors::unlimited(),
            scratch: None,
        }
    }
}

/// A memory node's socket. Which regions there are is its [`Service`]'s to say. Dropping it removes
/// the socket file.
#[derive(Debug)]
pub struct Listener {
    address: ShmAddress,
    path: PathBuf,
    socket: OwnedFd,
    _locks: Vec<PathLock>,
    options: ListenOptions,
    next_client: u64,
    greeting: Vec<Greeting>,
    paused_until: Option<Instant>,
}

impl Listener {
    /// Descriptors that clients which have not greeted yet have at most, with one that has just
    /// come, and the ring of the one that is being let in.
    pub const GREETING_DESCRIPTORS: usize = MAX_GREETING + 2;

    /// The process that listens at `address` now, if there is one and the kernel says who.
    #[must_use]
    pub fn listening_process(address: &ShmAddress) -> Option<u32> {
        address.places().ok()?.iter().find_map(|place| listener(place))
    }

    /// Listens at `address`. A socket file left by a memory node that has died is replaced; one
    /// that is ending is waited for, ten seconds at most.
    ///
    /// # Errors
    /// See [`ListenError`]; nothing is left behind.
    pub fn bind(address: &ShmAddress, options: ListenOptions) -> Result<Self, ListenError> {
        refuse_others_name(address, address.owner())?;
        let (path, locks) = take_place(address, !options.allowed_users.is_empty())?;
        let socket = open_socket(&path, socket_mode(!options.allowed_users.is_empty()))?;
        Ok(Self {
            address: address.clone(),
            path,
            socket,
            _locks: locks,
            options,
            next_client: 1,
            greeting: Vec::new(),
            paused_until: None,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &ShmAddress {
        &self.address
    }

    /// The address for other users that are let in, where that is not [`address`](Self::address).
    #[must_use]
    pub fn address_for_others(&self) -> Option<ShmAddress> {
        self.address.for_others().filter(|_| !self.options.allowed_users.is_empty())
    }

    /// Clients served at once, at most.
    #[must_use]
    pub fn max_clients(&self) -> usize {
        self.options.max_clients
    }

    /// The socket file.
    #[must_use]
    pub fn socket_path(&self) -> &Path {
        &self.path
    }

    /// Serves clients on this thread until stopped. After a request it spins up to 50 µs, then
    /// sleeps: an idle memory node costs no processor time. Clients are disconnected when it
    /// returns.
    ///
    /// # Errors
    /// If the operating system cannot wait for descriptors.
    pub fn serve<S: Service>(&mut self, service: &mut S, stop: &StopHandle) -> Result<(), FabricError> {
        server::serve(self, None, service, stop)
    }

    /// As [`serve`](Self::serve), and clients over sockets besides, whose requests this thread
    /// answers in the same rounds.
    ///
    /// # Errors
    /// As for [`serve`](Self::serve), or if no threads can be had for the sockets.
    pub fn serve_beside<S: Service>(
        &mut self,
        sockets: &mut crate::tcp::Listener,
        service: &mut S,
        stop: &StopHandle,
    ) -> Result<(), FabricError> {
        let mut threads = sockets.start(stop)?;
        let served = server::serve(self, Some(&mut threads.service_side), service, stop);
        served.and(threads.finish())
    }

    /// Serves clients on a new thread.
    ///
    /// # Errors
    /// If no thread or descriptor can be had.
    pub fn spawn<S: Service + 'static>(mut self, mut service: S) -> Result<Serving, FabricError> {
        Serving::spawn("fpcache-serve", move |stop| self.serve(&mut service, stop))
    }

    /// Takes a bounded number of clients from the queue: a peer that connects again and again must
    /// not keep the loop from requests.
    fn accept(&mut self, now: Instant, service: &mut dyn Service) {
        for _ in 0..MAX_ACCEPTED {
            let crowding = self.crowding();
            if crowding.is_some_and(|index| now < self.greeting[index].since + GRACE) {
                return;
            }
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => match self.look_at(socket, now) {
                    Ok(greeting) => {
                        // Before the others move.
                        if let Some(index) = crowding {
                            let why = "too many others had not greeted either";
                            service.rejected(&hung_up(&self.greeting.remove(index), why));
                        }
                        self.greeting.push(greeting);
                    }
                    Err(error) => service.rejected(&error),
                },
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    // Out of descriptors, most likely: the queue stays readable, and polling it
                    // again would spin.
                    self.paused_until = Some(now + ACCEPT_PAUSE);
                    service.rejected(&FabricError::io("accepting a client")(errno));
                    return;
                }
            }
        }
    }

    /// The one to close when there are as many as allowed.
    fn crowding(&self) -> Option<usize> {
        if self.greeting.len() < MAX_GREETING {
            return None;
        }
        first_of_most(self.greeting.iter().map(|client| Some(client.user)))
    }

    /// The user that has connected. A user that is not admitted is told so before it has said
    /// anything, and takes up no room.
    fn look_at(&self, socket: OwnedFd, since: Instant) -> Result<Greeting, FabricError> {
        let PeerProcess { user, process } =
            peer_of(&socket).map_err(FabricError::io("asking who the client is"))?;
        let owner = rustix::process::geteuid().as_raw();
        if !admits(owner, &self.options.allowed_users, user) {
            refuse(&socket, USER_REFUSED, u64::from(user));
            let remedy = "name it with --allow-user to let it in";
            return Err(FabricError::UserRefused { user, address: self.address.to_string(), remedy });
        }
        Ok(Greeting { socket, user, process, since, bytes: [0; MAX_GREETING_BYTES], arrived: 0 })
    }

    /// Lets those in who have greeted, and parts with those that have gone or took too long.
    fn admit_greeted(
        &mut self,
        now: Instant,
        open: usize,
        service: &mut dyn Service,
    ) -> Vec<(RingSession, RegionName)> {
        let mut admitted = Vec::new();
        for mut client in std::mem::take(&mut self.greeting) {
            match client.advance() {
                Progress::Waiting if now < client.since + GREETING_TIME => self.greeting.push(client),
                Progress::Waiting if client.arrived > 0 => {
                    service.rejected(&hung_up(&client, "it did not greet in time"));
                }
                // Said nothing, or gone: probing whether someone listens looks like that.
                Progress::Waiting | Progress::Gone => {}
                Progress::Greeted(hello, name) => {
                    match self.admit(client, (&hello, name), open + admitted.len(), service) {
                        Ok(session) => admitted.push((session, name)),
                        Err(error) => service.rejected(&error),
                    }
                }
            }
        }
        admitted
    }

    /// Decides about a client that has greeted.
    fn admit(
        &mut self,
        Greeting { socket, process, .. }: Greeting,
        (hello, name): (&Hello, RegionName),
        open: usize,
        service: &mut dyn Service,
    ) -> Result<RingSession, FabricError> {
        let address = || self.address.to_string();
        if hello.magic != MAGIC {
            return Err(FabricError::Protocol { peer: "a client".to_owned(), what: "another magic number" });
        }
        let (ours, theirs) = (PROTOCOL_VERSION, hello.version);
        if theirs != ours {
            refuse(&socket, OTHER_VERSION, 0);
            let peer = called(process);
            return Err(FabricError::VersionMismatch { peer, ours, theirs });
        }
        if hello.name_bytes as usize > RegionName::MAX {
            let what = "the name of a region of more than 64 bytes";
            return Err(FabricError::Protocol { peer: "a client".to_owned(), what });
        }
        let too_many = |max| {
            refuse(&socket, TOO_MANY_CLIENTS, max);
            FabricError::beyond_maximum(called(process), max)
        };
        if open >= self.options.max_clients {
            return Err(too_many(self.options.max_clients as u64));
        }
        // Descriptors that tables have taken are not there for new clients.
        let descriptor = self.options.descriptors.take(1, 0).ok_or_else(|| too_many(open as u64))?;
        let Some(export) = service.export(name.as_bytes()) else {
            refuse(&socket, NO_SUCH_REGION, 0);
            return Err(FabricError::NoSuchRegion { address: address(), name: name.to_string() });
        };
        self.welcome(socket, &export, descriptor)
    }

    fn welcome(
        &mut self,
        socket: OwnedFd,
        export: &Export,
        descriptor: TakenDescriptors,
    ) -> Result<RingSession, FabricError> {
        let layout = RingLayout::OURS;
        let (ring, ring_fd) = SharedMemory::create_memfd("fpcache-ring", layout.len(), HugePages::No)?;
        debug_assert_eq!(ring.access(), Access::ReadWrite);
        let client = ClientId(self.next_client);
        self.next_client += 1;
        let mut welcome = Welcome::refusal(PROTOCOL_VERSION, ADMITTED, 0);
        welcome.region_len = export.region_bytes();
        welcome.request_capacity = layout.request_capacity() as u64;
        welcome.reply_capacity = layout.reply_capacity() as u64;
        welcome.incarnation = export.incarnation();
        welcome.creation = export.creation();
        welcome.client = client.0;
        let mut fds = vec![export.as_fd(), ring_fd.as_fd()];
        if let Some(Scratch { memory, fd }) = &self.options.scratch {
            welcome.scratch_len = memory.len() as u64;
            fds.push(fd.as_fd());
        }
        send_with_fds(&socket, welcome.as_bytes(), &fds).map_err(FabricError::io("welcoming a client"))?;
        Ok(RingSession::new(client, ring, layout, Bell::new(socket)).counted(descriptor))
    }
}

impl Acceptor for Listener {
    fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        let is_crowded = || self.crowding().is_some_and(|index| self.greeting[index].since.elapsed() < GRACE);
        if self.paused_until.is_none() && !is_crowded() {
            fds.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        fds.extend(self.greeting.iter().map(|client| PollFd::new(&client.socket, PollFlags::IN)));
    }

    fn next_deadline(&self) -> Option<Instant> {
        let greeted = self.greeting.iter().map(|client| client.since + GREETING_TIME);
        // One whose grace has passed goes when another comes, which the socket tells.
        let crowding = self.crowding().map(|index| self.greeting[index].since + GRACE);
        let crowding = crowding.filter(|at| *at > Instant::now());
        greeted.chain(self.paused_until).chain(crowding).min()
    }

    fn advance(&mut self, open: usize, service: &mut dyn Service) -> Vec<(RingSession, RegionName)> {
        let now = Instant::now();
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
        }
        // First those that are here: one that has greeted is not sent away for one that comes.
        let mut admitted = self.admit_greeted(now, open, service);
        if self.paused_until.is_none() {
            self.accept(now, service);
            admitted.extend(self.admit_greeted(now, open + admitted.len(), service));
        }
        admitted
    }
}

/// What a client is called.
fn called(process: Option<u32>) -> String {
    process.map_or_else(
        || "a client whose process has no number here".to_owned(),
        |process| format!("client process {process}"),
    )
}

/// The error of a client that was hung up on before it had greeted.
fn hung_up(client: &Greeting, why: &str) -> FabricError {
    FabricError::HungUp { peer: called(client.process), why: why.to_owned() }
}

/// Tells a client why it is not let in. It may have gone already.
fn refuse(socket: &OwnedFd, status: u32, detail: u64) {
    let refusal = Welcome::refusal(PROTOCOL_VERSION, status, detail);
    let _ = send_with_fds(socket, refusal.as_bytes(), &[]);
}

/// The socket file to listen at, and the right to it. A name is taken in the private directory also
/// where the socket lies in the one that others can pass through, so that there is one memory node
/// of the name.
fn take_place(address: &ShmAddress, lets_others_in: bool) -> Result<(PathBuf, Vec<PathLock>), ListenError> {
    if address.owner().is_none() {
        let path = address.socket_path()?;
        let lock = PathLock::take(&path, address, &[&path])?;
        remove_stale(&path, address)?;
        return Ok((path, vec![lock]));
    }
    let is_shared = lets_others_in || address.names_user();
    let private = address.without_user().socket_path()?;
    if let Some(directory) = private.parent() {
        prepare_directory(directory, Passage::Private)?;
    }
    // A name that is too long for the one place may fit the other.
    let shared = match address.shared_socket_path() {
        Err(error) if is_shared => return Err(error.into()),
        shared => shared.ok(),
    };
    let places: Vec<&Path> = [Some(private.as_path()), shared.as_deref()].into_iter().flatten().collect();
    let mut locks = vec![PathLock::take(&private, address, &places)?];
    // What a process that has ended left there would lead clients nowhere.
    remove_stale(&private, address)?;
    let Some(shared) = shared.filter(|_| is_shared) else { return Ok((private, locks)) };
    if let Some(directory) = shared.parent() {
        prepare_directory(directory, Passage::Open)?;
    }
    locks.push(PathLock::take(&shared, address, &[&shared])?);
    remove_stale(&shared, address)?;
    Ok((shared, locks))
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The lock is still held, so the file is ours.
        let _ = std::fs::remove_file(&self.path);
    }
}
