//! Readers, for one thread each.

use std::borrow::Borrow;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use fpcache::key_space::{BuildKeys, ByteKeys, U64Keys};
use fpcache::read::{Cost, Outcome, Wanted};

use crate::answers::{Answers, Found, into_buffer};
use crate::client::{Record, TableClient, Transport, with_core};
use crate::core::Rest;
use crate::direct::{Own, Place};
use crate::error::ClientError;
use crate::key::AsKey;
use crate::pool::PoolHeld;
use crate::span::end_of_prefix;

/// Reads a table from one thread at a time, with its own endpoint, buffers and view of the table,
/// so that a call takes no lock, does not look up thread-local state, and allocates only what it
/// returns. From [`Client::reader`](crate::Client::reader).
///
/// It follows its client to a newer directory, a restarted memory node, or a forked child; each
/// call checks for that with one load. An idle reader keeps its view of the table alive until its
/// next call or its end, and an embedded memory node as its client does.
///
/// It is `Send` but not `Sync`.
///
/// ```
/// # use fpcache_client::{Client, TableParameters};
/// # fn main() -> Result<(), fpcache_client::ClientError> {
/// # #[cfg(feature = "embedded")] {
/// # let client = Client::embedded(16 << 20)?;
/// # let mut load = client.load(TableParameters::default(), 3)?;
/// # for key in [10u64, 20, 30] {
/// #     load.push(key, &(key * key).to_le_bytes())?;
/// # }
/// # load.finish()?;
/// let mut reader = client.reader();
/// assert_eq!(reader.get_with(20, |value| value.len())?, Some(8));
///
/// let keys = [10, 15, 20];
/// let (mut values, mut found) = ([0; 3], [false; 3]);
/// assert_eq!(reader.multi_get_u64(&keys, &mut values, &mut found)?, 2);
/// assert_eq!((values, found), ([100, 0, 400], [true, false, true]));
/// # }
/// # Ok(())
/// # }
/// ```
pub struct Reader<K: BuildKeys = U64Keys> {
    pub(crate) places: Transport<K, Own>,
    deadline: Duration,
    /// Makes the reader `!Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

/// A reader of a table whose keys are byte strings.
pub type ByteReader = Reader<ByteKeys>;

impl<K: BuildKeys> TableClient<K> {
    /// A reader for one thread: the same lookups and scans without the cost of finding the thread's
    /// buffers, and some more. Cheap: its resources are created by its first call.
    pub fn reader(&self) -> Reader<K> {
        let places = match &self.transport {
            Transport::One(direct) => Transport::One(direct.place()),
            Transport::Pool(pool) => Transport::Pool((Arc::clone(pool), PoolHeld::default())),
        };
        Reader { places, deadline: self.deadline, _one_thread: PhantomData }
    }
}

impl<K: BuildKeys> Reader<K> {
    /// Sets the deadline of calls, which is the client's by default.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The value of `key`, or `None` if it is absent; at the cost of
    /// [`Client::get`](crate::Client::get).
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    pub fn get(&mut self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, ClientError> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// Reads the value of `key` into `value`, whose content is replaced, and returns version, plan
    /// and cost. An absent key leaves `value` empty.
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    #[inline]
    pub fn get_into(&mut self, key: impl AsKey<K>, value: &mut Vec<u8>) -> Result<Found, ClientError> {
        let take = into_buffer(value);
        with_core!(&mut self.places, (core, held) => core.look_up(held, key.as_key(), self.deadline, take))
    }

    /// Passes the value of `key` to `take` without another copy, and returns its result; `None`,
    /// without a call of `take`, if the key is absent.
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    #[inline]
    pub fn get_with<R>(
        &mut self,
        key: impl AsKey<K>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, ClientError> {
        if let Transport::One(Place::Mapped((core, held))) = &mut self.places
            && let Some((answer, shape)) = core.look_up_word(held, key.as_key())
        {
            return Ok(answer.value_in(shape, |value| value.map(take)));
        }
        // An answer is handed over once, whatever was tried before.
        let mut take = Some(take);
        let hand_over = |_: &Outcome, value: Option<&[u8]>| value.and_then(|value| Some(take.take()?(value)));
        with_core!(&mut self.places, (core, held) => core.look_up(held, key.as_key(), self.deadline, hand_over))
    }

    /// Whether `key` exists. An external value is not read.
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    #[inline]
    pub fn contains(&mut self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        with_core!(&mut self.places, (core, held) => core.contains(held, key.as_key(), self.deadline))
    }

    /// The values of `keys`, in the same order; see
    /// [`Client::multi_get`](crate::Client::multi_get).
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get); the group fails as a whole.
    pub fn multi_get(&mut self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let mut answers = Answers::new();
        self.multi_get_into(keys, &mut answers)?;
        Ok(answers.values().map(|value| value.map(<[u8]>::to_vec)).collect())
    }

    /// As [`multi_get`](Self::multi_get), into reusable buffers.
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    #[inline]
    pub fn multi_get_into(
        &mut self,
        keys: &[impl AsKey<K>],
        answers: &mut Answers,
    ) -> Result<(), ClientError> {
        let keys = (keys.iter().map(AsKey::as_key), Wanted::Value);
        with_core!(&mut self.places, (core, held) => core.lookup_into(held, keys, self.deadline, &mut answers.outcomes))
    }

    /// Writes to `found`, which is as long as `keys`, whether each key exists, and returns the
    /// number that do. External values are not read. There may be any number of keys: they are
    /// looked up in groups, each within the deadline.
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get), after which some of `found` may be filled;
    /// [`ArrayLengths`](ClientError::ArrayLengths).
    pub fn multi_contains(
        &mut self,
        keys: &[impl AsKey<K>],
        found: &mut [bool],
    ) -> Result<usize, ClientError> {
        let keys = keys.iter().map(AsKey::as_key);
        with_core!(&mut self.places, (core, held) => core.multi_contains(held, keys, found, self.deadline))
    }

