//! The state that the I/O threads of a memory node share, and their messages to each other.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::areas::Areas;
use super::counters::{HangUp, HangUpCounts, WaitCounts};
use super::failed_logins::Attempts;
use super::frame::FrameError;
use super::handshake::{Membership, Welcome};
use super::mailbox::Mailbox;
use super::options::ListenOptions;
use super::request_memory::{Charge, RequestMemory, Share};
use super::socket::Origin;
use super::stream::Stream;
use super::tls::ServerSide;
use super::token::{Rights, Token, TokenSet};
use super::unauthenticated::{NewcomerGuard, Newcomers};
use crate::descriptors::TakenDescriptors;
use crate::error::FabricError;
use crate::lock::lock;
use crate::rdma::{NodeCard, RdmaError};
use crate::region::RegionName;
use crate::service::ClientId;
use crate::target::Target;

/// Reports of hang-ups that wait for the service, at most: more are counted and not told. As many
/// again may wait of the memory node's own troubles, some of which come only once.
const MAX_REPORTS: usize = 64;

/// A socket that connections come from.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) socket: OwnedFd,
    pub(super) target: Target,
    /// Whether what goes over its connections is encrypted.
    pub(super) is_tls: bool,
    /// Whether it requires a token.
    pub(super) needs_token: bool,
}

/// A connection that was accepted.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) stream: Stream,
    pub(super) origin: Origin,
    pub(super) needs_token: bool,
    pub(super) place: NewcomerGuard,
}

/// A connection that was let in, which counts until this is dropped.
#[derive(Debug)]
pub(super) struct Admission {
    connections: Arc<AtomicUsize>,
    _descriptor: TakenDescriptors,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The credentials that a client came in by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClientCredentials {
    /// The token that it has proven, if any.
    pub(super) token: Option<Token>,
    pub(super) rights: Rights,
}

impl ClientCredentials {
    /// Where no token is needed.
    pub(super) const OPEN: Self = Self { token: None, rights: Rights::Write };
}

/// A client of the memory node, whose sockets may be served by several threads.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) areas: Areas,
    /// The answer to it, also when another socket joins.
    pub(super) welcome: Welcome,
    /// The share that its requests are charged to.
    pub(super) share: Share,
    pub(super) entry: ClientCredentials,
    /// Who it is.
    pub(super) origin: Origin,
    /// Until it has gone or is hung up on.
    pub(super) is_open: AtomicBool,
    /// When one of its sockets was last used, in seconds since the node began.
    pub(super) active: AtomicU64,
    /// Its sockets whose network cards have a queue pair here.
    pub(super) by_card: AtomicUsize,
}

impl Client {
    pub(super) fn id(&self) -> ClientId {
        ClientId(self.welcome.membership.client)
    }
}

/// A socket whose network card has a queue pair here. Nothing of what cards READ passes by the
/// sockets, so that the client counts as active until this is dropped; whether it is still there
/// the kernel finds out.
#[derive(Debug)]
pub(super) struct ReadsByCard {
    client: Arc<Client>,
    shared: Arc<ServingState>,
}

impl ReadsByCard {
    pub(super) fn begin(client: &Arc<Client>, shared: &Arc<ServingState>) -> Self {
        client.by_card.fetch_add(1, Ordering::Relaxed);
        Self { client: Arc::clone(client), shared: Arc::clone(shared) }
    }
}

