//! The stores that operations run on, behind one trait. Keys are numbers here, as in
//! [`DataSet::numbers`].

use std::borrow::Borrow;

use fpcache::message::{WriteReply, WriteStatus};
use fpcache_client::{Answers, BuildKeys, Changes, KeyRef, Pipeline, TableClient};

use crate::data::{DataKeys, DataSet};

/// A store of records that threads read and change at once.
pub trait Store: Sync {
    /// One thread's way to it.
    type Session<'a>: Session
    where
        Self: 'a;

    /// A session for the calling thread, which has up to `in_flight` writes under way.
    ///
    /// # Errors
    /// If the store is gone.
    fn session(&self, in_flight: usize) -> anyhow::Result<Self::Session<'_>>;

    /// Reads that the hot cache has answered so far, all sessions together, if there is one.
    ///
    /// # Errors
    /// If the store is gone.
    fn hits(&self) -> anyhow::Result<Option<u64>>;
}

/// A change of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes a record, which is not there.
    Insert,
    /// Replaces the value of a record, which is there.
    Update,
}

/// Reads and changes records, in buffers that it keeps.
pub trait Session {
    /// Looks keys up together; `take` gets each one's index and value.
    fn read(&mut self, keys: &[u64], take: impl FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()>;

    /// Reads up to `limit` records in key order from `start` on.
    fn scan(&mut self, start: u64, limit: usize, take: impl FnMut(u64, &[u8])) -> anyhow::Result<()>;

    /// Makes changes together, in order, and says how many were refused: inserts of a record that
    /// is there, and updates of one that is not. `values` are the values one after the other. Of a
    /// single change that may be under way when this returns a later call says so.
    fn change(&mut self, changes: &[(Change, u64)], values: &[u8]) -> anyhow::Result<u64>;

    /// Waits for all changes under way, and says how many were refused.
    fn finish(&mut self) -> anyhow::Result<u64>;
}

/// A client of a table with keys of a data set.
#[derive(Debug)]
pub struct Named<'s, K: DataKeys> {
    /// The client.
    pub client: TableClient<K>,
    /// The data set.
    pub set: &'s K::Set,
}

impl<K: DataKeys> Store for Named<'_, K> {
    type Session<'a>
        = ClientSession<'a, K>
    where
        Self: 'a;

    fn session(&self, in_flight: usize) -> anyhow::Result<ClientSession<'_, K>> {
        let pipeline = if in_flight > 1 { Some(self.client.pipeline(in_flight)?) } else { None };
        Ok(ClientSession {
            client: &self.client,
            set: self.set,
            pipeline,
            key: Vec::new(),
            value: Vec::new(),
            answers: Answers::new(),
            changes: Changes::default(),
            replies: Vec::new(),
        })
    }

    fn hits(&self) -> anyhow::Result<Option<u64>> {
        Ok(self.client.cache_stats()?.map(|stats| stats.hits))
    }
}

/// One thread's buffers.
#[derive(Debug)]
pub struct ClientSession<'a, K: DataKeys> {
    client: &'a TableClient<K>,
    set: &'a K::Set,
    /// What single operations go through, if writes may be under way.
    pipeline: Option<Pipeline<K>>,
    key: Vec<u8>,
    value: Vec<u8>,
    answers: Answers,
    changes: Changes<K>,
    replies: Vec<WriteReply>,
}

/// What no key of a data set counts as.
const NO_KEY: u64 = u64::MAX;

