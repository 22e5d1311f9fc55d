//! Connections.

use std::sync::Arc;

use super::client::session::Session;
use super::endpoint::TcpEndpoint;
use crate::bell::Bell;
use crate::clock::Deadline;
use crate::connection::{Connection, Posted};
use crate::error::FabricError;
use crate::meter::{Meter, MeterSnapshot};
use crate::rdma::CardCounts;

/// A connection to a memory node over TCP or a unix socket. Its requests go over the socket that it
/// came with, and each of its endpoints has one of its own: no lock stands between them, and the
/// memory node's threads share them out. They live and die together. Closes when it and all its
/// endpoints have been dropped.
#[derive(Debug)]
pub struct TcpConnection {
    pub(super) session: Arc<Session>,
    pub(super) bell: Bell,
    pub(super) call_meter: Arc<Meter>,
    pub(super) incarnation: u64,
    pub(super) creation: u64,
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
        self.session.caller.post(request, deadline)
    }

    fn poll(&self, posted: Posted, reply: &mut Vec<u8>) -> Result<Option<Posted>, FabricError> {
        self.session.caller.poll(posted, reply)
    }

    fn wait(&self, posted: Posted, reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError> {
        self.session.caller.wait(posted, reply, deadline)
    }

    fn give_up(&self, posted: Posted) {
        self.session.caller.give_up(&posted);
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
