//! Errors of the client, and whether a retry can help.

use std::time::Duration;

use fpcache::TableNameError;
use fpcache::key_space::KeyKind;
use fpcache::layout::{MAX_VALUE_BYTES, ParameterError, TableParameters};
use fpcache::map::MapError;
use fpcache::message::{ErrorCode, MessageError, Refusal};
use fpcache::read::ReadError;
use fpcache::table_view::OpenError;
use fpcache_fabric::FabricError;
use fpcache_fabric::tcp::TokenError;

use crate::differences::differences;
pub use crate::error_kind::ErrorKind;
use crate::error_kind::of_fabric;
use crate::url::UrlError;

/// Why a call failed.
///
/// [`kind`](Self::kind) says what can be done about it. Which variant it is depends on where and
/// when something happened, so ask for what matters:
///
/// | What happened | Predicate | Variants |
/// |---|---|---|
/// | No answer in time, and no record was changed | [`is_timeout`](Self::is_timeout) | `Deadline` of a blocking read; `Fabric` of tasks' reads, of changes that were never sent, of updates that others overtook, of connecting; `NodeAway` of one of several memory nodes; `Open` |
/// | The memory node is down, out of reach, or full of clients | [`is_unavailable`](Self::is_unavailable) | the same |
/// | A change, the end of a load, or a table's creation or drop may or may not have taken effect | [`may_have_taken_effect`](Self::may_have_taken_effect) | `OutcomeUnknown`, whether time or connection was lost, or a request that was sent again was refused |
/// | A change was refused, and made nothing | [`is_of_refused_change`](Self::is_of_refused_change) | `NoRoom`, `DiskFull`, `NotDurable`, `Damaged` |
/// | The same call may succeed later | [`is_retryable`](Self::is_retryable) | all of kind [`Retry`](ErrorKind::Retry) |
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The URL names no memory node.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// No table can have this name.
    #[error(transparent)]
    TableName(#[from] TableNameError),
    /// No table can have these parameters.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// The token cannot be read.
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
        /// The table, and what to do.
        why: String,
    },
    /// There is a table of this name already, or a range of one.
    #[error("{why}")]
    TableExists {
        /// The table, and what to do.
        why: String,
    },
    /// The table over several memory nodes is being created, loaded or dropped, or one of these was
    /// broken off.
    #[error("{why}")]
    TableNotWhole {
        /// The table, and what to do.
        why: String,
    },
    /// The table exists, but its memory node could not open it.
    #[error(
        "the table `{table}` at {address} is closed because its memory node could not open it: its output at start-up has \
         the reason and the remedy; its records may be whole"
    )]
    TableClosed {
        /// The address of the memory node.
        address: String,
        /// The name of the table.
        table: String,
    },
    /// A table's map names a memory node to which its client does not go.
    #[error("the table's map leads to the memory node {node}, to which this client does not go: {why}")]
    NotFollowed {
        /// The memory node's URL.
        node: String,
        /// Why not, and what to do.
        why: String,
    },
    /// The memory node's reply cannot be decoded.
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
        /// Why the last attempt failed.
        last: ReadError,
    },
    /// The value does not have the length of the table's values.
    #[error("the value of key {key} has {got} bytes, but the table's values have {expected}")]
    ValueSize {
        /// The record's key.
        key: String,
        /// Bytes of the value.
        got: usize,
        /// Bytes of the table's values.
        expected: usize,
    },
    /// The table cannot have such a key.
    #[error("the key {key} does not fit the table: {why}")]
    KeySize {
        /// The key.
        key: String,
        /// Why not.
        why: String,
    },
    /// The value exceeds the maximum length.
    #[error(
        "the value of key {key} has {got} bytes, but values have at most {MAX_VALUE_BYTES}: split it into several records"
    )]
    ValueTooLong {
        /// The record's key.
        key: String,
        /// Bytes of the value.
        got: usize,
    },
    /// The record does not fit its slot. The slot must hold the key and, if all values have one
    /// length, the value; otherwise the value or a reference of 16 bytes to it.
    #[error(
        "the record of key {key} has {got} bytes of key and value and needs {needs} bytes of a slot, but the slots of this \
         table have room for {room}: create it with room for {needs} or more"
    )]
    RecordSize {
        /// The record's key.
        key: String,
        /// Bytes of key and value.
        got: usize,
        /// Bytes of a slot.
        room: usize,
        /// Bytes that the record needs.
        needs: usize,
    },
    /// No reply to a write arrived in time, or none with its outcome. The write may have taken
    /// effect, or may still do so until the same thread makes its next write to the same memory
    /// node. So may a load have ended whose end was not answered: all of its records are there, or
    /// none; of one over several memory nodes perhaps those of the first ranges. This is also the error if the table was dropped meanwhile, or could not be opened by a
    /// memory node that was restarted: the write may have taken effect before, and does not in
    /// another table of the name.
    #[error("it is unknown whether the write took effect: {why}; read the record before writing it again")]
    OutcomeUnknown {
        /// Why the outcome is unknown.
        why: String,
    },
    /// The share of the cache budget that each range of a table over several memory nodes gets is
    /// too small for one of them.
    #[error(
        "a cache of {} KiB cannot hold the top levels of the directories of this table's {ranges} ranges, each of which gets an \
         even share of it: at least {} KiB in all; raise the cache budget",
        budget / 1024, least.div_ceil(1024)
    )]
    RangesBudget {
        /// The number of ranges.
        ranges: u64,
        /// Bytes that they may take together.
        budget: u64,
        /// The fewest bytes for all of them with which the range that was looked at would have
        /// enough; others may need more.
        least: u64,
    },
    /// The region has no room for the record; nothing was changed.
    #[error(
        "the memory node{} has no room for key {key}: delete records, drop tables, or restart it with a larger --capacity (with \
         --data-dir, stop it and move the table's region.fpr away first: regions that are there keep their size)",
        .node.as_ref().map_or(String::new(), |node| format!(" {node}"))
    )]
    NoRoom {
        /// The record's key.
        key: String,
        /// Which memory node, of a table over several.
        node: Option<String>,
    },
    /// The region's file system has no room for the record; nothing was changed.
    #[error(
        "the memory node{} has no room for key {key}: the file system of its regions is full; make room on that of its --region-dir, \
         or of its --data-dir if it has none, or delete records",
        .node.as_ref().map_or(String::new(), |node| format!(" {node}"))
    )]
    DiskFull {
        /// The record's key.
        key: String,
        /// Which memory node, of a table over several.
        node: Option<String>,
    },
    /// The memory node could not log the write; nothing was changed.
    #[error(
        "the memory node{} could not log the write of key {key}: make room on the disk of its --data-dir, then try again",
        .node.as_ref().map_or(String::new(), |node| format!(" {node}"))
    )]
    NotDurable {
        /// The record's key.
        key: String,
        /// Which memory node, of a table over several.
        node: Option<String>,
    },
    /// The key's record is damaged in memory, or one that may be the key's, or one of the segment
    /// that a write needs replaced; nothing was changed.
    #[error(
        "the memory node{} cannot serve key {key}, because its record, or one beside it, is damaged in memory: its standard \
         error names that one, and what to do",
        .node.as_ref().map_or(String::new(), |node| format!(" {node}"))
    )]
    Damaged {
        /// The key that was to be read or written.
        key: String,
        /// Which memory node, of a table over several.
        node: Option<String>,
    },
    /// One of a table's memory nodes does not answer, or cannot be reached.
    #[error("{}", away(.node, .error))]
    NodeAway {
        /// Its URL.
        node: String,
        /// Why not. The text of this error has it: no [`source`](std::error::Error::source) tells
        /// it again.
        error: FabricError,
    },
    /// The partition map of a table over several memory nodes is invalid.
    #[error(transparent)]
    MapUnusable(#[from] MapError),
    /// The memory nodes of a table have different maps of it.
    #[error("{why}")]
    MapsDisagree {
        /// The memory nodes, and what to do.
        why: String,
    },
    /// The memory node's table has keys of another kind than this client.
    #[error(
        "the table has keys of the kind `{theirs}`, but this client is for `{own}`: open it with the client for its keys \
         (`Client` for u64, `ByteClient` for bytes), or create a table of another name with keys of the kind {own}"
    )]
    OtherKeys {
        /// The kind of the table's keys.
        theirs: KeyKind,
        /// The kind of this client's keys.
        own: &'static str,
    },
    /// The table had parameters when this client opened or loaded it, and has none now: its memory
    /// node was restarted without its data, or the table was dropped and created again. The client
    /// goes on by itself once the table is loaded again, and with the empty table after
    /// [`accept_loss`](crate::TableClient::accept_loss).
    #[error(
        "the table was lost and created again, and is empty: load it again, or call accept_loss() to go on with an empty table"
    )]
    Emptied,
    /// The table is empty, but was created with parameters that the records to be loaded do not
    /// have.
    #[error(
        "the table is empty, but was created with other parameters than requested: {}; use those, use a table of another \
         name, or drop this one first",
        differences(theirs, asked)
    )]
    OtherParameters {
        /// The table's.
        theirs: Box<TableParameters>,
        /// Those requested.
        asked: Box<TableParameters>,
    },
    /// Values were requested as words of eight bytes, but the table's have another length.
    #[error(
        "the values of this table {}, not eight bytes: use multi_get_into, or create a table with values of eight \
         bytes",
        .value_bytes.map_or("vary in length".to_owned(), |bytes| format!("have {bytes} bytes"))
    )]
    NotWords {
        /// Bytes of the table's values; `None` where they vary.
        value_bytes: Option<u32>,
    },
    /// The arrays for the answers are not as long as that of the keys.
    #[error(
        "there are {keys} keys, and arrays for {} answers: pass arrays exactly as long as the keys",
        .values.filter(|values| values != keys).unwrap_or(*.found)
    )]
    ArrayLengths {
        /// The number of keys.
        keys: usize,
        /// The length of the array for values, if there is one.
        values: Option<usize>,
        /// The length of the array of flags.
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
            ErrorCode::TableExists => Self::TableExists { why: refusal.message },
            _ => Self::Refused(refusal),
        }
    }
}

