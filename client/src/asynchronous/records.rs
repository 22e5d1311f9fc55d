//! Records of ranges of keys as streams.

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
/// Each record was there at one instant of the iteration. What a part has found within its deadline
/// is handed over, and the next part goes on from there; one that does not get on ends the stream
/// with its error.
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

/// A limited number of records in key order, or in descending order, fetched by parts as they are
/// taken. Each record was there at one instant of the scan; errors are as for [`RecordStream`]. From
/// [`AsyncTableClient::scan`] and [`AsyncTableClient::scan_back`].
#[must_use = "nothing is fetched before records are taken"]
pub struct ScanStream<K: BuildKeys> {
    records: RecordStream<K>,
    /// Records that are still wanted.
    limit: usize,
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

    /// Up to `limit` records in key order, from the least key not below `start`, some hundreds at a
    /// time as they are taken. Ends with the first error. The deadline is of each part. As
    /// [`TableClient::scan`](crate::TableClient::scan).
    pub fn scan(&self, start: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        self.scan_section(Section::up(Span::not_below(start), limit))
    }

    /// As [`scan`](Self::scan), of keys below `end`.
    pub fn scan_range(&self, start: impl AsKey<K>, end: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        self.scan_section(Section::up(Span::between(start, end), limit))
    }

    /// Up to `limit` records in descending key order, from the greatest key not above `start`;
    /// otherwise as [`scan`](Self::scan). As
    /// [`TableClient::scan_back`](crate::TableClient::scan_back).
    pub fn scan_back(&self, start: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        self.scan_section(Section::down(Span::not_above(start), limit))
    }

    /// As [`scan_range`](Self::scan_range), in descending key order.
    pub fn scan_range_back(&self, start: impl AsKey<K>, end: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        self.scan_section(Section::down(Span::between(start, end), limit))
    }

    /// Up to `limit` records with keys not below `start`, in descending key order, from the
    /// greatest of the table on.
    pub fn scan_back_to(&self, start: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        self.scan_section(Section::down(Span::not_below(start), limit))
    }

    fn scan_section(&self, Section { span, limit, is_down }: Section<K>) -> ScanStream<K> {
        ScanStream { records: RecordStream::new(self, Some(span), is_down), limit }
    }
}

impl AsyncByteClient {
    /// The records whose keys begin with `prefix`, in key order. As [`range`](Self::range).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> RecordStream<ByteKeys> {
        RecordStream::new(self, Some(Span::of_prefix(prefix.as_ref())), false)
    }

    /// Up to `limit` records whose keys begin with `prefix`, as [`scan`](AsyncTableClient::scan).
    pub fn scan_prefix(&self, prefix: impl AsRef<[u8]>, limit: usize) -> ScanStream<ByteKeys> {
        self.scan_section(Section::up(Span::of_prefix(prefix.as_ref()), limit))
    }

    /// Up to `limit` records whose keys begin with `prefix`, in descending key order, as
    /// [`scan_back`](AsyncTableClient::scan_back).
    pub fn scan_prefix_back(&self, prefix: impl AsRef<[u8]>, limit: usize) -> ScanStream<ByteKeys> {
        self.scan_section(Section::down(Span::of_prefix(prefix.as_ref()), limit))
    }
}

impl<K: BuildKeys> RecordStream<K> {
    fn new(client: &AsyncTableClient<K>, rest: Option<Span<K>>, is_down: bool) -> Self {
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
    fn poll_end(
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

impl<K: BuildKeys> ScanStream<K> {
    /// The next record; `None` after the last one. The future may be dropped at any time: nothing
    /// is lost.
    #[allow(clippy::should_implement_trait, reason = "it is awaited")]
    pub async fn next(&mut self) -> Option<Result<Record<K>, ClientError>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<K: BuildKeys> Unpin for ScanStream<K> {}

impl<K: BuildKeys> Stream for ScanStream<K> {
    type Item = Result<Record<K>, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { records, limit } = &mut *self;
        if *limit == 0 {
            return Poll::Ready(None);
        }
        let record = ready!(records.poll_end(context, records.is_down, *limit));
        *limit -= usize::from(record.as_ref().is_some_and(Result::is_ok));
        Poll::Ready(record)
    }
}

impl<K: BuildKeys> fmt::Debug for ScanStream<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanStream")
            .field("client", &self.records)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
