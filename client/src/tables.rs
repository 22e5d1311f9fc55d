//! The tables of a memory node: listing, creating and dropping them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fpcache::TableName;
use fpcache::key_space::KeyKind;
use fpcache::map::{FIRST_READ_BYTES, MAPS_OFFSET, Published, RangeMap};
use fpcache::message::tables::some_names;
use fpcache::message::{MessageError, RangeRequest, TableInfo, TablesPage, TablesRequest, decode_reply};
use fpcache_fabric::tcp::Token;
use fpcache_fabric::{
    Batch, Connection, Deadline, Endpoint, FabricError, MappedConnection, REGION, RemoteAddr, TcpConnection,
    shm, tcp,
};

use crate::access::{believing, token_for};
use crate::config::{ClientConfig, CreateOptions, LEAST_PATIENCE};
use crate::core::was_never_sent;
use crate::error::ClientError;
use crate::url::{Url, parse_list};
use crate::waiting::{PAUSE, retry_while_away};

/// A handle to the tables of a memory node, to list, create and drop them. Any number of threads
/// may use it.
///
/// [`create`](Self::create) fails if the name exists. A request whose reply was lost may have been
/// executed, or may be later, after those that the memory node executes before it: that is
/// [`OutcomeUnknown`](ClientError::OutcomeUnknown), and [`list`](Self::list) shows the result.
///
/// ```no_run
/// use fpcache_client::{CreateOptions, KeyKind, TableName, Tables};
///
/// const ORDERS: TableName = TableName::from_static("orders");
/// # fn main() -> Result<(), fpcache_client::ClientError> {
/// let tables = Tables::connect("tcp://127.0.0.1:7400")?;
/// tables.create_if_missing(&ORDERS, KeyKind::U64, CreateOptions::default())?;
/// for table in tables.list()?.tables {
///     println!("{}: {} keys", table.name, table.keys);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tables {
    url: Url,
    token: Option<Token>,
    deadline: Duration,
    connection: Mutex<AnyConnection>,
}

/// A connection of any kind, for requests only.
#[derive(Debug)]
enum AnyConnection {
    Shm(MappedConnection),
    Tcp(TcpConnection),
}

/// The tables of a memory node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableList {
    /// The capacity that all tables share, in bytes.
    pub capacity_bytes: u64,
    /// Bytes granted to tables, which take slightly more than they use, in steps of up to 1 MiB.
    pub granted_bytes: u64,
    /// The tables, in the order of their names.
    pub tables: Vec<TableInfo>,
}

/// A table over several memory nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DividedTable {
    /// What it is called.
    pub name: TableName,
    /// Its creation number, which the names of its ranges have too (see [`TableName::as_range`]).
    pub creation: u64,
    /// Of how many ranges it is.
    pub ranges: usize,
}

impl Tables {
    /// Connects to the memory node at `url`, for example `shm://fpcache`; if there are several, to
    /// the first that answers.
    ///
    /// # Errors
    /// An invalid URL, no memory node there or one of another release, or no permission.
    pub fn connect(url: &str) -> Result<Self, ClientError> {
        Self::connect_with(url, ClientConfig::default())
    }