impl From<FabricError> for ClientError {
    fn from(error: FabricError) -> Self {
        match error {
            // Regions are tables'.
            FabricError::NoSuchRegion { address, name } => Self::no_such_table(&address, &name, ""),
            error => Self::Fabric(error),
        }
    }
}

impl ClientError {
    /// The error for a missing table; `there` says which ones there are, or nothing.
    pub(crate) fn no_such_table(address: &str, table: &str, there: &str) -> Self {
        let why = format!(
            "there is no table `{table}` at {address}{there}: create it with `fpcache-cli --url '{address}' create --table {table}` (and \
             --keys bytes, if its keys are to be byte strings), or use another one"
        );
        Self::NoSuchTable { why }
    }

    /// The same error of a memory node among several, which it names.
    pub(crate) fn at(self, node: &str) -> Self {
        let named = || Some(node.to_owned());
        match self {
            Self::Fabric(error)
            | Self::Open(OpenError::Fabric(error))
            | Self::Deadline { last: ReadError::Fabric(error), .. } => {
                Self::NodeAway { node: node.to_owned(), error }
            }
            Self::NoRoom { key, node: None } => Self::NoRoom { key, node: named() },
            Self::DiskFull { key, node: None } => Self::DiskFull { key, node: named() },
            Self::NotDurable { key, node: None } => Self::NotDurable { key, node: named() },
            Self::Damaged { key, node: None } => Self::Damaged { key, node: named() },
            Self::OutcomeUnknown { why } if !why.starts_with(node) => {
                Self::OutcomeUnknown { why: format!("{node}: {why}") }
            }
            Self::Refused(Refusal { code, message }) if !message.starts_with(node) => {
                Self::Refused(Refusal { code, message: format!("{node}: {message}") })
            }
            Self::TableExists { why } if !why.starts_with(node) => {
                Self::TableExists { why: format!("{node}: {why}") }
            }
            Self::MapUnusable(error) => Self::MapUnusable(error.at(node)),
            error => error,
        }
    }
}

