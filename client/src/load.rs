//! Loading a table through the memory node's request ring.

use fpcache::key_space::{KeySpace, U64Keys};
use fpcache::layout::TableParameters;
use fpcache::message::{Chunk, MessageError, Request};

use crate::client::Client;
use crate::error::ClientError;

/// A load in progress: records in ascending key order, sent in chunks that fill a request.
///
/// The table becomes visible with [`finish`](Self::finish); dropping the load before that leaves no trace of it.
#[derive(Debug)]
#[must_use = "nothing is visible before `finish`"]
pub struct Load<'c> {
    client: &'c Client,
    parameters: TableParameters,
    chunk_records: usize,
    sent: u64,
    keys: Vec<u8>,
    values: Vec<u8>,
    finished: bool,
}

/// What a finished load made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Records.
    pub keys: u64,
    /// Segments.
    pub segments: u64,
}

impl<'c> Load<'c> {
    pub(crate) fn begin(
        client: &'c Client,
        parameters: TableParameters,
        expected_keys: u64,
    ) -> Result<Self, ClientError> {
        let begun = client.request(&Request::LoadBegin { parameters, expected_keys }, |_| Ok(()));
        if let Err(error) = begun {
            if matches!(error, ClientError::Fabric(_)) {
                // It may have been executed all the same; nothing is in the way of the next one then.
                let _ = client.request(&Request::LoadAbort, |_| Ok(()));
            }
            return Err(error);
        }
        let chunk_records =
            Request::records_per_chunk::<U64Keys>(client.max_request(), parameters.value_bytes).max(1);
        Ok(Self {
            client,
            parameters,
            chunk_records,
            sent: 0,
            keys: Vec::new(),
            values: Vec::new(),
            finished: false,
        })
    }

    /// Adds a record. One request per full chunk, of which the memory node gives the size (1 MiB by default).
    ///
    /// # Errors
    /// A value of the wrong size; and, for any record of the chunk before: keys out of order, or a full region. After
    /// an error the load is over.
    pub fn push(&mut self, key: u64, value: &[u8]) -> Result<(), ClientError> {
        let expected = self.parameters.value_bytes as usize;
        if value.len() != expected {
            return Err(ClientError::ValueSize { key, got: value.len(), expected });
        }
        self.keys.extend(key.to_le_bytes());
        self.values.extend_from_slice(value);
        if self.keys.len() == self.chunk_records * U64Keys::KEY_BYTES { self.flush() } else { Ok(()) }
    }

    /// Ends the load and makes the table visible.
    ///
    /// # Errors
    /// As for [`push`](Self::push); nothing is visible then.
    pub fn finish(mut self) -> Result<Loaded, ClientError> {
        self.flush()?;
        let loaded = self.client.request(&Request::LoadCommit, |body| match body.as_chunks::<8>().0 {
            [keys, segments, ..] => {
                Ok(Loaded { keys: u64::from_le_bytes(*keys), segments: u64::from_le_bytes(*segments) })
            }
            _ => Err(MessageError::Malformed("the reply to a load is cut short".into()).into()),
        })?;
        self.finished = true;
        Ok(loaded)
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let chunk = Chunk { first: self.sent, keys: &self.keys, values: &self.values };
        self.client.request(&Request::LoadChunk(chunk), |_| Ok(()))?;
        self.sent += (self.keys.len() / U64Keys::KEY_BYTES) as u64;
        self.keys.clear();
        self.values.clear();
        Ok(())
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // The memory node drops an unfinished load by itself when the connection ends.
            let _ = self.client.request(&Request::LoadAbort, |_| Ok(()));
        }
    }
}
