//! The client's side: connecting, and the connection.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::address::{Target, TcpAddress};
use super::by_card::SharedCard;
use super::calls::Caller;
use super::card::CardSocket;
use super::channel::Channel;
use super::endpoint::TcpEndpoint;
use super::frame::{HEAD_BYTES, Limits};
use super::handshake::{
    ADMITTED, CREDENTIALS_REFUSED, Hello, Membership, NO_RESOURCES, NO_SUCH_CLIENT, NO_SUCH_REGION,
    TOO_MANY_CLIENTS, USER_REFUSED, WELCOME_BYTES, Welcome,
};
use super::socket::{Moved, Ready, reach, receive, send, wait};
use crate::bell::Bell;
use crate::clock::{Clock, Deadline, SystemClock};
use crate::connection::{Connection, Posted};
use crate::error::FabricError;
use crate::mapped::Link;
use crate::meter::{Meter, MeterSnapshot};
use crate::rdma::{CardCounts, ClientCard};
use crate::region::RegionName;
use crate::rpc::SharedCaller;
use crate::shm::PROTOCOL_VERSION;
use crate::verbs::MAX_REQUEST_BYTES;
use crate::watch::Watch;

/// Sockets that endpoints have left, at most.
const MAX_KEPT: usize = 16;
/// What a memory node's limits must at least be: a batch of a few requests, and a record of a slot of any table.
const LEAST: u32 = 4 << 10;

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The region to read. Default: the one with the empty name.
    pub region: RegionName,
    /// By when the memory node must have answered. Default: five seconds after the options were made.
    pub deadline: Deadline,
    /// How long the memory node may be silent while something is asked of it, before it counts as gone. Default five seconds.
    pub patience: Duration,
    /// How long a thread that waits for a reply goes on looking before it sleeps, while that pays off. Default 50 µs.
    pub spin: Duration,
    /// The clock that waiting callers use.
    pub clock: Arc<dyn Clock>,
    /// The protocol version to announce; another than [`PROTOCOL_VERSION`] only to test the refusal.
    #[doc(hidden)]
    pub announce_version: u32,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            region: RegionName::default(),
            deadline: Deadline::after(Duration::from_secs(5)),
            patience: Duration::from_secs(5),
            spin: Duration::from_micros(50),
            clock: Arc::new(SystemClock),
            announce_version: PROTOCOL_VERSION,
        }
    }
}

/// Connects to the memory node at `address`.
///
/// # Errors
/// [`TcpAddress`](FabricError::TcpAddress) if nobody knows the host,
/// [`NoMemoryNode`](FabricError::NoMemoryNode) if nothing listens there or nobody can get there,
/// [`VersionMismatch`](FabricError::VersionMismatch), [`Protocol`](FabricError::Protocol) if something else listens there,
/// [`UserRefused`](FabricError::UserRefused), [`NoSuchRegion`](FabricError::NoSuchRegion),
/// [`TooManyClients`](FabricError::TooManyClients), [`DeadlinePassed`](FabricError::DeadlinePassed) if it does not answer in
/// time, and [`Rdma`](FabricError::Rdma) if the address asks for network cards, and those here or there cannot be used.
pub fn connect(address: &TcpAddress, options: ConnectOptions) -> Result<TcpConnection, FabricError> {
    let card = match address.card() {
        None => None,
        Some(choice) => {
            Some(SharedCard { card: Arc::new(ClientCard::open(choice)?), tallies: Arc::default() })
        }
    };
    let targets = address.targets().map_err(|error| FabricError::TcpAddress(Box::new(error)))?;
    let (socket, target) = reach(address, &targets, options.deadline)?;
    let hello = Hello::encode(options.announce_version, &options.region, None);
    let greeting = Greeting {
        address,
        name: &options.region,
        version: options.announce_version,
        deadline: options.deadline,
    };
    let welcome = greeting.exchange(&socket, &hello)?;
    let link = Arc::new(Link::new(&address.to_string())?);
    let bell = Bell::new(socket);
    let watch = Watch::start(bell.clone(), Arc::clone(&link))?;
    let session = Arc::new(Session {
        address: address.clone(),
        target,
        link: Arc::clone(&link),
        clock: options.clock,
        patience: options.patience,
        spin: options.spin,
        membership: welcome.membership,
        limits: welcome.limits,
        region_len: welcome.region_len,
        scratch_len: welcome.scratch_len,
        watched: welcome.watched,
        card,
        kept: Mutex::default(),
        _watch: watch,
    });
    if let Some(card) = &session.card {
        session.try_card(card)?;
    }
    let call_meter = Arc::new(Meter::new());
    let caller = Caller::new(bell.clone(), link, welcome.limits, options.spin, Arc::clone(&call_meter));
    Ok(TcpConnection {
        session,
        caller: SharedCaller::new(caller),
        bell,
        call_meter,
        incarnation: welcome.incarnation,
        creation: welcome.creation,
    })
}

