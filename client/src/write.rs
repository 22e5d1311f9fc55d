//! Writes of clients.

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordToken, TableParameters};
use fpcache::message::{Sent, WriteKind, WriteOperation, WriteReply, WriteStatus};
use fpcache_fabric::Deadline;

use crate::changes::{Changes, CompareAndSet, Inserted, no_token, outcome, overtaken};
use crate::client::{TableClient, with_core};
use crate::core::MeantTable;
use crate::error::ClientError;
use crate::key::{AsKey, KeyRef};
use crate::tables::time_left;

impl<K: BuildKeys> TableClient<K> {
    /// Inserts a record, **or writes nothing if the key exists**, which is no error: look at what
    /// it returns, or use [`put`](Self::put), which replaces the value. Like every change, this is
    /// one request to the memory node's processor; a value longer than a request (1 MiB by default)
    /// is sent ahead of it in pieces, with a request each.
    ///
    /// A request without a reply is sent again, over a new connection if necessary, and takes
    /// effect at most once.
    ///
    /// ```
    /// # fn example(client: &fpcache_client::Client) -> Result<(), fpcache_client::ClientError> {
    /// if !client.insert(42, &7u64.to_le_bytes())?.is_new() {
    ///     println!("42 exists already");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::KeySize`], [`ClientError::ValueSize`], [`ClientError::RecordSize`] or
    /// [`ClientError::ValueTooLong`] if key or value do not fit the table: nothing was sent.
    /// [`ClientError::NoRoom`] if the region is full, [`ClientError::NotDurable`] if the memory
    /// node's log cannot be written, [`ClientError::Emptied`] if the table was lost and created
    /// again: nothing was changed. [`ClientError::OutcomeUnknown`] if the deadline has passed, if
    /// the reply makes no sense, or if the request was refused, or its table gone, when it was sent
    /// again: the change may have taken effect, or may do so later, but not after this thread's
    /// next change at the same memory node.
    #[doc(alias = "set_nx")]
    #[doc(alias = "put_if_absent")]
    #[doc(alias = "add")]
    pub fn insert(&self, key: impl AsKey<K>, value: &[u8]) -> Result<Inserted, ClientError> {
        Ok(Inserted::of(&self.change(WriteKind::Insert, key.as_key(), value)?))
    }

    /// Inserts a record or replaces its value, whichever it takes.
    ///
    /// ```
    /// # fn example(client: &fpcache_client::Client) -> Result<(), fpcache_client::ClientError> {
    /// client.put(42, &7u64.to_le_bytes())?;
    /// assert!(client.update(42, &8u64.to_le_bytes())?, "it is there");
    /// assert!(client.delete(42)?, "it was there");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "set")]
    #[doc(alias = "upsert")]
    pub fn put(&self, key: impl AsKey<K>, value: &[u8]) -> Result<(), ClientError> {
        self.change(WriteKind::Put, key.as_key(), value).map(drop)
    }

    /// Replaces a record's value; **returns `Ok(false)` and writes nothing if the key is absent**.
    pub fn update(&self, key: impl AsKey<K>, value: &[u8]) -> Result<bool, ClientError> {
        Ok(self.change(WriteKind::Update, key.as_key(), value)?.status == WriteStatus::Done)
    }

    /// Deletes a record; `false` if it does not exist.
    pub fn delete(&self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        Ok(self.change(WriteKind::Delete, key.as_key(), &[])?.status == WriteStatus::Done)
    }

    /// A record's value and its token for [`compare_and_set`](Self::compare_and_set), at the cost
    /// of a [`get`](Self::get).
    pub fn get_versioned(&self, key: impl AsKey<K>) -> Result<Option<(Vec<u8>, RecordToken)>, ClientError> {
        self.here(|mut reader| reader.get_versioned(key))
    }

