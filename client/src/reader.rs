//! Readers, for one thread each, and lookups of clients and readers.
//!
//! Each read is written once, for readers, here, in [`scans`](crate::scans) and in
//! [`ordered`](crate::ordered): those of clients are made by a reader that is lent, for the call,
//! what the thread holds of its client.
#![allow(private_bounds, reason = "programs name none but readers of their own")]

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use fpcache::key_space::{BuildKeys, ByteKeys, U64Keys};
use fpcache::layout::{RecordShape, RecordToken};
use fpcache::read::{Outcome, Wanted, WordAnswer};

use crate::answers::{Answers, Found, into_buffer};
use crate::client::{Client, TableClient, Transport};
use crate::error::ClientError;
use crate::key::AsKey;
use crate::one_node::{Borrowed, ByKind, Holds, Owned, SharedCore, with_direct};
use crate::pool::PoolHeld;

/// Reads a table from one thread at a time, with its own endpoint, buffers and view of the table,
/// so that a call takes no lock, does not look up thread-local state, and allocates only what it
/// returns. From [`Client::reader`](crate::Client::reader).
///
/// It follows its client to a newer directory, a restarted memory node, or a forked child; each
/// call checks for that with one load. An idle reader keeps its view of the table alive until its
/// next call or its end, and an embedded memory node as its client does.
///
/// It has each lookup, scan and ordered query of its client by the same name, with the same
/// answers, cost and errors, and some more. It is `Send` but not `Sync`. (`H` is of use to this
/// library alone.)
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
pub struct Reader<K: BuildKeys = U64Keys, H: Holds = Owned> {
    pub(crate) places: Transport<K, H>,
    pub(crate) deadline: Duration,
    /// Makes the reader `!Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

/// A reader of a table whose keys are byte strings.
pub type ByteReader = Reader<ByteKeys>;

/// Runs an expression with the core or the pool in use and what the reader holds.
macro_rules! with_held {
    ($reader:expr, ($core:ident, $held:ident) => $body:expr) => {
        $crate::client::with_core!(&mut $reader.places, place => {
            let ($core, $held) = H::held(place);
            $body
        })
    };
}
pub(crate) use with_held;

impl<K: BuildKeys> TableClient<K> {
    /// A reader for one thread: the same reads without the cost of finding the thread's buffers,
    /// and some more. Cheap: its resources are created by its first call.
    pub fn reader(&self) -> Reader<K> {
        let places = match &self.transport {
            Transport::One(direct) => Transport::One(direct.place()),
            Transport::Pool(pool) => Transport::Pool((Arc::clone(pool), PoolHeld::default())),
        };
        Reader::of(places, self.deadline)
    }

    /// Runs a call by a reader that has what this thread holds.
    #[inline(always)]
    pub(crate) fn here<R>(&self, read: impl FnOnce(Reader<K, Borrowed<'_>>) -> R) -> R {
        let deadline = self.deadline;
        match &self.transport {
            Transport::One(SharedCore::Mapped(core)) => {
                core.here(|held| read(Reader::of(Transport::One(ByKind::Mapped((&**core, held))), deadline)))
            }
            Transport::One(SharedCore::Remote(core)) => {
                core.here(|held| read(Reader::of(Transport::One(ByKind::Remote((&**core, held))), deadline)))
            }
            #[cfg(feature = "sim")]
            Transport::One(SharedCore::Simulated(core)) => core
                .here(|held| read(Reader::of(Transport::One(ByKind::Simulated((&**core, held))), deadline))),
            Transport::Pool(pool) => {
                pool.here(|held| read(Reader::of(Transport::Pool((&**pool, held)), deadline)))
            }
        }
    }
}

impl<K: BuildKeys> TableClient<K> {
    /// The value of `key`, or `None` if it is absent. One or two dependent round trips, depending
    /// on the [`Plan`](crate::Plan), and one more for an external value; see the
    /// [crate](crate#cost) for rarer costs. [`get_into`](Self::get_into) avoids the allocation.
    ///
    /// ```
    /// # fn example(client: &fpcache_client::Client) -> Result<(), fpcache_client::ClientError> {
    /// match client.get(42)? {
    ///     Some(value) => println!("{} bytes", value.len()),
    ///     None => println!("absent"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The memory node is down, which is not waited for; it says nothing, or the record is being
    /// written, until the deadline; it has no such table, or an empty one in the place of the one
    /// it had ([`Emptied`](crate::ClientError::Emptied)).
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, ClientError> {
        self.here(|mut reader| reader.get(key))
    }

