//! The loop of the one thread that serves all tables.

use fpcache::TableName;
use fpcache::message::{ErrorCode, RangeRequest, Refusal, Request, TablesRequest, encode_reply};
use fpcache_fabric::{ClientId, Export, FabricError, Handled, Service, Waker, Work};
use tracing::{debug, warn};

use super::{Catalogue, ClientTable};

impl Catalogue {
    /// The number of a region's name; `None` for the lobby's, and for one that no table has.
    fn number_of(&self, region: &[u8]) -> Option<usize> {
        let name = TableName::from_bytes(region).ok()?;
        self.numbers.get(&name).copied()
    }

    /// A client's table; none if the client is unknown.
    #[inline]
    fn table_of(&self, client: ClientId) -> ClientTable {
        self.client_tables.get(&client).copied().unwrap_or(ClientTable::Gone)
    }

    /// Gives all tables a turn if one was denied memory: they may have some that they do not use.
    fn wake_for_memory(&mut self) {
        if self.opening.budget.take_missed_anew() {
            let there = |number: &usize| self.tables[*number].is_some();
            (0..self.tables.len()).filter(there).for_each(|number| self.work_queue.queue(number));
        }
    }

    /// Wakes the tables whose threads have used their wakers, and those whose time has come.
    fn wake_tables(&mut self) {
        self.wake_for_memory();
        if self.waker.was_any_used() {
            for (number, table) in self.tables.iter().enumerate() {
                if table.as_ref().is_some_and(|table| table.waker.was_used()) {
                    self.work_queue.touch(number);
                }
            }
        }
        if self.work_queue.has_timed() {
            self.work_queue.queue_due(self.clock.now());
        }
    }
}

/// Whether a request is about tables, or ranges of some, and not to one.
#[inline]
fn is_about_tables(request: &[u8]) -> bool {
    TablesRequest::is_one(request) || RangeRequest::is_one(request)
}

impl Service for Catalogue {
    fn export(&mut self, name: &[u8]) -> Option<Export> {
        if name.is_empty() {
            return Some(self.lobby.export());
        }
        let number = self.number_of(name)?;
        self.tables[number].as_ref().map(|table| table.export.clone())
    }

    fn has_room(&self, client: ClientId, request_bytes: usize) -> bool {
        match self.table_of(client) {
            ClientTable::Table(number) => {
                self.tables[number].as_ref().is_none_or(|table| table.node.has_room(client, request_bytes))
            }
            // Nothing that long is kept.
            ClientTable::Lobby | ClientTable::Gone => true,
        }
    }

    /// Each table's requests have room of their own, so that none waits for another table's disk.
    fn room_of(&self, client: ClientId) -> u64 {
        match self.table_of(client) {
            ClientTable::Table(number) => 1 + number as u64,
            ClientTable::Lobby | ClientTable::Gone => 0,
        }
    }

    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Handled {
        if let Some(merger) = &self.opening.merger {
            merger.request_came();
        }
        if !self.readers.is_empty() && self.readers.contains(&client) && !Request::only_reads(request) {
            let why = "this client's token lets it read, but change nothing: give it one that a line `write TOKEN` of the \
                       memory node's --token-file has";
            encode_reply(Err(&Refusal::new(ErrorCode::ReadOnly, why)), reply);
            return Handled::Now;
        }
        if Request::is_about_sockets(request) {
            let mut body = Vec::new();
            self.socket_stats().encode(&mut body);
            encode_reply(Ok(&body), reply);
            return Handled::Now;
        }
        let client_table = self.table_of(client);
        if let ClientTable::Table(number) = client_table
            && !is_about_tables(request)
            && let Some(table) = &mut self.tables[number]
        {
            self.work_queue.touch(number);
            let handled = table.node.handle(client, request, reply);
            self.limit_replies();
            return handled;
        }
        let mut body = Vec::new();
        let answered = match client_table {
            _ if is_about_tables(request) => match self.manage(client, request, &mut body) {
                Ok(Handled::Later) => return Handled::Later,
                answered => answered.map(drop),
            },
            ClientTable::Lobby => self.answer_in_lobby(request, &mut body),
            ClientTable::Table(_) | ClientTable::Gone => {
                let why = "the table of this connection was dropped: connect anew";
                Err(Refusal::new(ErrorCode::NoSuchTable, why))
            }
        };
        encode_reply(answered.as_ref().map(|()| body.as_slice()), reply);
        Handled::Now
    }

    fn next_reply(&mut self, reply: &mut Vec<u8>) -> Option<ClientId> {
        if let Some((client, answer)) = self.jobs.replies.pop_front() {
            *reply = answer;
            return Some(client);
        }
        while let Some(number) = self.work_queue.replying() {
            let table = self.tables.get_mut(number).and_then(Option::as_mut);
            if let Some(client) = table.and_then(|table| table.node.next_reply(reply)) {
                return Some(client);
            }
            self.work_queue.no_more_replies();
        }
        None
    }

    fn next_farewell(&mut self) -> Option<ClientId> {
        self.farewells.pop_front()
    }

    /// Asks the tables that may have work, each in its turn, until one has done a little of it.
    fn work(&mut self) -> Work {
        self.wake_tables();
        self.work_on_jobs();
        while let Some(number) = self.work_queue.next() {
            let Some(table) = &mut self.tables[number] else { continue };
            let work = table.node.work();
            self.limit_replies();
            self.wake_for_memory();
            // What it did may be what a reply waited for.
            self.work_queue.expect_replies(number);
            match work {
                Work::Nothing => {}
                Work::At(at) => self.work_queue.queue_at(number, at),
                Work::More => {
                    self.work_queue.queue(number);
                    break;
                }
            }
        }
        match self.work_queue.earliest() {
            _ if self.work_queue.has_queued() => Work::More,
            Some(at) => Work::At(at),
            None => Work::Nothing,
        }
    }

    fn waker(&self) -> Option<Waker> {
        Some(self.waker.clone())
    }

    fn connected(&mut self, client: ClientId, region: &[u8]) {
        let client_table = self.number_of(region).map_or(ClientTable::Lobby, ClientTable::Table);
        self.client_tables.insert(client, client_table);
        debug!(client = client.0, region = %region.escape_ascii(), "a client has connected");
        if let ClientTable::Table(number) = client_table
            && let Some(table) = &mut self.tables[number]
        {
            table.node.connected(client, region);
        }
    }

    fn may_only_read(&mut self, client: ClientId) -> bool {
        self.readers.insert(client);
        true
    }

    fn disconnected(&mut self, client: ClientId) {
        debug!(client = client.0, "a client has left");
        self.readers.remove(&client);
        self.jobs.disconnected(client);
        if let Some(ClientTable::Table(number)) = self.client_tables.remove(&client)
            && let Some(table) = &mut self.tables[number]
        {
            table.node.disconnected(client);
            self.work_queue.touch(number);
        }
    }

    fn rejected(&mut self, error: &FabricError) {
        if let Some(line) = self.refusals.line(error, self.clock.now()) {
            warn!("{line}");
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(test)]
#[path = "drop_tests.rs"]
mod drop_tests;