    /// Replaces a record's value if the record still has this token.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # fn main() -> Result<(), fpcache_client::ClientError> {
    /// # let client = fpcache_client::Client::embedded(16 << 20)?;
    /// use fpcache_client::CompareAndSet;
    /// # client.put(1, &41u64.to_le_bytes())?;
    /// // Counts, also while others do.
    /// while let Some((value, token)) = client.get_versioned(1)? {
    ///     let count = u64::from_le_bytes(value.try_into().unwrap_or_default());
    ///     let set = client.compare_and_set(1, token, &(count + 1).to_le_bytes())?;
    ///     if !matches!(set, CompareAndSet::Differs(_)) {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(client.get(1)?, Some(42u64.to_le_bytes().to_vec()));
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "embedded"))]
    /// # fn main() {}
    /// ```
    pub fn compare_and_set(
        &self,
        key: impl AsKey<K>,
        expected: RecordToken,
        value: &[u8],
    ) -> Result<CompareAndSet, ClientError> {
        let (kind, key) = (WriteKind::CompareAndSet, key.as_key());
        let value = Sent::Here(value);
        let reply = self.single(WriteOperation { kind, key, hint: None, expected, value })?;
        CompareAndSet::of(&reply).ok_or_else(no_token)
    }

    /// Replaces a record's value by what `change` makes of it, or makes the record if `change` is
    /// given `None`, and returns the value before: so that no other client's change is lost. If
    /// `change` returns `None`, nothing is written.
    ///
    /// Reads, computes, and compares and sets: the cost of a [`get`](Self::get) and of one request.
    /// If others have changed the record in between, all of this is done again, `change` included,
    /// within the deadline.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # fn main() -> Result<(), fpcache_client::ClientError> {
    /// # let client = fpcache_client::Client::embedded(16 << 20)?;
    /// let count = |value: Option<&[u8]>| {
    ///     let count = value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes);
    ///     Some((count + 1).to_le_bytes().to_vec())
    /// };
    /// client.fetch_update(1, count)?; // makes the record
    /// assert_eq!(client.fetch_update(1, count)?, Some(1u64.to_le_bytes().to_vec()));
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "embedded"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// As for [`get`](Self::get) and [`insert`](Self::insert). If others were faster until the
    /// deadline, [`is_timeout`](ClientError::is_timeout): nothing was changed.
    #[doc(alias = "read_modify_write")]
    pub fn fetch_update(
        &self,
        key: impl AsKey<K>,
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, ClientError> {
        let (key, until) = (KeyRef::<K>(key.as_key()), Deadline::after(self.deadline));
        loop {
            let (before, token) = self.with_deadline(time_left(until)).get_versioned(key)?.unzip();
            let Some(value) = change(before.as_deref()) else { return Ok(before) };
            let client = self.with_deadline(time_left(until));
            if client.deadline.is_zero() {
                return Err(overtaken());
            }
            let is_done = match token {
                Some(token) => client.compare_and_set(key, token, &value)?.is_done(),
                None => client.insert(key, &value)?.is_new(),
            };
            if is_done {
                return Ok(before);
            }
        }
    }

    /// Sends changes in as few requests as possible, and writes the outcome of each to `replies`,
    /// whose content is replaced. They are applied in order at each memory node, each on its own;
    /// the deadline applies to each request.
    ///
    /// What a reply says of a record is no error: an insert whose key exists, an update or delete
    /// whose key is absent, a compare-and-set of another version.
    ///
    /// # Errors
    /// *A change was refused*, for which
    /// [`is_of_refused_change`](ClientError::is_of_refused_change) holds:
    /// [`NoRoom`](ClientError::NoRoom), [`DiskFull`](ClientError::DiskFull),
    /// [`NotDurable`](ClientError::NotDurable) or [`Damaged`](ClientError::Damaged), as
    /// [`put`](Self::put) returns it. The others were sent all the same: `replies` has the outcome
    /// of every change, and the error is that of the first one refused ([`Changes::refusals`] gives
    /// all of them).
    ///
    /// *The call stopped half-way*, with any other error, as for [`insert`](Self::insert):
    /// `replies` has the outcomes of the changes before the one that failed, among which there may
    /// be refusals, too. That one and the later ones were not made, unless it is
    /// [`OutcomeUnknown`](ClientError::OutcomeUnknown): then some of them may have been. Of a table
    /// over several memory nodes it is that, too, if later changes were made at others, and says
    /// how many.
    ///
    /// Once a request was made in one table, the later ones are made in no other: if the table was
    /// dropped meanwhile and another one has its name, the error is retryable, and all changes have
    /// to be made anew.
    pub fn apply(&self, changes: &Changes<K>, replies: &mut Vec<WriteReply>) -> Result<(), ClientError> {
        replies.clear();
        self.write(changes.operations(), MeantTable::One, replies)?;
        self.none_refused(changes, replies)
    }

    /// The error of the first change that was refused, if one was.
    pub(crate) fn none_refused(
        &self,
        changes: &Changes<K>,
        replies: &[WriteReply],
    ) -> Result<(), ClientError> {
        let refused = changes.first_refusal(replies);
        refused.map_or(Ok(()), |(key, error)| Err(self.naming_node(key, error)))
    }

    /// As [`apply`](Self::apply), but only to the table with this creation number; what was refused
    /// is told by replies alone.
    pub(crate) fn apply_to(
        &self,
        creation: u64,
        changes: &Changes<K>,
        replies: &mut Vec<WriteReply>,
    ) -> Result<(), ClientError> {
        replies.clear();
        self.write(changes.operations(), MeantTable::Created(creation), replies)
    }

    /// Sets the parameters of an empty table, which a load or the first write would otherwise set.
    /// It stays empty: it can be read, written and loaded into. Does nothing if it has these
    /// parameters already.
    ///
    /// # Errors
    /// The table has records, or other parameters
    /// ([`OtherParameters`](ClientError::OtherParameters)), or the parameters are out of range.
    pub fn create(&self, parameters: TableParameters) -> Result<(), ClientError> {
        self.load(parameters, 0)?.finish().map(drop)
    }

    fn change(&self, kind: WriteKind, key: &K::Key, value: &[u8]) -> Result<WriteReply, ClientError> {
        let (expected, value) = (RecordToken::default(), Sent::Here(value));
        self.single(WriteOperation { kind, key, hint: None, expected, value })
    }

    fn single(&self, operation: WriteOperation<'_, &K::Key>) -> Result<WriteReply, ClientError> {
        let reply = with_core!(&self.transport, core => core.write_one(operation, self.deadline))?;
        outcome::<K>(operation.key, reply).map_err(|error| self.naming_node(operation.key, error))
    }
}
