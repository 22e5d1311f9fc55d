//! Changes that are awaited.

use std::borrow::Borrow;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::layout::RecordToken;
use fpcache::message::{WriteKind, WriteReply, WriteStatus};
use fpcache_fabric::FabricError;
use tokio::sync::oneshot;

use super::changes::{ChangeReplier, Claim, NodeChanges, REQUEST_BYTES, RequestChanges, divide};
use super::client::AsyncTableClient;
use super::unanswered::{OTHERS, unknown, within};
use crate::changes::{Changes, CompareAndSet, Inserted, no_token, outcome, overtaken};
use crate::error::ClientError;
use crate::key::{AsKey, KeyRef};
use crate::outcomes::{ChangeResult, ChangeResults};

/// Bytes of changes that a call has sent at a time: about half of what a request may have, so that
/// changes of others go with them.
const PIECE_BYTES: usize = REQUEST_BYTES / 2;

impl<K: BuildKeys> AsyncTableClient<K> {
    /// Makes a record, **or writes nothing if there is one already**, which is no error. As
    /// [`TableClient::insert`](crate::TableClient::insert); tasks that change records at the same
    /// time share requests.
    #[doc(alias = "set_nx")]
    #[doc(alias = "put_if_absent")]
    pub async fn insert(&self, key: impl AsKey<K>, value: &[u8]) -> Result<Inserted, ClientError> {
        let changes = Changes::of_one(WriteKind::Insert, key, value);
        Ok(Inserted::of(&self.change(changes).await?))
    }

    /// Makes a record or replaces its value.
    pub async fn put(&self, key: impl AsKey<K>, value: &[u8]) -> Result<(), ClientError> {
        let changes = Changes::of_one(WriteKind::Put, key, value);
        self.change(changes).await.map(drop)
    }

    /// Replaces a record's value; `false` if there is no record.
    pub async fn update(&self, key: impl AsKey<K>, value: &[u8]) -> Result<bool, ClientError> {
        let changes = Changes::of_one(WriteKind::Update, key, value);
        Ok(self.change(changes).await?.status == WriteStatus::Done)
    }

    /// Removes a record; `false` if there is none.
    pub async fn delete(&self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        let changes = Changes::of_one(WriteKind::Delete, key, &[]);
        Ok(self.change(changes).await?.status == WriteStatus::Done)
    }

    /// Replaces a record's value if it is still what it was when it had this token.
    pub async fn compare_and_set(
        &self,
        key: impl AsKey<K>,
        expected: RecordToken,
        value: &[u8],
    ) -> Result<CompareAndSet, ClientError> {
        let mut changes = Changes::default();
        changes.compare_and_set(key, expected, value);
        let reply = self.change(changes).await?;
        CompareAndSet::of(&reply).ok_or_else(no_token)
    }

