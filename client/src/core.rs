//! A client over one kind of connection: sessions, readers, retries.

mod ahead;
mod fits;
mod flat;
pub(crate) mod lane;
mod ordered;
#[cfg(feature = "tokio")]
mod part;
mod read;
mod recover;
mod sending;
mod server_side;
mod write;
mod writer;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crossbeam::utils::CachePadded;
use fpcache::cache::CacheStats;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::matching::Matcher;
use fpcache::message::{Request, decode_reply};
use fpcache::read::{Expected, ReadError};
use fpcache::table::{Table, TableOptions};
use fpcache_fabric::{
    Clock, Connection, Deadline, Endpoint, FabricError, ForkFlag, SystemClock, random_bits,
};
use thread_local::ThreadLocal;

use crate::counters::{Counters, Tally};
use crate::error::ClientError;
use crate::kind::read_kind;
use crate::leave::{Leave, when_thread_ends};
use crate::session::{Buffers, ReaderContext, Session, TableStats};
use crate::turn::Turn;
pub(crate) use fits::{check_record, misfit};
use lane::Lane;
use recover::{Attempt, Failure, Next, Retry};
pub(crate) use write::no_reply;
use writer::Writer;

/// Makes connections of one kind.
pub(crate) trait Connector: Send + Sync + 'static {
    type Connection: Connection;

    fn connect(&self, deadline: Deadline) -> Result<Self::Connection, FabricError>;

    /// The clock of deadlines and pauses.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }

    /// A number that no other client of the memory node has, in whichever process, under which changes are sent.
    fn identity(&self) -> Result<u64, FabricError> {
        random_bits()
    }
}

/// What all handles of a client share.
pub(crate) struct Core<K: BuildKeys, T: Connector> {
    connector: T,
    clock: Arc<dyn Clock>,
    options: TableOptions,
    matcher: Matcher,
    /// The session in use.
    session: Mutex<Arc<Session<K, T::Connection>>>,
    /// The number of its table: readers notice a new session or a newer table by the number alone. Changes only under the
    /// session's lock. In a cache line of its own: every lookup loads it, and what lies around it is written.
    number: CachePadded<AtomicU64>,
    /// Contexts made so far.
    contexts: AtomicU64,
    /// What each thread holds that reads with the client itself.
    threads: ThreadLocal<RefCell<Held<K, T>>>,
    /// Raised by this process: one that was forked from it finds it lowered.
    here: ForkFlag,
    /// How often this handle has come to another process: what its writers are to the memory node is one process's.
    processes: AtomicU64,
    /// Who each thread is to the memory node when it changes records. A thread that ends leaves this to the next one.
    writers: ThreadLocal<RefCell<Writer>>,
    /// Lanes that nobody sends writes along at present.
    lanes: Mutex<Vec<Lane<K, T>>>,
    /// Of threads that have lost the memory node one connects at a time.
    connecting: Turn,
    tally: Tally,
    /// Whether the table had parameters once: then it is not empty but lost if it has none.
    has_opened: AtomicBool,
    /// For threads to leave when they end.
    me: Weak<Self>,
}

impl<K: BuildKeys, T: Connector> Core<K, T> {
    pub(crate) fn connect(
        connector: T,
        options: TableOptions,
        within: Duration,
    ) -> Result<Arc<Self>, ClientError> {
        let clock = connector.clock();
        let connection = connector.connect(Deadline::after_on(&*clock, within))?;
        let session = Arc::new(Session::new(Arc::new(connection), 0, options));
        let here = ForkFlag::raised().map_err(FabricError::from)?;
        Ok(Arc::new_cyclic(|me| Self {
            connector,
            clock,
            options,
            matcher: Matcher::detect(),
            session: Mutex::new(session),
            number: CachePadded::new(AtomicU64::new(0)),
            contexts: AtomicU64::new(0),
            threads: ThreadLocal::new(),
            here,
            processes: AtomicU64::new(0),
            writers: ThreadLocal::new(),
            lanes: Mutex::default(),
            connecting: Turn::default(),
            tally: Tally::default(),
            has_opened: AtomicBool::new(false),
            me: Weak::clone(me),
        }))
    }

    /// The connection in use.
    pub(crate) fn connection(&self) -> Arc<T::Connection> {
        Arc::clone(&self.session().connection)
    }

    /// What makes this client's connections.
    pub(crate) fn connector(&self) -> &T {
        &self.connector
    }

