//! Batches of changes, and what replies to changes say.

use fpcache::key_space::{BuildKeys, ByteKeys, U64Keys};
use fpcache::layout::RecordToken;
#[cfg(feature = "tokio")]
use fpcache::message::MAX_OPERATIONS;
use fpcache::message::{Sent, WriteKind, WriteOperation, WriteReply, WriteStatus};
use fpcache_fabric::FabricError;

use crate::error::ClientError;
use crate::key::AsKey;
#[cfg(feature = "tokio")]
use crate::key::KeyRef;

/// A batch of changes, applied in order at each memory node and each on its own.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # fn main() -> Result<(), fpcache_client::ClientError> {
/// # let client = fpcache_client::Client::embedded(16 << 20)?;
/// use fpcache_client::{Changes, WriteStatus};
/// let (mut changes, mut replies) = (Changes::new(), Vec::new());
/// changes.put(1, b"one here").put(2, b"two here").delete(3);
/// match client.apply(&changes, &mut replies) {
///     // The others were made.
///     Err(error) if error.is_of_refused_change() => {
///         for (place, error) in changes.refusals(&replies) {
///             eprintln!("change {place}: {error}");
///         }
///     }
///     applied => applied?,
/// }
/// assert_eq!(replies[2].status, WriteStatus::Absent);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "embedded"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct Changes<K: BuildKeys = U64Keys> {
    operations: Vec<Change<K>>,
    /// Bytes of keys that have any.
    keys: Vec<u8>,
    values: Vec<u8>,
}

/// Bytes of a change in a request, about, beside key and value.
#[cfg(feature = "tokio")]
const HEAD_BYTES: usize = 32;

/// A change, and the end of its value among all values.
#[derive(Clone, Copy, Debug)]
struct Change<K: BuildKeys> {
    kind: WriteKind,
    key: K::Kept,
    expected: RecordToken,
    end: usize,
}

impl<K: BuildKeys> Default for Changes<K> {
    fn default() -> Self {
        Self { operations: Vec::new(), keys: Vec::new(), values: Vec::new() }
    }
}

impl<K: BuildKeys> Changes<K> {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an insert. If the record exists nothing is written, and the reply's status is
    /// [`Exists`](WriteStatus::Exists).
    pub fn insert(&mut self, key: impl AsKey<K>, value: &[u8]) -> &mut Self {
        self.push(WriteKind::Insert, key, value)
    }

    /// Adds a put, which inserts the record or replaces its value.
    pub fn put(&mut self, key: impl AsKey<K>, value: &[u8]) -> &mut Self {
        self.push(WriteKind::Put, key, value)
    }

    /// Adds an update. If the record does not exist nothing is written, and the reply's status is
    /// [`Absent`](WriteStatus::Absent).
    pub fn update(&mut self, key: impl AsKey<K>, value: &[u8]) -> &mut Self {
        self.push(WriteKind::Update, key, value)
    }

    /// Adds a delete. If the record does not exist the reply's status is
    /// [`Absent`](WriteStatus::Absent).
    pub fn delete(&mut self, key: impl AsKey<K>) -> &mut Self {
        self.push(WriteKind::Delete, key, &[])
    }

    /// Adds a compare-and-set, which replaces the value if the record still has this token.
    pub fn compare_and_set(&mut self, key: impl AsKey<K>, expected: RecordToken, value: &[u8]) -> &mut Self {
        self.push(WriteKind::CompareAndSet, key, value);
        if let Some(change) = self.operations.last_mut() {
            change.expected = expected;
        }
        self
    }

    fn push(&mut self, kind: WriteKind, key: impl AsKey<K>, value: &[u8]) -> &mut Self {
        let key = K::keep(key.as_key(), &mut self.keys);
        self.values.extend_from_slice(value);
        self.operations.push(Change { kind, key, expected: RecordToken::default(), end: self.values.len() });
        self
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// One change.
    #[cfg(feature = "tokio")]
    pub(crate) fn of_one(kind: WriteKind, key: impl AsKey<K>, value: &[u8]) -> Self {
        let mut changes = Self::default();
        changes.push(kind, key, value);
        changes
    }

    /// The key of the first change.
    #[cfg(feature = "tokio")]
    pub(crate) fn first_key(&self) -> Option<&K::Key> {
        self.operations.first().map(|change| K::kept(&change.key, &self.keys))
    }

    pub(crate) fn operations(&self) -> impl Iterator<Item = WriteOperation<'_, &K::Key>> + Clone {
        let starts = std::iter::once(0).chain(self.operations.iter().map(|change| change.end));
        self.operations.iter().zip(starts).map(|(change, start)| WriteOperation {
            kind: change.kind,
            key: K::kept(&change.key, &self.keys),
            hint: None,
            expected: change.expected,
            value: Sent::Here(&self.values[start..change.end]),
        })
    }

