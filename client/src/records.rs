//! Records as an iterator.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::{ControlFlow, RangeBounds};

use fpcache::key_space::{BuildKeys, ByteKeys, U64Keys};
use fpcache::read::Wanted;

use crate::client::{ByteClient, Record, TableClient};
use crate::core::Section;
use crate::error::ClientError;
use crate::key::AsKey;
use crate::span::Span;

/// Records of the first part that is fetched, and of the longest: a caller who wants few does not
/// wait for many.
pub(crate) const PARTS: (usize, usize) = (64, 1024);

/// Bytes of values after which a part ends sooner: as many as a scan finds before it has them
/// taken.
const PART_BYTES: usize = 16 << 20;

/// The records of a range in key order, from either end, fetched by parts of 64 to 1,024 as they
/// are taken, or of 16 MiB and one value where these are less: no more is kept for either end. From
/// [`TableClient::range`], [`TableClient::iter`] and [`ByteClient::prefix`].
///
/// Each record was there at one instant of the iteration. What a part has found before something
/// went wrong is handed over, and the next part goes on from there; one that finds nothing ends the
/// iteration with its error.
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
        let mut bytes = 0;
        let take = |key: K::View<'_>, value: &[u8]| {
            fetched.push_back((key.borrow().to_owned(), value.to_vec()));
            bytes += value.len();
            if bytes < PART_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let section = Section { span: rest.clone(), limit: wanted, is_down: from_end };
        let scanned = self.client.here(|mut reader| reader.scan_section(section, Wanted::Value, take));
        let has_failed = scanned.is_err();
        if fetched.is_empty() {
            scanned?;
        }
        // What was found before an error comes first: the next part meets that again.
        if has_failed || fetched.len() == wanted || bytes >= PART_BYTES {
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

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use fpcache::layout::{RecordShape, TableParameters};

    use super::*;
    use crate::client::Client;

    /// A part was of 64 to 1,024 values, however long: of 1 to 16 GiB, where they have 16 MiB.
    #[test]
    fn records_that_are_fetched_ahead_are_no_more_than_16_mib_at_either_end() {
        const VALUES: u64 = 200;
        let client = Client::embedded(256 << 20).unwrap();
        let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 24 };
        client.create(TableParameters { shape, ..TableParameters::default() }).unwrap();
        let mut value = vec![7; 1 << 20];
        for key in 0..VALUES {
            value[0] = key as u8;
            client.put(key, &value).unwrap();
        }
        let held =
            |records: &VecDeque<Record<U64Keys>>| records.iter().map(|(_, value)| value.len()).sum::<usize>();
        let (mut records, mut taken) = (client.iter(), Vec::new());
        for turn in 0..VALUES {
            let record = if turn % 3 == 0 { records.next_back() } else { records.next() };
            let (key, value) = record.unwrap().unwrap();
            assert_eq!((value.len(), value[0]), (1 << 20, key as u8));
            taken.push(key);
            let most = held(&records.front).max(held(&records.back));
            assert!(most < 17 << 20, "{most} bytes are held after {turn}");
        }
        assert!(records.next().is_none() && records.next_back().is_none());
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..VALUES));
    }
}
