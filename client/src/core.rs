//! The core of a client, over one kind of connection: sessions, readers, retries.

mod array_lookups;
mod change_checks;
mod connector;
mod creating;
mod gather;
mod nearest;
mod pieces;
mod posting;
mod read;
mod recover;
mod scans;
mod section;
mod sending;
mod server_side;
mod sessions;
mod values_ahead;
mod write;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crossbeam::utils::CachePadded;
use fpcache::cache::CacheStats;
use fpcache::key_space::{BuildKeys, KeyKind};
use fpcache::layout::TableParameters;
use fpcache::matching::Matcher;
use fpcache::message::{ErrorCode, NodeStats, Request, decode_reply};
use fpcache::plan::Expected;
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::OpenError;
use fpcache_fabric::{Clock, Connection, Deadline, Endpoint, FabricError, ForkFlag};
use thread_local::ThreadLocal;

use crate::counters::{Counters, LiveCounters};
use crate::error::ClientError;
use crate::key_kind::read_kind;
use crate::session::{Session, TableStats};
use crate::thread_exit::ThreadRelease;
use crate::timed_lock::TimedLock;
#[cfg(feature = "tokio")]
pub(crate) use array_lookups::check_lengths;
pub(crate) use array_lookups::{presence, words};
pub(crate) use change_checks::{check_record, misfit};
use connector::ContextOf;
pub(crate) use connector::{Connector, EndpointOf, HeldContext};
#[cfg(feature = "tokio")]
pub(crate) use gather::FEW_TRIES;
pub(crate) use posting::Lane;
pub(crate) use section::Section;
#[cfg(feature = "tokio")]
pub(crate) use section::SectionRead;
use sending::Writer;
pub(crate) use sending::{MeantTable, is_another_table, no_reply, was_never_sent};

