//! Scans as streams.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fpcache::key_space::{BuildKeys, ByteKeys};
use futures_core::Stream;

use super::client::{AsyncByteClient, AsyncTableClient};
use super::records::RecordStream;
use crate::client::Record;
use crate::error::ClientError;
use crate::key::AsKey;
use crate::span::Span;

/// A limited number of records in key order, or in descending order, fetched by parts as they are
/// taken. Each record was there at one instant of the scan; after an error there are no more. From
/// [`AsyncTableClient::scan`] and [`AsyncTableClient::scan_back`].
#[must_use = "nothing is fetched before records are taken"]
pub struct ScanStream<K: BuildKeys> {
    records: RecordStream<K>,
    is_down: bool,
    /// Records that are still wanted.
    limit: usize,
}

impl<K: BuildKeys> AsyncTableClient<K> {
    /// Up to `limit` records in key order, from the least key not below `start`, some hundreds at a
    /// time as they are taken. Ends with the first error. The deadline is of each part. As
    /// [`TableClient::scan`](crate::TableClient::scan).
    pub fn scan(&self, start: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        self.scan_up(Span { start: start.as_key().to_owned(), end: None }, limit)
    }

    /// As [`scan`](Self::scan), of keys below `end`.
    pub fn scan_range(&self, start: impl AsKey<K>, end: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        let (start, end) = (start.as_key().to_owned(), end.as_key().to_owned());
        self.scan_up(Span { start, end: Some(end) }, limit)
    }

    /// Up to `limit` records in descending key order, from the greatest key not above `start`;
    /// otherwise as [`scan`](Self::scan). As
    /// [`TableClient::scan_back`](crate::TableClient::scan_back).
    pub fn scan_back(&self, start: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        self.scan_down(Span { start: K::lowest().to_owned(), end: K::successor(start.as_key()) }, limit)
    }

    /// As [`scan_range`](Self::scan_range), in descending key order.
    pub fn scan_range_back(&self, start: impl AsKey<K>, end: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        let (start, end) = (start.as_key().to_owned(), end.as_key().to_owned());
        self.scan_down(Span { start, end: Some(end) }, limit)
    }

    /// Up to `limit` records with keys not below `start`, in descending key order, from the
    /// greatest of the table on.
    pub fn scan_back_to(&self, start: impl AsKey<K>, limit: usize) -> ScanStream<K> {
        self.scan_down(Span { start: start.as_key().to_owned(), end: None }, limit)
    }

    fn scan_up(&self, span: Span<K>, limit: usize) -> ScanStream<K> {
        ScanStream { records: RecordStream::new(self, Some(span), false), is_down: false, limit }
    }

    fn scan_down(&self, span: Span<K>, limit: usize) -> ScanStream<K> {
        ScanStream { records: RecordStream::new(self, Some(span), true), is_down: true, limit }
    }
}

impl AsyncByteClient {
    /// Up to `limit` records whose keys begin with `prefix`, as [`scan`](AsyncTableClient::scan).
    pub fn scan_prefix(&self, prefix: impl AsRef<[u8]>, limit: usize) -> ScanStream<ByteKeys> {
        self.scan_up(Span::of_prefix(prefix.as_ref()), limit)
    }

    /// Up to `limit` records whose keys begin with `prefix`, in descending key order, as
    /// [`scan_back`](AsyncTableClient::scan_back).
    pub fn scan_prefix_back(&self, prefix: impl AsRef<[u8]>, limit: usize) -> ScanStream<ByteKeys> {
        self.scan_down(Span::of_prefix(prefix.as_ref()), limit)
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
        let Self { records, is_down, limit } = &mut *self;
        if *limit == 0 {
            return Poll::Ready(None);
        }
        let record = ready!(records.poll_end(context, *is_down, *limit));
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