    /// Reads the value of `key` into `value`, whose content is replaced, and returns version, plan
    /// and cost. Does not allocate if `value` has the capacity. An absent key leaves `value` empty.
    ///
    /// ```
    /// # fn example(client: &fpcache_client::Client) -> Result<(), fpcache_client::ClientError> {
    /// let mut value = Vec::new();
    /// let found = client.get_into(42, &mut value)?;
    /// println!("{} took {} round trips", found.plan, found.cost.round_trips);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn get_into(&self, key: impl AsKey<K>, value: &mut Vec<u8>) -> Result<Found, ClientError> {
        self.here(|mut reader| reader.get_into(key, value))
    }

    /// Passes the value of `key` to `take` without another copy, and returns its result; `None`,
    /// without a call of `take`, if the key is absent. It may use this client: it then reads with
    /// buffers that are made for that call.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # fn main() -> Result<(), fpcache_client::ClientError> {
    /// # let client = fpcache_client::Client::embedded(16 << 20)?;
    /// client.put(20, b"twenty")?;
    /// assert_eq!(client.get_with(20, |value| value.len())?, Some(6));
    /// assert_eq!(client.get_with(21, |value| value.len())?, None);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "embedded"))]
    /// # fn main() {}
    /// ```
    #[inline]
    pub fn get_with<R>(
        &self,
        key: impl AsKey<K>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, ClientError> {
        self.here(|mut reader| reader.get_with(key, take))
    }

    /// Whether `key` exists. An external value is not read.
    pub fn contains(&self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        self.here(|mut reader| reader.contains(key))
    }

    /// The values of `keys`, in the same order. Each 4,096 keys share round trips: as many as the
    /// slowest of them needs, and one more per 64 MiB that they read. The deadline is that of all
    /// keys together; where memory is mapped, the clock is looked at after each 1,024 of them. Each
    /// answer is linearizable on its own.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # fn main() -> Result<(), fpcache_client::ClientError> {
    /// # let client = fpcache_client::Client::embedded(16 << 20)?;
    /// # client.put(10, &[1; 8])?;
    /// # client.put(20, &[2; 8])?;
    /// let values = client.multi_get(&[10u64, 15, 20])?;
    /// assert_eq!(values, [Some(vec![1; 8]), None, Some(vec![2; 8])]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "embedded"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// As for [`get`](Self::get); the group fails as a whole.
    pub fn multi_get(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        self.here(|mut reader| reader.multi_get(keys))
    }

    /// As [`multi_get`](Self::multi_get), into reusable buffers: does not allocate once they are
    /// large enough.
    #[inline]
    pub fn multi_get_into(&self, keys: &[impl AsKey<K>], answers: &mut Answers) -> Result<(), ClientError> {
        self.here(|mut reader| reader.multi_get_into(keys, answers))
    }

    /// Whether each of `keys` exists, in the same order. See [`multi_get`](Self::multi_get);
    /// external values are not read.
    ///
    /// # Errors
    /// As for [`get`](Self::get); the group fails as a whole.
    pub fn multi_contains(&self, keys: &[impl AsKey<K>]) -> Result<Vec<bool>, ClientError> {
        self.here(|mut reader| reader.multi_contains(keys))
    }
}

impl<K: BuildKeys, H: Holds> Reader<K, H> {
    #[inline(always)]
    fn of(places: Transport<K, H>, deadline: Duration) -> Self {
        Self { places, deadline, _one_thread: PhantomData }
    }

