//! The state that a connection and its endpoints share, and the sockets that join it.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::greeting::Greeting;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::lock::lock;
use crate::mapped::Link;
use crate::node_end::Watch;
use crate::random::random_bits;
use crate::region::RegionName;
use crate::shm::PROTOCOL_VERSION;
use crate::target::Target;
use crate::tcp::address::TcpAddress;
use crate::tcp::calls::Caller;
use crate::tcp::card::{CardSocket, SharedCard};
use crate::tcp::channel::Channel;
use crate::tcp::frame::Limits;
use crate::tcp::handshake::{Membership, NO_SUCH_CLIENT, Welcome};
use crate::tcp::round_trip::RoundTrip;
use crate::tcp::silence::SilenceTimer;
use crate::tcp::socket::reach;
use crate::tcp::stream::Stream;
use crate::tcp::tls::ClientSide;
use crate::tcp::token::Token;
use crate::turns::SharedCaller;

/// How long a socket that was hung up on stays away at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Sockets that endpoints have left, at most.
const MAX_KEPT: usize = 16;

/// The state that a connection and its endpoints share.
#[derive(Debug)]
pub(in crate::tcp) struct Session {
    pub(super) address: TcpAddress,
    /// Where the first socket is connected to: the others must come to the same memory node.
    pub(super) target: Target,
    pub(in crate::tcp) link: Arc<Link>,
    pub(in crate::tcp) patience: Duration,
    pub(in crate::tcp) silence: Arc<SilenceTimer>,
    pub(in crate::tcp) spin: Duration,
    pub(super) token: Option<Token>,
    pub(super) tls: Option<ClientSide>,
    pub(super) membership: Membership,
    pub(in crate::tcp) limits: Limits,
    pub(in crate::tcp) region_len: u64,
    pub(in crate::tcp) scratch_len: u64,
    pub(in crate::tcp) watched: Option<u64>,
    /// Whether the memory node may answer questions: true until it has said that it does not.
    pub(in crate::tcp) answers: AtomicBool,
    /// The time of short batches' round trips over sockets.
    pub(in crate::tcp) round_trip: RoundTrip,
    /// The network card that reads, where the address asks for one.
    pub(in crate::tcp) card: Option<Arc<SharedCard>>,
    /// Requests to the service, over the socket that the client began with.
    pub(in crate::tcp) caller: SharedCaller<Caller>,
    pub(super) kept: Mutex<Vec<Channel>>,
    /// Hangs up when the last endpoint has gone.
    pub(super) _watch: Watch,
}

impl Session {
    /// A socket for an endpoint: one that another endpoint has left, or a new one.
    pub(in crate::tcp) fn channel(&self, patience: Duration) -> Result<Channel, FabricError> {
        let kept = lock(&self.kept).pop();
        if let Some(mut channel) = kept {
            // What another endpoint was told is older than what this one reads.
            channel.watched = None;
            return Ok(channel);
        }
        let (stream, welcome) = self.join(patience)?;
        Ok(Channel::new(stream, welcome.limits))
    }

    /// A new socket for the network cards of an endpoint.
    pub(in crate::tcp) fn card_socket(&self, patience: Duration) -> Result<CardSocket, FabricError> {
        let (stream, _) = self.join(patience)?;
        Ok(CardSocket::new(stream, self.address.to_string()))
    }

    /// A new socket that has joined the client. A memory node hangs up on some of many newcomers:
    /// such a one comes again. That it has gone is told by the socket that the client began with.
    fn join(&self, patience: Duration) -> Result<(Stream, Welcome), FabricError> {
        let begun = Instant::now();
        // From here on it is noticed what comes over other sockets.
        self.silence.begins(begun);
        let deadline = Deadline::after(self.patience.min(patience));
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_to_join(deadline) {
                Err(FabricError::Disconnected { .. }) if self.link.is_alive() => {
                    // Of many that were hung up on, not all come again at once.
                    let drawn = random_bits()? % (pause.as_micros() as u64).max(1);
                    let left = deadline.remaining(Instant::now()).unwrap_or(pause);
                    if left.is_zero() {
                        return Err(late());
                    }
                    std::thread::sleep((pause + Duration::from_micros(drawn)).min(left));
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
                Err(error @ FabricError::DeadlinePassed { .. }) => {
                    let is_silent = self.silence.is_silent() && self.silence.waited(begun, Instant::now());
                    if is_silent {
                        self.link.cut();
                    }
                    // Not the caller's time is over.
                    let is_lost = is_silent && patience > self.patience;
                    return Err(if is_lost { self.link.disconnected() } else { error });
                }
                joined => return joined,
            }
        }
    }

    fn try_to_join(&self, deadline: Deadline) -> Result<(Stream, Welcome), FabricError> {
        let reached = reach(&self.address, std::slice::from_ref(&self.target), deadline);
        if let Err(FabricError::NoMemoryNode { .. }) = reached {
            // Also if the memory node lives and its socket file does not: no READ is possible over
            // this connection any more.
            self.link.cut();
        }
        let (socket, _) = reached?;
        let mut stream = begin(socket, &self.address, self.tls.as_ref())?;
        let greeting = Greeting {
            address: &self.address,
            name: &RegionName::default(),
            join: Some(self.membership),
            token: self.token,
            version: PROTOCOL_VERSION,
            deadline,
        };
        let welcome = greeting.exchange(&mut stream)?;
        if welcome.status == NO_SUCH_CLIENT {
            self.link.cut();
            return Err(self.link.disconnected());
        }
        // Requests are checked against what the first socket was told.
        if welcome.limits != self.limits {
            return Err(greeting.protocol("it takes less over one socket of a client than over another"));
        }
        self.silence.note_received();
        Ok((stream, welcome))
    }

    /// Keeps a socket for the next endpoint, if nothing is under way over it.
    pub(in crate::tcp) fn keep(&self, channel: Channel) {
        if channel.is_idle() && self.link.is_alive() {
            let mut kept = lock(&self.kept);
            if kept.len() < MAX_KEPT {
                kept.push(channel);
            }
        }
    }
}

fn late() -> FabricError {
    FabricError::DeadlinePassed { waiting_for: "the memory node to let one more socket in" }
}

/// A socket with what is under the protocol.
pub(super) fn begin(
    socket: OwnedFd,
    address: &TcpAddress,
    tls: Option<&ClientSide>,
) -> Result<Stream, FabricError> {
    let session = tls.zip(address.host()).map(|(tls, host)| tls.session(host, address)).transpose()?;
    Ok(Stream::new(socket, session))
}
