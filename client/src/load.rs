//! Loads through the memory node's request ring.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::time::{Duration, Instant};

use fpcache::key_space::{BuildKeys, KeySpace, U64Keys};
use fpcache::layout::{TableParameters, ValuePlace};
use fpcache::message::keys::{put_record, record_bytes};
use fpcache::message::{ErrorCode, MAX_AHEAD_BYTES, MessageError, RecordChunk, Request, Sent, ValuePiece};
use fpcache_fabric::FabricError;

use crate::client::{TableClient, Transport};
use crate::core::check_record;
use crate::error::ClientError;
use crate::inserting::Inserting;
use crate::key::AsKey;
use crate::load_errors::{explained, has_ended, partly_loaded};

/// Bytes that a slow disk takes in a second: the end of a load is waited for that much longer than
/// other calls.
const DISK_RATE: u64 = 16 << 20;

/// How often the memory nodes of a load hear of it that take none of its records at the time: they
/// close connections that are idle, and drop their loads.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// A load in progress: records in ascending key order, sent in chunks that fill a request.
///
/// The records become visible with [`finish`](Self::finish); dropping the load before leaves no
/// trace. If the table has its parameters already, the records are inserted instead, and visible at
/// once.
///
/// A load ends with its first error but one of a record that does not fit the table. Where the
/// error is retryable, a new load of all records may succeed; this one takes no more.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # fn main() -> Result<(), fpcache_client::ClientError> {
/// # let client = fpcache_client::Client::embedded(16 << 20)?;
/// use fpcache_client::TableParameters;
/// let mut load = client.load(TableParameters::default(), 1000)?;
/// for key in 0..1000u64 {
///     load.push(key, &key.to_le_bytes())?;
/// }
/// assert_eq!(load.finish()?.keys, 1000);
/// assert_eq!(client.get(7)?, Some(7u64.to_le_bytes().to_vec()));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "embedded"))]
/// # fn main() {}
/// ```
#[must_use = "nothing is visible before `finish`"]
pub struct Load<'c, K: BuildKeys = U64Keys> {
    client: Cow<'c, TableClient<K>>,
    /// Which of the client's loads it is.
    number: u64,
    /// The creation number of the table in which it was begun.
    creation: u64,
    parameters: TableParameters,
    /// Bytes of records that a request has room for.
    chunk_bytes: usize,
    sent: u64,
    /// Their bytes, those of long values included.
    bytes: u64,
    count: u32,
    records: Vec<u8>,
    /// Bytes of values that went ahead of the chunk that is being filled.
    ahead: usize,
    /// How the records are sent if the table has its parameters already.
    inserting: Option<Inserting<K>>,
    finished: bool,
    /// What each call ends with, once one has failed.
    ended: Option<ClientError>,
    /// Of a table over several memory nodes the loads into its ranges, which take all records, and
    /// where each range ends; and which of them takes the next one.
    parts: Vec<(Option<K::Owned>, Load<'c, K>)>,
    part: usize,
    /// When all of them last heard of it.
    told: Instant,
}

/// The result of a finished load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// Records.
    pub keys: u64,
    /// Segments. Where records were inserted one by one: of the table after that, and 0 if that
    /// could not be asked.
    pub segments: u64,
}

impl<K: BuildKeys> TableClient<K> {
    /// Begins a load into an empty table. With `expected_keys`, the memory node can refuse early
    /// what does not fit; 0 if unknown.
    ///
    /// If the table has parameters already, from [`create`](Self::create) or from records that were
    /// deleted since, the records are inserted one by one: they are visible as they are sent, and
    /// take some more memory.
    ///
    /// # Errors
    /// The table holds records, or is empty and has other parameters
    /// ([`OtherParameters`](ClientError::OtherParameters)); another client is loading; the records
    /// cannot fit.
    pub fn load(&self, parameters: TableParameters, expected_keys: u64) -> Result<Load<'_, K>, ClientError> {
        Load::begin(self, parameters, expected_keys, &K::Encoders::default())
    }

    /// As [`load`](Self::load), with a sorted sample of the keys to train the models on: ten
    /// thousand from all over the data suffice. Byte strings need more models without one; integer
    /// keys do not need one.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_like<'k>(
        &self,
        parameters: TableParameters,
        expected_keys: u64,
        sample: impl IntoIterator<Item = &'k K::Key>,
    ) -> Result<Load<'_, K>, ClientError> {
        Load::begin(self, parameters, expected_keys, &K::train(sample, expected_keys))
    }
}