    /// Sets the deadline of calls, which is the client's by default.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// The value of `key`, or `None` if it is absent. As [`Client::get`](crate::Client::get).
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get). So have all calls the client's errors.
    pub fn get(&mut self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, ClientError> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// Reads the value of `key` into `value`. As [`Client::get_into`](crate::Client::get_into).
    #[inline]
    pub fn get_into(&mut self, key: impl AsKey<K>, value: &mut Vec<u8>) -> Result<Found, ClientError> {
        let mut take = into_buffer(value);
        if let Some((answer, shape)) = self.look_up_word(key.as_key()) {
            let outcome = answer.outcome();
            return Ok(answer.value_in(shape, |value| take(&outcome, value)));
        }
        with_held!(self, (core, held) => core.look_up(held, key.as_key(), self.deadline, take))
    }

    /// The answer of a lookup without anything rare in it, over mapped memory.
    #[inline(always)]
    fn look_up_word(&mut self, key: &K::Key) -> Option<(WordAnswer, &RecordShape)> {
        let Transport::One(ByKind::Mapped(place)) = &mut self.places else { return None };
        let (core, held) = H::held(place);
        core.look_up_word(held, key)
    }

    /// Passes the value of `key` to `take` without another copy, and returns its result; `None`,
    /// without a call of `take`, if the key is absent.
    #[inline]
    pub fn get_with<R>(
        &mut self,
        key: impl AsKey<K>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, ClientError> {
        if let Some((answer, shape)) = self.look_up_word(key.as_key()) {
            return Ok(answer.value_in(shape, |value| value.map(take)));
        }
        // An answer is handed over once, whatever was tried before.
        let mut take = Some(take);
        let hand_over = |_: &Outcome, value: Option<&[u8]>| value.and_then(|value| Some(take.take()?(value)));
        with_held!(self, (core, held) => core.look_up(held, key.as_key(), self.deadline, hand_over))
    }

    /// A record's value and its token. As [`Client::get_versioned`](crate::Client::get_versioned).
    pub fn get_versioned(
        &mut self,
        key: impl AsKey<K>,
    ) -> Result<Option<(Vec<u8>, RecordToken)>, ClientError> {
        let key = key.as_key();
        let shape = match &mut self.places {
            Transport::One(place) => with_direct!(place, place => {
                let (core, held) = H::held(place);
                core.shape_by(held, self.deadline)
            }),
            Transport::Pool(place) => {
                let (pool, held) = H::held(place);
                pool.shape_by(held, key, self.deadline)
            }
        };
        let shape = match shape {
            Err(error) if error.is_of_empty_table() => return Ok(None),
            shape => shape?,
        };
        let take = |outcome: &Outcome, value: Option<&[u8]>| {
            let (version, value) = outcome.version.zip(value)?;
            Some((value.to_vec(), RecordToken::of(version, &shape.identity::<K>(key, value))))
        };
        with_held!(self, (core, held) => core.look_up(held, key, self.deadline, take))
    }

    /// Whether `key` exists. As [`Client::contains`](crate::Client::contains).
    #[inline]
    pub fn contains(&mut self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        with_held!(self, (core, held) => core.contains(held, key.as_key(), self.deadline))
    }

    /// The values of `keys`. As [`Client::multi_get`](crate::Client::multi_get).
    pub fn multi_get(&mut self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let mut answers = Answers::new();
        self.multi_get_into(keys, &mut answers)?;
        Ok(answers.values().map(|value| value.map(<[u8]>::to_vec)).collect())
    }

    /// As [`multi_get`](Self::multi_get), into reusable buffers.
    #[inline]
    pub fn multi_get_into(
        &mut self,
        keys: &[impl AsKey<K>],
        answers: &mut Answers,
    ) -> Result<(), ClientError> {
        let (keys, found) = ((keys.iter().map(AsKey::as_key), Wanted::Value), &mut answers.outcomes);
        with_held!(self, (core, held) => core.lookup_into(held, keys, self.deadline, found))
    }

    /// Whether each of `keys` exists. As [`Client::multi_contains`](crate::Client::multi_contains).
    pub fn multi_contains(&mut self, keys: &[impl AsKey<K>]) -> Result<Vec<bool>, ClientError> {
        let mut found = vec![false; keys.len()];
        self.multi_contains_into(keys, &mut found)?;
        Ok(found)
    }

    /// Writes to `found`, which is as long as `keys`, whether each key exists, and returns the
    /// number that do. External values are not read. There may be any number of keys: they are
    /// looked up in groups, each within the deadline.
    ///
    /// # Errors
    /// As for [`Client::get`](crate::Client::get), after which some of `found` may be filled;
    /// [`ArrayLengths`](ClientError::ArrayLengths).
    pub fn multi_contains_into(
        &mut self,
        keys: &[impl AsKey<K>],
        found: &mut [bool],
    ) -> Result<usize, ClientError> {
        let keys = keys.iter().map(AsKey::as_key);
        with_held!(self, (core, held) => core.multi_contains(held, keys, found, self.deadline))
    }
}

impl Client {
    /// Writes the values of `keys` to `values`, and whether each exists to `found`. As
    /// [`Reader::multi_get_u64`].
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # fn main() -> Result<(), fpcache_client::ClientError> {
    /// # let client = fpcache_client::Client::embedded(16 << 20)?;
    /// # let parameters = fpcache_client::TableParameters::default();
    /// # client.create(parameters)?;
    /// client.put(10, &100u64.to_le_bytes())?;
    /// let (mut values, mut found) = ([7; 2], [false; 2]);
    /// assert_eq!(client.multi_get_u64(&[10, 15], &mut values, &mut found)?, 1);
    /// assert_eq!((values, found), ([100, 0], [true, false]));
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "embedded"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// As that.
    pub fn multi_get_u64(
        &self,
        keys: &[u64],
        values: &mut [u64],
        found: &mut [bool],
    ) -> Result<usize, ClientError> {
        self.here(|mut reader| reader.multi_get_u64(keys, values, found))
    }
}

impl<H: Holds> Reader<U64Keys, H> {
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
        with_held!(self, (core, held) => core.multi_get_u64(held, keys, answers, self.deadline))
    }
}

impl<K: BuildKeys, H: Holds> fmt::Debug for Reader<K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
