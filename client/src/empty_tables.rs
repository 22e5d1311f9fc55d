//! Tables without parameters: what reads find in them, and the parameters that the first write
//! sets.
//!
//! A new table has no parameters until it gets some from [`Client::create`](crate::Client::create),
//! from a load, or, by [`first_parameters`], from the first write. Until then every read finds
//! nothing. Such a table cannot be confused with one being recovered, since memory nodes serve
//! tables only when recovery is complete. Nor with one that was lost: a client that knew the table
//! with parameters gets [`ClientError::Emptied`] from reads and writes, until its
//! caller accepts the loss.

use fpcache::key_space::KeySpace;
use fpcache::layout::{RecordShape, TableParameters};
use fpcache::table_view::OpenError;

use crate::error::ClientError;

/// Bytes that key and value have in a slot where both vary.
const ROOM: u32 = 128;

/// The parameters of a table that gets its first record by a write: values beside integer keys have
/// eight bytes, if all of that write do; else they have any length, as beside byte strings.
pub(crate) fn first_parameters<K: KeySpace>(values: impl IntoIterator<Item = usize>) -> TableParameters {
    let usual = TableParameters::default();
    let are_words = values.into_iter().all(|bytes| Some(bytes as u32) == usual.shape.value_bytes);
    let shape = match K::FIXED_BYTES {
        Some(_) if are_words => usual.shape,
        Some(bytes) => RecordShape { key_bytes: Some(bytes as u16), value_bytes: None, room: ROOM },
        None => RecordShape { key_bytes: None, value_bytes: None, room: ROOM },
    };
    TableParameters { shape, ..usual }
}

/// What a read found, `nothing` if the table has no parameters yet.
pub(crate) fn or_if_empty<R>(found: Result<R, ClientError>, nothing: R) -> Result<R, ClientError> {
    match found {
        Err(error) if error.is_of_empty_table() => Ok(nothing),
        found => found,
    }
}

impl ClientError {
    /// Whether the table has no parameters yet, so that it holds nothing.
    pub(crate) fn is_of_empty_table(&self) -> bool {
        matches!(self, Self::Open(OpenError::Empty))
    }
}
