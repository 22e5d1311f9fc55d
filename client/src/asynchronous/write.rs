//! Changes that are awaited.

use std::borrow::Borrow;
use std::pin::pin;

use fpcache::key_space::BuildKeys;
use fpcache::layout::RecordToken;
use fpcache::message::{MessageError, WriteKind, WriteReply, WriteStatus};
use fpcache_fabric::FabricError;
use tokio::sync::oneshot::{self, Receiver};

use super::changes::{divide, in_part, what_to_tell};
use super::client::AsyncTableClient;
use super::unanswered::{OTHERS, unknown, within};
use crate::changes::{Changes, CompareAndSet, outcome};
use crate::error::ClientError;
use crate::key::AsKey;

impl<K: BuildKeys> AsyncTableClient<K> {
    /// Makes a record; `false` if there is one already. As [`TableClient::insert`](crate::TableClient::insert); tasks that change records at the same time share
    /// requests.
    ///
    /// # Errors
    /// As for [`TableClient::insert`](crate::TableClient::insert).
    pub async fn insert(&self, key: impl AsKey<K>, value: &[u8]) -> Result<bool, ClientError> {
        let changes = Changes::of_one(WriteKind::Insert, key, value);
        Ok(self.change(changes).await?.status == WriteStatus::Done)
    }

    /// Makes a record or replaces its value.
    ///
    /// # Errors
    /// As for [`TableClient::insert`](crate::TableClient::insert).
    pub async fn put(&self, key: impl AsKey<K>, value: &[u8]) -> Result<(), ClientError> {
        let changes = Changes::of_one(WriteKind::Put, key, value);
        self.change(changes).await.map(drop)
    }

    /// Replaces a record's value; `false` if there is no record.
    ///
    /// # Errors
    /// As for [`TableClient::insert`](crate::TableClient::insert).
    pub async fn update(&self, key: impl AsKey<K>, value: &[u8]) -> Result<bool, ClientError> {
        let changes = Changes::of_one(WriteKind::Update, key, value);
        Ok(self.change(changes).await?.status == WriteStatus::Done)
    }

    /// Removes a record; `false` if there is none.
    ///
    /// # Errors
    /// As for [`TableClient::insert`](crate::TableClient::insert).
    pub async fn delete(&self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        let changes = Changes::of_one(WriteKind::Delete, key, &[]);
        Ok(self.change(changes).await?.status == WriteStatus::Done)
    }

    /// Replaces a record's value if it is still what it was when it had this token.
    ///
    /// # Errors
    /// As for [`TableClient::insert`](crate::TableClient::insert).
    pub async fn compare_and_set(
        &self,
        key: impl AsKey<K>,
        expected: RecordToken,
        value: &[u8],
    ) -> Result<CompareAndSet, ClientError> {
        let mut changes = Changes::default();
        changes.compare_and_set(key, expected, value);
        let reply = self.change(changes).await?;
        let nonsense = || MessageError::Malformed("a reply to compare-and-set without a token".into()).into();
        CompareAndSet::of(&reply).ok_or_else(nonsense)
    }

    /// Makes changes, in order, each by itself, and says how each ended. Unlike
    /// [`TableClient::apply`](crate::TableClient::apply) it has one deadline for all of them, however many requests they take.
    ///
    /// # Errors
    /// As for [`TableClient::apply`](crate::TableClient::apply), but without the replies that came before: where some changes
    /// were made and others could not be, or the deadline has passed, that is
    /// [`OutcomeUnknown`](ClientError::OutcomeUnknown). It says how many were made if all requests were answered.
    pub async fn apply(&self, changes: Changes<K>) -> Result<Vec<WriteReply>, ClientError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let (until, count) = (self.until(), changes.len());
        let mut is_queued = false;
        let answered = {
            let call = pin!(async {
                let mut answers = Vec::new();
                for mut part in divide(&self.client, changes) {
                    let (to, answer) = oneshot::channel();
                    let places = std::mem::take(&mut part.places);
                    match self.shared.changes.push(&self.client, part, until, to).await {
                        // Those of other memory nodes may be made.
                        Err(error) if is_queued => return Err(unknown(&error.to_string())),
                        queued => queued?,
                    }
                    is_queued = true;
                    answers.push((places, answer));
                }
                in_order(count, answers).await
            });
            within(until, call).await
        };
        match answered {
            Ok(answered) => answered,
            Err(_) if is_queued => Err(unknown("no reply has come within the deadline")),
            Err(_) => Err(FabricError::DeadlinePassed { waiting_for: OTHERS }.into()),
        }
    }

    async fn change(&self, changes: Changes<K>) -> Result<WriteReply, ClientError> {
        let key = changes.first_key().map(ToOwned::to_owned).unwrap_or_default();
        let reply = self.apply(changes).await?.pop();
        let reply = reply.ok_or_else(|| MessageError::Malformed("no reply to a change".into()))?;
        outcome::<K>(key.borrow(), reply)
    }
}

/// What a memory node's replies come by.
type Replies = Receiver<Result<Vec<WriteReply>, ClientError>>;

/// The replies to a call's changes in the order of these, from those of each memory node with the places of its changes.
async fn in_order(count: usize, answers: Vec<(Vec<usize>, Replies)>) -> Result<Vec<WriteReply>, ClientError> {
    let (mut all, mut made, mut error) = (vec![None; count], 0, None);
    for (places, answer) in answers {
        let ended = || Err(unknown("the thread that sends changes has ended"));
        match answer.await.unwrap_or_else(|_| ended()) {
            Ok(replies) => {
                made += replies.len();
                places.into_iter().zip(replies).for_each(|(at, reply)| all[at] = Some(reply));
            }
            Err(other) => error = Some(what_to_tell(error, other)),
        }
    }
    match error {
        None => all
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| unknown("the memory node has sent too few replies")),
        Some(error @ ClientError::OutcomeUnknown { .. }) => Err(error),
        Some(error) if made > 0 => Err(in_part(made, count, &error)),
        Some(error) => Err(error),
    }
}
