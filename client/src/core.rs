//! A client over one kind of connection: sessions, threads, retries.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crossbeam::utils::Backoff;
use fpcache::cache::CacheStats;
use fpcache::key_space::KeySpace;
use fpcache::matching::Matcher;
use fpcache::message::{Request, decode_reply};
use fpcache::read::{Cost, Lookup, LookupScratch, Outcome, ReadError, Scan, drive, look_up};
use fpcache::snapshot::OpenError;
use fpcache::table::{Table, TableOptions};
use fpcache_fabric::{Connection, Deadline, ErrorKind as FabricErrorKind, FabricError};
use thread_local::ThreadLocal;

use crate::error::ClientError;
use crate::leave::{Leave, when_thread_ends};
use crate::session::{Buffers, Session, TableStats, ThreadContext};
use crate::turn::Turn;

/// Makes connections of one kind.
pub(crate) trait Connector: Send + Sync + 'static {
    type Connection: Connection;
    fn connect(&self, deadline: Deadline) -> Result<Self::Connection, FabricError>;
}

/// What all handles of a client share.
pub(crate) struct Core<K: KeySpace, T: Connector> {
    connector: T,
    options: TableOptions,
    matcher: Matcher,
    /// The session in use, and its number; threads notice a new one by the number alone.
    session: Mutex<Arc<Session<K, T::Connection>>>,
    number: AtomicU64,
    /// Contexts made so far.
    contexts: AtomicU64,
    threads: ThreadLocal<RefCell<Option<ContextOf<K, T>>>>,
    /// Of threads that have lost the memory node one connects at a time.
    connecting: Turn,
    /// For threads to leave when they end.
    me: Weak<Self>,
}