    /// As [`connect`](Self::connect), with the deadline for calls and the token of these settings;
    /// which table they name is of no account.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_with(url: &str, config: ClientConfig) -> Result<Self, ClientError> {
        retry_while_away(config.wait, || Self::connect_now(url, &config))
    }

    fn connect_now(url: &str, config: &ClientConfig) -> Result<Self, ClientError> {
        let (urls, begun, mut first_error) = (parse_list(url)?, Instant::now(), None);
        for (at, url) in urls.iter().enumerate() {
            // One that is silent leaves the others their share of the time.
            let share = config.deadline.saturating_sub(begun.elapsed()) / (urls.len() - at) as u32;
            match Self::at(url, config.token, config.deadline, Deadline::after(share)) {
                Ok(tables) => return Ok(tables),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or(FabricError::NotPosted.into()))
    }

    /// Connects to one memory node by then, with the `given` token or that of the environment.
    pub(crate) fn at(
        url: &Url,
        given: Option<Token>,
        deadline: Duration,
        by: Deadline,
    ) -> Result<Self, ClientError> {
        let token = token_for(url, given)?;
        let connection = Mutex::new(AnyConnection::reach(url, token, deadline, by)?);
        Ok(Self { url: url.clone(), token, deadline, connection })
    }

    /// As [`at`](Self::at), for a call that has to be answered by then, too.
    pub(crate) fn before(url: &Url, given: Option<Token>, deadline: Deadline) -> Result<Self, ClientError> {
        let reached = Self::at(url, given, time_left(deadline), deadline)?;
        Ok(Self { deadline: time_left(deadline), ..reached })
    }

    /// The memory node that was reached.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Asks the memory node's processor for an answer that is as short with many tables as with
    /// none, and returns the time until it came: for checks of its health.
    ///
    /// # Errors
    /// No answer within the deadline, or the memory node is gone.
    pub fn ping(&self) -> Result<Duration, ClientError> {
        let after = TableName::from_bytes(&[b'z'; TableName::MAX]).ok();
        let started = Instant::now();
        self.call(&TablesRequest::List { after }, ClientError::from, |body| Ok(TablesPage::decode(body)?))?;
        Ok(started.elapsed())
    }

    /// All tables. One request per 512 tables.
    ///
    /// # Errors
    /// The memory node is gone.
    pub fn list(&self) -> Result<TableList, ClientError> {
        let mut list = TableList::default();
        loop {
            let after = list.tables.last().map(|table| table.name);
            let page = self.call(&TablesRequest::List { after }, ClientError::from, |body| {
                Ok(TablesPage::decode(body)?)
            })?;
            (list.capacity_bytes, list.granted_bytes) = (page.capacity_bytes, page.granted_bytes);
            let is_last = page.tables.is_empty() || !page.has_more;
            list.tables.extend(page.tables);
            if is_last {
                return Ok(list);
            }
        }
    }

    /// Creates an empty table, which can be read, written and loaded into. Its parameters are set
    /// by [`Client::create`](crate::Client::create), by a load, or by the first write: values of
    /// eight bytes with integer keys, of any length with byte strings. On a durable memory node the
    /// table is durable from here on.
    ///
    /// # Errors
    /// [`TableExists`](ClientError::TableExists); [`Refused`](ClientError::Refused) if there is no
    /// memory for the table; [`OutcomeUnknown`](ClientError::OutcomeUnknown) if the memory node did
    /// not answer; [`is_retryable`] says whether the call may succeed later.
    ///
    /// [`is_retryable`]: ClientError::is_retryable
    pub fn create(&self, name: &TableName, kind: KeyKind, options: CreateOptions) -> Result<(), ClientError> {
        self.create_or(name, kind, options, |error| unanswered("create", name, error))
    }

    /// As [`create`](Self::create), with another error for a request that has no answer.
    fn create_or(
        &self,
        name: &TableName,
        kind: KeyKind,
        CreateOptions { region_bytes }: CreateOptions,
        lost: impl FnOnce(FabricError) -> ClientError,
    ) -> Result<(), ClientError> {
        self.call(&TablesRequest::Create { name: *name, kind, region_bytes }, lost, |_| Ok(()))
    }

    /// As [`create`](Self::create), but a table of the name with keys of this kind that is there
    /// already is no error; says whether it was created. Any number of processes may call this at
    /// once.
    ///
    /// [`TableClient::open_or_create`](crate::TableClient::open_or_create) also sets the parameters
    /// of the table, and opens it.
    ///
    /// # Errors
    /// [`OtherKeys`](ClientError::OtherKeys): the table has keys of the other kind.
    /// [`TableClosed`](ClientError::TableClosed): the memory node could not open it.
    /// [`TableExists`](ClientError::TableExists): the name is that of a table over several memory
    /// nodes. Otherwise as for [`create`](Self::create).
    pub fn create_if_missing(
        &self,
        name: &TableName,
        kind: KeyKind,
        options: CreateOptions,
    ) -> Result<bool, ClientError> {
        /// How often others may create and drop it meanwhile.
        const TRIES: u32 = 8;
        // One that is executed later makes what a repeated call finds.
        let create = || self.create_or(name, kind, options, ClientError::from);
        let mut error = match create() {
            Err(error @ ClientError::TableExists { .. }) => error,
            made => return made.map(|()| true),
        };
        for _ in 0..TRIES {
            match self.find(name)? {
                Some(found) if found.is_closed() => {
                    let (address, table) = (self.url.to_string(), name.to_string());
                    return Err(ClientError::TableClosed { address, table });
                }
                Some(found) if found.kind == kind => return Ok(false),
                Some(found) => {
                    return Err(ClientError::OtherKeys { theirs: found.kind, own: kind.name() });
                }
                None => match create() {
                    Err(again @ ClientError::TableExists { .. }) => error = again,
                    made => return made.map(|()| true),
                },
            }
        }
        Err(error)
    }

    /// Information on one table; `None` if it does not exist.
    ///
    /// # Errors
    /// The memory node is gone.
    pub fn find(&self, name: &TableName) -> Result<Option<TableInfo>, ClientError> {
        Ok(self.list()?.tables.into_iter().find(|table| table.name == *name))
    }

    /// Drops a table with all its records: it is not accessible any more, its memory free at once.
    ///
    /// # Errors
    /// [`NoSuchTable`](ClientError::NoSuchTable), or the memory node is gone.
    /// [`OutcomeUnknown`](ClientError::OutcomeUnknown) if it did not answer: it may drop the table
    /// later, and a second drop is of the table that has the name by then, whoever made it.
    pub fn drop_table(&self, name: &TableName) -> Result<(), ClientError> {
        self.call(&TablesRequest::Drop { name: *name }, |error| unanswered("drop", name, error), |_| Ok(()))
    }

    /// As [`drop_table`](Self::drop_table), of a range: no other one ever has its name, so that a
    /// drop without an answer may be repeated.
    pub(crate) fn drop_range(&self, range: &TableName) -> Result<(), ClientError> {
        self.call(&TablesRequest::Drop { name: *range }, ClientError::from, |_| Ok(()))
    }

    /// The tables over several memory nodes that this one has ranges of, other than those whose
    /// ranges here are all closed.
    ///
    /// # Errors
    /// As of [`list`](Self::list).
    pub fn divided(&self) -> Result<Vec<DividedTable>, ClientError> {
        let of = |map: &RangeMap| DividedTable {
            name: map.name,
            creation: map.creation,
            ranges: map.ranges.len(),
        };
        Ok(self.maps()?.iter().map(of).collect())
    }

    /// Reads the partition maps of the tables that this memory node has ranges of.
    pub(crate) fn maps(&self) -> Result<Vec<RangeMap>, ClientError> {
        let deadline = Deadline::after(self.deadline);
        let connection = self.living(deadline)?;
        match &*connection {
            AnyConnection::Shm(connection) => read_maps(connection, deadline),
            AnyConnection::Tcp(connection) => read_maps(connection, deadline),
        }
    }

    /// Sends a request about a range.
    pub(crate) fn range(&self, request: &RangeRequest) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.send(&bytes, ClientError::from, |_| Ok(()))
    }

    fn call<R>(
        &self,
        request: &TablesRequest,
        lost: impl FnOnce(FabricError) -> ClientError,
        take: impl FnOnce(&[u8]) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.send(&bytes, lost, take)
    }

    /// Sends a request and passes its reply to `take`; `lost` says what it is an error of that it
    /// has none.
    fn send<R>(
        &self,
        request: &[u8],
        lost: impl FnOnce(FabricError) -> ClientError,
        take: impl FnOnce(&[u8]) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let deadline = Deadline::after(self.deadline);
        let (connection, mut reply) = (self.living(deadline)?, Vec::new());
        connection.call(request, &mut reply, deadline).map_err(lost)?;
        take(decode_reply(&reply)?)
    }

    /// The connection, renewed if it has lost its memory node. Used by one call at a time.
    fn living(&self, deadline: Deadline) -> Result<MutexGuard<'_, AnyConnection>, FabricError> {
        // A panic elsewhere leaves it as it was.
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if !connection.is_alive() {
            *connection = AnyConnection::reach(&self.url, self.token, self.deadline, deadline)?;
        }
        Ok(connection)
    }
}

