//! `put`, `insert`, `update` and `del`

use clap::Args;
use fpcache_client::{Changes, Client, CompareAndSet, RecordToken, WriteStatus};
use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::key;
use crate::output::Output;
use crate::value::Format;

/// A key and the value it gets.
#[derive(Debug, Args)]
pub(crate) struct Record {
    /// Key, in decimal or as in 0x2a
    #[arg(value_name = "KEY", value_parser = key)]
    key: u64,

    /// Value, of the table's size
    #[arg(value_name = "VALUE")]
    value: String,

    #[command(flatten)]
    format: Format,
}

/// A record whose value is replaced.
#[derive(Debug, Args)]
pub(crate) struct Update {
    #[command(flatten)]
    record: Record,

    /// Only if the record still has this token, as `get --json` shows it
    #[arg(long, value_name = "TOKEN", value_parser = key)]
    if_token: Option<u64>,
}

/// Records to remove.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// Key, in decimal or as in 0x2a
    #[arg(required = true, value_name = "KEY", value_parser = key)]
    keys: Vec<u64>,
}

impl Record {
    fn bytes(&self, client: &Client) -> anyhow::Result<Vec<u8>> {
        self.format.parse(&self.value, client.table()?.record.parameters.value_bytes as usize)
    }

    pub(crate) fn put(&self, client: &Client, output: &mut Output) -> anyhow::Result<Outcome> {
        client.put(self.key, &self.bytes(client)?)?;
        self.said(output, true, "")
    }

    pub(crate) fn insert(&self, client: &Client, output: &mut Output) -> anyhow::Result<Outcome> {
        let is_new = client.insert(self.key, &self.bytes(client)?)?;
        self.said(output, is_new, "is there already")
    }

    /// Says what became of it.
    fn said(&self, output: &mut Output, is_done: bool, otherwise: &str) -> anyhow::Result<Outcome> {
        if output.is_json() {
            output.document(&json!({ "key": self.key, "done": is_done }))?;
        }
        if is_done {
            return Ok(Outcome::Done);
        }
        eprintln!("key {} {otherwise}", self.key);
        Ok(Outcome::Wrong)
    }
}

impl Update {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> anyhow::Result<Outcome> {
        let (record, value) = (&self.record, self.record.bytes(client)?);
        let Some(token) = self.if_token else {
            let is_there = client.update(record.key, &value)?;
            return record.said(output, is_there, "is absent");
        };
        match client.compare_and_set(record.key, RecordToken::from_bits(token), &value)? {
            CompareAndSet::Done(_) => record.said(output, true, ""),
            CompareAndSet::Absent => record.said(output, false, "is absent"),
            CompareAndSet::Differs(now) => {
                record.said(output, false, &format!("has changed: its token is {:#x} now", now.to_bits()))
            }
        }
    }
}

impl Delete {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> anyhow::Result<Outcome> {
        let (mut changes, mut replies) = (Changes::new(), Vec::new());
        self.keys.iter().for_each(|key| _ = changes.delete(*key));
        client.apply(&changes, &mut replies)?;
        let mut outcome = Outcome::Done;
        for (key, reply) in self.keys.iter().zip(&replies) {
            let is_done = reply.status == WriteStatus::Done;
            if output.is_json() {
                let element: Value = json!({ "key": key, "done": is_done });
                output.element(&element)?;
            }
            match reply.status {
                WriteStatus::Done => {}
                WriteStatus::NotDurable => anyhow::bail!(
                    "the memory node could not write the removal of key {key} to its log: make room on its disk"
                ),
                _ => {
                    outcome = Outcome::Wrong;
                    eprintln!("key {key} is absent");
                }
            }
        }
        if output.is_json() {
            output.end_array()?;
        }
        Ok(outcome)
    }
}