impl<'c, K: BuildKeys> Load<'c, K> {
    fn begin(
        client: &'c TableClient<K>,
        parameters: TableParameters,
        expected_keys: u64,
        encoders: &K::Encoders,
    ) -> Result<Self, ClientError> {
        let ranges = clients_of_ranges(client)?;
        if ranges.is_empty() {
            return Self::begin_one(Cow::Borrowed(client), parameters, expected_keys, encoders);
        }
        let expected_keys = expected_keys.div_ceil(ranges.len() as u64);
        let mut parts = Vec::with_capacity(ranges.len());
        for (end, range) in ranges {
            let name = range.name().to_owned();
            let begun = Self::begin_one(Cow::Owned(range), parameters, expected_keys, encoders);
            parts.push((end, begun.map_err(|error| error.at(&name))?));
        }
        let mut all = Self::new(Cow::Borrowed(client), 0, client.creation(), parameters);
        // The parts are to be finished or given up.
        (all.parts, all.finished) = (parts, true);
        Ok(all)
    }

    fn new(client: Cow<'c, TableClient<K>>, number: u64, creation: u64, parameters: TableParameters) -> Self {
        let chunk_bytes = Request::chunk_bytes(client.max_request());
        Self {
            client,
            number,
            creation,
            parameters,
            chunk_bytes,
            sent: 0,
            bytes: 0,
            count: 0,
            records: Vec::new(),
            ahead: 0,
            inserting: None,
            finished: false,
            ended: None,
            parts: Vec::new(),
            part: 0,
            told: Instant::now(),
        }
    }

    /// Begins a load into a table of one memory node.
    fn begin_one(
        client: Cow<'c, TableClient<K>>,
        parameters: TableParameters,
        expected_keys: u64,
        encoders: &K::Encoders,
    ) -> Result<Self, ClientError> {
        let mut inserting = None;
        let (number, creation) = match client.begin_load(parameters, expected_keys, encoders) {
            Ok(begun) => begun,
            Err(ClientError::Refused(refusal)) if refusal.code == ErrorCode::NotEmpty => {
                let (begun, creation) = Inserting::begin(&client, &parameters, refusal)?;
                inserting = Some(begun);
                (0, creation)
            }
            Err(error) => return Err(explained(&client, &parameters, error)),
        };
        let mut load = Self::new(client, number, creation, parameters);
        load.inserting = inserting;
        Ok(load)
    }

