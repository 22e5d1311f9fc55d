//! The memory node's side: letting clients in and serving them.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use super::ShmAddress;
use super::handshake::{
    ADMITTED, Hello, MAGIC, MAX_GREETING_BYTES, NO_SUCH_REGION, OTHER_VERSION, PROTOCOL_VERSION,
    TOO_MANY_CLIENTS, USER_REFUSED, Welcome, admits, send_with_fds,
};
use super::socket_file::{ListenError, PathLock, open_socket, prepare_directory, remove_stale};
use crate::bell::Bell;
use crate::connection::{ClientId, Service, Serving, StopHandle};
use crate::descriptors::{Descriptors, Taken};
use crate::error::FabricError;
use crate::memory::{Access, HugePages, SharedMemory};
use crate::region::{Export, RegionName};
use crate::ring::{RingLayout, RingOptions};
use crate::server::{self, Acceptor, Session};

/// Clients that have connected but not greeted yet; more are turned away.
const MAX_GREETING: usize = 64;
/// How long a client may take to greet.
const GREETING_TIME: Duration = Duration::from_secs(2);
/// How long no client is accepted after the process ran out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a memory node listens.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Numeric ids of users that get in beside the owner of this process. Default: none; root is not implied.
    pub allowed_users: Vec<u32>,
    /// The size of each client's request ring.
    pub ring: RingOptions,
    /// Clients served at once. Default 1024.
    pub max_clients: usize,
    /// Where each client takes the descriptor of its socket; when none is left no more clients are let in. Default: nobody
    /// counts. [`Listener::GREETING_DESCRIPTORS`] are needed beside it.
    pub descriptors: Arc<Descriptors>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            allowed_users: Vec::new(),
            ring: RingOptions::default(),
            max_clients: 1024,
            descriptors: Descriptors::unlimited(),
        }
    }
}

/// A memory node's socket. Which regions there are is its [`Service`]'s to say. Dropping it removes the socket file.
#[derive(Debug)]
pub struct Listener {
    address: ShmAddress,
    path: PathBuf,
    socket: OwnedFd,
    _lock: PathLock,
    layout: RingLayout,
    options: ListenOptions,
    next_client: u64,
    greeting: Vec<Greeting>,
    paused_until: Option<Instant>,
}

/// A client whose HELLO and name have not arrived in full.
#[derive(Debug)]
struct Greeting {
    socket: OwnedFd,
    until: Instant,
    bytes: [u8; MAX_GREETING_BYTES],
    arrived: usize,
}

impl Listener {
    /// Descriptors that clients which have not greeted yet have at most, and the ring of the one that is being let in.
    pub const GREETING_DESCRIPTORS: usize = MAX_GREETING + 1;

    /// Listens at `address`. A socket file left by a memory node that has died is replaced.
    ///
    /// # Errors
    /// See [`ListenError`]; nothing is left behind.
    pub fn bind(address: &ShmAddress, options: ListenOptions) -> Result<Self, ListenError> {
        let layout = RingLayout::new(options.ring).map_err(|_| ListenError::RingSize(options.ring))?;
        let path = address.socket_path()?;
        if address.is_named()
            && let Some(directory) = path.parent()
        {
            prepare_directory(directory)?;
        }
        let lock = PathLock::take(&path, address)?;
        remove_stale(&path, address)?;
        let socket = open_socket(&path)?;
        // Who may connect is decided by the peer's credentials; the file's mode only spares others the attempt.
        let mode = if options.allowed_users.is_empty() { 0o600 } else { 0o666 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).map_err(|source| {
            let _ = std::fs::remove_file(&path);
            ListenError::Io { doing: "setting the permissions of", path: path.display().to_string(), source }
        })?;
        Ok(Self {
            address: address.clone(),
            path,
            socket,
            _lock: lock,
            layout,
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

    /// Serves clients on this thread until stopped. After a request it spins up to 50 µs, then sleeps: an idle memory
    /// node costs no processor time. Clients are disconnected when it returns.
    ///
    /// # Errors
    /// If the operating system cannot wait for descriptors.
    pub fn serve<S: Service>(&mut self, service: &mut S, stop: &StopHandle) -> Result<(), FabricError> {
        server::serve(self, service, stop)
    }

    /// Serves clients on a new thread.
    ///
    /// # Errors
    /// If no thread or descriptor can be had.
    pub fn spawn<S: Service + 'static>(mut self, mut service: S) -> Result<Serving, FabricError> {
        Serving::spawn("fpcache-serve", move |stop| self.serve(&mut service, stop))
    }

    fn accept(&mut self, service: &mut dyn Service) {
        while self.greeting.len() < MAX_GREETING {
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    let until = Instant::now() + GREETING_TIME;
                    self.greeting.push(Greeting {
                        socket,
                        until,
                        bytes: [0; MAX_GREETING_BYTES],
                        arrived: 0,
                    });
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    // Out of descriptors, most likely: the queue stays readable, and polling it again would spin.
                    self.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                    service.rejected(&FabricError::io("accepting a client")(errno));
                    return;
                }
            }
        }
    }

