//! Records as an iterator.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::RangeBounds;

use fpcache::key_space::{BuildKeys, ByteKeys, U64Keys};
use fpcache::read::Wanted;

use crate::client::{ByteClient, Record, TableClient};
use crate::error::ClientError;
use crate::key::AsKey;
use crate::span::Span;

/// Records of the first part that is fetched, and of the longest: a caller who wants few does not
/// wait for many.
pub(crate) const PARTS: (usize, usize) = (64, 1024);

/// The records of a range in key order, from either end, fetched by parts of 64 to 1,024 as they
/// are taken. From [`TableClient::range`], [`TableClient::iter`] and [`ByteClient::prefix`].
///
/// Each record was there at one instant of the iteration. After an error there are no more.
#[must_use = "nothing is fetched before records are taken"]
pub struct Records<'c, K: BuildKeys = U64Keys> {
    client: &'c TableClient<K>,
    /// The keys that are still to be fetched; `None` if there are none.
    rest: Option<Span<K>>,
    /// What was fetched from the start on, in order.
    front: VecDeque<Record<K>>,
    /// What was fetched from the end on, in descending order.
    back: VecDeque<Record<K>>,
    /// Records of the next part.
    part: usize,
}

impl<K: BuildKeys> TableClient<K> {
    /// The records whose keys lie in `keys`, in key order, or from the end with
    /// [`rev`](Iterator::rev). Nothing is fetched before records are taken; then each part costs as
    /// much as a [`scan`](Self::scan).
    ///
    /// All records are those of [`iter`](Self::iter): a range without ends does not tell the
    /// compiler the type of the keys, which then has to be written, as in
    /// `client.range::<u64>(..)`.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # fn main() -> Result<(), fpcache_client::ClientError> {
    /// # let client = fpcache_client::Client::embedded(16 << 20)?;
    /// for key in [10u64, 20, 30] {
    ///     client.put(key, &key.to_le_bytes())?;
    /// }
    /// for record in client.range(15u64..) {
    ///     let (key, value) = record?;
    ///     println!("{key}: {value:?}");
    /// }
    /// let last = client.range(..=25u64).next_back().transpose()?;
    /// assert_eq!(last.map(|(key, _)| key), Some(20));
    /// assert_eq!(client.range::<u64>(..).count(), 3);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "embedded"))]
    /// # fn main() {}
    /// ```
    pub fn range<Q: AsKey<K>>(&self, keys: impl RangeBounds<Q>) -> Records<'_, K> {
        Records::new(self, Span::of(&keys))
    }

    /// All records in key order. As [`range`](Self::range).
    pub fn iter(&self) -> Records<'_, K> {
        Records::new(self, Some(Span::all()))
    }
}

impl ByteClient {
    /// The records whose keys begin with `prefix`, in key order. As [`range`](Self::range).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Records<'_, ByteKeys> {
        Records::new(self, Some(Span::of_prefix(prefix.as_ref())))
    }
}

impl<'c, K: BuildKeys> IntoIterator for &'c TableClient<K> {
    type Item = Result<Record<K>, ClientError>;
    type IntoIter = Records<'c, K>;

    fn into_iter(self) -> Records<'c, K> {
        self.iter()
    }
}

impl<'c, K: BuildKeys> Records<'c, K> {
    fn new(client: &'c TableClient<K>, rest: Option<Span<K>>) -> Self {
        Self { client, rest, front: VecDeque::new(), back: VecDeque::new(), part: PARTS.0 }
    }

    /// Fetches the next part from the start or from the end on.
    fn fetch(&mut self, from_end: bool) -> Result<(), ClientError> {
        let Some(rest) = self.rest.take() else { return Ok(()) };
        // After an error nothing is left.
        let (front, back) = (std::mem::take(&mut self.front), std::mem::take(&mut self.back));
        let wanted = self.part;
        self.part = (self.part * 2).min(PARTS.1);
        let mut fetched: VecDeque<Record<K>> = VecDeque::with_capacity(wanted);
        let take =
            |key: K::View<'_>, value: &[u8]| fetched.push_back((key.borrow().to_owned(), value.to_vec()));
        let start = rest.start.borrow();
        self.client.here(|mut reader| match from_end {
            false => {
                reader.scan_up((start, rest.end.as_ref().map(Borrow::borrow), Wanted::Value), wanted, take)
            }
            true => reader.scan_down((start, rest.upper()), wanted, take),
        })?;
        if fetched.len() == wanted {
            let last = fetched.back().map(|(key, _)| key);
            self.rest = match from_end {
                true => last.map(|last| Span { end: Some(last.clone()), ..rest }),
                false => last.and_then(|last| rest.above(last.borrow())),
            };
        }
        (self.front, self.back) = if from_end { (front, fetched) } else { (fetched, back) };
        Ok(())
    }
}

impl<K: BuildKeys> Iterator for Records<'_, K> {
    type Item = Result<Record<K>, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.front.is_empty()
            && let Err(error) = self.fetch(false)
        {
            return Some(Err(error));
        }
        self.front.pop_front().or_else(|| self.back.pop_back()).map(Ok)
    }
}

impl<K: BuildKeys> DoubleEndedIterator for Records<'_, K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.back.is_empty()
            && let Err(error) = self.fetch(true)
        {
            return Some(Err(error));
        }
        self.back.pop_front().or_else(|| self.front.pop_back()).map(Ok)
    }
}

impl<K: BuildKeys> FusedIterator for Records<'_, K> {}

impl<K: BuildKeys> fmt::Debug for Records<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("client", &self.client).finish_non_exhaustive()
    }
}
