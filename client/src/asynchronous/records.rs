//! Records of a range of keys as a stream, from either end.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::RangeBounds;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fpcache::key_space::{BuildKeys, ByteKeys, U64Keys};
use futures_core::Stream;
use tokio::task::yield_now;

use super::client::{AsyncByteClient, AsyncTableClient};
use crate::client::Record;
use crate::core::{Section, SectionRead};
use crate::error::ClientError;
use crate::key::AsKey;
use crate::records::PARTS;
use crate::span::Span;

/// The records of a range in key order, from either end, fetched by parts of 64 to 1,024 as they
/// are taken. From [`AsyncTableClient::range`], [`AsyncTableClient::iter`] and
/// [`AsyncByteClient::prefix`].
///
/// Each record was there at one instant of the iteration. After an error there are no more.
#[must_use = "nothing is fetched before records are taken"]
pub struct RecordStream<K: BuildKeys = U64Keys> {
    client: AsyncTableClient<K>,
    /// Whether the stream is of descending keys.
    is_down: bool,
    /// The keys that are still to be fetched; `None` if there are none, or some are coming.
    rest: Option<Span<K>>,
    coming: Option<PendingPart<K>>,
    /// What was fetched from the start on, in order.
    front: VecDeque<Record<K>>,
    /// What was fetched from the end on, in descending order.
    back: VecDeque<Record<K>>,
    /// Records of the next part.
    part: usize,
}

/// A part that is being fetched.
struct PendingPart<K: BuildKeys> {
    is_down: bool,
    part: Pin<Box<dyn Future<Output = Result<SectionRead<K>, ClientError>> + Send>>,
}

impl<K: BuildKeys> AsyncTableClient<K> {
    /// The records whose keys lie in `keys`, in key order, or from the end with
    /// [`rev`](RecordStream::rev). As [`TableClient::range`](crate::TableClient::range): nothing is
    /// fetched before records are taken; then each part costs as much as a scan, and has the
    /// deadline for itself.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fpcache_client::ClientError> {
    /// # use fpcache_client::{AsyncClient, Client};
    /// # let client = AsyncClient::of(Client::embedded(16 << 20)?);
    /// for key in [10u64, 20, 30] {
    ///     client.put(key, &key.to_le_bytes()).await?;
    /// }
    /// let mut records = client.range(15u64..);
    /// while let Some(record) = records.next().await {
    ///     let (key, value) = record?;
    ///     println!("{key}: {value:?}");
    /// }
    /// let last = client.range(..=25u64).next_back().await.transpose()?;
    /// assert_eq!(last.map(|(key, _)| key), Some(20));
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))]
    /// # fn main() {}
    /// ```
    pub fn range<Q: AsKey<K>>(&self, keys: impl RangeBounds<Q>) -> RecordStream<K> {
        RecordStream::new(self, Span::of(&keys), false)
    }

    /// All records in key order. As [`range`](Self::range).
    pub fn iter(&self) -> RecordStream<K> {
        RecordStream::new(self, Some(Span::all()), false)
    }
}

impl AsyncByteClient {
    /// The records whose keys begin with `prefix`, in key order. As [`range`](Self::range).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> RecordStream<ByteKeys> {
        RecordStream::new(self, Some(Span::of_prefix(prefix.as_ref())), false)
    }
}

impl<K: BuildKeys> RecordStream<K> {
    pub(super) fn new(client: &AsyncTableClient<K>, rest: Option<Span<K>>, is_down: bool) -> Self {
        let (front, back) = (VecDeque::new(), VecDeque::new());
        Self { client: client.clone(), is_down, rest, coming: None, front, back, part: PARTS.0 }
    }

    /// The same records in the opposite order.
    pub fn rev(self) -> Self {
        Self { is_down: !self.is_down, ..self }
    }

    /// The next record; `None` after the last one. The future may be dropped at any time: nothing
    /// is lost.
    #[allow(clippy::should_implement_trait, reason = "it is awaited")]
    pub async fn next(&mut self) -> Option<Result<Record<K>, ClientError>> {
        poll_fn(|context| self.poll_end(context, self.is_down, usize::MAX)).await
    }

    /// The next record from the opposite end; `None` once the two ends have met. As
    /// [`next`](Self::next).
    pub async fn next_back(&mut self) -> Option<Result<Record<K>, ClientError>> {
        poll_fn(|context| self.poll_end(context, !self.is_down, usize::MAX)).await
    }

    /// The next record from one end, of a part that has no more than `most`.
    pub(super) fn poll_end(
        &mut self,
        context: &mut Context<'_>,
        is_down: bool,
        most: usize,
    ) -> Poll<Option<Result<Record<K>, ClientError>>> {
        loop {
            let own = if is_down { &mut self.back } else { &mut self.front };
            if let Some(record) = own.pop_front() {
                return Poll::Ready(Some(Ok(record)));
            }
            if self.coming.is_none() {
                self.coming = self.rest.take().map(|rest| self.fetch(rest, is_down, most));
            }
            let Some(PendingPart { is_down: comes_down, part }) = &mut self.coming else {
                // The ends have met.
                let opposite = if is_down { &mut self.front } else { &mut self.back };
                return Poll::Ready(opposite.pop_back().map(Ok));
            };
            // It may have been asked for from the other end, by a call that was dropped.
            let (part, comes_down) = (ready!(part.as_mut().poll(context)), *comes_down);
            self.coming = None;
            match part {
                Ok(SectionRead { records, rest }) => {
                    self.rest = rest;
                    if comes_down { &mut self.back } else { &mut self.front }.extend(records);
                }
                Err(error) => {
                    self.front.clear();
                    self.back.clear();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn fetch(&mut self, span: Span<K>, is_down: bool, most: usize) -> PendingPart<K> {
        let section = Section { span, limit: self.part.min(most), is_down };
        let is_first = self.part == PARTS.0;
        self.part = (self.part * 2).min(PARTS.1);
        let client = self.client.clone();
        let part = async move {
            // What is mapped is read at once: between parts others have their turns.
            if !is_first {
                yield_now().await;
            }
            client.scan_part(section).await
        };
        PendingPart { is_down, part: Box::pin(part) }
    }
}

impl<K: BuildKeys> Unpin for RecordStream<K> {}

impl<K: BuildKeys> Stream for RecordStream<K> {
    type Item = Result<Record<K>, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let is_down = self.is_down;
        self.poll_end(context, is_down, usize::MAX)
    }
}

impl<K: BuildKeys> fmt::Debug for RecordStream<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordStream").field("client", &self.client).finish_non_exhaustive()
    }
}
