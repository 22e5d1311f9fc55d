//! Stress runs over FPCache's asynchronous client.

use std::borrow::Borrow;
use std::future::Future;
use std::sync::Arc;

use fpcache_client::{AsyncTableClient, Changes, ClientError, KeyRef, RecordToken, U64Keys, WriteStatus};
use tokio::runtime::Runtime;

use super::client::{ClientStore, numbers, outcome_of};
use super::keys::NumberedKeys;
use super::operation::Outcome;
use super::store::{Answer, Store};

/// A client for tasks as a store of numbers, as [`ClientStore`] is: each process waits for its
/// calls, which several have under way at once over one client.
#[derive(Debug)]
pub struct TaskStore<K: NumberedKeys = U64Keys> {
    runtime: Arc<Runtime>,
    client: AsyncTableClient<K>,
    /// For what has no call of tasks.
    others: ClientStore<K>,
}

impl<K: NumberedKeys> TaskStore<K> {
    /// Over a client of such a table as [`ClientStore::new`] takes, which that runtime serves.
    pub fn new(runtime: Arc<Runtime>, client: AsyncTableClient<K>) -> Self {
        let others = ClientStore::new(client.client().clone());
        Self { runtime, client, others }
    }

    fn wait<T>(&self, call: impl Future<Output = Result<T, ClientError>>) -> Answer<T> {
        Ok((self.runtime.block_on(call)?, None))
    }
}

fn encoded<K: NumberedKeys>(value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    ClientStore::<K>::encode(value, &mut bytes);
    bytes
}

impl<K: NumberedKeys> Store for TaskStore<K> {
    type Token = RecordToken;

    fn get(&mut self, key: u64) -> Answer<Option<u64>> {
        let key = K::key(key);
        let (value, plan) = self.wait(self.client.get(KeyRef::<K>(key.borrow())))?;
        Ok((value.as_deref().map(ClientStore::<K>::decode), plan))
    }

    fn multi_get(&mut self, keys: &[u64]) -> Answer<Vec<Option<u64>>> {
        let keys: Vec<K::Owned> = keys.iter().map(|key| K::key(*key)).collect();
        let keys: Vec<KeyRef<'_, K>> = keys.iter().map(|key| KeyRef(key.borrow())).collect();
        let (values, plan) = self.wait(self.client.multi_get(&keys))?;
        Ok((values.iter().map(|value| value.as_deref().map(ClientStore::<K>::decode)).collect(), plan))
    }

    fn contains(&mut self, key: u64) -> Answer<bool> {
        let key = K::key(key);
        self.wait(self.client.contains(KeyRef::<K>(key.borrow())))
    }

    fn multi_contains(&mut self, keys: &[u64]) -> Answer<Vec<bool>> {
        let keys: Vec<K::Owned> = keys.iter().map(|key| K::key(*key)).collect();
        let keys: Vec<KeyRef<'_, K>> = keys.iter().map(|key| KeyRef(key.borrow())).collect();
        self.wait(self.client.multi_contains(&keys))
    }

    fn get_versioned(&mut self, key: u64) -> Answer<Option<(u64, RecordToken)>> {
        let key = K::key(key);
        let (record, plan) = self.wait(self.client.get_versioned(KeyRef::<K>(key.borrow())))?;
        Ok((record.map(|(value, token)| (ClientStore::<K>::decode(&value), token)), plan))
    }

    fn scan(&mut self, start: u64, limit: u32) -> Answer<Vec<(u64, u64)>> {
        let start = K::key(start);
        self.wait(async {
            let mut records = Vec::with_capacity(limit as usize);
            let mut scan = self.client.scan(KeyRef::<K>(start.borrow()), limit as usize);
            while let Some(record) = scan.next().await {
                let (key, value) = record?;
                records.push((K::number(key.borrow()), ClientStore::<K>::decode(&value)));
            }
            Ok(records)
        })
    }

    /// By a scan, or by a range from its end.
    fn scan_back(&mut self, start: u64, limit: u32) -> Answer<Vec<(u64, u64)>> {
        let start = K::key(start);
        let start = KeyRef::<K>(start.borrow());
        self.wait(async {
            let mut records = Vec::with_capacity(limit as usize);
            let mut scan = self.client.scan_back(start, limit as usize);
            let mut range = self.client.range(..=start);
            while records.len() < limit as usize {
                let next = if limit.is_multiple_of(2) { scan.next().await } else { range.next_back().await };
                let Some(record) = next else { break };
                let (key, value) = record?;
                records.push((K::number(key.borrow()), ClientStore::<K>::decode(&value)));
            }
            Ok(records)
        })
    }

    fn count(&mut self, start: u64, end: u64) -> Answer<u64> {
        let (start, end) = (K::key(start), K::key(end));
        self.wait(self.client.count(KeyRef::<K>(start.borrow()), KeyRef::<K>(end.borrow())))
    }

    fn nearest(&mut self, keys: &[u64], below: bool) -> Answer<Vec<Option<(u64, u64)>>> {
        let owned: Vec<K::Owned> = keys.iter().map(|key| K::key(*key)).collect();
        let named: Vec<KeyRef<'_, K>> = owned.iter().map(|key| KeyRef(key.borrow())).collect();
        let client = &self.client;
        self.wait(async {
            let found = match (keys, &named[..]) {
                ([u64::MAX], _) if below => vec![client.last().await?],
                ([0], _) if !below => vec![client.first().await?],
                (_, [key]) if below => vec![client.floor(*key).await?],
                (_, [key]) => vec![client.ceiling(*key).await?],
                (_, keys) if below => client.multi_floor(keys).await?,
                (_, keys) => client.multi_ceiling(keys).await?,
            };
            Ok(found.into_iter().map(|record| record.map(numbers::<K>)).collect())
        })
    }

    fn insert(&mut self, key: u64, value: u64) -> Answer<bool> {
        let (key, value) = (K::key(key), encoded::<K>(value));
        self.wait(async { Ok(self.client.insert(KeyRef::<K>(key.borrow()), &value).await?.is_new()) })
    }

    fn put(&mut self, key: u64, value: u64) -> Answer<()> {
        let (key, value) = (K::key(key), encoded::<K>(value));
        self.wait(self.client.put(KeyRef::<K>(key.borrow()), &value))
    }

    /// As a group of one change.
    fn update(&mut self, key: u64, value: u64) -> Answer<bool> {
        let (key, value) = (K::key(key), encoded::<K>(value));
        let mut changes = Changes::<K>::default();
        changes.update(KeyRef::<K>(key.borrow()), &value);
        let mut replies = Vec::new();
        let ((), plan) = self.wait(self.client.apply(&changes, &mut replies))?;
        Ok((replies.iter().all(|reply| reply.status == WriteStatus::Done), plan))
    }

    fn delete(&mut self, key: u64) -> Answer<bool> {
        let key = K::key(key);
        self.wait(self.client.delete(KeyRef::<K>(key.borrow())))
    }

    fn compare_and_set(&mut self, key: u64, token: RecordToken, value: u64) -> Answer<Outcome> {
        let (key, value) = (K::key(key), encoded::<K>(value));
        let (ended, plan) =
            self.wait(self.client.compare_and_set(KeyRef::<K>(key.borrow()), token, &value))?;
        Ok((outcome_of(&ended), plan))
    }

    fn rebuilds(&mut self) -> Option<u64> {
        self.others.rebuilds()
    }
}
