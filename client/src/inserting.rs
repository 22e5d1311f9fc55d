//! Loads into tables that have parameters already: batches of inserts.

use std::borrow::Borrow;

use fpcache::key_space::BuildKeys;
use fpcache::layout::TableParameters;
use fpcache::message::{ErrorCode, Refusal, WriteReply, WriteStatus};

use crate::changes::{Changes, outcome};
use crate::client::TableClient;
use crate::core::is_another_table;
use crate::error::ClientError;
use crate::key::KeyRef;

/// Bytes of records that are kept until they are sent; one more record may come on top.
const KEPT_BYTES: usize = 1 << 20;

/// The records still to be sent, and the outcomes of earlier ones.
pub(crate) struct Inserting<K: BuildKeys> {
    changes: Changes<K>,
    /// The key of the last record.
    last: Option<K::Owned>,
    bytes: usize,
    sent: u64,
    replies: Vec<WriteReply>,
}

impl<K: BuildKeys> Inserting<K> {
    /// Begins after the memory node has refused a plain load, because the table has parameters; and
    /// returns the creation number of the table that was found to be as it must be.
    pub(crate) fn begin(
        client: &TableClient<K>,
        asked: &TableParameters,
        refusal: Refusal,
    ) -> Result<(Self, u64), ClientError> {
        let creation = client.creation();
        if client.stats_in(creation)?.keys > 0 {
            return Err(refusal.into());
        }
        let theirs = client.table()?.record.parameters;
        // Theirs have been stored and read again, which rounds them.
        let asked = asked.as_stored();
        if theirs != asked {
            return Err(ClientError::OtherParameters { theirs: theirs.into(), asked: asked.into() });
        }
        // Clients never go back to a former table.
        if client.creation() != creation {
            return Err(is_another_table());
        }
        let new = Self { changes: Changes::default(), last: None, bytes: 0, sent: 0, replies: Vec::new() };
        Ok((new, creation))
    }

    /// Adds a record, whose key must be above the one before.
    pub(crate) fn push(
        &mut self,
        client: &TableClient<K>,
        creation: u64,
        key: &K::Key,
        value: &[u8],
    ) -> Result<(), ClientError> {
        if self.last.as_ref().is_some_and(|last| last.borrow() >= key) {
            let why = format!(
                "key {} is not greater than the one before: load keys in ascending order",
                K::show(key)
            );
            return Err(Refusal::new(ErrorCode::BadData, why).into());
        }
        self.changes.insert(KeyRef::<K>(key), value);
        self.last = Some(key.to_owned());
        self.bytes += K::encoded_len(key) + value.len();
        if self.bytes >= KEPT_BYTES { self.send(client, creation) } else { Ok(()) }
    }

    /// Records that were inserted.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends what is left.
    pub(crate) fn send(&mut self, client: &TableClient<K>, creation: u64) -> Result<(), ClientError> {
        let applied = client.apply_to(creation, &self.changes, &mut self.replies);
        // Some of them may have been made before an error.
        self.sent += self.replies.iter().filter(|reply| reply.status == WriteStatus::Done).count() as u64;
        applied?;
        for (operation, reply) in self.changes.operations().zip(&self.replies) {
            if outcome::<K>(operation.key, *reply)?.status != WriteStatus::Done {
                let why = format!(
                    "key {} exists already: another client writes to the table that is being loaded",
                    K::show(operation.key)
                );
                return Err(Refusal::new(ErrorCode::NotEmpty, why).into());
            }
        }
        self.changes.clear();
        self.bytes = 0;
        Ok(())
    }
}
