//! The session in use: replaced when the memory node restarts, and its table when it has changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fpcache::key_space::BuildKeys;
use fpcache::table::Table;
use fpcache_fabric::{Connection, Deadline, FabricError};

use super::{Connector, Core};
use crate::session::Session;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// The session in use and its number.
    pub(super) fn current(&self) -> (Arc<Session<K, T::Connection>>, u64) {
        let session = self.session();
        // Under the lock, session and number belong together.
        (Arc::clone(&session), self.number())
    }

    /// The connection in use and the number of its session.
    pub(super) fn connected(&self) -> (Arc<T::Connection>, u64) {
        let session = self.session();
        (Arc::clone(&session.connection), self.number())
    }

    /// Puts a new session in the place of the one whose table has the number `seen`, unless another
    /// thread has changed anything: what that one fetched meanwhile stays.
    pub(super) fn replace(&self, seen: u64, connection: Arc<T::Connection>) {
        let _old = {
            let mut session = self.session();
            if self.number() != seen {
                return;
            }
            self.number.fetch_add(1, Ordering::AcqRel);
            let new = Arc::new(Session::new(connection, session.id + 1, self.options));
            // Dropped after the lock: unmapping a table takes its time.
            std::mem::replace(&mut *session, new)
        };
    }

    /// Puts a newer version in the place of the table with the number `seen`, which is that
    /// session's.
    pub(super) fn publish(&self, seen: u64, of: &Arc<Session<K, T::Connection>>, table: Arc<Table<K>>) {
        let session = self.session();
        if self.number() == seen && Arc::ptr_eq(&session, of) {
            session.put(table);
            self.number.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Forgets the table of the session with the number `seen`, so that the next lookup fetches it
    /// again.
    pub(super) fn renew(&self, seen: u64, deadline: Deadline) -> Result<(), FabricError> {
        let connection = Arc::clone(&self.session().connection);
        if connection.is_alive() {
            self.tally.reopens.add(1);
            self.replace(seen, connection);
            return Ok(());
        }
        self.reconnect(seen, deadline)
    }

    /// The session's connection, renewed if it has lost its memory node, and the session's number.
    pub(super) fn living_connection(
        &self,
        deadline: Deadline,
    ) -> Result<(Arc<T::Connection>, u64), FabricError> {
        let (connection, number) = self.connected();
        if connection.is_alive() {
            return Ok((connection, number));
        }
        self.reconnect(number, deadline)?;
        Ok(self.connected())
    }

    /// Reconnects if the session with the number `seen` is still in use and has lost its memory
    /// node. One thread connects while the others wait, each until its own deadline; calls that
    /// need no connection continue.
    pub(super) fn reconnect(&self, seen: u64, deadline: Deadline) -> Result<(), FabricError> {
        self.connect_anew(seen, deadline, || {
            let (session, number) = self.current();
            number == seen && !session.connection.is_alive()
        })
    }

    /// Leaves the session with the number `seen` if it is still in use, because its table was
    /// dropped, and connects anew: the memory node hangs up only when all of the table is gone, but
    /// tells from the beginning of the drop what has the name.
    pub(super) fn leave_dropped(&self, seen: u64, deadline: Deadline) -> Result<(), FabricError> {
        self.connect_anew(seen, deadline, || self.number() == seen)
    }

    /// Puts a new connection in the place of the session with the number `seen`, if that `is_over`.
    fn connect_anew(
        &self,
        seen: u64,
        deadline: Deadline,
        is_over: impl Fn() -> bool,
    ) -> Result<(), FabricError> {
        if !is_over() {
            return Ok(());
        }
        let turn = self.connecting.take(deadline, &*self.clock);
        let _turn =
            turn.ok_or(FabricError::DeadlinePassed { waiting_for: "another thread, which connects" })?;
        if is_over() {
            self.tally.reconnects.add(1);
            self.replace(seen, Arc::new(self.connector.connect(deadline)?));
        }
        Ok(())
    }
}