    /// The table as this compute node has it.
    pub(crate) fn table_stats(&self, within: Duration) -> Result<TableStats, ClientError> {
        self.here(|held| self.with_table(held, within, |_, table| Ok(table.into())))
    }

    /// What a call for so many keys is expected to take.
    pub(crate) fn expected(&self, keys: usize, within: Duration) -> Result<Expected, ClientError> {
        self.here(|held| {
            self.with_table(held, within, |buffers, table| {
                Ok(table.planner().expect(keys, &table.ways(&buffers.endpoint)))
            })
        })
    }

    /// What is kept within the budget, if there is one.
    pub(crate) fn cache_stats(&self, within: Duration) -> Result<Option<CacheStats>, ClientError> {
        self.here(|held| self.with_table(held, within, |_, table| Ok(table.cache_stats())))
    }

    /// Empties the hot cache.
    pub(crate) fn clear_cache(&self) {
        // A statement of its own: the session must not stay locked while the cache is gone through.
        let table = self.session().fetched();
        if let Some(cache) = table.as_deref().and_then(Table::cache) {
            cache.clear();
        }
    }

    /// Runs `f` with what the calling thread holds of this client.
    #[inline]
    pub(crate) fn here<R>(&self, f: impl FnOnce(&mut Held<K, T>) -> R) -> R {
        // Nothing that runs inside calls back into this client.
        let mut held = self.threads.get_or_default().borrow_mut();
        if held.is_none() {
            when_thread_ends(Weak::<Self>::clone(&self.me));
        }
        f(&mut held)
    }

    /// Runs `read` with the reader's buffers and the table until it gives an answer: a directory that is out of date is
    /// renewed, a lost memory node connected to again, a record that is being written read again, all within the
    /// deadline. The clock is first looked at when something went wrong.
    #[inline]
    fn with_table<R>(
        &self,
        held: &mut Held<K, T>,
        within: Duration,
        mut read: impl FnMut(&mut Buffers<K, EndpointOf<T>>, &Table<K>) -> Result<R, ReadError>,
    ) -> Result<R, ClientError> {
        self.by_parts(held, within, |buffers, table, _| read(buffers, table))
    }

    /// As [`with_table`](Self::with_table), of what is read by parts, of which an attempt that fails may have got some: it says
    /// so, and the deadline is then that of the rest.
    #[inline]
    fn by_parts<R>(
        &self,
        held: &mut Held<K, T>,
        within: Duration,
        mut read: impl FnMut(&mut Buffers<K, EndpointOf<T>>, &Table<K>, &mut GotOn) -> Result<R, ReadError>,
    ) -> Result<R, ClientError> {
        let mut retry = Retry::new(within);
        loop {
            let mut got_on = GotOn(false);
            let read = |ReaderContext { table, buffers, .. }: &mut ContextOf<K, T>| {
                read(buffers, table, &mut got_on)
            };
            match self.with_context(held, retry.left(&*self.clock), read) {
                Ok(answer) => return Ok(answer),
                Err(failure) => {
                    if got_on.0 {
                        retry = Retry::new(within);
                    }
                    if self.recover(held, *failure, &mut retry)? == Next::NoNewer {
                        self.ask_for_directory(&mut retry);
                    }
                }
            }
        }
    }

