//! What can go wrong, and whether trying again can help.

use std::time::Duration;

use fpcache::key_space::KeyKind;
use fpcache::layout::{MAX_VALUE_BYTES, TableParameters};
use fpcache::map::MapError;
use fpcache::message::{ErrorCode, MessageError, Refusal};
use fpcache::read::ReadError;
use fpcache::table_view::OpenError;
use fpcache_fabric::FabricError;
use fpcache_fabric::tcp::TokenError;

use crate::tables::no_such_table;
use crate::url::UrlError;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The URL names no memory node.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The token to get in by cannot be had.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The memory node's table could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The memory node refused a request.
    #[error(transparent)]
    Refused(Refusal),
    /// The memory node has no table of this name: there never was one, or it was dropped.
    #[error("{why}")]
    NoSuchTable {
        /// Which one is meant, and what to do.
        why: String,
    },
    /// The table is there, and its memory node could not go on with it.
    #[error(
        "the table `{table}` at {address} is closed, because its memory node could not go on with it: its first words say why and \
         what to do; or remove the table with `fpcache-cli drop {table} --yes`"
    )]
    TableClosed {
        /// Where its memory node listens.
        address: String,
        /// What it is called.
        table: String,
    },
    /// The memory node's reply makes no sense.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The fabric failed, or the memory node is gone.
    #[error(transparent)]
    Fabric(FabricError),
    /// No answer within the call's deadline.
    #[error("no answer within {deadline:?}: {last}; try again or allow more time")]
    Deadline {
        /// The call's deadline.
        deadline: Duration,
        /// What kept the call from an answer.
        last: ReadError,
    },
    /// The value does not have the table's size.
    #[error(
        "the value of key {key} has {got} bytes, the table's values have {expected}: all must have that size"
    )]
    ValueSize {
        /// The record's key.
        key: String,
        /// Bytes of the value.
        got: usize,
        /// Bytes of the table's values.
        expected: usize,
    },
    /// There can be no such key in the table.
    #[error("the key {key} cannot be the table's: {why}")]
    KeySize {
        /// The key.
        key: String,
        /// Why not.
        why: String,
    },
    /// The value is longer than values can be.
    #[error(
        "the value of key {key} has {got} bytes, values have at most {MAX_VALUE_BYTES}: divide it among several records"
    )]
    ValueTooLong {
        /// The record's key.
        key: String,
        /// Bytes of the value.
        got: usize,
    },
    /// What of a record must lie in its slot does not fit there: where all values have one length, key and value; else the key,
    /// and the value or 16 bytes that say where it lies.
    #[error(
        "the record of key {key} has {got} bytes of key and value and needs {needs} of them in its slot, the table's slots \
         have room for {room}: create the table with room for {needs} or more"
    )]
    RecordSize {
        /// The record's key.
        key: String,
        /// Bytes of key and value.
        got: usize,
        /// Bytes there are for them in a slot.
        room: usize,
        /// The least there would have to be.
        needs: usize,
    },
    /// No reply to a change came in time, or none that tells its outcome: it may have been made, may not, or may yet be until
    /// the same thread makes its next change. Also if the table was dropped before the reply came and there is another of its
    /// name: then the change may have been made in the former table, and is not made in this one.
    #[error("it is not known whether the change was made: {why}; read the record before making it again")]
    OutcomeUnknown {
        /// What kept the outcome from being known.
        why: String,
    },
    /// The region has no room for the record; nothing was changed.
    #[error(
        "the memory node{} has no room for key {key}: remove records, drop tables, or start it with a larger --capacity",
        .node.as_ref().map_or(String::new(), |node| format!(" {node}"))
    )]
    NoRoom {
        /// The record's key.
        key: String,
        /// Which memory node, of a table over several.
        node: Option<String>,
    },
    /// The change could not be written to the memory node's log; nothing was changed.
    #[error(
        "the memory node{} could not write the change of key {key} to its log: make room on the disk of its --data-dir, \
         then try again",
        .node.as_ref().map_or(String::new(), |node| format!(" {node}"))
    )]
    NotDurable {
        /// The record's key.
        key: String,
        /// Which memory node, of a table over several.
        node: Option<String>,
    },
    /// One of a table's memory nodes does not answer, or cannot be asked.
    #[error("{}", away(.node, .source))]
    NodeAway {
        /// Its URL.
        node: String,
        /// How that was noticed.
        source: FabricError,
    },
    /// The map of a table over several memory nodes makes no sense, or would not.
    #[error(transparent)]
    MapUnusable(#[from] MapError),
    /// The memory nodes of a table have different maps of it.
    #[error("{why}")]
    MapsDisagree {
        /// Which of them, and what to do.
        why: String,
    },
    /// The memory node's table has keys of another kind than this client.
    #[error(
        "the memory node's table has keys of the kind `{theirs}`, this client is for the kind `{own}`: open it with a client \
         for its kind (`Client` for u64, `ByteClient` for bytes), or make a table of another name with keys of the kind {own}"
    )]
    OtherKeys {
        /// What the table's keys are.
        theirs: KeyKind,
        /// What this client's keys are.
        own: &'static str,
    },
    /// The table had records or could have some when this client first read it, and has not even parameters now: its memory node
    /// was started anew without its data, or the table was dropped and made anew.
    #[error(
        "the table was made anew and holds nothing yet: load it again, or open it with a new client, which finds it empty"
    )]
    Emptied,
    /// The table is empty, and was made for records of another kind than those that were to be loaded.
    #[error(
        "the table is empty, but was created with other parameters ({theirs:?}) than are asked for ({asked:?}): use its own, a table \
         of another name, or drop this one first"
    )]
    OtherParameters {
        /// The table's.
        theirs: Box<TableParameters>,
        /// Those that are asked for.
        asked: Box<TableParameters>,
    },
    /// Values are asked for as words of eight bytes, which the table's are not.
    #[error(
        "the values of this table {}, and not all eight bytes: look its keys up with multi_get_into, or make a table whose \
         values have eight bytes",
        .value_bytes.map_or("vary in length".to_owned(), |bytes| format!("have {bytes} bytes"))
    )]
    NotWords {
        /// Bytes of the table's values; `None` where they vary.
        value_bytes: Option<u32>,
    },
    /// Arrays that answers go into have other lengths than the keys'.
    #[error(
        "there are {keys} keys, and arrays for {} answers: pass arrays exactly as long as the keys",
        .values.filter(|values| values != keys).unwrap_or(*.found)
    )]
    ArrayLengths {
        /// How many keys there are.
        keys: usize,
        /// How many values there is room for, where values are asked for.
        values: Option<usize>,
        /// How many marks there is room for.
        found: usize,
    },
    /// The embedded memory node could not be set up.
    #[error("the memory node in this process could not start: {0}")]
    Embedded(String),
}

