//! The order of long requests that the service has no room for, over rings and over sockets.

use std::collections::BTreeSet;

use crate::service::{ClientId, Service};

/// A place in the queue: for which room, and after which others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RoomTicket {
    room: u64,
    number: u64,
}

/// Those who wait for the service to have room. Each room has an order of its own, the one in which
/// requests for it came, however they came: waiting for one room keeps no request from another.
#[derive(Debug, Default)]
pub struct RoomQueue {
    waiting: BTreeSet<RoomTicket>,
    issued: u64,
}

impl RoomQueue {
    /// Whether a request waits.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a long request of this client is taken now. If not it waits, and `ticket` is its
    /// place until it is taken or [leaves](Self::leave).
    pub fn admits<S: Service>(
        &mut self,
        ticket: &mut Option<RoomTicket>,
        client: ClientId,
        request_bytes: usize,
        service: &S,
    ) -> bool {
        let room = ticket.map_or_else(|| service.room_of(client), |ticket| ticket.room);
        let all_of_room = RoomTicket { room, number: 0 }..=RoomTicket { room, number: u64::MAX };
        let first = self.waiting.range(all_of_room).next();
        if first.is_none_or(|first| Some(*first) == *ticket) && service.has_room(client, request_bytes) {
            self.leave(ticket);
            return true;
        }
        if ticket.is_none() {
            self.issued += 1;
            let issued = RoomTicket { room, number: self.issued };
            self.waiting.insert(issued);
            *ticket = Some(issued);
        }
        false
    }

    /// A request waits no longer: it is taken, its client has given it up, or that has gone.
    pub fn leave(&mut self, ticket: &mut Option<RoomTicket>) {
        if let Some(ticket) = ticket.take() {
            self.waiting.remove(&ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::{Handled, SHORT_BODY};
    use std::collections::HashSet;

    /// Clients below ten have one room, the others another.
    #[derive(Default)]
    struct Rooms {
        with_room: HashSet<u64>,
    }

    impl Service for Rooms {
        fn has_room(&self, client: ClientId, _: usize) -> bool {
            self.with_room.contains(&self.room_of(client))
        }

        fn room_of(&self, client: ClientId) -> u64 {
            client.0 / 10
        }

        fn handle(&mut self, _: ClientId, _: &[u8], _: &mut Vec<u8>) -> Handled {
            Handled::Now
        }
    }

    #[test]
    fn whoever_waits_for_a_room_keeps_only_those_after_it_who_want_the_same() {
        let (mut queue, mut rooms) = (RoomQueue::default(), Rooms { with_room: HashSet::from([1]) });
        let (mut first, mut second, mut third, mut other) = (None, None, None, None);
        let long = SHORT_BODY + 1;
        let mut asks = |ticket: &mut Option<RoomTicket>, client: u64, rooms: &Rooms| {
            queue.admits(ticket, ClientId(client), long, rooms)
        };
        assert!(!asks(&mut first, 5, &rooms) && !asks(&mut second, 3, &rooms));
        assert!(asks(&mut other, 12, &rooms) && other.is_none(), "another room");
        rooms.with_room.insert(0);
        assert!(!asks(&mut third, 1, &rooms), "after those who wait");
        assert!(!asks(&mut second, 3, &rooms), "after the first");
        assert!(asks(&mut first, 5, &rooms));
        queue.leave(&mut second);
        assert!(queue.admits(&mut third, ClientId(1), long, &rooms) && !queue.is_awaited());
    }
}