/// The error of a request to create or drop a table that has no answer.
fn unanswered(what: &str, name: &TableName, error: FabricError) -> ClientError {
    if was_never_sent(&error) {
        return error.into();
    }
    let why = format!(
        "no answer to the request to {what} the table `{name}`, which may yet be executed: {error}; list the tables"
    );
    ClientError::OutcomeUnknown { why }
}

/// What is left of a call's time.
pub(crate) fn time_left(deadline: Deadline) -> Duration {
    deadline.remaining(Instant::now()).unwrap_or(Duration::MAX)
}

/// READs the maps that a memory node publishes in its lobby.
fn read_maps(connection: &impl Connection, deadline: Deadline) -> Result<Vec<RangeMap>, ClientError> {
    /// Attempts to read maps that are being changed.
    const ATTEMPTS: u32 = 1000;
    let mut endpoint = connection.endpoint();
    endpoint.set_patience(time_left(deadline));
    let room = endpoint.area(REGION).map_or(0, |area| area.len.saturating_sub(MAPS_OFFSET));
    let (mut bytes, mut batch) = (FIRST_READ_BYTES, Batch::new());
    for _ in 0..ATTEMPTS {
        if bytes as u64 > room {
            return Err(
                MessageError::Malformed("the memory node has no room for maps in its lobby".into()).into()
            );
        }
        batch.clear();
        let landing = batch.read(RemoteAddr::region(MAPS_OFFSET), bytes);
        endpoint.run(&mut batch)?;
        match Published::read(batch.bytes(landing))? {
            Published::Whole(maps) => return Ok(maps),
            Published::Needs(more) => bytes = more.max(FIRST_READ_BYTES),
            Published::Torn => std::thread::yield_now(),
        }
    }
    Err(MessageError::Malformed(format!("the memory node's maps were torn in {ATTEMPTS} READs")).into())
}