impl From<Refusal> for ClientError {
    fn from(refusal: Refusal) -> Self {
        match refusal.code {
            ErrorCode::NoSuchTable => Self::NoSuchTable { why: refusal.message },
            _ => Self::Refused(refusal),
        }
    }
}

impl From<FabricError> for ClientError {
    fn from(error: FabricError) -> Self {
        match error {
            // Regions are tables'.
            FabricError::NoSuchRegion { address, name } => no_such_table(&address, &name, ""),
            error => Self::Fabric(error),
        }
    }
}

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Call again, perhaps after a pause: the memory node is gone, busy or has lost the table, or the time was short.
    Retry,
    /// Look before calling again: whether the change was made is not known.
    Unknown,
    /// Change the call: its arguments or data are wrong.
    Invalid,
    /// Change the setup: more memory, another release, other rights.
    Setup,
    /// Report it: something contradicts itself.
    Internal,
}

impl ClientError {
    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Url(_)
            | Self::ValueSize { .. }
            | Self::KeySize { .. }
            | Self::ValueTooLong { .. }
            | Self::RecordSize { .. }
            | Self::NotWords { .. }
            | Self::ArrayLengths { .. } => ErrorKind::Invalid,
            Self::Open(error) => of_open(error),
            Self::Refused(refusal) => of_code(refusal.code),
            Self::Message(MessageError::Version(_))
            | Self::Token(_)
            | Self::Embedded(_)
            | Self::OtherKeys { .. }
            | Self::OtherParameters { .. }
            | Self::NoSuchTable { .. }
            | Self::TableClosed { .. }
            | Self::MapUnusable(_)
            | Self::MapsDisagree { .. } => ErrorKind::Setup,
            Self::NodeAway { source, .. } => of_fabric(source),
            Self::Message(_) => ErrorKind::Internal,
            Self::Fabric(error) => of_fabric(error),
            Self::Deadline { .. } | Self::Emptied => ErrorKind::Retry,
            Self::OutcomeUnknown { .. } => ErrorKind::Unknown,
            Self::NoRoom { .. } | Self::NotDurable { .. } => ErrorKind::Setup,
        }
    }

    /// The same error of a memory node among several, which it names.
    pub(crate) fn at(self, node: &str) -> Self {
        let named = || Some(node.to_owned());
        match self {
            Self::Fabric(source) | Self::Deadline { last: ReadError::Fabric(source), .. } => {
                Self::NodeAway { node: node.to_owned(), source }
            }
            Self::NoRoom { key, node: None } => Self::NoRoom { key, node: named() },
            Self::NotDurable { key, node: None } => Self::NotDurable { key, node: named() },
            Self::OutcomeUnknown { why } if !why.starts_with(node) => {
                Self::OutcomeUnknown { why: format!("{node}: {why}") }
            }
            Self::Refused(Refusal { code, message }) if !message.starts_with(node) => {
                Self::Refused(Refusal { code, message: format!("{node}: {message}") })
            }
            Self::MapUnusable(error) => Self::MapUnusable(error.at(node)),
            error => error,
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind() == ErrorKind::Retry
    }
}