    /// As [`with_table`](Self::with_table), but `None` once the directory has been out of date too often.
    #[inline]
    fn try_table<R>(
        &self,
        held: &mut Held<K, T>,
        retry: &mut Retry,
        mut read: impl FnMut(&mut Buffers<K, EndpointOf<T>>, &Table<K>) -> Result<R, ReadError>,
    ) -> Result<Option<R>, ClientError> {
        loop {
            let left = retry.left(&*self.clock);
            match self.with_context(held, left, |ReaderContext { table, buffers, .. }| read(buffers, table)) {
                Ok(answer) => return Ok(Some(answer)),
                Err(failure) => {
                    let next: Next = self.recover(held, *failure, retry)?;
                    if retry.has_had_enough(next) {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Runs `f` with the reader's context for the session in use, for a call that has so much time `left`.
    #[inline]
    fn with_context<R>(
        &self,
        held: &mut Held<K, T>,
        left: Duration,
        f: impl FnOnce(&mut ContextOf<K, T>) -> Result<R, ReadError>,
    ) -> Result<R, Box<Failure>> {
        let context = match held {
            Some(context) if self.is_current(context) => {
                context.buffers.endpoint.set_patience(left);
                context
            }
            outdated => self.enter(outdated, left)?,
        };
        f(context).map_err(|error| Failure::boxed(Attempt::Read(error), context.number))
    }

    /// What a reader holds, if that is the table in use: whoever has no time for what else would be done.
    #[cfg(feature = "tokio")]
    pub(crate) fn present<'h>(&self, held: &'h mut Held<K, T>) -> Option<&'h mut ContextOf<K, T>> {
        held.as_mut().filter(|context| self.is_current(context))
    }

    /// Makes one attempt to read with what the calling thread holds; `None` if anything is in the way of it, such as that the
    /// table has to be fetched. Waits for nobody where memory is mapped.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn at_once<R>(
        &self,
        read: impl FnOnce(&mut Buffers<K, EndpointOf<T>>, &Table<K>) -> Result<R, ReadError>,
    ) -> Option<R> {
        self.here(|held| {
            if self.present(held).is_none() && self.session().fetched().is_none() {
                return None;
            }
            let read = |ReaderContext { table, buffers, .. }: &mut ContextOf<K, T>| read(buffers, table);
            self.with_context(held, Duration::ZERO, read).ok()
        })
    }

    /// What a reader reads with; `None` if something is in the way, which its usual calls get over.
    pub(crate) fn ready<'h>(
        &self,
        held: &'h mut Held<K, T>,
        left: Duration,
    ) -> Option<&'h mut ContextOf<K, T>> {
        let is_current = held.as_ref().is_some_and(|context| self.is_current(context));
        if !is_current {
            return self.enter(held, left).ok();
        }
        let context = held.as_mut()?;
        context.buffers.endpoint.set_patience(left);
        Some(context)
    }

    /// Whether a reader has the table in use.
    #[inline(always)]
    fn is_current(&self, context: &ContextOf<K, T>) -> bool {
        #[cfg(feature = "sabotage")]
        if self.options.sabotage == Some(fpcache::sabotage::Sabotage::ReadersStay) {
            return true;
        }
        context.number == self.number()
    }

