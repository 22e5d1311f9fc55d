//! The loads that keep another table busy.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::ValueEnum;
use fpcache::key_space::U64Keys as Space;
use fpcache::message::keys::put_key;
use fpcache::message::{AskedKeys, Request, WriteReply, WriteStatus};
use fpcache_client::KeyKind;
use fpcache_client::{
    Changes, Client, ClientConfig, ClientError, CreateOptions, RecordShape, TableClient, TableParameters,
    Tables, U64Keys,
};
use fpcache_fabric::shm::{ConnectOptions, connect};
use fpcache_fabric::{Connection, Deadline, RegionName};

use super::probe::{DEADLINE, Probing};
use crate::machine::split_mix;
use crate::node::capacity_for;

/// Bytes of the long value.
const VALUE_BYTES: usize = 16 << 20;

/// Changes of one request.
const CHANGES: u64 = 1000;

/// What a table is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadName {
    /// Nothing
    Idle,
    /// 1,000 puts per request into a full table
    Full,
    /// 500 deletes and 500 puts per request in a full table
    Churn,
    /// The records of a load
    Load,
    /// The end of a load
    Commit,
    /// The drop of a table
    Drop,
    /// Lookups by the memory node, 65,000 keys per request, and 130,000, more than a reply can hold
    Get,
    /// Puts of 16 MiB
    Value,
    /// Nothing, where each put waits for the disk
    IdleSynced,
    /// 1,000 updates of one key per request, each of which waits for the disk
    OneKey,
}

impl fmt::Display for LoadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

impl LoadName {
    /// All there are.
    pub fn all() -> Vec<Self> {
        Self::value_variants().to_vec()
    }

    /// Whether the memory node has a log that is synced before a write is acknowledged.
    pub fn is_synced(self) -> bool {
        matches!(self, Self::IdleSynced | Self::OneKey)
    }

    /// Bytes of the memory node.
    pub fn capacity(self, keys: u64) -> u64 {
        2 * table_bytes(keys) + 16 * VALUE_BYTES as u64
    }
}

fn table_bytes(keys: u64) -> u64 {
    capacity_for::<U64Keys>(&TableParameters::default(), keys)
}

/// What a load did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// How often.
    pub rounds: u64,
    /// For how long.
    pub took: Duration,
}

/// The table that is kept busy.
pub struct Burden<'n> {
    pub url: &'n str,
    pub tables: &'n Tables,
    pub config: ClientConfig,
    pub keys: u64,
    pub seconds: f64,
}