impl AnyConnection {
    /// A connection to the region without a table, for calls that take so long at most.
    fn reach(url: &Url, token: Option<Token>, most: Duration, by: Deadline) -> Result<Self, FabricError> {
        match url {
            Url::Shm(address) => {
                let options = shm::ConnectOptions { deadline: by, ..Default::default() };
                shm::connect(address, options).map(Self::Shm)
            }
            Url::Tcp(address) => {
                // Nothing is read here but a few requests' answers.
                let (deadline, patience) = (by, most.max(LEAST_PATIENCE));
                let options = tcp::ConnectOptions { deadline, token, uses_card: false, ..Default::default() };
                tcp::connect(&believing(address), tcp::ConnectOptions { patience, ..options }).map(Self::Tcp)
            }
        }
    }

    fn is_alive(&self) -> bool {
        match self {
            Self::Shm(connection) => connection.is_alive(),
            Self::Tcp(connection) => connection.is_alive(),
        }
    }

    fn call(&self, request: &[u8], reply: &mut Vec<u8>, deadline: Deadline) -> Result<(), FabricError> {
        match self {
            Self::Shm(connection) => connection.call(request, reply, deadline),
            Self::Tcp(connection) => connection.call(request, reply, deadline),
        }
    }
}

/// The error for a missing table, with the names of existing ones if they can be listed.
pub(crate) fn not_there(url: &Url, table: &str, token: Option<Token>, deadline: Deadline) -> ClientError {
    let listed = Tables::before(url, token, deadline).and_then(|tables| tables.list());
    // A memory node whose ranges of the table are all closed publishes no map of it.
    let is_of_it = |name: &TableName| {
        name.as_str() == table || name.as_range().is_some_and(|(of, ..)| of.as_str() == table)
    };
    if let Ok(list) = &listed
        && let Some(closed) = list.tables.iter().find(|info| is_of_it(&info.name) && info.is_closed())
    {
        return ClientError::TableClosed { address: url.to_string(), table: closed.name.to_string() };
    }
    let names = |list: TableList| some_names(list.tables.iter().map(|table| &table.name));
    let there = listed.map_or_else(|_| String::new(), |list| format!("; the tables are: {}", names(list)));
    ClientError::no_such_table(&url.to_string(), table, &there)
}

/// Waits until a memory node answers at `url`, as scripts do that have just started one.
///
/// # Errors
/// That of the last attempt if no memory node answers `within` this time. Errors that waiting
/// cannot mend (an invalid URL, no permission, another release) are returned at once.
pub fn wait_for_node(url: &str, within: Duration) -> Result<(), ClientError> {
    wait_for_node_with(url, ClientConfig::default().with_wait(within).with_deadline(within))
}

/// As [`wait_for_node`], for as long as [`ClientConfig::wait`] says, with the token of these
/// settings.
///
/// # Errors
/// As for [`wait_for_node`].
pub fn wait_for_node_with(url: &str, config: ClientConfig) -> Result<(), ClientError> {
    let deadline = config.deadline.max(PAUSE);
    Tables::connect_with(url, config.with_deadline(deadline)).map(drop)
}
