//! Tables without parameters: what reads find in them, and the parameters that the first write
//! sets.
//!
//! A new table has no parameters until it gets some from [`Client::create`](crate::Client::create),
//! from a load, or, by [`first_parameters`], from the first write. Until then every read finds
//! nothing. Such a table cannot be confused with one being recovered, since memory nodes serve
//! tables only when recovery is complete. Nor with one that was lost: a client that knew the table
//! with parameters gets [`ClientError::Emptied`] from reads and writes.

use std::time::Duration;

use fpcache::key_space::{BuildKeys, KeySpace};
use fpcache::layout::{RecordShape, TableParameters};
use fpcache::message::{ErrorCode, Refusal, Request};
use fpcache::table_view::OpenError;

use crate::core::{Connector, Core};
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

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Gives the table its parameters, unless it has some by now.
    #[cold]
    pub(crate) fn create_for_write(
        &self,
        parameters: TableParameters,
        within: Duration,
    ) -> Result<(), ClientError> {
        let encoders = K::encode_encoders(&K::Encoders::default());
        let begin = Request::LoadBegin { parameters, expected_keys: 0, encoders: &encoders };
        let creation = match self.call(&begin, None, within, |creation, _| Ok(creation)) {
            Err(ClientError::Refused(refusal)) if refusal.code == ErrorCode::NotEmpty => return Ok(()),
            Err(error) => {
                if matches!(error, ClientError::Fabric(_)) {
                    // It may have been executed all the same: nothing is in the way of the next one
                    // then.
                    let _ = self.call(&Request::LoadAbort, None, within, |_, _| Ok(()));
                }
                return Err(error);
            }
            Ok(creation) => creation,
        };
        let committed = self.call(&Request::LoadCommit, Some(creation), within, |_, _| Ok(()));
        if committed.is_err() {
            // Nothing must be in the way of the next attempt; that it was committed after all is as
            // good.
            let _ = self.call(&Request::LoadAbort, Some(creation), within, |_, _| Ok(()));
        }
        committed
    }
}

/// Whether giving a table parameters failed because of another attempt to do so, or because the
/// connection of this one was lost in between, so that trying again may help.
pub(crate) fn is_of_another_attempt(error: &ClientError) -> bool {
    match error {
        // A commit without its begin, which another connection has forgotten, is invalid.
        ClientError::Refused(Refusal { code, .. }) => {
            matches!(code, ErrorCode::Busy | ErrorCode::OtherTable | ErrorCode::Invalid)
        }
        _ => false,
    }
}

/// What a read found, `nothing` if the table has no parameters yet.
pub(crate) fn or_of_empty<R>(found: Result<R, ClientError>, nothing: R) -> Result<R, ClientError> {
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
