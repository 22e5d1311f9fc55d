//! Records that are put together into a table that has records already.

use std::borrow::Borrow;

use fpcache_client::{Changes, ClientError, KeyRef, TableClient, WriteReply, WriteStatus};

use crate::keys::Keys;

/// Records sent together.
const RECORDS: usize = 1024;
/// Bytes of values sent together; one more value may come on top.
const BYTES: usize = 1 << 20;

/// Some records that are to be sent.
#[derive(Debug, Default)]
pub(crate) struct WriteGroup<K: Keys> {
    keys: Vec<K::Owned>,
    values: Vec<u8>,
    /// Where each value ends.
    ends: Vec<usize>,
    inserts: Changes<K>,
    puts: Changes<K>,
    replies: Vec<WriteReply>,
}

impl<K: Keys> WriteGroup<K> {
    pub(crate) fn push(&mut self, key: &K::Key, value: &[u8]) {
        self.keys.push(key.to_owned());
        self.values.extend_from_slice(value);
        self.ends.push(self.values.len());
    }

    pub(crate) fn is_full(&self) -> bool {
        self.keys.len() >= RECORDS || self.values.len() >= BYTES
    }

    /// Puts the records, and returns how many of them are new. The group is empty then.
    pub(crate) fn send(&mut self, client: &TableClient<K>) -> Result<u64, ClientError> {
        self.inserts.clear();
        self.puts.clear();
        let mut start = 0;
        for (key, end) in self.keys.iter().zip(&self.ends) {
            self.inserts.insert(KeyRef::<K>(key.borrow()), &self.values[start..*end]);
            start = *end;
        }
        client.apply(&self.inserts, &mut self.replies)?;
        let (mut new, mut start) = (0, 0);
        for ((key, end), reply) in self.keys.iter().zip(&self.ends).zip(&self.replies) {
            match reply.status {
                WriteStatus::Done => new += 1,
                _ => _ = self.puts.put(KeyRef::<K>(key.borrow()), &self.values[start..*end]),
            }
            start = *end;
        }
        client.apply(&self.puts, &mut self.replies)?;
        self.keys.clear();
        self.values.clear();
        self.ends.clear();
        Ok(new)
    }
}