    /// Gives a reader a context for the session in use, or the one it has the newer table.
    #[cold]
    fn enter<'h>(
        &self,
        held: &'h mut Held<K, T>,
        left: Duration,
    ) -> Result<&'h mut ContextOf<K, T>, Box<Failure>> {
        let (session, number) = self.current();
        if let Some(context) = held
            && context.session == session.id
        {
            context.buffers.endpoint.set_patience(left);
            let newer = session.table(&mut context.buffers.endpoint);
            context.table = newer.map_err(|error| Failure::boxed(Attempt::Open(error), number))?;
            context.number = number;
            // Just found to be there.
            return held.as_mut().ok_or_else(|| Failure::boxed(Attempt::Read(ReadError::Stale), number));
        }
        // Before the new table is fetched: a reader never holds two.
        *held = None;
        // Any numbers that differ between readers will do.
        let seed = self.contexts.fetch_add(1, Ordering::Relaxed);
        let context = session.context(number, self.matcher, seed, left);
        let context = context.map_err(|error| Failure::boxed(Attempt::Open(error), number))?;
        self.has_opened.store(true, Ordering::Relaxed);
        Ok(held.insert(context))
    }

    fn session(&self) -> MutexGuard<'_, Arc<Session<K, T::Connection>>> {
        // A session is replaced in one assignment: a panic elsewhere leaves a whole one.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number of the process, which changes when this handle has come to a child by a fork. Connections need none: those of the
    /// parent are lost to the child, and are made anew as after any loss.
    fn process(&self) -> u64 {
        if !self.here.is_raised() {
            // Of two threads that find it lowered each counts: that makes its writers new once more.
            self.processes.fetch_add(1, Ordering::Relaxed);
            self.here.raise();
        }
        self.processes.load(Ordering::Relaxed)
    }

    /// Somebody new to the memory node.
    fn new_writer(&self) -> Result<Writer, FabricError> {
        Ok(Writer::new(self.connector.identity()?, self.process()))
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Lane<K, T>>> {
        // Held for a push or a pop.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// The session in use and its number.
    fn current(&self) -> (Arc<Session<K, T::Connection>>, u64) {
        let session = self.session();
        // Under the lock, session and number belong together.
        (Arc::clone(&session), self.number())
    }

    /// Puts a new session in the place of the one whose table has the number `seen`, unless another thread has changed
    /// anything: what that one fetched meanwhile stays.
    fn replace(&self, seen: u64, connection: Arc<T::Connection>) {
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

    /// Puts a newer version in the place of the table with the number `seen`, which is that session's.
    fn publish(&self, seen: u64, of: &Arc<Session<K, T::Connection>>, table: Arc<Table<K>>) {
        let session = self.session();
        if self.number() == seen && Arc::ptr_eq(&session, of) {
            session.put(table);
            self.number.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Forgets the table of the session with the number `seen`, so that the next lookup fetches it anew.
    fn renew(&self, seen: u64, deadline: Deadline) -> Result<(), FabricError> {
        let connection = Arc::clone(&self.session().connection);
        if connection.is_alive() {
            self.tally.reopens.add(1);
            self.replace(seen, connection);
            return Ok(());
        }
        self.reconnect(seen, deadline)
    }

    /// Connects anew if the session with the number `seen` is still in use and has lost its memory node. One thread
    /// connects while the others wait, each until its own deadline, and while calls that need no connection go on.
    fn reconnect(&self, seen: u64, deadline: Deadline) -> Result<(), FabricError> {
        let is_lost = || {
            let (session, number) = self.current();
            number == seen && !session.connection.is_alive()
        };
        if !is_lost() {
            return Ok(());
        }
        let turn = self.connecting.take(deadline, &*self.clock);
        let _turn =
            turn.ok_or(FabricError::DeadlinePassed { waiting_for: "another thread, which connects" })?;
        if is_lost() {
            self.tally.reconnects.add(1);
            self.replace(seen, Arc::new(self.connector.connect(deadline)?));
        }
        Ok(())
    }

    /// What the keys of the memory node's table are.
    pub(crate) fn key_kind(&self, within: Duration) -> Result<Option<KeyKind>, ClientError> {
        let deadline = Deadline::after_on(&*self.clock, within);
        self.reconnect(self.number(), deadline)?;
        let connection = Arc::clone(&self.session().connection);
        let mut endpoint = connection.endpoint();
        endpoint.set_patience(within);
        read_kind(&mut endpoint).map_err(|error| self.or_dropped(error.into(), deadline))
    }

    /// Sends a request to the memory node and hands the creation number of its table and the reply's body to `take`. `meant` is
    /// the table's that is meant; `None`: that of whichever has the name.
    pub(crate) fn call<R>(
        &self,
        request: &Request<'_>,
        meant: Option<u64>,
        within: Duration,
        take: impl FnOnce(u64, &[u8]) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let deadline = Deadline::after_on(&*self.clock, within);
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        // Those that begin with nothing, and change nothing that outlives their connection, may be sent once more.
        let mut is_repeatable =
            matches!(request, Request::Stats | Request::Sockets | Request::LoadBegin { .. });
        loop {
            self.reconnect(self.number(), deadline)?;
            let connection = Arc::clone(&self.session().connection);
            let creation = meant.unwrap_or(connection.creation());
            request.encode::<K>(creation, &mut bytes);
            match connection.call(&bytes, &mut reply, deadline).map_err(ClientError::from) {
                Ok(()) => return take(creation, decode_reply(&reply)?),
                Err(error) => match self.or_dropped(error, deadline) {
                    ClientError::Fabric(_) if is_repeatable && !connection.is_alive() => {
                        is_repeatable = false
                    }
                    error => return Err(error),
                },
            }
        }
    }

    /// What was done besides plain lookups and requests.
    pub(crate) fn counters(&self) -> Counters {
        self.tally.counters()
    }

    /// Longest request the memory node takes.
    pub(crate) fn max_request(&self) -> usize {
        self.session().connection.max_request()
    }
}

impl<K: BuildKeys, T: Connector> Leave for Core<K, T> {
    fn leave(&self) {
        if let Some(held) = self.threads.get() {
            held.take();
        }
    }
}

/// Whether an attempt that failed got on before it did.
#[derive(Clone, Copy, Debug)]
struct GotOn(bool);

impl GotOn {
    fn note(&mut self, got_on: bool) {
        self.0 |= got_on;
    }
}

/// The endpoints of a connector's connections.
pub(crate) type EndpointOf<T> = <<T as Connector>::Connection as Connection>::Endpoint;

/// The contexts of a connector's connections.
pub(crate) type ContextOf<K, T> = ReaderContext<K, <T as Connector>::Connection>;

/// What one reader holds of a client: nothing before its first call, nor while it waits for another table.
pub(crate) type Held<K, T> = Option<ContextOf<K, T>>;

#[cfg(all(test, feature = "embedded"))]
mod tests;
