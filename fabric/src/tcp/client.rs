//! The client's side: connecting, and the connection.

mod greeting;
pub(super) mod session;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::address::TcpAddress;
use super::calls::Caller;
use super::card::SharedCard;
use super::endpoint::TcpEndpoint;
use super::round_trip::RoundTrip;
use super::silence::SilenceTimer;
use super::socket::reach;
use super::tls::ClientSide;
use super::token::Token;
use crate::bell::Bell;
use crate::clock::Deadline;
use crate::connection::{Connection, Posted};
use crate::error::FabricError;
use crate::mapped::Link;
use crate::meter::{Meter, MeterSnapshot};
use crate::node_end::Watch;
use crate::rdma::{CardCounts, RdmaError};
use crate::region::RegionName;
use crate::shm::PROTOCOL_VERSION;
use crate::target::Target;
use crate::turns::SharedCaller;
use greeting::Greeting;
use session::{Session, begin};

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The region to read. Default: the one with the empty name.
    pub region: RegionName,
    /// By when the memory node must have answered. Default: five seconds after the options were
    /// made.
    pub deadline: Deadline,
    /// How long the memory node may be silent while something is asked of it, in one call or in
    /// several, before it counts as gone. Six times as long where only calls are not answered.
    /// Default five seconds.
    pub patience: Duration,
    /// How long a thread that waits for a reply goes on looking before it sleeps, while that pays
    /// off. Default 50 µs.
    pub spin: Duration,
    /// Whether connecting fails if the address asks for network cards and they cannot be used. If
    /// not, as is right for a client that was connected before, sockets are read over until they
    /// can be ([`TcpConnection::card_trouble`]). Default: it fails.
    pub needs_card: bool,
    /// Whether the network cards that the address asks for are used. A client that reads nothing
    /// needs none. Default: yes.
    pub uses_card: bool,
    /// The token to prove, and to have the memory node prove: over TCP, not over unix sockets,
    /// where the operating system tells who is there. Default: none.
    pub token: Option<Token>,
    /// The protocol version to announce; another than [`PROTOCOL_VERSION`] only to test the
    /// refusal.
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
            needs_card: true,
            uses_card: true,
            token: None,
            announce_version: PROTOCOL_VERSION,
        }
    }
}

/// Connects to the memory node at `address`.
///
/// # Errors
/// [`TcpAddress`](FabricError::TcpAddress) if the host is unknown,
/// [`NoMemoryNode`](FabricError::NoMemoryNode) if nothing listens there or it cannot be reached,
/// [`VersionMismatch`](FabricError::VersionMismatch), [`Protocol`](FabricError::Protocol) if
/// something else listens there, [`UserRefused`](FabricError::UserRefused),
/// [`NoSuchRegion`](FabricError::NoSuchRegion), [`TokenRefused`](FabricError::TokenRefused),
/// [`TooManyClients`](FabricError::TooManyClients), [`DeadlinePassed`](FabricError::DeadlinePassed)
/// or [`NoWelcome`](FabricError::NoWelcome) if it does not answer in time, and
/// [`Rdma`](FabricError::Rdma) if the address asks for network cards, and those here or there
/// cannot be used.
pub fn connect(address: &TcpAddress, options: ConnectOptions) -> Result<TcpConnection, FabricError> {
    connect_to(address, options).map_err(|error| error.connecting(address))
}

fn connect_to(address: &TcpAddress, options: ConnectOptions) -> Result<TcpConnection, FabricError> {
    // Also where no card would be used: that nothing listens at such an address would mislead.
    if address.card().is_some() && !cfg!(feature = "rdma") {
        return Err(RdmaError::NotBuilt.into());
    }
    let card = address.card().filter(|_| options.uses_card).map(|choice| Arc::new(SharedCard::new(choice)));
    if let Some(card) = card.as_ref().filter(|_| options.needs_card) {
        card.card()?;
    }
    let targets = address.targets_within(options.deadline)?;
    let tls = address.trust().map(|trust| ClientSide::of(trust, &address.to_string())).transpose()?;
    let (socket, target) = reach(address, &targets, options.deadline)?;
    let mut stream = begin(socket, address, tls.as_ref())?;
    let token = options.token.filter(|_| matches!(target, Target::Internet(_)));
    let greeting = Greeting {
        address,
        name: &options.region,
        join: None,
        token,
        version: options.announce_version,
        deadline: options.deadline,
    };
    let welcome = greeting.exchange(&mut stream)?;
    let link = Arc::new(Link::new(&address.to_string())?);
    let stream = stream.map(Bell::new);
    let bell = stream.socket().clone();
    let watch = Watch::start(bell.clone(), Arc::clone(&link))?;
    let silence = Arc::new(SilenceTimer::new(options.patience));
    let session = Arc::new(Session {
        address: address.clone(),
        target,
        link: Arc::clone(&link),
        patience: options.patience,
        silence: Arc::clone(&silence),
        spin: options.spin,
        token,
        tls,
        membership: welcome.membership,
        limits: welcome.limits,
        region_len: welcome.region_len,
        scratch_len: welcome.scratch_len,
        watched: welcome.watched(),
        answers: AtomicBool::new(true),
        round_trip: RoundTrip::default(),
        card,
        kept: Mutex::default(),
        _watch: watch,
    });
    if let Some(card) = &session.card {
        match session.try_card(card) {
            Err(trouble) if session.link.is_alive() && !options.needs_card => card.begins_without(trouble),
            outcome => outcome?,
        }
    }
    let call_meter = Arc::new(Meter::new());
    let caller = Caller::new((stream, link, silence), welcome.limits, options.spin, Arc::clone(&call_meter));
    Ok(TcpConnection {
        session,
        caller: SharedCaller::new(caller),
        bell,
        call_meter,
        incarnation: welcome.incarnation,
        creation: welcome.creation,
    })
}

/// A connection to a memory node over TCP or a unix socket. Its requests go over the socket that it
/// came with, and each of its endpoints has one of its own: no lock stands between them, and the
/// memory node's threads share them out. They live and die together. Closes when it and all its
/// endpoints have been dropped.
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
            self.bell.detach_inherited();
        }
    }
}

impl TcpConnection {
    /// Counts of its endpoints' use of network cards, where its address asks for that.
    #[must_use]
    pub fn card_counts(&self) -> Option<CardCounts> {
        self.session.card.as_ref().map(|shared| shared.card_counters.counts())
    }

    /// Why it began without the network card that its address asks for, if it did. Its endpoints
    /// try again from time to time.
    #[must_use]
    pub fn card_trouble(&self) -> Option<&FabricError> {
        self.session.card.as_ref().and_then(|shared| shared.trouble())
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