/// The message for a memory node among several that a call failed to reach.
fn away(node: &str, error: &FabricError) -> String {
    match of_fabric(error) {
        // It is well, and the error says which one it is.
        _ if matches!(
            error,
            FabricError::TooManyClients { .. }
                | FabricError::NoResources { .. }
                | FabricError::NoLocalPort { .. }
        ) =>
        {
            error.to_string()
        }
        ErrorKind::Retry => format!(
            "the memory node {node} does not answer: {error}; only its own keys are affected, until it is back"
        ),
        _ => format!("the memory node {node}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_node_that_lets_nobody_in_is_not_told_to_be_silent() {
        let node = "tcp://node-1:7400".to_owned();
        let full = FabricError::TooManyClients { address: node.clone(), max: 1 };
        let away = ClientError::NodeAway { node: node.clone(), error: full };
        let said = away.to_string();
        assert!(!said.contains("does not answer") && said.contains("--max-connections"), "{said}");
        assert_eq!(said.matches(&node).count(), 1, "{said}");
        assert!(away.is_retryable());
        let gone = ClientError::NodeAway { node, error: FabricError::Disconnected { peer: "it".into() } };
        assert!(gone.to_string().contains("does not answer"), "{gone}");
        assert!(std::error::Error::source(&gone).is_none(), "chains would tell the cause twice");
    }
}
