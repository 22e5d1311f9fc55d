//! A client over one kind of connection: sessions, threads, retries.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::session::{Buffers, Session, TableStats, ThreadContext};

/// Makes connections of one kind.
pub(crate) trait Connector: Send + Sync {
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
    threads: ThreadLocal<RefCell<ThreadContext<K, T::Connection>>>,
}

impl<K: KeySpace, T: Connector> Core<K, T> {
    pub(crate) fn connect(
        connector: T,
        options: TableOptions,
        within: Duration,
    ) -> Result<Self, ClientError> {
        let connection = connector.connect(Deadline::after(within))?;
        let session = Arc::new(Session::new(Arc::new(connection), options));
        Ok(Self {
            connector,
            options,
            matcher: Matcher::detect(),
            session: Mutex::new(session),
            number: AtomicU64::new(0),
            contexts: AtomicU64::new(0),
            threads: ThreadLocal::new(),
        })
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
        if let Some(cache) = self.session().fetched().and_then(Table::cache) {
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
            let tried = self.with_context(|ThreadContext { session, buffers, .. }| {
                let table = session.table(&mut buffers.endpoint)?;
                Ok(read(buffers, table)?)
            });
            match tried {
                Ok(answer) => return Ok(answer),
                Err(error) => self.recover(error, &mut retry)?,
            }
        }
    }

    /// Does what makes another attempt worth while, or gives the error that ends the call.
    #[cold]
    fn recover(&self, error: Attempt, retry: &mut Retry) -> Result<(), ClientError> {
        let error = match error {
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
                retry.backoff.snooze();
                self.renew(deadline)?;
            }
            ReadError::Fabric(e) if e.kind() == FabricErrorKind::Reconnect => self.reconnect(deadline)?,
            ReadError::Fabric(e) => return Err(e.into()),
            ReadError::Corrupt(e) => return Err(OpenError::Corrupt(e).into()),
        }
        Ok(())
    }

    /// Runs `f` with this thread's context for the session in use.
    #[inline]
    fn with_context<R, E: From<OpenError>>(
        &self,
        f: impl FnOnce(&mut ThreadContext<K, T::Connection>) -> Result<R, E>,
    ) -> Result<R, E> {
        let cell = self.threads.get_or_try(|| self.new_context().map(RefCell::new))?;
        // Nothing that runs inside calls back into this client.
        let mut context = cell.borrow_mut();
        if context.number != self.number.load(Ordering::Acquire) {
            *context = self.new_context()?;
        }
        f(&mut context)
    }

    #[cold]
    fn new_context(&self) -> Result<ThreadContext<K, T::Connection>, OpenError> {
        let (session, number) = {
            let session = self.session();
            // Under the lock, session and number belong together.
            (Arc::clone(&session), self.number.load(Ordering::Acquire))
        };
        // Any numbers that differ between threads will do.
        let seed = self.contexts.fetch_add(1, Ordering::Relaxed);
        ThreadContext::new(session, number, self.matcher, seed)
    }

    fn session(&self) -> MutexGuard<'_, Arc<Session<K, T::Connection>>> {
        // A session is replaced in one assignment: a panic elsewhere leaves a whole one.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the table, so that the next lookup fetches it anew.
    fn renew(&self, deadline: Deadline) -> Result<(), ClientError> {
        let mut session = self.session();
        let connection = match session.connection.is_alive() {
            true => Arc::clone(&session.connection),
            false => Arc::new(self.connector.connect(deadline)?),
        };
        *session = Arc::new(Session::new(connection, self.options));
        self.number.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Connects anew, unless another thread has done so.
    fn reconnect(&self, deadline: Deadline) -> Result<(), ClientError> {
        let alive = self.session().connection.is_alive();
        if alive { Ok(()) } else { self.renew(deadline) }
    }

    /// Sends a request to the memory node and hands the reply's body to `take`.
    pub(crate) fn call<R>(
        &self,
        request: &Request<'_>,
        within: Duration,
        take: impl FnOnce(&[u8]) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let deadline = Deadline::after(within);
        self.reconnect(deadline)?;
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

/// The endpoints of a connector's connections.
pub(crate) type EndpointOf<T> = <<T as Connector>::Connection as Connection>::Endpoint;

/// How one attempt failed.
enum Attempt {
    Open(OpenError),
    Read(ReadError),
}

impl From<OpenError> for Attempt {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<ReadError> for Attempt {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// A call's patience.
struct Retry {
    within: Duration,
    /// When the first attempt failed.
    started: Option<Instant>,
    backoff: Backoff,
}