impl Burden<'_> {
    /// Keeps the table busy with this.
    pub fn run(&self, load: LoadName, probing: &Probing) -> anyhow::Result<Done> {
        match load {
            LoadName::Idle | LoadName::IdleSynced => {
                let all = Duration::from_secs_f64(self.seconds);
                self.repeat(probing, || {
                    timed(probing, || {
                        std::thread::sleep(all);
                        anyhow::Ok(())
                    })
                })
            }
            LoadName::Full => self.full(probing, false),
            LoadName::Churn => self.full(probing, true),
            LoadName::Load | LoadName::Commit | LoadName::Drop => self.load_and_drop(probing, load),
            LoadName::Get => self.get(probing),
            LoadName::Value => self.value(probing),
            LoadName::OneKey => self.one_key(probing),
        }
    }

    /// Does something again and again, for as long as the options say and until a put has counted;
    /// what counts of a round is what it hands to `probing`.
    fn repeat(
        &self,
        probing: &Probing,
        mut round: impl FnMut() -> anyhow::Result<Duration>,
    ) -> anyhow::Result<Done> {
        const MOST_ROUNDS: u64 = 100_000;
        let (began, mut done) = (Instant::now(), Done::default());
        // What is measured may be a small part of a round.
        while done.rounds < MOST_ROUNDS
            && (done.took.as_secs_f64() < self.seconds && began.elapsed().as_secs_f64() < 4.0 * self.seconds
                || probing.has_none() && began.elapsed() < DEADLINE)
        {
            done.took += round()?;
            done.rounds += 1;
        }
        ensure!(!probing.has_none(), "no put fell into what is measured: ask for more --seconds or --keys");
        Ok(done)
    }

    fn create(&self, region_bytes: Option<u64>) -> anyhow::Result<TableClient<U64Keys>> {
        self.tables.create(
            &self.config.table,
            KeyKind::U64,
            CreateOptions::default().with_region_bytes(region_bytes),
        )?;
        Ok(TableClient::connect_with(self.url, self.config.clone())?)
    }

    fn full(&self, probing: &Probing, deletes: bool) -> anyhow::Result<Done> {
        /// Bytes of the region for each key, and some more.
        const BYTES: (u64, u64) = (24, 1 << 20);
        let client = self.create(Some(BYTES.0 * self.keys + BYTES.1))?;
        client.create(TableParameters::default())?;
        let (mut state, mut changes, mut replies) = (1, Changes::new(), Vec::new());
        let mut there = std::collections::VecDeque::new();
        let mut refused = 0;
        while refused < 10 {
            let keys: Vec<u64> = (0..CHANGES).map(|_| split_mix(&mut state)).collect();
            changes.clear();
            for key in &keys {
                changes.put(*key, &[1; 8]);
            }
            apply_what_fits(&client, &changes, &mut replies)?;
            let done = |reply: &WriteReply| reply.status == WriteStatus::Done;
            there.extend(keys.iter().zip(&replies).filter(|(_, reply)| done(reply)).map(|(key, _)| *key));
            refused += usize::from(!replies.iter().all(done));
        }
        self.repeat(probing, || {
            changes.clear();
            for number in 0..CHANGES {
                match there.pop_front().filter(|_| deletes && number % 2 == 0) {
                    Some(key) => changes.delete(key),
                    None => {
                        let key = split_mix(&mut state);
                        if deletes {
                            there.push_back(key);
                        }
                        changes.put(key, &[2; 8])
                    }
                };
            }
            timed(probing, || apply_what_fits(&client, &changes, &mut replies))
        })
    }

    fn load_and_drop(&self, probing: &Probing, load: LoadName) -> anyhow::Result<Done> {
        // Gaps of any length up to this, so that segments are as long as random keys have them.
        let most = (u64::MAX / (self.keys + 1)).max(2);
        self.repeat(probing, || {
            let client = self.create(None)?;
            let mut loading = client.load(TableParameters::default(), self.keys)?;
            let (mut state, mut key) = (1, 0);
            let mut push = || {
                (0..self.keys).try_for_each(|number| {
                    key += 1 + split_mix(&mut state) % (most - 1);
                    loading.push(key, &number.to_le_bytes())
                })
            };
            let mut took = Duration::ZERO;
            if load == LoadName::Load {
                took += timed(probing, push)?;
            } else {
                push()?;
            }
            if load == LoadName::Commit {
                took += timed(probing, || loading.finish())?;
            } else {
                loading.finish()?;
            }
            let drop_it = || self.tables.drop_table(&self.config.table);
            if load == LoadName::Drop {
                took += timed(probing, drop_it)?;
            } else {
                drop_it()?;
            }
            Ok(took)
        })
    }

    fn get(&self, probing: &Probing) -> anyhow::Result<Done> {
        let client = self.create(None)?;
        client.create(TableParameters::default())?;
        let region = RegionName::new(self.config.table.as_str())?;
        let options = ConnectOptions { region, deadline: Deadline::after(DEADLINE), ..Default::default() };
        let connection = connect(&self.url.parse()?, options)?;
        let request = |count: u32| {
            let (mut keys, mut request) = (Vec::new(), Vec::new());
            (0..u64::from(count)).for_each(|key| put_key::<Space>(&key, &mut keys));
            Request::Get(AskedKeys { count, bytes: &keys })
                .encode::<Space>(connection.creation(), &mut request);
            request
        };
        let (answered, refused, mut reply) = (request(65_000), request(130_000), Vec::new());
        self.repeat(probing, || {
            timed(probing, || {
                connection.call(&answered, &mut reply, Deadline::after(DEADLINE))?;
                ensure!(fpcache::message::decode_reply(&reply).is_ok(), "a lookup was refused");
                Ok(connection.call(&refused, &mut reply, Deadline::after(DEADLINE))?)
            })
        })
    }

    fn value(&self, probing: &Probing) -> anyhow::Result<Done> {
        const VALUES: u64 = 8;
        let client = self.create(None)?;
        let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 24 };
        client.create(TableParameters { shape, ..TableParameters::default() })?;
        let (value, mut number) = (vec![7; VALUE_BYTES], 0);
        self.repeat(probing, || {
            number += 1;
            timed(probing, || client.put(number % VALUES, &value))
        })
    }

    fn one_key(&self, probing: &Probing) -> anyhow::Result<Done> {
        let client = self.create(None)?;
        client.create(TableParameters::default())?;
        client.put(1u64, &[0; 8])?;
        let (mut changes, mut replies) = (Changes::new(), Vec::new());
        for number in 0..CHANGES {
            changes.update(1u64, &number.to_le_bytes());
        }
        self.repeat(probing, || timed(probing, || client.apply(&changes, &mut replies)))
    }
}

/// Makes changes, as far as there is room.
fn apply_what_fits(
    client: &Client,
    changes: &Changes,
    replies: &mut Vec<WriteReply>,
) -> Result<(), ClientError> {
    client.apply(changes, replies).or_else(|error| match error {
        ClientError::NoRoom { .. } => Ok(()),
        error => Err(error),
    })
}

/// Has the puts beside it count; returns how long it took.
fn timed<R, E: Into<anyhow::Error>>(
    probing: &Probing,
    work: impl FnOnce() -> Result<R, E>,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    probing.during(work).map_err(Into::into)?;
    Ok(began.elapsed())
}
