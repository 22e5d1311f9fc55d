//! Changing records.

use fpcache::key_space::{BuildKeys, U64Keys};
use fpcache::layout::{RecordToken, TableParameters};
use fpcache::message::{MessageError, Sent, WriteKind, WriteOperation, WriteReply, WriteStatus};

use crate::client::TableClient;
use crate::error::ClientError;
use crate::key::AsKey;
#[cfg(feature = "tokio")]
use crate::key::KeyRef;

/// Changes of records, to be sent together: applied in order, each by itself.
#[derive(Clone, Debug)]
pub struct Changes<K: BuildKeys = U64Keys> {
    operations: Vec<Change<K>>,
    /// Bytes of keys that have any.
    keys: Vec<u8>,
    values: Vec<u8>,
}

/// A change, and where its value ends among all values.
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

impl Changes {
    /// No changes of records with integer keys; [`Changes::default`] of those with any.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<K: BuildKeys> Changes<K> {
    /// Adds the making of a record, which fails if there is one.
    pub fn insert(&mut self, key: impl AsKey<K>, value: &[u8]) -> &mut Self {
        self.push(WriteKind::Insert, key, value)
    }

    /// Adds the making of a record or the replacing of its value.
    pub fn put(&mut self, key: impl AsKey<K>, value: &[u8]) -> &mut Self {
        self.push(WriteKind::Put, key, value)
    }

    /// Adds the replacing of a record's value, which fails if there is none.
    pub fn update(&mut self, key: impl AsKey<K>, value: &[u8]) -> &mut Self {
        self.push(WriteKind::Update, key, value)
    }

    /// Adds the removal of a record, which fails if there is none.
    pub fn delete(&mut self, key: impl AsKey<K>) -> &mut Self {
        self.push(WriteKind::Delete, key, &[])
    }

    /// Adds the replacing of a record's value if it is still what it was when it had this token.
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

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
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

    /// Those of the changes that have these places, in the order of these.
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

    /// Empties the list.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.keys.clear();
        self.values.clear();
    }
}

/// How a compare-and-set ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareAndSet {
    /// The value was replaced; the record's token now.
    Done(RecordToken),
    /// The record holds something else; its token now.
    Differs(RecordToken),
    /// There is no record.
    Absent,
}

impl CompareAndSet {
    /// What a reply to a compare-and-set says, such as that of a [`Completed`](crate::Completed); `None` if it is no such
    /// reply.
    pub fn of(reply: &WriteReply) -> Option<Self> {
        match (reply.status, reply.token) {
            (WriteStatus::Absent, _) => Some(Self::Absent),
            (WriteStatus::Done, Some(token)) => Some(Self::Done(token)),
            (_, Some(token)) => Some(Self::Differs(token)),
            (_, None) => None,
        }
    }
}

impl<K: BuildKeys> TableClient<K> {
    /// Makes a record; `false` if there is one already. One request to the memory node's processor, as for every change, and one
    /// more ahead of it for each piece of a value that is longer than a request (1 MiB by default).
    ///
    /// A request to which no reply comes is sent again, over a new connection if need be, and takes effect once however
    /// often it was sent.
    ///
    /// # Errors
    /// [`ClientError::KeySize`] if there can be no such key, [`ClientError::ValueSize`] if the value has not the table's size,
    /// [`ClientError::RecordSize`] if its slot has no room for what must lie there, [`ClientError::ValueTooLong`] if the value has
    /// more than 16 MiB: then nothing was sent. [`ClientError::NoRoom`] if the region is full,
    /// [`ClientError::NotDurable`] if the memory node's log cannot be written: then nothing was changed.
    /// [`ClientError::OutcomeUnknown`] if the deadline has passed and the change may have been made or not, or may be made
    /// later, but not after this thread's next change.
    pub fn insert(&self, key: impl AsKey<K>, value: &[u8]) -> Result<bool, ClientError> {
        Ok(self.change(WriteKind::Insert, key.as_key(), value)?.status == WriteStatus::Done)
    }

