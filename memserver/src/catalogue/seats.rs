//! Which client has which region.

use fpcache_fabric::ClientId;

/// Which region a client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// The one without a table.
    Lobby,
    /// That of the table with this number.
    Table(usize),
    /// Of a table that was dropped: it is about to be hung up on.
    Gone,
}

/// The seats of all clients, in the order of the clients' numbers, which count up. Requests come in the same order, round after
/// round: a client is mostly found beside the one before.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    seats: Vec<(ClientId, Seat)>,
    /// Where the last one was found.
    last: usize,
}

impl Seats {
    /// A client's seat; a client that is not known has none any more.
    #[inline]
    pub(crate) fn of(&mut self, client: ClientId) -> Seat {
        for at in [self.last, self.last + 1, 0] {
            if let Some((found, seat)) = self.seats.get(at)
                && *found == client
            {
                self.last = at;
                return *seat;
            }
        }
        match self.seats.binary_search_by_key(&client, |(client, _)| *client) {
            Ok(at) => {
                self.last = at;
                self.seats[at].1
            }
            Err(_) => Seat::Gone,
        }
    }

    /// The same, without remembering where it was found.
    pub(crate) fn find(&self, client: ClientId) -> Seat {
        let found = self.seats.binary_search_by_key(&client, |(client, _)| *client);
        found.map_or(Seat::Gone, |at| self.seats[at].1)
    }

    /// Seats a client that has come.
    pub(crate) fn put(&mut self, client: ClientId, seat: Seat) {
        match self.seats.binary_search_by_key(&client, |(client, _)| *client) {
            Ok(at) => self.seats[at].1 = seat,
            Err(at) => self.seats.insert(at, (client, seat)),
        }
    }

    /// Forgets a client that has gone; its seat.
    pub(crate) fn remove(&mut self, client: ClientId) -> Seat {
        match self.seats.binary_search_by_key(&client, |(client, _)| *client) {
            Ok(at) => self.seats.remove(at).1,
            Err(_) => Seat::Gone,
        }
    }

    /// Takes their seats from those who have this one, and names them.
    pub(crate) fn clear(&mut self, seat: Seat) -> impl Iterator<Item = ClientId> {
        self.seats.iter_mut().filter(move |(_, other)| *other == seat).map(|(client, seat)| {
            *seat = Seat::Gone;
            *client
        })
    }

    /// Clients that have seats.
    pub(crate) fn len(&self) -> usize {
        self.seats.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn seats_are_those_of_a_map_however_clients_come_go_and_ask() {
        let (mut seats, mut map, mut random) = (Seats::default(), HashMap::new(), 1u64);
        for step in 0..5_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (what, client) = (random >> 33, ClientId((random >> 40) % 60));
            match what % 8 {
                0 | 1 => {
                    let seat = if step % 5 == 0 { Seat::Lobby } else { Seat::Table((step % 4) as usize) };
                    seats.put(client, seat);
                    map.insert(client, seat);
                }
                2 => assert_eq!(seats.remove(client), map.remove(&client).unwrap_or(Seat::Gone)),
                3 if step % 50 == 0 => {
                    let mut cleared: Vec<ClientId> = seats.clear(Seat::Table(1)).collect();
                    let mut expected: Vec<ClientId> = Vec::new();
                    for (client, seat) in map.iter_mut().filter(|(_, seat)| **seat == Seat::Table(1)) {
                        *seat = Seat::Gone;
                        expected.push(*client);
                    }
                    cleared.sort_unstable();
                    expected.sort_unstable();
                    assert_eq!(cleared, expected);
                }
                _ => assert_eq!(seats.of(client), map.get(&client).copied().unwrap_or(Seat::Gone)),
            }
            assert_eq!(seats.len(), map.len());
        }
    }
}
