//! Scans as streams.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use fpcache::key_space::BuildKeys;
use futures_core::Stream;

use super::client::AsyncTableClient;
use super::group::Part;
use crate::client::Record;
use crate::error::ClientError;

/// Records of the first part, and of the longest: whoever wants few does not wait for many.
const PARTS: (usize, usize) = (64, 1024);

type Coming<K> = Pin<Box<dyn Future<Output = Result<Part<K>, ClientError>> + Send>>;

/// Records in key order, fetched by parts as they are taken. Each record was there at one instant of the scan; after an error
/// there are no more. From [`AsyncTableClient::scan`].
pub struct ScanStream<K: BuildKeys> {
    client: AsyncTableClient<K>,
    /// Where the next part begins; `None` if there is none.
    from: Option<K::Owned>,
    end: Option<K::Owned>,
    /// Records that are still wanted.
    limit: usize,
    part: usize,
    coming: Option<Coming<K>>,
    records: VecDeque<Record<K>>,
}

impl<K: BuildKeys> ScanStream<K> {
    pub(super) fn new(
        client: &AsyncTableClient<K>,
        from: K::Owned,
        end: Option<K::Owned>,
        limit: usize,
    ) -> Self {
        let (client, from, records) = (client.clone(), Some(from), VecDeque::new());
        Self { client, from, end, limit, part: PARTS.0, coming: None, records }
    }

    /// The next record; `None` after the last one. May be dropped at any time: nothing is lost.
    #[allow(clippy::should_implement_trait, reason = "it is awaited")]
    pub async fn next(&mut self) -> Option<Result<Record<K>, ClientError>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Asks for the next part, if one is wanted.
    fn ask(&mut self) -> Option<Coming<K>> {
        let wanted = self.limit.min(self.part);
        let from = self.from.take().filter(|_| wanted > 0)?;
        self.part = (self.part * 2).min(PARTS.1);
        let (client, end) = (self.client.clone(), self.end.clone());
        Some(Box::pin(async move { client.scan_part((from, end), wanted).await }))
    }
}

impl<K: BuildKeys> Unpin for ScanStream<K> {}

impl<K: BuildKeys> Stream for ScanStream<K> {
    type Item = Result<Record<K>, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Poll::Ready(Some(Ok(record)));
            }
            if self.coming.is_none() {
                self.coming = self.ask();
            }
            let Some(coming) = &mut self.coming else { return Poll::Ready(None) };
            let part = std::task::ready!(coming.as_mut().poll(context));
            self.coming = None;
            match part {
                Ok(Part { records, next }) => {
                    self.limit -= records.len().min(self.limit);
                    (self.from, self.records) = (next, records.into());
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

impl<K: BuildKeys> fmt::Debug for ScanStream<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanStream")
            .field("client", &self.client)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