    /// Makes a record or replaces its value.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    pub fn put(&self, key: impl AsKey<K>, value: &[u8]) -> Result<(), ClientError> {
        self.change(WriteKind::Put, key.as_key(), value).map(drop)
    }

    /// Replaces a record's value; `false` if there is no record.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    pub fn update(&self, key: impl AsKey<K>, value: &[u8]) -> Result<bool, ClientError> {
        Ok(self.change(WriteKind::Update, key.as_key(), value)?.status == WriteStatus::Done)
    }

    /// Removes a record; `false` if there is none.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    pub fn delete(&self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        Ok(self.change(WriteKind::Delete, key.as_key(), &[])?.status == WriteStatus::Done)
    }

    /// A record's value with the token that [`compare_and_set`](Self::compare_and_set) takes. Costs what a
    /// [`get`](Self::get) does.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_versioned(&self, key: impl AsKey<K>) -> Result<Option<(Vec<u8>, RecordToken)>, ClientError> {
        self.read_versioned(key.as_key())
    }

    /// Replaces a record's value if it is still what it was when it had this token.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    pub fn compare_and_set(
        &self,
        key: impl AsKey<K>,
        expected: RecordToken,
        value: &[u8],
    ) -> Result<CompareAndSet, ClientError> {
        let (kind, key) = (WriteKind::CompareAndSet, key.as_key());
        let value = Sent::Here(value);
        let reply = self.single(WriteOperation { kind, key, hint: None, expected, value })?;
        let nonsense = || MessageError::Malformed("a reply to compare-and-set without a token".into()).into();
        CompareAndSet::of(&reply).ok_or_else(nonsense)
    }

    /// Sends changes together, in as few requests as they fit, and says how each ended, into a list that is emptied before.
    /// They are made in order, each by itself; the deadline is each request's.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert), but a change for which there is no room, or that could not be logged, says so in its
    /// reply and does not keep the others. After any other error the list holds the replies to the requests before, whose
    /// changes have been made.
    pub fn apply(&self, changes: &Changes<K>, replies: &mut Vec<WriteReply>) -> Result<(), ClientError> {
        replies.clear();
        self.write(changes.operations(), None, replies)
    }

    /// As [`apply`](Self::apply), to the table with this creation number and to no other of its name.
    pub(crate) fn apply_to(
        &self,
        creation: u64,
        changes: &Changes<K>,
        replies: &mut Vec<WriteReply>,
    ) -> Result<(), ClientError> {
        replies.clear();
        self.write(changes.operations(), Some(creation), replies)
    }

    /// Gives an empty table its parameters, which a load or the first write does otherwise. It stays empty: it can be read,
    /// written and loaded into. Does nothing if these are its parameters.
    ///
    /// # Errors
    /// The table holds records, or is empty and has other parameters ([`OtherParameters`](ClientError::OtherParameters)), or the
    /// parameters are out of range.
    pub fn create(&self, parameters: TableParameters) -> Result<(), ClientError> {
        self.load(parameters, 0)?.finish().map(drop)
    }

    fn change(&self, kind: WriteKind, key: &K::Key, value: &[u8]) -> Result<WriteReply, ClientError> {
        let (expected, value) = (RecordToken::default(), Sent::Here(value));
        self.single(WriteOperation { kind, key, hint: None, expected, value })
    }

    fn single(&self, operation: WriteOperation<'_, &K::Key>) -> Result<WriteReply, ClientError> {
        let ended = outcome::<K>(operation.key, self.write_one(operation)?);
        ended.map_err(|error| self.naming_node(operation.key, error))
    }
}

/// A reply that says that nothing was done, as an error.
pub(crate) fn outcome<K: BuildKeys>(key: &K::Key, reply: WriteReply) -> Result<WriteReply, ClientError> {
    match reply.status {
        WriteStatus::NoRoom => Err(ClientError::NoRoom { key: K::show(key), node: None }),
        WriteStatus::NotDurable => Err(ClientError::NotDurable { key: K::show(key), node: None }),
        _ => Ok(reply),
    }
}
