//! What a connection and its endpoints share, and the sockets that join it.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::greeting::Greeting;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::mapped::Link;
use crate::region::RegionName;
use crate::shm::PROTOCOL_VERSION;
use crate::tcp::address::{Target, TcpAddress};
use crate::tcp::card::{CardSocket, SharedCard};
use crate::tcp::channel::Channel;
use crate::tcp::frame::Limits;
use crate::tcp::handshake::{Membership, Welcome};
use crate::tcp::round_trip::RoundTrip;
use crate::tcp::socket::reach;
use crate::tcp::stream::Stream;
use crate::tcp::tls::ClientSide;
use crate::tcp::token::Token;
use crate::watch::Watch;

/// Sockets that endpoints have left, at most.
const MAX_KEPT: usize = 16;

/// What a connection and its endpoints share.
#[derive(Debug)]
pub(in crate::tcp) struct Session {
    pub(super) address: TcpAddress,
    /// Where the first socket is connected to: the others must come to the same memory node.
    pub(super) target: Target,
    pub(in crate::tcp) link: Arc<Link>,
    pub(in crate::tcp) patience: Duration,
    pub(in crate::tcp) spin: Duration,
    pub(super) token: Option<Token>,
    pub(super) tls: Option<ClientSide>,
    pub(super) membership: Membership,
    pub(in crate::tcp) limits: Limits,
    pub(in crate::tcp) region_len: u64,
    pub(in crate::tcp) scratch_len: u64,
    pub(in crate::tcp) watched: Option<u64>,
    /// Whether the memory node may answer questions: until it has said that nobody does.
    pub(in crate::tcp) answers: AtomicBool,
    /// What round trips take of short batches over sockets.
    pub(in crate::tcp) round_trip: RoundTrip,
    /// The network card that reads, where the address asks for one.
    pub(in crate::tcp) card: Option<Arc<SharedCard>>,
    pub(super) kept: Mutex<Vec<Channel>>,
    /// Hangs up when the last endpoint has gone.
    pub(super) _watch: Watch,
}

impl Session {
    /// A socket for an endpoint: one that another endpoint has left, or a new one.
    pub(in crate::tcp) fn channel(&self, patience: Duration) -> Result<Channel, FabricError> {
        let kept = self.kept().pop();
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

    /// A new socket that has joined the client.
    fn join(&self, patience: Duration) -> Result<(Stream, Welcome), FabricError> {
        let deadline = Deadline::after(self.patience.min(patience));
        let reached = reach(&self.address, std::slice::from_ref(&self.target), deadline);
        if let Err(FabricError::NoMemoryNode { .. }) = reached {
            // Also if the memory node lives and its socket file does not: nobody can read there over this connection any more.
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
        match greeting.exchange(&mut stream) {
            // Requests are checked against what the first socket was told.
            Ok(welcome) if welcome.limits != self.limits => {
                Err(greeting.protocol("it takes less over one socket of a client than over another"))
            }
            Ok(welcome) => Ok((stream, welcome)),
            Err(error) => {
                if let FabricError::Disconnected { .. } = error {
                    self.link.cut();
                }
                Err(error)
            }
        }
    }

    /// Keeps a socket for the next endpoint, if nothing is under way over it.
    pub(in crate::tcp) fn keep(&self, channel: Channel) {
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

/// A socket with what is under the protocol.
pub(super) fn begin(
    socket: OwnedFd,
    address: &TcpAddress,
    tls: Option<&ClientSide>,
) -> Result<Stream, FabricError> {
    let session = tls.zip(address.host()).map(|(tls, host)| tls.session(host)).transpose()?;
    Ok(Stream::new(socket, session))
}