    /// Adds a record. One request per full chunk, whose size the memory node determines (1 MiB by
    /// default), and one per piece of that size of a value that does not fit a chunk.
    ///
    /// # Errors
    /// A key or value that does not fit the table: the record is left out, and the load goes on.
    ///
    /// Any other error ends the load, and may be of records that were added before: keys out of
    /// order, a full region, a memory node that does not answer. Do not add the record once more,
    /// and do not go on with the next one: whether the chunk has arrived is not known, and all
    /// later calls fail with errors that are not retryable. If this error is, begin a new load of
    /// all records. Records that were inserted stay: then an error that would be retryable is
    /// [`OutcomeUnknown`](ClientError::OutcomeUnknown), and says how many there are.
    pub fn push(&mut self, key: impl AsKey<K>, value: &[u8]) -> Result<(), ClientError> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let key = key.as_key();
        check_record::<K>(key, value, &self.parameters.shape)?;
        let taken = if self.parts.is_empty() { self.take(key, value) } else { self.take_to_part(key, value) };
        taken.map_err(|error| self.end_with(error))
    }

    /// Notes the error that ends the load, which cannot be repeated once some of it is visible.
    fn end_with(&mut self, error: ClientError) -> ClientError {
        let error = if error.is_retryable() { partly_loaded(self.inserted(), error) } else { error };
        self.ended = Some(has_ended(&error));
        error
    }

    /// Adds a record that fits the table, which one memory node has.
    fn take(&mut self, key: &K::Key, value: &[u8]) -> Result<(), ClientError> {
        let shape = self.parameters.shape;
        if let Some(inserting) = &mut self.inserting {
            return inserting.push(&self.client, self.creation, key, value);
        }
        let mut sent = Sent::Here(value);
        if record_bytes::<K>(&shape, key, &sent) > self.chunk_bytes
            && shape.place(K::encoded_len(key), value.len()) == Some(ValuePlace::External)
        {
            // Values have at most 16 MiB.
            sent = Sent::Ahead(value.len() as u32);
        }
        let ahead = sent.len() - sent.bytes().len();
        let is_full = self.records.len() + record_bytes::<K>(&shape, key, &sent) > self.chunk_bytes;
        if is_full || self.ahead + ahead > MAX_AHEAD_BYTES {
            self.flush()?;
        }
        if ahead > 0 {
            self.send_ahead(value)?;
        }
        put_record::<K>(&shape, key, &sent, &mut self.records);
        self.count += 1;
        Ok(())
    }

    /// Adds a record to the load into its range, which is the one before's or a later one.
    fn take_to_part(&mut self, key: &K::Key, value: &[u8]) -> Result<(), ClientError> {
        while self.parts[self.part].0.as_ref().is_some_and(|end| key >= end.borrow()) {
            self.part += 1;
        }
        let (_, part) = &mut self.parts[self.part];
        let before = part.sent;
        part.take(key, value).map_err(|error| error.at(part.client.name()))?;
        if part.sent > before && self.told.elapsed() >= TOLD_EVERY { self.tell_others() } else { Ok(()) }
    }

    /// Has the memory nodes of the other ranges hear that the load goes on.
    fn tell_others(&mut self) -> Result<(), ClientError> {
        for (at, (_, part)) in self.parts.iter().enumerate() {
            if at != self.part && part.inserting.is_none() {
                let nothing = RecordChunk { first: part.sent, count: 0, records: &[] };
                let told = part.request(&Request::LoadChunk(part.number, nothing), |_| Ok(()));
                told.map_err(|error| error.at(part.client.name()))?;
            }
        }
        self.told = Instant::now();
        Ok(())
    }

    /// Sends the next record's value, which its chunk has no room for.
    fn send_ahead(&mut self, value: &[u8]) -> Result<(), ClientError> {
        // Pieces name the record by its number, modulo 2³².
        let record = (self.sent + u64::from(self.count)) as u32;
        for piece in ValuePiece::all((0, self.number, record), value, self.client.max_request()) {
            self.request(&Request::Value(piece), |_| Ok(()))?;
        }
        self.ahead += value.len();
        Ok(())
    }

    /// Ends the load and makes the table visible.
    ///
    /// # Errors
    /// As for [`push`](Self::push); nothing is visible then, unless the records were inserted.
    /// [`OutcomeUnknown`](ClientError::OutcomeUnknown) if the memory node did not answer: either
    /// all records are there or none; and if it could not write them to its disk: they are there,
    /// and lost if it restarts before it could. It is given the client's deadline and, because it
    /// may have to write all of them to a disk first, a second more for each 16 MiB.
    ///
    /// In a table over several memory nodes, one range after another becomes visible, once all
    /// records have been sent. An error names the memory node; the ranges before it stay loaded, and
    /// what was inserted. It is [`OutcomeUnknown`](ClientError::OutcomeUnknown) if there are such
    /// records, and says how many.
    pub fn finish(mut self) -> Result<Loaded, ClientError> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let finished = if self.parts.is_empty() { self.finish_one() } else { self.finish_parts() };
        finished.map_err(|error| self.end_with(error))
    }

    /// Ends the load into one memory node's table.
    fn finish_one(&mut self) -> Result<Loaded, ClientError> {
        self.flush()?;
        if let Some(inserting) = &self.inserting {
            let keys = inserting.sent();
            // All records are there, whatever becomes of this question.
            let segments = self.client.stats_in(self.creation).map_or(0, |stats| stats.segments);
            return Ok(Loaded { keys, segments });
        }
        let loaded = self.commit()?;
        self.finished = true;
        Ok(loaded)
    }

    /// Ends the loads into the ranges.
    fn finish_parts(&mut self) -> Result<Loaded, ClientError> {
        // Where this fails nothing is visible yet but what was inserted.
        for at in 0..self.parts.len() {
            let part = &mut self.parts[at].1;
            if let Err(error) = part.flush() {
                let error = error.at(part.client.name());
                return Err(partly_loaded(self.inserted(), error));
            }
        }
        let (mut there, mut all) = (self.inserted(), Loaded { keys: 0, segments: 0 });
        for (_, part) in std::mem::take(&mut self.parts) {
            let (name, is_loaded) = (part.client.name().to_owned(), part.inserting.is_none());
            let ended = part.finish().map_err(|error| partly_loaded(there, error.at(&name)));
            let Loaded { keys, segments } = ended?;
            there += if is_loaded { keys } else { 0 };
            (all.keys, all.segments) = (all.keys + keys, all.segments + segments);
        }
        Ok(all)
    }

    /// Records that were inserted.
    fn inserted(&self) -> u64 {
        let of_parts = self.parts.iter().filter_map(|(_, part)| part.inserting.as_ref());
        self.inserting.iter().chain(of_parts).map(Inserting::sent).sum()
    }

    /// Makes the records visible and, where the memory node keeps them in files, waits for these.
    fn commit(&self) -> Result<Loaded, ClientError> {
        let take = |_, body: &[u8]| match body.as_chunks::<8>().0 {
            [keys, segments, ..] => {
                Ok(Loaded { keys: u64::from_le_bytes(*keys), segments: u64::from_le_bytes(*segments) })
            }
            _ => Err(MessageError::Malformed("the reply to a load is cut short".into()).into()),
        };
        let within = self.client.deadline.saturating_add(Duration::from_secs(self.bytes / DISK_RATE));
        let committed =
            self.client.request(within, &Request::LoadCommit(self.number), Some(self.creation), take);
        committed.map_err(|error| match error {
            // Nothing was sent.
            ClientError::Fabric(FabricError::Crowded) => FabricError::Crowded.into(),
            ClientError::Fabric(error) => {
                let why = format!("no answer to the end of a load, which may be there: {error}");
                ClientError::OutcomeUnknown { why }
            }
            // All records are visible.
            ClientError::Refused(refusal) if refusal.code == ErrorCode::NotDurable => {
                ClientError::OutcomeUnknown { why: refusal.to_string() }
            }
            error => error,
        })
    }

    /// Sends a request of this load: to the table in which it was begun, and to no other of its
    /// name.
    fn request<R>(
        &self,
        request: &Request<'_>,
        take: impl FnOnce(&[u8]) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        self.client.request(self.client.deadline, request, Some(self.creation), |_, body| take(body))
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        if let Some(inserting) = &mut self.inserting {
            return inserting.send(&self.client, self.creation);
        }
        if self.count == 0 {
            return Ok(());
        }
        let chunk = RecordChunk { first: self.sent, count: self.count, records: &self.records };
        self.request(&Request::LoadChunk(self.number, chunk), |_| Ok(()))?;
        self.sent += u64::from(self.count);
        self.bytes += (self.records.len() + self.ahead) as u64;
        self.count = 0;
        self.ahead = 0;
        self.records.clear();
        Ok(())
    }
}