    /// Replaces a record's value by what `change` makes of it, or makes the record, and returns the
    /// value before. As [`TableClient::fetch_update`](crate::TableClient::fetch_update).
    pub async fn fetch_update(
        &self,
        key: impl AsKey<K>,
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, ClientError> {
        let (key, until) = (KeyRef::<K>(key.as_key()), self.until());
        let left = || self.with_deadline(until.saturating_duration_since(Instant::now()));
        loop {
            let (before, token) = left().get_versioned(key).await?.unzip();
            let Some(value) = change(before.as_deref()) else { return Ok(before) };
            let client = left();
            if client.deadline().is_zero() {
                return Err(overtaken());
            }
            let is_done = match token {
                Some(token) => client.compare_and_set(key, token, &value).await?.is_done(),
                None => client.insert(key, &value).await?.is_new(),
            };
            if is_done {
                return Ok(before);
            }
        }
    }

    /// Sends changes in few requests, some of each memory node's after the others, and writes the
    /// outcome of each to `replies`, whose content is replaced. They are applied in order at each
    /// memory node, each on its own; the deadline applies to each request, which has up to 512 KiB
    /// of them, or one change, and which other calls' changes may share. As
    /// [`TableClient::apply`](crate::TableClient::apply), but if the table is dropped and made anew
    /// meanwhile, later requests are made in the new one.
    ///
    /// If the future is dropped, `replies` holds those that it had seen come. A request under way
    /// may still take effect; no other is sent.
    ///
    /// # Errors
    /// As for [`TableClient::apply`](crate::TableClient::apply). If a change was refused, the list
    /// holds the replies to all of them; after any other error those to the changes before the
    /// first one without, which alone can be tried again where the error is retryable. If some
    /// after that were made, at other memory nodes, it is
    /// [`OutcomeUnknown`](ClientError::OutcomeUnknown), which says how many.
    pub async fn apply(
        &self,
        changes: &Changes<K>,
        replies: &mut Vec<WriteReply>,
    ) -> Result<(), ClientError> {
        replies.clear();
        let outcomes = Mutex::new(ChangeResults::of(vec![None; changes.len()]));
        let has_failed = AtomicBool::new(false);
        let parts = divide(&self.client, changes);
        let is_one_piece =
            matches!(&parts[..], [part] if changes.fitting(&part.places, PIECE_BYTES) == changes.len());
        let whole = (!is_one_piece).then(|| Arc::new(changes.clone()));
        let send = |part: NodeChanges| {
            Box::pin(self.send_part((changes, whole.clone()), part, &has_failed, &outcomes))
        };
        let mut sending: Vec<_> = parts.into_iter().map(send).collect();
        poll_fn(|context| {
            sending.retain_mut(|part| part.as_mut().poll(context).is_pending());
            locked(&outcomes).tell(replies);
            if sending.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(sending);
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner).end()?;
        self.client.none_refused(changes, replies)
    }

    /// Sends the changes of a call that are one memory node's, a piece at a time, until one fails,
    /// of whichever memory node.
    async fn send_part(
        &self,
        (changes, mut whole): (&Changes<K>, Option<Arc<Changes<K>>>),
        NodeChanges { node, places }: NodeChanges,
        has_failed: &AtomicBool,
        outcomes: &Mutex<ChangeResults>,
    ) {
        let mut rest = &places[..];
        while !rest.is_empty() && !has_failed.load(Ordering::Relaxed) {
            let (own, after) = rest.split_at(changes.fitting(rest, PIECE_BYTES));
            let piece = RequestChanges { changes: changes.only(own), whole: whole.take() };
            let ended = self.send(node.clone(), piece).await;
            if ended.iter().any(Result::is_err) {
                has_failed.store(true, Ordering::Relaxed);
            }
            locked(outcomes).put(own, ended);
            rest = after;
        }
    }

    /// Has changes sent to a memory node, and waits for how each ended.
    async fn send(&self, node: String, piece: RequestChanges<K>) -> Vec<ChangeResult> {
        let (until, count) = (self.until(), piece.changes.len());
        let claim = Arc::new(Claim::default());
        let answered = {
            let call = pin!(async {
                let (to, answer) = oneshot::channel();
                let to = ChangeReplier { answer: to, claim: Arc::clone(&claim) };
                self.shared.changes.push(&self.client, (node, piece), until, to).await?;
                answer.await.map_err(|_| unknown("the thread that sends changes has ended"))
            });
            within(until, call).await
        };
        let error = match answered {
            Ok(Ok(ended)) => {
                return ended
                    .into_iter()
                    .map(|ended| ended.map_err(|error| self.or_deadline_passed(error)))
                    .collect();
            }
            Ok(Err(error)) => error,
            // It is not sent any more.
            Err(_) if claim.take() => {
                self.or_deadline_passed(FabricError::DeadlinePassed { waiting_for: OTHERS }.into())
            }
            Err(_) => unknown("no reply has come within the deadline"),
        };
        vec![Err(error); count]
    }

    async fn change(&self, changes: Changes<K>) -> Result<WriteReply, ClientError> {
        let key = changes.first_key().map(ToOwned::to_owned).unwrap_or_default();
        let node = self.client.node_of(key.borrow());
        let ended = self.send(node, RequestChanges { changes, whole: None }).await.pop();
        let reply = ended.unwrap_or_else(|| Err(unknown("no reply to a change")))?;
        outcome::<K>(key.borrow(), reply).map_err(|error| self.client.naming_node(key.borrow(), error))
    }
}

fn locked(outcomes: &Mutex<ChangeResults>) -> MutexGuard<'_, ChangeResults> {
    // Nothing panics while it is held.
    outcomes.lock().unwrap_or_else(PoisonError::into_inner)
}
