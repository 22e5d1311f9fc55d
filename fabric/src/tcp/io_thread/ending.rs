//! Ending connections: each for its reason, those of clients that are hung up on, and all when the
//! node stops.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::epoll::Event;

use super::IoThread;
use crate::error::FabricError;
use crate::service::ClientId;
use crate::tcp::node::{CloseReason, ToService};

impl IoThread {
    /// Closes a connection, and tells why where there is something to tell.
    pub(super) fn close(&mut self, at: usize, end: CloseReason) {
        let Some(mut peer) = self.peers[at].take() else { return };
        let shared = &self.buffers.shared;
        self.hot.retain(|other| *other != at);
        self.greeting.retain(|other| *other != peer.key.key);
        self.free.push(at);
        peer.send_held_refusal();
        shared.hung_up(&peer.origin, end);
        if let Some(client) = peer.first_of() {
            client.is_open.store(false, Ordering::Release);
            shared.service_side.post(ToService::Gone(client.id()));
        }
        // The descriptor leaves the epoll set with its last holder.
    }

    /// Closes all sockets of clients that are hung up on, in one pass: many may leave at once.
    pub(super) fn close_clients(&mut self, clients: Vec<ClientId>) {
        let clients: HashSet<ClientId> = clients.into_iter().collect();
        for at in 0..self.peers.len() {
            let client = self.peers[at].as_ref().and_then(|peer| peer.client());
            if client.is_some_and(|client| clients.contains(&client.id())) {
                self.close_after_replies(at);
            }
        }
    }

    /// Closes a connection, or has it closed as soon as what it was answered has left.
    fn close_after_replies(&mut self, at: usize) {
        let Some(peer) = &mut self.peers[at] else { return };
        if peer.stop_receiving() {
            self.expect_end(at);
            self.watch(at, false);
        } else {
            self.close(at, CloseReason::Parted);
        }
    }

    /// Closes all connections. Those whose clients are reading what they were answered are given
    /// the time for it.
    pub(super) fn drain(&mut self, events: &mut Vec<Event>) -> Result<(), FabricError> {
        self.pause_listening();
        (0..self.peers.len()).for_each(|at| self.close_after_replies(at));
        // A time that never comes ends nothing.
        let until = self.buffers.now.checked_add(self.buffers.shared.options.last_replies_time);
        let left = |now| until.map(|until| until.saturating_duration_since(now));
        while left(self.buffers.now) != Some(Duration::ZERO) && self.peers.iter().any(Option::is_some) {
            self.look(events, left(self.buffers.now))?;
        }
        Ok(())
    }
}