/// A handshake.
struct Greeting<'g> {
    address: &'g TcpAddress,
    name: &'g RegionName,
    version: u32,
    deadline: Deadline,
}

impl Greeting<'_> {
    /// Says HELLO and takes WELCOME, and no byte more.
    fn exchange(&self, socket: &OwnedFd, hello: &[u8]) -> Result<Welcome, FabricError> {
        // It fits any socket's buffer, and one that was refused before it spoke is told why.
        send(socket, hello);
        let (mut bytes, mut have) = ([0; WELCOME_BYTES], 0);
        while have < bytes.len() {
            match receive(socket, &mut bytes[have..]) {
                Moved::Bytes(more) => have += more,
                Moved::Nothing => {
                    if wait(socket, false, self.deadline) == Ready::TimedOut {
                        return Err(FabricError::DeadlinePassed { waiting_for: "the memory node's welcome" });
                    }
                    continue;
                }
                // One that is being killed has accepted and says nothing: it is worth coming again.
                Moved::Gone => {
                    return Err(FabricError::Disconnected { peer: self.address.to_string().into() });
                }
            }
            // What is the same in all versions tells whether the rest is worth waiting for.
            let known = have.min(super::handshake::MAGIC.len());
            if bytes[..known] != super::handshake::MAGIC[..known] {
                return Err(self.protocol("its welcome has another magic number"));
            }
            if have >= HEAD_BYTES {
                let theirs = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
                if theirs != self.version {
                    let peer = format!("memory node {}", self.address);
                    return Err(FabricError::VersionMismatch { peer, ours: self.version, theirs });
                }
            }
        }
        let welcome = Welcome::decode(&bytes).ok_or_else(|| self.protocol("its welcome is none"))?;
        self.check(&welcome)?;
        Ok(welcome)
    }

    fn check(&self, welcome: &Welcome) -> Result<(), FabricError> {
        let address = self.address.to_string();
        match welcome.status {
            ADMITTED => {}
            USER_REFUSED => {
                return Err(FabricError::UserRefused {
                    user: u32::try_from(welcome.detail).unwrap_or(u32::MAX),
                    address,
                    remedy: "connect as its owner, or have it started with this user among the admitted",
                });
            }
            NO_SUCH_REGION => return Err(FabricError::NoSuchRegion { address, name: self.name.to_string() }),
            NO_RESOURCES => return Err(FabricError::NoResources { address }),
            TOO_MANY_CLIENTS => return Err(FabricError::TooManyClients { address, max: welcome.detail }),
            NO_SUCH_CLIENT => return Err(FabricError::Disconnected { peer: address.into() }),
            CREDENTIALS_REFUSED => return Err(self.protocol("it wants no credentials")),
            _ => return Err(self.protocol("its welcome has an unknown status")),
        }
        let Limits { batch_bytes, reply_bytes, call_request, call_reply } = welcome.limits;
        let most = MAX_REQUEST_BYTES as u32;
        let fits = [batch_bytes, reply_bytes].iter().all(|bytes| (LEAST..=most).contains(bytes))
            && reply_bytes.is_multiple_of(8)
            && call_request <= most
            && call_reply <= most;
        if fits { Ok(()) } else { Err(self.protocol("its welcome has limits that cannot be")) }
    }

    fn protocol(&self, what: &'static str) -> FabricError {
        FabricError::Protocol { peer: format!("the listener at {}", self.address), what }
    }
}

/// What a connection and its endpoints share.
#[derive(Debug)]
pub(super) struct Session {
    address: TcpAddress,
    /// Where the first socket is connected to: the others must come to the same memory node.
    target: Target,
    pub(super) link: Arc<Link>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) patience: Duration,
    pub(super) spin: Duration,
    membership: Membership,
    pub(super) limits: Limits,
    pub(super) region_len: u64,
    pub(super) scratch_len: u64,
    pub(super) watched: Option<u64>,
    /// The network card that reads, where the address asks for one.
    pub(super) card: Option<SharedCard>,
    kept: Mutex<Vec<Channel>>,
    /// Hangs up when the last endpoint has gone.
    _watch: Watch,
}