    /// Up to `limit` records in key order, beginning with the least key not below `start`; see
    /// [`Client::scan`](crate::Client::scan).
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    pub fn scan(&mut self, start: impl AsKey<K>, limit: usize) -> Result<Vec<Record<K>>, ClientError> {
        let mut records = Vec::new();
        let take = |key: K::View<'_>, value: &[u8]| records.push((key.borrow().to_owned(), value.to_vec()));
        self.scan_with(start, limit, take)?;
        Ok(records)
    }

    /// As [`scan`](Self::scan), but passes each record to `take`.
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    pub fn scan_with(
        &mut self,
        start: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        self.scan_up((start.as_key(), None), limit, take)
    }

    /// Passes up to `limit` records with keys from `start` to `end`, exclusive, to `take`, in key
    /// order.
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    pub fn scan_range(
        &mut self,
        start: impl AsKey<K>,
        end: impl AsKey<K>,
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        self.scan_up((start.as_key(), Some(end.as_key())), limit, take)
    }

    fn scan_up(
        &mut self,
        (start, end): (&K::Key, Option<&K::Key>),
        limit: usize,
        take: impl FnMut(K::View<'_>, &[u8]),
    ) -> Result<Cost, ClientError> {
        let (mut rest, part) = (Rest::new(start.to_owned(), limit), (end, Wanted::Value));
        with_core!(&mut self.places, (core, held) => core.scan(held, &mut rest, part, self.deadline, take))
    }
}

impl Reader<U64Keys> {
    /// Writes the values of `keys`, as little-endian words, to `values`, and whether each key
    /// exists to `found`; both are as long as `keys`. The value of an absent key is 0. Returns the
    /// number of keys that exist.
    ///
    /// For tables with values of eight bytes. Does not allocate once its buffers have grown. There
    /// may be any number of keys: they are looked up in groups, each within the deadline and at the
    /// cost of [`multi_get_into`](Self::multi_get_into).
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get), after which some of the arrays may be filled;
    /// [`NotWords`](ClientError::NotWords) if values have another length,
    /// [`ArrayLengths`](ClientError::ArrayLengths).
    pub fn multi_get_u64(
        &mut self,
        keys: &[u64],
        values: &mut [u64],
        found: &mut [bool],
    ) -> Result<usize, ClientError> {
        let answers = (values, found);
        with_core!(&mut self.places, (core, held) => core.multi_get_u64(held, keys, answers, self.deadline))
    }
}

impl ByteReader {
    /// Passes up to `limit` records whose keys begin with `prefix` to `take`, in key order.
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get).
    pub fn scan_prefix(
        &mut self,
        prefix: impl AsRef<[u8]>,
        limit: usize,
        take: impl FnMut(&[u8], &[u8]),
    ) -> Result<Cost, ClientError> {
        let prefix = prefix.as_ref();
        let end = end_of_prefix(prefix);
        self.scan_up((prefix, end.as_deref()), limit, take)
    }
}

impl<K: BuildKeys> fmt::Debug for Reader<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