    /// Bytes that they take in a request, about, and not less.
    #[cfg(feature = "tokio")]
    pub(crate) fn request_bytes(&self) -> usize {
        let bytes = |change: WriteOperation<'_, &K::Key>| {
            HEAD_BYTES + K::encoded_len(change.key) + change.value.len()
        };
        self.operations().map(bytes).sum()
    }

    /// How many of the first changes at these positions fit one request and have no more bytes
    /// together, but one at least if there is one.
    #[cfg(feature = "tokio")]
    pub(crate) fn fitting(&self, places: &[usize], bytes: usize) -> usize {
        let mut taken = 0;
        let fits = |at: &&usize| {
            let start = at.checked_sub(1).map_or(0, |before| self.operations[before].end);
            let Change { key, end, .. } = &self.operations[**at];
            let is_first = taken == 0;
            taken += HEAD_BYTES + K::encoded_len(K::kept(key, &self.keys)) + end - start;
            is_first || taken <= bytes
        };
        places.iter().take(MAX_OPERATIONS).take_while(fits).count()
    }

    /// The changes at these positions, in their order.
    #[cfg(feature = "tokio")]
    pub(crate) fn only(&self, places: &[usize]) -> Self {
        let mut some = Self::default();
        for at in places {
            let Change { kind, key, expected, end } = &self.operations[*at];
            let start = at.checked_sub(1).map_or(0, |before| self.operations[before].end);
            some.push(*kind, KeyRef::<K>(K::kept(key, &self.keys)), &self.values[start..*end]);
            if let Some(change) = some.operations.last_mut() {
                change.expected = *expected;
            }
        }
        some
    }

    /// The changes that the memory node refused, by their places, with the errors that the calls
    /// for single changes have for that. Replies are those of [`apply`](crate::TableClient::apply)
    /// to this batch.
    pub fn refusals<'c>(
        &'c self,
        replies: &'c [WriteReply],
    ) -> impl Iterator<Item = (usize, ClientError)> + 'c {
        let answered = self.operations.iter().zip(replies).enumerate();
        answered.filter_map(|(place, (change, reply))| {
            Some((place, outcome::<K>(K::kept(&change.key, &self.keys), *reply).err()?))
        })
    }

    /// The key of the first change that was refused, with its error.
    pub(crate) fn first_refusal(&self, replies: &[WriteReply]) -> Option<(&K::Key, ClientError)> {
        let (place, error) = self.refusals(replies).next()?;
        Some((K::kept(&self.operations[place].key, &self.keys), error))
    }

    /// Empties the list.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.keys.clear();
        self.values.clear();
    }
}

/// Changes of a table whose keys are byte strings; as [`Changes`] is of one whose keys are
/// integers.
pub type ByteChanges = Changes<ByteKeys>;

/// The outcome of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "nothing was written if the key exists"]
pub enum Inserted {
    /// The record was written.
    New,
    /// Nothing was written: the key exists.
    Exists,
}

impl Inserted {
    /// Whether the record was written.
    pub fn is_new(self) -> bool {
        self == Self::New
    }

    pub(crate) fn of(reply: &WriteReply) -> Self {
        if reply.status == WriteStatus::Done { Self::New } else { Self::Exists }
    }
}

/// The outcome of a compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the value may not have been replaced"]
pub enum CompareAndSet {
    /// The value was replaced; the record's new token.
    Done(RecordToken),
    /// The record has changed; its current token.
    Differs(RecordToken),
    /// There is no record.
    Absent,
}

impl CompareAndSet {
    /// Whether the value was replaced.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Done(_))
    }

    /// The outcome in a reply, such as that of a [`Completed`](crate::Completed); `None` if it is
    /// not a reply to a compare-and-set.
    pub fn of(reply: &WriteReply) -> Option<Self> {
        match (reply.status, reply.token) {
            (WriteStatus::Absent, _) => Some(Self::Absent),
            (WriteStatus::Done, Some(token)) => Some(Self::Done(token)),
            (_, Some(token)) => Some(Self::Differs(token)),
            (_, None) => None,
        }
    }
}

/// The error for a reply to a compare-and-set that does not say how it ended.
pub(crate) fn no_token() -> ClientError {
    ClientError::OutcomeUnknown { why: "the reply to compare-and-set has no token".to_owned() }
}

/// The error of an update that was tried until its deadline.
pub(crate) fn overtaken() -> ClientError {
    FabricError::DeadlinePassed { waiting_for: "the record to stay as it was read until its update" }.into()
}

/// The error for a reply that says that nothing was changed.
pub(crate) fn outcome<K: BuildKeys>(key: &K::Key, reply: WriteReply) -> Result<WriteReply, ClientError> {
    match reply.status {
        WriteStatus::NoRoom => Err(ClientError::NoRoom { key: K::show(key), node: None }),
        WriteStatus::DiskFull => Err(ClientError::DiskFull { key: K::show(key), node: None }),
        WriteStatus::NotDurable => Err(ClientError::NotDurable { key: K::show(key), node: None }),
        WriteStatus::Damaged => Err(ClientError::Damaged { key: K::show(key), node: None }),
        _ => Ok(reply),
    }
}