/// A client of one range, with the key that the range ends before.
type RangeClient<K> = (Option<<K as KeySpace>::Owned>, TableClient<K>);

/// A client of each range; none if the table is on one memory node.
fn clients_of_ranges<K: BuildKeys>(client: &TableClient<K>) -> Result<Vec<RangeClient<K>>, ClientError> {
    let Transport::Pool(pool) = &client.transport else { return Ok(Vec::new()) };
    let of_range = |core, node: String| TableClient {
        transport: Transport::One(core),
        name: node.into(),
        ..client.clone()
    };
    let ranges = pool.connected(client.deadline)?.into_iter();
    Ok(ranges.map(|(end, node, core)| (end, of_range(core, node))).collect())
}

impl<K: BuildKeys> fmt::Debug for Load<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, sent, count, records, .. } = self;
        let mut shown = f.debug_struct("Load");
        shown.field("client", client).field("sent", sent);
        shown.field("waiting", count).field("waiting_bytes", &records.len()).finish_non_exhaustive()
    }
}

impl<K: BuildKeys> Drop for Load<'_, K> {
    fn drop(&mut self) {
        if !self.finished && self.inserting.is_none() {
            // The memory node drops an unfinished load by itself when the connection ends.
            let _ = self.request(&Request::LoadAbort(self.number), |_| Ok(()));
        }
    }
}
