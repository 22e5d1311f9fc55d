//! What the operations run on, behind one trait.

use anyhow::ensure;
use fpcache::message::{WriteReply, WriteStatus};
use fpcache_client::{Answers, Changes, Client};

/// A store of records that threads read and change at once.
pub trait Store: Sync {
    /// One thread's way to it.
    type Session<'a>: Session
    where
        Self: 'a;

    /// A session for the calling thread.
    fn session(&self) -> Self::Session<'_>;
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

    /// Makes changes together, in order, and says how many were refused: inserts of a record that is there, and
    /// updates of one that is not. `values` are the values one behind the other.
    fn change(&mut self, changes: &[(Change, u64)], values: &[u8]) -> anyhow::Result<u64>;
}

impl Store for Client {
    type Session<'a> = ClientSession<'a>;

    fn session(&self) -> ClientSession<'_> {
        ClientSession {
            client: self,
            value: Vec::new(),
            answers: Answers::new(),
            changes: Changes::new(),
            replies: Vec::new(),
        }
    }
}

/// One thread's buffers.
#[derive(Debug)]
pub struct ClientSession<'a> {
    client: &'a Client,
    value: Vec<u8>,
    answers: Answers,
    changes: Changes,
    replies: Vec<WriteReply>,
}

impl Session for ClientSession<'_> {
    #[inline]
    fn read(&mut self, keys: &[u64], mut take: impl FnMut(usize, Option<&[u8]>)) -> anyhow::Result<()> {
        if let [key] = *keys {
            let found = self.client.get_into(key, &mut self.value)?;
            take(0, found.version.map(|_| &*self.value));
        } else {
            self.client.multi_get_into(keys, &mut self.answers)?;
            (0..keys.len()).for_each(|i| take(i, self.answers.value(i)));
        }
        Ok(())
    }

    fn scan(&mut self, start: u64, limit: usize, take: impl FnMut(u64, &[u8])) -> anyhow::Result<()> {
        self.client.scan_with(start, limit, take)?;
        Ok(())
    }

    fn change(&mut self, changes: &[(Change, u64)], values: &[u8]) -> anyhow::Result<u64> {
        if let [(change, key)] = *changes {
            let is_done = match change {
                Change::Insert => self.client.insert(key, values)?,
                Change::Update => self.client.update(key, values)?,
            };
            return Ok(u64::from(!is_done));
        }
        let value_bytes = values.len().checked_div(changes.len()).unwrap_or(0);
        self.changes.clear();
        for (&(change, key), value) in changes.iter().zip(values.chunks(value_bytes.max(1))) {
            match change {
                Change::Insert => self.changes.insert(key, value),
                Change::Update => self.changes.update(key, value),
            };
        }
        self.client.apply(&self.changes, &mut self.replies)?;
        let mut refused = 0;
        for reply in &self.replies {
            ensure!(
                reply.status != WriteStatus::NoRoom,
                "the memory node's region is full: give it more with --capacity"
            );
            ensure!(
                reply.status != WriteStatus::NotDurable,
                "the memory node could not write its log: see what it says, and whether the disk is full"
            );
            refused += u64::from(reply.status != WriteStatus::Done);
        }
        Ok(refused)
    }
}

/// Times that a client had to bring its models up to date since it was made.
pub fn refreshes(client: &Client) -> Option<u64> {
    let counters = client.counters();
    Some(counters.refreshes + counters.reopens)
}
