//! Lookups, and questions whether keys are there.

use std::borrow::Borrow;

use fpcache_client::KeyRef;
use fpcache_eval::history::client::ClientStore;
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_eval::history::{Call, Outcome};

use super::{Caller, failed, found, lock};

/// One read in this many asks whether keys are there, and not for their values.
const PRESENCE: u64 = 4;

impl<K: NumberedKeys, C: Fn() -> u64> Caller<K, C> {
    pub(super) fn get(&mut self) {
        let key = self.key();
        match self.process.random.below(PRESENCE) {
            0 => self.contains(key),
            _ => self.get_key(key),
        }
    }

    pub(super) fn get_key(&mut self, key: u64) {
        let mut reader = self.reader.take();
        self.call(key, Call::Get, |client, key| {
            let mut bytes = Vec::new();
            let answer = match &mut reader {
                Some(reader) => reader.get_into(key, &mut bytes)?,
                None => client.get_into(key, &mut bytes)?,
            };
            Ok((found(answer.version.map(|_| ClientStore::<K>::decode(&bytes))), Some(answer.plan)))
        });
        self.reader = reader;
    }

    pub(super) fn multi_get(&mut self) {
        let keys: Vec<u64> = (0..self.process.random.between(2, 5)).map(|_| self.key()).collect();
        if self.process.random.below(PRESENCE) == 0 {
            return self.multi_contains(&keys);
        }
        let open: Vec<_> = keys.iter().map(|key| lock(&self.log).invoke(*key, Call::Get)).collect();
        let owned: Vec<K::Owned> = keys.iter().map(|key| K::key(*key)).collect();
        let keys: Vec<KeyRef<'_, K>> = owned.iter().map(|key| KeyRef(key.borrow())).collect();
        let values = match &mut self.reader {
            Some(reader) => reader.multi_get(&keys),
            None => self.client.multi_get(&keys),
        };
        match values {
            Ok(values) => {
                for (open, value) in open.into_iter().zip(values) {
                    let outcome = found(value.as_deref().map(ClientStore::<K>::decode));
                    lock(&self.log).returned(open, outcome, None);
                }
            }
            Err(error) => drop(failed(&error)),
        }
    }

    pub(super) fn get_versioned(&mut self) {
        let key = self.key();
        let mut seen = None;
        self.call(key, Call::Get, |client, key| {
            seen = client.get_versioned(key)?.map(|(value, token)| (ClientStore::<K>::decode(&value), token));
            Ok((found(seen.map(|(value, _)| value)), None))
        });
        self.tokens.extend(seen.map(|seen| (key, seen)));
    }

    fn contains(&mut self, key: u64) {
        let mut reader = self.reader.take();
        self.call(key, Call::Contains, |client, key| {
            let is_there = match &mut reader {
                Some(reader) => reader.contains(key)?,
                None => client.contains(key)?,
            };
            Ok((presence(is_there), None))
        });
        self.reader = reader;
    }

    fn multi_contains(&mut self, keys: &[u64]) {
        let open: Vec<_> = keys.iter().map(|key| lock(&self.log).invoke(*key, Call::Contains)).collect();
        let owned: Vec<K::Owned> = keys.iter().map(|key| K::key(*key)).collect();
        let keys: Vec<KeyRef<'_, K>> = owned.iter().map(|key| KeyRef(key.borrow())).collect();
        let are_there = match &mut self.reader {
            Some(reader) => reader.multi_contains(&keys),
            None => self.client.multi_contains(&keys),
        };
        match are_there {
            Ok(are_there) => {
                for (open, is_there) in open.into_iter().zip(are_there) {
                    lock(&self.log).returned(open, presence(is_there), None);
                }
            }
            Err(error) => drop(failed(&error)),
        }
    }
}

fn presence(is_there: bool) -> Outcome {
    if is_there { Outcome::Exists } else { Outcome::Absent }
}