/// What all handles of a client share.
pub(crate) struct Core<K: BuildKeys, T: Connector> {
    connector: T,
    clock: Arc<dyn Clock>,
    options: TableOptions,
    matcher: Matcher,
    /// The session in use.
    session: Mutex<Arc<Session<K, T::Connection>>>,
    /// The number of its table: readers notice a new session or a newer table by the number alone.
    /// Changes only under the session's lock. In a cache line of its own: every lookup loads it,
    /// and what lies around it is written.
    number: CachePadded<AtomicU64>,
    /// Contexts made so far.
    contexts: AtomicU64,
    /// Loads begun so far.
    loads: AtomicU64,
    /// What each thread holds that reads with the client itself.
    threads: ThreadLocal<RefCell<HeldContext<K, T>>>,
    /// Raised by this process: one that was forked from it finds it lowered.
    here: ForkFlag,
    /// How often this handle has passed to another process: the identities of its writers belong to
    /// one process.
    processes: AtomicU64,
    /// Who each thread is to the memory node when it changes records. A thread that ends leaves
    /// this to the next one.
    writers: ThreadLocal<RefCell<Writer>>,
    /// Lanes along which no writes are sent at present.
    lanes: Mutex<Vec<Lane<K, T>>>,
    /// Of threads that have lost the memory node one connects at a time.
    connecting: TimedLock,
    tally: LiveCounters,
    /// Whether the table had parameters once: then it is not empty but lost if it has none, until
    /// the caller accepts that.
    has_opened: AtomicBool,
    /// For threads to leave when they end.
    weak_self: Weak<Self>,
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
        Ok(Arc::new_cyclic(|weak_self| Self {
            connector,
            clock,
            options,
            matcher: Matcher::detect(),
            session: Mutex::new(session),
            number: CachePadded::new(AtomicU64::new(0)),
            contexts: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            threads: ThreadLocal::new(),
            here,
            processes: AtomicU64::new(0),
            writers: ThreadLocal::new(),
            lanes: Mutex::default(),
            connecting: TimedLock::default(),
            tally: LiveCounters::default(),
            has_opened: AtomicBool::new(false),
            weak_self: Weak::clone(weak_self),
        }))
    }

    /// The session in use.
    fn session(&self) -> MutexGuard<'_, Arc<Session<K, T::Connection>>> {
        // A session is replaced in one assignment: a panic elsewhere leaves a whole one.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection in use.
    pub(crate) fn connection(&self) -> Arc<T::Connection> {
        Arc::clone(&self.session().connection)
    }

    /// Opens this client's connections.
    pub(crate) fn connector(&self) -> &T {
        &self.connector
    }

    /// The memory node's counters, of whichever table has the name.
    pub(crate) fn stats(&self, within: Duration) -> Result<NodeStats, ClientError> {
        self.call(&Request::Stats, None, within, |_, body| Ok(NodeStats::decode(body)?))
    }

    /// The time until the memory node has answered.
    pub(crate) fn ping(&self, within: Duration) -> Result<Duration, ClientError> {
        let asked = self.clock.now();
        self.stats(within)?;
        Ok(self.clock.now().saturating_duration_since(asked))
    }

    /// The table as this compute node has it.
    pub(crate) fn table_stats(&self, within: Duration) -> Result<TableStats, ClientError> {
        self.here(|held| self.with_table(held, within, |_, table| Ok(table.into())))
    }

    /// The expected cost of a call with this many keys.
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

    /// Takes a table that was lost for the empty one it is now.
    pub(crate) fn accept_loss(&self) {
        self.has_opened.store(false, Ordering::Relaxed);
    }

    /// A number of the process, which changes when this handle has come to a child by a fork.
    /// Connections need none: those of the parent are lost to the child, and are made anew as after
    /// any loss.
    fn process(&self) -> u64 {
        if !self.here.is_raised() {
            // Of two threads that find it lowered each counts: that makes its writers new once
            // more.
            self.processes.fetch_add(1, Ordering::Relaxed);
            self.here.raise();
        }
        self.processes.load(Ordering::Relaxed)
    }

    /// A new client of the memory node.
    fn new_writer(&self) -> Result<Writer, FabricError> {
        Ok(Writer::new(self.connector.identity()?, self.process()))
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Lane<K, T>>> {
        // Held for a push or a pop.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the keys of the memory node's table are.
    pub(crate) fn key_kind(&self, within: Duration) -> Result<Option<KeyKind>, ClientError> {
        let deadline = Deadline::after_on(&*self.clock, within);
        self.reconnect(self.number(), deadline)?;
        let (connection, number) = self.connected();
        let mut endpoint = connection.endpoint();
        endpoint.set_patience(deadline.remaining(self.clock.now()).unwrap_or(within));
        read_kind(&mut endpoint).map_err(|error| self.or_dropped(error.into(), number, deadline))
    }

    /// The parameters of the memory node's table, whatever the budget; `None` if it has none yet.
    pub(crate) fn parameters(&self, within: Duration) -> Result<Option<TableParameters>, ClientError> {
        let deadline = Deadline::after_on(&*self.clock, within);
        self.reconnect(self.number(), deadline)?;
        let (session, number) = self.current();
        match session.read_parameters(deadline.remaining(self.clock.now()).unwrap_or(within)) {
            Ok(parameters) => Ok(Some(parameters)),
            Err(OpenError::Empty) => Ok(None),
            Err(error) => Err(self.or_dropped(error.into(), number, deadline)),
        }
    }

    /// A number for a load, which no other load over this client's connections has.
    fn next_load(&self) -> u64 {
        self.loads.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sends a request to the memory node and passes the creation number of its table and the
    /// reply's body to `take`. `expected_creation` is the table's that is meant; `None`: that of
    /// whichever has the name. What is told that its table was dropped has not been done: where it
    /// may be sent once more, it goes to the table that is there.
    pub(crate) fn call<R>(
        &self,
        request: &Request<'_>,
        expected_creation: Option<u64>,
        within: Duration,
        take: impl FnOnce(u64, &[u8]) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let deadline = Deadline::after_on(&*self.clock, within);
        let (mut bytes, mut reply) = (Vec::new(), Vec::new());
        // Those that begin with nothing, and change nothing that outlives their connection, may be
        // sent once more.
        let mut is_repeatable =
            matches!(request, Request::Stats | Request::Sockets | Request::LoadBegin { .. });
        loop {
            self.reconnect(self.number(), deadline)?;
            let (connection, number) = self.connected();
            let creation = expected_creation.unwrap_or(connection.creation());
            request.encode::<K>(creation, &mut bytes);
            match connection.call(&bytes, &mut reply, deadline).map_err(ClientError::from) {
                Ok(()) => {
                    let body = match decode_reply(&reply) {
                        // It hangs up later; another connection shows what is there.
                        Err(gone) if is_repeatable && gone.code == ErrorCode::NoSuchTable => {
                            is_repeatable = false;
                            self.leave_dropped(number, deadline)?;
                            continue;
                        }
                        body => body?,
                    };
                    if matches!(request, Request::LoadCommit(_)) {
                        // It was not opened, but it has parameters from here on.
                        self.has_opened.store(true, Ordering::Release);
                    }
                    return take(creation, body);
                }
                // It may have been executed before the table was gone.
                Err(error) if matches!(request, Request::LoadCommit(_)) => return Err(error),
                Err(error) => match self.or_dropped(error, number, deadline) {
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

impl<K: BuildKeys, T: Connector> ThreadRelease for Core<K, T> {
    fn leave(&self) {
        if let Some(held) = self.threads.get() {
            held.take();
        }
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests;