fn of_open(error: &OpenError) -> ErrorKind {
    use fpcache::layout::SuperblockError;
    match error {
        OpenError::Empty
        | OpenError::Moving { .. }
        | OpenError::Superblock(SuperblockError::Changing | SuperblockError::Dropped) => ErrorKind::Retry,
        OpenError::Superblock(SuperblockError::Corrupt(_)) | OpenError::Corrupt(_) => ErrorKind::Internal,
        OpenError::Superblock(_) | OpenError::Memory(_) => ErrorKind::Setup,
        OpenError::Budget { .. } => ErrorKind::Invalid,
        OpenError::Fabric(error) => of_fabric(error),
    }
}

/// What there is to say of a memory node among several whose call failed in the fabric.
fn away(node: &str, error: &FabricError) -> String {
    match of_fabric(error) {
        ErrorKind::Retry => format!(
            "the memory node {node} does not answer: {error}; keys that others have are served, its own again when it is back"
        ),
        _ => format!("the memory node {node}: {error}"),
    }
}

fn of_code(code: ErrorCode) -> ErrorKind {
    match code {
        ErrorCode::Busy | ErrorCode::NoTable | ErrorCode::OtherTable | ErrorCode::WrongRange { .. } => {
            ErrorKind::Retry
        }
        ErrorCode::Invalid
        | ErrorCode::BadData
        | ErrorCode::NotEmpty
        | ErrorCode::TableExists
        | ErrorCode::BadName => ErrorKind::Invalid,
        ErrorCode::Full
        | ErrorCode::Version
        | ErrorCode::NotDurable
        | ErrorCode::NoSuchTable
        | ErrorCode::NoMemory
        | ErrorCode::ReadOnly => ErrorKind::Setup,
        ErrorCode::Forgotten => ErrorKind::Unknown,
        _ => ErrorKind::Internal,
    }
}

fn of_fabric(error: &FabricError) -> ErrorKind {
    if error.is_retryable() { ErrorKind::Retry } else { ErrorKind::Setup }
}