impl Session {
    /// A socket for an endpoint: one that another endpoint has left, or a new one.
    pub(super) fn channel(&self, patience: Duration) -> Result<Channel, FabricError> {
        let kept = self.kept().pop();
        if let Some(mut channel) = kept {
            // What another endpoint was told is older than what this one reads.
            channel.watched = None;
            return Ok(channel);
        }
        let (socket, welcome) = self.join(patience)?;
        Ok(Channel::new(socket, welcome.limits))
    }

    /// A new socket for the network cards of an endpoint.
    pub(super) fn card_socket(&self, patience: Duration) -> Result<CardSocket, FabricError> {
        let (socket, _) = self.join(patience)?;
        Ok(CardSocket::new(socket, self.address.to_string()))
    }

    /// A new socket that has joined the client.
    fn join(&self, patience: Duration) -> Result<(OwnedFd, Welcome), FabricError> {
        let deadline = Deadline::after(self.patience.min(patience));
        let reached = reach(&self.address, std::slice::from_ref(&self.target), deadline);
        if let Err(FabricError::NoMemoryNode { .. }) = reached {
            // Also if the memory node lives and its socket file does not: nobody can read there over this connection any more.
            self.link.cut();
        }
        let (socket, _) = reached?;
        let hello = Hello::encode(PROTOCOL_VERSION, &RegionName::default(), Some(self.membership));
        let name = RegionName::default();
        let greeting = Greeting { address: &self.address, name: &name, version: PROTOCOL_VERSION, deadline };
        match greeting.exchange(&socket, &hello) {
            Ok(welcome) => Ok((socket, welcome)),
            Err(error) => {
                if let FabricError::Disconnected { .. } = error {
                    self.link.cut();
                }
                Err(error)
            }
        }
    }

    /// Keeps a socket for the next endpoint, if nothing is under way over it.
    pub(super) fn keep(&self, channel: Channel) {
        if channel.is_idle() && self.link.is_alive() {
            let mut kept = self.kept();
            if kept.len() < MAX_KEPT {
                kept.push(channel);
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Channel>> {
        // Held for a push or a pop.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection to a memory node over TCP or a unix socket. Its requests go over the socket that it came with, and each of its
/// endpoints has one of its own: no lock stands between them, and the memory node's threads share them out. They
/// live and die together. Closes when it and all its endpoints have been dropped.
#[derive(Debug)]
pub struct TcpConnection {
    session: Arc<Session>,
    caller: SharedCaller<Caller>,
    bell: Bell,
    call_meter: Arc<Meter>,
    incarnation: u64,
    creation: u64,
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        if self.session.link.is_inherited() {
            // The memory node must notice when the process ends whose connection it is.
            self.bell.let_go();
        }
    }
}

impl TcpConnection {
    /// What its endpoints did by network cards, where its address asks for that.
    #[must_use]
    pub fn card_counts(&self) -> Option<CardCounts> {
        self.session.card.as_ref().map(|shared| shared.tallies.counts())
    }
}

impl Connection for TcpConnection {
    type Endpoint = TcpEndpoint;

    /// Its socket is connected at its first use.
    fn endpoint(&self) -> TcpEndpoint {
        TcpEndpoint::new(&self.session)
    }

    fn post(&self, request: &[u8], deadline: Deadline) -> Result<Posted, FabricError> {
        self.caller.post(request, deadline)
    }

    fn poll(&self, posted: Posted, reply: &mut Vec<u8>) -> Result<Option<Posted>, FabricError> {
        self.caller.poll(posted, reply)
    }

    fn wait(&self, posted: Posted, reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError> {
        self.caller.wait(posted, reply, deadline)
    }

    fn give_up(&self, posted: Posted) {
        self.caller.give_up(&posted);
    }

    fn max_request(&self) -> usize {
        self.session.limits.call_request as usize
    }

    fn max_reply(&self) -> usize {
        self.session.limits.call_reply as usize
    }

    #[inline]
    fn is_alive(&self) -> bool {
        self.session.link.is_alive()
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn creation(&self) -> u64 {
        self.creation
    }

    fn call_meter(&self) -> MeterSnapshot {
        self.call_meter.snapshot()
    }
}