impl<K: DataKeys> Session for ClientSession<'_, K> {
    #[inline]
    fn read(&mut self, keys: &[u64], mut take: impl FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        if let [number] = *keys {
            let key = self.set.named(number, &mut self.key);
            let key = KeyRef::<K>(key.borrow());
            let found = match &mut self.pipeline {
                Some(pipeline) => pipeline.get_into(key, &mut self.value)?,
                None => self.client.get_into(key, &mut self.value)?,
            };
            take(0, found.version.map(|_| &*self.value));
        } else {
            let Self { client, set, pipeline, key, answers, .. } = self;
            K::with_named(set, keys, key, |keys| match pipeline {
                Some(pipeline) => pipeline.multi_get_into(K::as_keys(keys), answers),
                None => client.multi_get_into(K::as_keys(keys), answers),
            })?;
            (0..keys.len()).for_each(|i| take(i, self.answers.value(i)));
        }
        Ok(())
    }

    fn scan(&mut self, start: u64, limit: usize, mut take: impl FnMut(u64, &[u8])) -> anyhow::Result<()> {
        let Self { client, set, pipeline, key, .. } = self;
        let (mut after, mut buffer) = (start, Vec::new());
        let take = |key: K::View<'_>, value: &[u8]| {
            let number = set.number(key, after, &mut buffer);
            after = number.map_or(after, |number| number + 1);
            take(number.unwrap_or(NO_KEY), value);
        };
        let start = set.named(start, key);
        let start = KeyRef::<K>(start.borrow());
        match pipeline {
            Some(pipeline) => pipeline.scan_with(start, limit, take)?,
            None => client.scan_with(start, limit, take)?,
        };
        Ok(())
    }

    fn change(&mut self, changes: &[(Change, u64)], values: &[u8]) -> anyhow::Result<u64> {
        if let Some(pipeline) = &mut self.pipeline {
            return in_flight(pipeline, self.set, changes, values, &mut self.key);
        }
        if let [(change, number)] = *changes {
            let key = self.set.named(number, &mut self.key);
            let key = KeyRef::<K>(key.borrow());
            let is_done = match change {
                Change::Insert => self.client.insert(key, values)?.is_new(),
                Change::Update => self.client.update(key, values)?,
            };
            return Ok(u64::from(!is_done));
        }
        let value_bytes = values.len().checked_div(changes.len()).unwrap_or(0);
        self.changes.clear();
        for (&(change, number), value) in changes.iter().zip(values.chunks(value_bytes.max(1))) {
            let key = self.set.named(number, &mut self.key);
            let key = KeyRef::<K>(key.borrow());
            match change {
                Change::Insert => self.changes.insert(key, value),
                Change::Update => self.changes.update(key, value),
            };
        }
        self.client.apply(&self.changes, &mut self.replies)?;
        Ok(self.replies.iter().filter(|reply| reply.status != WriteStatus::Done).count() as u64)
    }

    fn finish(&mut self) -> anyhow::Result<u64> {
        let Some(pipeline) = &mut self.pipeline else { return Ok(0) };
        pipeline.settle_all();
        refused(pipeline)
    }
}

/// Posts changes, and says how many of those that have ended were refused.
fn in_flight<K: DataKeys>(
    pipeline: &mut Pipeline<K>,
    set: &K::Set,
    changes: &[(Change, u64)],
    values: &[u8],
    buffer: &mut Vec<u8>,
) -> anyhow::Result<u64> {
    let value_bytes = values.len().checked_div(changes.len()).unwrap_or(0);
    for (&(change, number), value) in changes.iter().zip(values.chunks(value_bytes.max(1))) {
        let key = set.named(number, buffer);
        let key = KeyRef::<K>(key.borrow());
        match change {
            Change::Insert => pipeline.insert(key, value)?,
            Change::Update => pipeline.update(key, value)?,
        };
    }
    refused(pipeline)
}

/// Of the changes that are known to have ended those that were refused.
fn refused<K: BuildKeys>(pipeline: &mut Pipeline<K>) -> anyhow::Result<u64> {
    let mut refused = 0;
    while let Some(ended) = pipeline.poll() {
        refused += u64::from(ended.outcome?.status != WriteStatus::Done);
    }
    Ok(refused)
}

/// Times that a client had to bring its models up to date since it was made.
pub fn refreshes<K: BuildKeys>(client: &TableClient<K>) -> Option<u64> {
    let counters = client.counters();
    Some(counters.refreshes + counters.reopens)
}
