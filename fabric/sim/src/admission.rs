//! Admission of requests by a memory node's room; those that wait are taken in the order of the
//! real loops.

use std::sync::Arc;

use fpcache_fabric::{ClientId, Handled, SHORT_BODY, Service};

use crate::room::{RoomWaiters, WaitingCall};
use crate::state::State;
use crate::trace::TraceKind;

/// A service as it is asked for room.
struct ServiceProbe<'a> {
    service: &'a mut dyn Service,
    is_full: bool,
}

impl Service for ServiceProbe<'_> {
    fn has_room(&self, client: ClientId, request_bytes: usize) -> bool {
        !self.is_full && (request_bytes <= SHORT_BODY || self.service.has_room(client, request_bytes))
    }

    fn room_of(&self, client: ClientId) -> u64 {
        self.service.room_of(client)
    }

    fn handle(&mut self, _: ClientId, _: &[u8], _: &mut Vec<u8>) -> Handled {
        // It is not asked to.
        Handled::Later
    }
}

impl State {
    /// Whether the service takes a request now; else it waits, and its client's later ones after
    /// it.
    pub(crate) fn admit(
        &mut self,
        node: usize,
        service: &mut dyn Service,
        connection: usize,
        call: u64,
        bytes: &Arc<[u8]>,
    ) -> bool {
        let is_full = self.random.happens(self.faults.no_room);
        let client = self.links[connection].client;
        let room = &mut self.nodes[node].room;
        room.is_full |= is_full;
        if bytes.len() <= SHORT_BODY && !room.is_full && !room.is_awaited() {
            return true;
        }
        let (mut ticket, asked) = (None, ServiceProbe { service, is_full: room.is_full });
        if room.queue.admits(&mut ticket, client, bytes.len(), &asked) {
            return true;
        }
        room.waiting.push_back(WaitingCall { connection, call, bytes: Arc::clone(bytes), ticket });
        self.links[connection].in_hand = Some(call);
        self.waits += 1;
        self.note(TraceKind::NoRoom, node, connection as u64, call);
        false
    }

    /// Handles the requests that there is room for by now.
    pub(crate) fn admit_waiting(&mut self, node: usize, service: &mut dyn Service) -> Result<(), String> {
        if !self.nodes[node].room.is_awaited() {
            self.nodes[node].room.is_full = false;
            return Ok(());
        }
        let is_full = self.nodes[node].room.is_full && self.random.below(2) == 0;
        self.nodes[node].room.is_full = is_full;
        for mut request in std::mem::take(&mut self.nodes[node].room.waiting) {
            let WaitingCall { connection, call, .. } = request;
            let client = self.links[connection].client;
            let room = &mut self.nodes[node].room;
            let asked = ServiceProbe { service, is_full };
            if !room.queue.admits(&mut request.ticket, client, request.bytes.len(), &asked) {
                room.waiting.push_back(request);
                continue;
            }
            self.links[connection].in_hand = None;
            self.handle(node, service, connection, call, &request.bytes)?;
            self.take_held(node, connection);
        }
        Ok(())
    }

    /// A client has gone: its requests wait no longer.
    pub(crate) fn leave_room(&mut self, node: usize, connection: usize) {
        let RoomWaiters { queue, waiting, .. } = &mut self.nodes[node].room;
        waiting.retain_mut(|waiting| {
            let stays = waiting.connection != connection;
            if !stays {
                queue.leave(&mut waiting.ticket);
            }
            stays
        });
    }
}
