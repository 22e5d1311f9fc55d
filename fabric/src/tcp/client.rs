//! The client's side of connecting.

mod greeting;
pub(super) mod session;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::address::TcpAddress;
use super::calls::Caller;
use super::card::SharedCard;
use super::connection::TcpConnection;
use super::round_trip::RoundTrip;
use super::silence::SilenceTimer;
use super::socket::reach;
use super::tls::ClientSide;
use super::token::Token;
use crate::bell::Bell;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::mapped::Link;
use crate::meter::Meter;
use crate::node_end::Watch;
use crate::rdma::RdmaError;
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
    let call_meter = Arc::new(Meter::new());
    let way = (stream, Arc::clone(&link), Arc::clone(&silence));
    let caller = Caller::new(way, welcome.limits, options.spin, Arc::clone(&call_meter));
    let session = Arc::new(Session {
        address: address.clone(),
        target,
        link,
        patience: options.patience,
        silence,
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
        caller: SharedCaller::new(caller),
        kept: Mutex::default(),
        _watch: watch,
    });
    if let Some(card) = &session.card {
        match session.try_card(card) {
            Err(trouble) if session.link.is_alive() && !options.needs_card => card.begins_without(trouble),
            outcome => outcome?,
        }
    }
    let (incarnation, creation) = (welcome.incarnation, welcome.creation);
    Ok(TcpConnection { session, bell, call_meter, incarnation, creation })
}