impl<K: KeySpace + 'static, T: Connector> Core<K, T> {
    pub(crate) fn connect(
        connector: T,
        options: TableOptions,
        within: Duration,
    ) -> Result<Arc<Self>, ClientError> {
        let connection = connector.connect(Deadline::after(within))?;
        let session = Arc::new(Session::new(Arc::new(connection), options));
        Ok(Arc::new_cyclic(|me| Self {
            connector,
            options,
            matcher: Matcher::detect(),
            session: Mutex::new(session),
            number: AtomicU64::new(0),
            contexts: AtomicU64::new(0),
            threads: ThreadLocal::new(),
            connecting: Turn::default(),
            me: Weak::clone(me),
        }))
    }

    /// Looks up one key and hands the answer to `take`.
    #[inline]
    pub(crate) fn look_up<R>(
        &self,
        key: K::Key,
        within: Duration,
        mut take: impl FnMut(&Outcome, Option<&[u8]>) -> R,
    ) -> Result<R, ClientError> {
        self.with_table(within, |buffers, table| {
            let Buffers { endpoint, lookup, .. } = buffers;
            look_up(endpoint, table, lookup, key, &mut take)
        })
    }

    /// Looks up a group of keys and hands the buffers with the answers to `take`.
    #[inline]
    pub(crate) fn lookup<R>(
        &self,
        keys: impl Iterator<Item = K::Key> + Clone,
        within: Duration,
        mut take: impl FnMut(&mut LookupScratch<K>) -> R,
    ) -> Result<R, ClientError> {
        self.with_table(within, |buffers, table| {
            let mut lookup = Lookup::new(table, &mut buffers.lookup, keys.clone());
            drive(&mut buffers.endpoint, &mut lookup)?;
            Ok(take(&mut buffers.lookup))
        })
    }

    /// Scans, and hands each record to `take` in key order.
    pub(crate) fn scan(
        &self,
        start: K::Key,
        limit: usize,
        within: Duration,
        mut take: impl FnMut(K::Key, &[u8]),
    ) -> Result<Cost, ClientError> {
        self.with_table(within, |buffers, table| {
            let mut scan = Scan::new(table.snapshot(), &mut buffers.scan, start, limit);
            drive(&mut buffers.endpoint, &mut scan)?;
            scan.records().for_each(|(key, value)| take(key, value));
            Ok(scan.cost())
        })
    }

    /// The table as this compute node has it.
    pub(crate) fn table_stats(&self, within: Duration) -> Result<TableStats, ClientError> {
        self.with_table(within, |_, table| Ok(table.into()))
    }

    /// What is kept within the budget, if there is one.
    pub(crate) fn cache_stats(&self, within: Duration) -> Result<Option<CacheStats>, ClientError> {
        self.with_table(within, |_, table| Ok(table.cache_stats()))
    }

    /// Empties the hot cache.
    pub(crate) fn clear_cache(&self) {
        // A statement of its own: the session must not stay locked while the cache is gone through.
        let table = self.session().fetched();
        if let Some(cache) = table.as_deref().and_then(Table::cache) {
            cache.clear();
        }
    }

    /// Runs `read` with this thread's buffers and the table until it gives an answer: a stale directory is fetched
    /// anew, a lost memory node connected to again, a record that is being written read again, all within the
    /// deadline. The clock is first looked at when something went wrong.
    #[inline]
    fn with_table<R>(
        &self,
        within: Duration,
        mut read: impl FnMut(&mut Buffers<K, EndpointOf<T>>, &Table<K>) -> Result<R, ReadError>,
    ) -> Result<R, ClientError> {
        let mut retry = Retry { within, started: None, backoff: Backoff::new() };
        loop {
            match self.with_context(|ThreadContext { table, buffers, .. }| read(buffers, table)) {
                Ok(answer) => return Ok(answer),
                Err(failure) => self.recover(*failure, &mut retry)?,
            }
        }
    }

    /// Does what makes another attempt worth while, or gives the error that ends the call.
    #[cold]
    fn recover(&self, failure: Failure, retry: &mut Retry) -> Result<(), ClientError> {
        let error = match failure.error {
            Attempt::Read(error) => error,
            Attempt::Open(OpenError::Fabric(error)) => ReadError::Fabric(error),
            Attempt::Open(error) => return Err(error.into()),
        };
        let started = *retry.started.get_or_insert_with(Instant::now);
        if started.elapsed() >= retry.within {
            return Err(ClientError::Deadline { deadline: retry.within, last: error });
        }
        let deadline = started.checked_add(retry.within).map_or(Deadline::NONE, Deadline::at);
        match error {
            ReadError::Contended { .. } => retry.backoff.snooze(),
            ReadError::Stale => {
                // The old table is of no use any more: whoever fetches the new one may need its room.
                self.leave();
                retry.backoff.snooze();
                self.renew(failure.number, deadline)?;
            }
            ReadError::Fabric(e) if e.kind() == FabricErrorKind::Reconnect => {
                self.leave();
                self.reconnect(failure.number, deadline)?;
            }
            ReadError::Fabric(e) => return Err(e.into()),
            ReadError::Corrupt(e) => return Err(OpenError::Corrupt(e).into()),
        }
        Ok(())
    }

    /// Runs `f` with this thread's context for the session in use.
    #[inline]
    fn with_context<R>(
        &self,
        f: impl FnOnce(&mut ContextOf<K, T>) -> Result<R, ReadError>,
    ) -> Result<R, Box<Failure>> {
        // Nothing that runs inside calls back into this client.
        let mut kept = self.threads.get_or_default().borrow_mut();
        let context = match &mut *kept {
            Some(context) if context.number == self.number() => context,
            outdated => self.enter(outdated)?,
        };
        f(context).map_err(|error| Failure::boxed(Attempt::Read(error), context.number))
    }

    /// Gives this thread a context for the session in use.
    #[cold]
    fn enter<'k>(
        &self,
        kept: &'k mut Option<ContextOf<K, T>>,
    ) -> Result<&'k mut ContextOf<K, T>, Box<Failure>> {
        // Before the new table is fetched: a thread never holds two.
        *kept = None;
        when_thread_ends(Weak::<Self>::clone(&self.me));
        let (session, number) = self.current();
        // Any numbers that differ between threads will do.
        let seed = self.contexts.fetch_add(1, Ordering::Relaxed);
        let context = session.context(number, self.matcher, seed);
        Ok(kept.insert(context.map_err(|error| Failure::boxed(Attempt::Open(error), number))?))
    }

    fn session(&self) -> MutexGuard<'_, Arc<Session<K, T::Connection>>> {
        // A session is replaced in one assignment: a panic elsewhere leaves a whole one.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Puts a new session in the place of the one with the number `seen`, unless another thread has done so: what that
    /// one fetched meanwhile stays.
    fn replace(&self, seen: u64, connection: Arc<T::Connection>) {
        let new = Arc::new(Session::new(connection, self.options));
        let _old = {
            let mut session = self.session();
            if self.number() != seen {
                return;
            }
            self.number.fetch_add(1, Ordering::AcqRel);
            // Dropped behind the lock: unmapping a table takes its time.
            std::mem::replace(&mut *session, new)
        };
    }

    /// Forgets the table of the session with the number `seen`, so that the next lookup fetches it anew.
    fn renew(&self, seen: u64, deadline: Deadline) -> Result<(), ClientError> {
        let connection = Arc::clone(&self.session().connection);
        if connection.is_alive() {
            self.replace(seen, connection);
            return Ok(());
        }
        self.reconnect(seen, deadline)
    }

    /// Connects anew if the session with the number `seen` is still in use and has lost its memory node. One thread
    /// connects while the others wait, each until its own deadline, and while calls that need no connection go on.
    fn reconnect(&self, seen: u64, deadline: Deadline) -> Result<(), ClientError> {
        let is_lost = || {
            let (session, number) = self.current();
            number == seen && !session.connection.is_alive()
        };
        if !is_lost() {
            return Ok(());
        }
        let turn = self.connecting.take(deadline);
        let _turn = turn.ok_or(FabricError::DeadlinePassed { waiting_for: "another thread connects" })?;
        if is_lost() {
            self.replace(seen, Arc::new(self.connector.connect(deadline)?));
        }
        Ok(())
    }

    /// Sends a request to the memory node and hands the reply's body to `take`.
    pub(crate) fn call<R>(
        &self,
        request: &Request<'_>,
        within: Duration,
        take: impl FnOnce(&[u8]) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let deadline = Deadline::after(within);
        self.reconnect(self.number(), deadline)?;
        let connection = Arc::clone(&self.session().connection);
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        request.encode::<K>(&mut bytes);
        connection.call(&bytes, &mut reply, deadline)?;
        take(decode_reply(&reply)?)
    }

    /// Longest request the memory node takes.
    pub(crate) fn max_request(&self) -> usize {
        self.session().connection.max_request()
    }
}

impl<K: KeySpace, T: Connector> Leave for Core<K, T> {
    fn leave(&self) {
        if let Some(kept) = self.threads.get() {
            kept.take();
        }
    }
}

/// The endpoints of a connector's connections.
pub(crate) type EndpointOf<T> = <<T as Connector>::Connection as Connection>::Endpoint;

/// The contexts of a connector's connections.
type ContextOf<K, T> = ThreadContext<K, <T as Connector>::Connection>;

/// How one attempt failed, and the number of the session it was made with. Boxed: it must not burden the answers.
struct Failure {
    error: Attempt,
    number: u64,
}

impl Failure {
    #[cold]
    fn boxed(error: Attempt, number: u64) -> Box<Self> {
        Box::new(Self { error, number })
    }
}

/// What an attempt failed in.
enum Attempt {
    Open(OpenError),
    Read(ReadError),
}

/// A call's patience.
struct Retry {
    within: Duration,
    /// When the first attempt failed.
    started: Option<Instant>,
    backoff: Backoff,
}

#[cfg(all(test, feature = "embedded"))]
mod tests;