    /// Decides about a client that has greeted.
    fn admit(
        &mut self,
        socket: OwnedFd,
        (hello, name): (&Hello, RegionName),
        open: usize,
        service: &mut dyn Service,
    ) -> Result<Session, FabricError> {
        let address = || self.address.to_string();
        if hello.magic != MAGIC {
            return Err(FabricError::Protocol { peer: "a client".to_owned(), what: "another magic number" });
        }
        let refuse = |status, detail| {
            let refusal = Welcome::refusal(PROTOCOL_VERSION, status, detail);
            // It may have gone already.
            let _ = send_with_fds(&socket, refusal.as_bytes(), &[]);
        };
        let peer = rustix::net::sockopt::socket_peercred(&socket)
            .map_err(FabricError::io("asking who the client is"))?;
        let (ours, theirs) = (PROTOCOL_VERSION, hello.version.get());
        if theirs != ours {
            refuse(OTHER_VERSION, 0);
            let peer = format!("client process {}", peer.pid.as_raw_nonzero());
            return Err(FabricError::VersionMismatch { peer, ours, theirs });
        }
        if hello.name_bytes.get() as usize > RegionName::MAX {
            let what = "the name of a region of more than 64 bytes";
            return Err(FabricError::Protocol { peer: "a client".to_owned(), what });
        }
        let (owner, user) = (rustix::process::geteuid().as_raw(), peer.uid.as_raw());
        if !admits(owner, &self.options.allowed_users, user) {
            refuse(USER_REFUSED, u64::from(user));
            let remedy = "name it among the admitted users to let it in";
            return Err(FabricError::UserRefused { user, address: address(), remedy });
        }
        let too_many = |max| {
            refuse(TOO_MANY_CLIENTS, max);
            FabricError::TooManyClients { address: address(), max }
        };
        if open >= self.options.max_clients {
            return Err(too_many(self.options.max_clients as u64));
        }
        // What tables have taken is nobody's who connects.
        let descriptor = self.options.descriptors.take(1, 0).ok_or_else(|| too_many(open as u64))?;
        let Some(export) = service.export(name.as_bytes()) else {
            refuse(NO_SUCH_REGION, 0);
            return Err(FabricError::NoSuchRegion { address: address(), name: name.to_string() });
        };
        self.welcome(socket, &export, descriptor)
    }

    fn welcome(
        &mut self,
        socket: OwnedFd,
        export: &Export,
        descriptor: Taken,
    ) -> Result<Session, FabricError> {
        let (ring, ring_fd) = SharedMemory::create_memfd("fpcache-ring", self.layout.len(), HugePages::No)?;
        debug_assert_eq!(ring.access(), Access::ReadWrite);
        let client = ClientId(self.next_client);
        self.next_client += 1;
        let mut welcome = Welcome::refusal(PROTOCOL_VERSION, ADMITTED, 0);
        welcome.region_len = U64::new(export.region_bytes());
        welcome.request_capacity = U64::new(self.layout.request_capacity() as u64);
        welcome.reply_capacity = U64::new(self.layout.reply_capacity() as u64);
        welcome.incarnation = U64::new(export.incarnation());
        welcome.client = U64::new(client.0);
        send_with_fds(&socket, welcome.as_bytes(), &[export.as_fd(), ring_fd.as_fd()])
            .map_err(FabricError::io("welcoming a client"))?;
        Ok(Session::new(client, ring, self.layout, Bell::new(socket)).counted(descriptor))
    }
}

impl Acceptor for Listener {
    fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        if self.paused_until.is_none() && self.greeting.len() < MAX_GREETING {
            fds.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        fds.extend(self.greeting.iter().map(|client| PollFd::new(&client.socket, PollFlags::IN)));
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.greeting.iter().map(|client| client.until).chain(self.paused_until).min()
    }

    fn advance(&mut self, mut open: usize, service: &mut dyn Service) -> Vec<(Session, RegionName)> {
        let now = Instant::now();
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
        }
        if self.paused_until.is_none() {
            self.accept(service);
        }
        let mut admitted = Vec::new();
        for mut client in std::mem::take(&mut self.greeting) {
            match client.advance() {
                Progress::Waiting if now < client.until => self.greeting.push(client),
                // Too slow, or gone: probing whether someone listens looks like that.
                Progress::Waiting | Progress::Gone => {}
                Progress::Greeted(hello, name) => {
                    match self.admit(client.socket, (&hello, name), open, service) {
                        Ok(session) => {
                            open += 1;
                            admitted.push((session, name));
                        }
                        Err(error) => service.rejected(&error),
                    }
                }
            }
        }
        admitted
    }
}

enum Progress {
    Waiting,
    Gone,
    Greeted(Hello, RegionName),
}

impl Greeting {
    fn advance(&mut self) -> Progress {
        loop {
            // Not more than this greeting: what follows is not part of it.
            let wanted = match self.hello() {
                None => size_of::<Hello>(),
                Some((hello, Some(name))) => return Progress::Greeted(hello, name),
                Some((hello, None)) => size_of::<Hello>() + hello.name_bytes.get() as usize,
            };
            match rustix::net::recv(&self.socket, &mut self.bytes[self.arrived..wanted], RecvFlags::DONTWAIT)
            {
                Ok((_, 0)) => return Progress::Gone,
                Ok((_, bytes)) => self.arrived += bytes,
                Err(Errno::AGAIN | Errno::INTR) => return Progress::Waiting,
                Err(_) => return Progress::Gone,
            }
        }
    }

    /// What has arrived: HELLO, and the name if that is there too. Of a HELLO that is not this version's, or names no name,
    /// the rest is not waited for.
    fn hello(&self) -> Option<(Hello, Option<RegionName>)> {
        let (hello, rest) = Hello::read_from_prefix(&self.bytes[..self.arrived]).ok()?;
        let name_bytes = hello.name_bytes.get() as usize;
        let is_ours = hello.magic == MAGIC && hello.version.get() == PROTOCOL_VERSION;
        if !is_ours || name_bytes > RegionName::MAX {
            return Some((hello, Some(RegionName::default())));
        }
        Some((hello, rest.get(..name_bytes).and_then(|name| RegionName::new(name).ok())))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The lock is still held, so the file is ours.
        let _ = std::fs::remove_file(&self.path);
    }
}
