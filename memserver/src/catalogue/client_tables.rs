//! The table that each client is connected to, by which requests are routed.

use fpcache_fabric::ClientId;

/// Which region a client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientTable {
    /// The one without a table.
    Lobby,
    /// That of the table with this number.
    Table(usize),
    /// Of a table that was dropped: it is about to be hung up on.
    Gone,
}

/// The tables of all clients, in the order of the clients' numbers, which count up. Requests come
/// in the same order, round after round: a client is mostly found beside the one before.
#[derive(Debug, Default)]
pub(crate) struct ClientTables {
    client_tables: Vec<(ClientId, ClientTable)>,
    /// Where the last one was found.
    last: usize,
}

impl ClientTables {
    /// A client's table; none if the client is unknown.
    #[inline]
    pub(crate) fn of(&mut self, client: ClientId) -> ClientTable {
        for at in [self.last, self.last + 1, 0] {
            if let Some((found, client_table)) = self.client_tables.get(at)
                && *found == client
            {
                self.last = at;
                return *client_table;
            }
        }
        match self.client_tables.binary_search_by_key(&client, |(client, _)| *client) {
            Ok(at) => {
                self.last = at;
                self.client_tables[at].1
            }
            Err(_) => ClientTable::Gone,
        }
    }

    /// The same, without remembering where it was found.
    pub(crate) fn find(&self, client: ClientId) -> ClientTable {
        let found = self.client_tables.binary_search_by_key(&client, |(client, _)| *client);
        found.map_or(ClientTable::Gone, |at| self.client_tables[at].1)
    }

    /// Notes the table of a client that has come.
    pub(crate) fn put(&mut self, client: ClientId, client_table: ClientTable) {
        match self.client_tables.binary_search_by_key(&client, |(client, _)| *client) {
            Ok(at) => self.client_tables[at].1 = client_table,
            Err(at) => self.client_tables.insert(at, (client, client_table)),
        }
    }

    /// Forgets a client that has gone; its table.
    pub(crate) fn remove(&mut self, client: ClientId) -> ClientTable {
        match self.client_tables.binary_search_by_key(&client, |(client, _)| *client) {
            Ok(at) => self.client_tables.remove(at).1,
            Err(_) => ClientTable::Gone,
        }
    }

    /// Takes their tables from those who have this one, and names them.
    pub(crate) fn clear(&mut self, client_table: ClientTable) -> impl Iterator<Item = ClientId> {
        self.client_tables.iter_mut().filter(move |(_, other)| *other == client_table).map(
            |(client, client_table)| {
                *client_table = ClientTable::Gone;
                *client
            },
        )
    }

    /// Clients that have tables.
    pub(crate) fn len(&self) -> usize {
        self.client_tables.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn seats_are_those_of_a_map_however_clients_come_go_and_ask() {
        let (mut client_tables, mut map, mut random) = (ClientTables::default(), HashMap::new(), 1u64);
        for step in 0..5_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (what, client) = (random >> 33, ClientId((random >> 40) % 60));
            match what % 8 {
                0 | 1 => {
                    let client_table = if step % 5 == 0 {
                        ClientTable::Lobby
                    } else {
                        ClientTable::Table((step % 4) as usize)
                    };
                    client_tables.put(client, client_table);
                    map.insert(client, client_table);
                }
                2 => {
                    assert_eq!(client_tables.remove(client), map.remove(&client).unwrap_or(ClientTable::Gone))
                }
                3 if step % 50 == 0 => {
                    let mut cleared: Vec<ClientId> = client_tables.clear(ClientTable::Table(1)).collect();
                    let mut expected: Vec<ClientId> = Vec::new();
                    for (client, client_table) in
                        map.iter_mut().filter(|(_, client_table)| **client_table == ClientTable::Table(1))
                    {
                        *client_table = ClientTable::Gone;
                        expected.push(*client);
                    }
                    cleared.sort_unstable();
                    expected.sort_unstable();
                    assert_eq!(cleared, expected);
                }
                _ => assert_eq!(
                    client_tables.of(client),
                    map.get(&client).copied().unwrap_or(ClientTable::Gone)
                ),
            }
            assert_eq!(client_tables.len(), map.len());
        }
    }
}