impl Drop for ReadsByCard {
    fn drop(&mut self) {
        self.client.active.store(self.shared.seconds(Instant::now()), Ordering::Relaxed);
        self.client.by_card.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A socket at the thread that serves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PeerKey {
    pub(super) thread: usize,
    pub(super) key: u64,
}

/// A message to the service's thread.
#[derive(Debug)]
pub(super) enum ToService {
    /// A client wants the region of a name. If it has gone meanwhile it counts until this is taken,
    /// so that those who greet and leave do not fill the mailbox of a busy service.
    Hello { peer: PeerKey, name: RegionName, entry: ClientCredentials, origin: Origin, admission: Admission },
    /// A client's request.
    Request { client: ClientId, bytes: Vec<u8>, charge: Charge },
    /// A client has gone.
    Gone(ClientId),
    /// A peer was hung up on or not let in.
    Rejected(FabricError),
    /// There are other tokens than before.
    TokensChanged,
}

/// A message to an I/O thread.
#[derive(Debug)]
pub(super) enum ToThread {
    /// To serve a new connection.
    Take(Arrival),
    /// That a client is let in.
    Admit { key: u64, client: Arc<Client>, admission: Admission },
    /// That it is not, and why.
    Refuse { key: u64, welcome: Box<Welcome>, error: Box<FabricError>, admission: Admission },
    /// The answer to a request; too long if it has another length.
    Reply { key: u64, len: usize, bytes: Vec<u8> },
    /// That all sockets of a client are to be closed.
    Part(ClientId),
    /// That the newcomer of this number is to go, for another one.
    Crowded(u64),
}

/// The state that all threads share.
#[derive(Debug)]
pub(super) struct ServingState {
    pub(super) options: ListenOptions,
    /// The network card that reads for clients.
    pub(super) card: Option<NodeCard>,
    pub(super) began: Instant,
    pub(super) stopped: AtomicBool,
    pub(super) service_side: Mailbox<ToService>,
    pub(super) threads: Vec<Mailbox<ToThread>>,
    /// Connections that have not been let in.
    pub(super) newcomers: Arc<Newcomers>,
    /// Connections that have.
    pub(super) connections: Arc<AtomicUsize>,
    /// For requests that are on their way to the service.
    pub(super) request_memory: Arc<RequestMemory>,
    pub(super) hang_ups: HangUpCounts,
    /// The waits of each I/O thread.
    pub(super) waits: Vec<WaitCounts>,
    reports: AtomicUsize,
    /// Why the network card refused clients lately, as the service was told.
    card_refusals: Mutex<Vec<String>>,
    clients: Mutex<HashMap<u64, Arc<Client>>>,
    tokens: Mutex<Arc<TokenSet>>,
    /// By which encrypted connections are begun.
    tls: Mutex<Option<ServerSide>>,
    pub(super) attempts: Attempts,
}

impl ServingState {
    pub(super) fn new(
        mut options: ListenOptions,
        card: Option<NodeCard>,
        tls: Option<ServerSide>,
    ) -> Result<Self, FabricError> {
        let tokens = Mutex::new(Arc::new(std::mem::take(&mut options.tokens)));
        let threads = (0..options.io_threads.max(1)).map(|_| Mailbox::new()).collect::<Result<_, _>>()?;
        let request_memory = RequestMemory::new(options.request_memory);
        let waits = std::iter::repeat_with(WaitCounts::default).take(options.io_threads.max(1)).collect();
        Ok(Self {
            options,
            card,
            began: Instant::now(),
            stopped: AtomicBool::new(false),
            service_side: Mailbox::new()?,
            threads,
            newcomers: Arc::default(),
            connections: Arc::default(),
            request_memory,
            hang_ups: HangUpCounts::default(),
            waits,
            reports: AtomicUsize::new(0),
            card_refusals: Mutex::default(),
            clients: Mutex::default(),
            tokens,
            tls: Mutex::new(tls),
            attempts: Attempts::default(),
        })
    }

    pub(super) fn enter(&self, client: &Arc<Client>) {
        lock(&self.clients).insert(client.id().0, Arc::clone(client));
    }

    pub(super) fn leave(&self, client: ClientId) {
        lock(&self.clients).remove(&client.0);
    }

    /// The tokens that let clients in now.
    pub(super) fn tokens(&self) -> Arc<TokenSet> {
        Arc::clone(&lock(&self.tokens))
    }

    /// Has other tokens from here on; clients that came by one that is not among them are hung up
    /// on.
    pub(super) fn set_tokens(&self, tokens: TokenSet) {
        *lock(&self.tokens) = Arc::new(tokens);
        // After that, so that the service finds clients that the old ones still let in.
        self.service_side.post(ToService::TokensChanged);
    }

    /// By which encrypted connections are begun now.
    pub(super) fn tls(&self) -> Option<ServerSide> {
        lock(&self.tls).clone()
    }

    /// Begins encrypted connections in another way from here on.
    pub(super) fn set_tls(&self, tls: ServerSide) {
        *lock(&self.tls) = Some(tls);
    }

    /// Whether the right by which a client came in still holds.
    pub(super) fn admits(&self, entry: &ClientCredentials) -> bool {
        entry.token.is_none_or(|token| self.tokens().has(&token, entry.rights))
    }

    /// The client that another socket may join, which must come in by the same right.
    pub(super) fn member(&self, asked: &Membership, entry: &ClientCredentials) -> Option<Arc<Client>> {
        self.named(asked).filter(|client| client.entry == *entry)
    }

    /// The client that another socket names, with its secret.
    pub(super) fn named(&self, asked: &Membership) -> Option<Arc<Client>> {
        let client = lock(&self.clients).get(&asked.client).cloned()?;
        let known = client.welcome.membership.secret;
        // All of it, whatever the first bytes are.
        let differs = (known[0] ^ asked.secret[0]) | (known[1] ^ asked.secret[1]);
        (differs == 0 && client.is_open.load(Ordering::Acquire)).then_some(client)
    }

    /// Lets one connection more in, unless the maximum is reached: then it returns that number,
    /// which is lower where descriptors do not suffice for more.
    pub(super) fn admit(&self) -> Result<Admission, usize> {
        let max = self.options.max_connections;
        let add = |count| (count < max).then_some(count + 1);
        let descriptor = self.options.descriptors.take(1, 0);
        let descriptor = descriptor.ok_or_else(|| self.connections.load(Ordering::Relaxed).min(max))?;
        self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map_err(|_| max)?;
        Ok(Admission { connections: Arc::clone(&self.connections), _descriptor: descriptor })
    }

    /// Counts and tells of a connection that ends for this reason, if there is something to tell.
    pub(super) fn hung_up(&self, origin: &Origin, end: CloseReason) {
        if let Some((reason, why)) = end.told() {
            self.report(reason, FabricError::HungUp { peer: format!("the client at {origin}"), why });
        }
    }

    /// Counts a peer that was hung up on or not let in, and tells the service.
    pub(super) fn report(&self, reason: HangUp, error: FabricError) {
        self.hang_ups.add(reason);
        self.post_report(error, MAX_REPORTS);
    }

    /// Tells the service of something that went wrong here, whatever peers do; `false` if too many
    /// reports wait for it.
    pub(super) fn tell(&self, error: FabricError) -> bool {
        self.post_report(error, 2 * MAX_REPORTS)
    }

    fn post_report(&self, error: FabricError, most: usize) -> bool {
        let is_room = self.reports.fetch_add(1, Ordering::Relaxed) < most;
        if is_room {
            self.service_side.post(ToService::Rejected(error));
        } else {
            self.reports.fetch_sub(1, Ordering::Relaxed);
        }
        is_room
    }

    /// Tells the service why its network card refuses a client, unless it knows that reason, of the
    /// last few, or it is the client's fault.
    pub(super) fn card_refused(&self, error: RdmaError, why: &str) {
        const KNOWN: usize = 8;
        let mut known = lock(&self.card_refusals);
        let is_news = !known.iter().any(|known| known == why);
        if is_news && !matches!(error, RdmaError::Introduction { .. }) && self.tell(error.into()) {
            if known.len() >= KNOWN {
                known.remove(0);
            }
            known.push(why.to_owned());
        }
    }

    /// The service has been told of one.
    pub(super) fn reported(&self) {
        self.reports.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whole seconds since the node began.
    pub(super) fn seconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs()
    }
}

/// Why a connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CloseReason {
    /// Its peer has closed it or is gone: nothing to tell.
    Left,
    /// The node ends it, for a reason that was told already, or that needs no telling.
    Parted,
    /// What it counts for, and what is told of the peer.
    Told(HangUp, &'static str),
    /// TLS with it has failed, and why.
    Tls(String),
}

impl CloseReason {
    pub(super) const SILENT: Self = Self::Told(HangUp::NoGreeting, "it did not greet in time");
    pub(super) const DRIBBLES: Self =
        Self::Told(HangUp::SlowFrame, "it did not send the rest of a frame in time");
    pub(super) const STUCK: Self =
        Self::Told(HangUp::UnreadReplies, "it did not read in time what it had asked for");
    pub(super) const IDLE: Self = Self::Told(HangUp::Idle, "it was idle for longer than connections may be");
    pub(super) const FOREIGN: Self = Self::Told(HangUp::OtherProtocol, "it does not speak this protocol");
    pub(super) const SPEAKS_TLS: Self =
        Self::Told(HangUp::OtherProtocol, "it speaks TLS, and this address is one of tcp://");
    pub(super) const CREDENTIALS: Self = Self::Told(
        HangUp::NoRight,
        "it has a token or other credentials, and this memory node has no tokens",
    );
    pub(super) const NO_TOKEN: Self =
        Self::Told(HangUp::NoRight, "it has no token, and one is required here");
    pub(super) const WRONG_TOKEN: Self =
        Self::Told(HangUp::NoRight, "it does not know a token of this memory node");
    pub(super) const NO_CLIENT: Self =
        Self::Told(HangUp::NoRegion, "it wanted to join a client that there is not");
    pub(super) const CROWDED: Self = Self::Told(HangUp::TooMany, "too many others had not greeted either");
    pub(super) const READER_ASKS: Self = Self::Told(
        HangUp::NoRight,
        "its token lets it only read, and the service here takes no requests of such clients",
    );

    /// It sent bytes that are no frame, or asked for what it may not have.
    pub(super) fn of_frame(FrameError(why): FrameError) -> Self {
        Self::Told(HangUp::BadFrame, why)
    }

    /// The reason that it counts for, and the text to report, if any.
    pub(super) fn told(self) -> Option<(HangUp, String)> {
        match self {
            Self::Left | Self::Parted => None,
            Self::Told(reason, why) => Some((reason, why.to_owned())),
            Self::Tls(why) => Some((HangUp::OtherProtocol, format!("no TLS with it: {why}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the memory node said once was dropped while strangers were refused.
    #[test]
    fn many_refusals_leave_the_memory_nodes_own_troubles_their_places() {
        let shared = ServingState::new(ListenOptions::default(), None, None).unwrap();
        for _ in 0..2 * MAX_REPORTS {
            shared.hung_up(&Origin::Unknown, CloseReason::FOREIGN);
        }
        shared.tell(FabricError::io("watching a listening socket")(rustix::io::Errno::NOMEM));
        let told = std::iter::from_fn(|| shared.service_side.take());
        assert!(matches!(told.last(), Some(ToService::Rejected(FabricError::Io { .. }))));
    }
}
