//! The `put`, `insert`, `update` and `del` commands.

use std::borrow::Borrow;
use std::path::PathBuf;

use clap::Args;
use fpcache_client::{Changes, CompareAndSet, KeyRef, RecordToken, TableClient, WriteStatus};
use serde_json::json;

use crate::keys::{KeyFormat, Keys};
use crate::numbers::number;
use crate::output::{Outcome, Output};
use crate::value::{Format, read_value};

/// A key and its value.
#[derive(Debug, Args)]
pub(crate) struct RecordArguments {
    /// Key: a u64 in decimal or as in 0x2a, or text, with \xNN for any byte
    #[arg(value_name = "KEY")]
    key: String,

    /// Value, of the table's length
    #[arg(value_name = "VALUE", required_unless_present = "value_file", conflicts_with = "value_file")]
    value: Option<String>,

    /// Read the raw value from this file, or - for standard input
    #[arg(long, value_name = "PATH")]
    value_file: Option<PathBuf>,

    #[command(flatten)]
    format: Format,

    #[command(flatten)]
    key_format: KeyFormat,
}

/// A record whose value is replaced.
#[derive(Debug, Args)]
pub(crate) struct Update {
    #[command(flatten)]
    record: RecordArguments,

    /// Only if the record still has this token, as printed by `get --json`
    #[arg(long, value_name = "TOKEN", value_parser = number)]
    if_token: Option<u64>,
}

/// Records to remove.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// Key: a u64 in decimal or as in 0x2a, or text, with \xNN for any byte
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,

    #[command(flatten)]
    key_format: KeyFormat,
}

impl RecordArguments {
    /// Key and value, parsed for the table.
    fn parse<K: Keys>(&self, client: &TableClient<K>) -> anyhow::Result<(K::Owned, Vec<u8>)> {
        let key = K::parse(&self.key, self.key_format)?;
        let value = match (&self.value_file, &self.value) {
            (Some(path), _) => read_value(path)?,
            (None, value) => self.format.in_table(client)?.parse(value.as_deref().unwrap_or_default())?,
        };
        Ok((key, value))
    }

    pub(crate) fn put<K: Keys>(
        &self,
        client: &TableClient<K>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let (key, value) = self.parse(client)?;
        client.put(KeyRef::<K>(key.borrow()), &value)?;
        self.report_outcome::<K>(key.borrow(), output, true, "")
    }

    pub(crate) fn insert<K: Keys>(
        &self,
        client: &TableClient<K>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let (key, value) = self.parse(client)?;
        let is_new = client.insert(KeyRef::<K>(key.borrow()), &value)?.is_new();
        self.report_outcome::<K>(key.borrow(), output, is_new, "exists already")
    }

    /// Reports the outcome.
    fn report_outcome<K: Keys>(
        &self,
        key: &K::Key,
        output: &mut Output,
        is_done: bool,
        otherwise: &str,
    ) -> anyhow::Result<Outcome> {
        if output.is_json() {
            output.document(&json!({ "key": K::json(key, self.key_format), "done": is_done }))?;
        }
        if is_done {
            return Ok(Outcome::Done);
        }
        eprintln!("key {} {otherwise}", K::short(key, self.key_format));
        Ok(Outcome::Wrong)
    }
}

impl Update {
    pub(crate) fn run<K: Keys>(
        &self,
        client: &TableClient<K>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let (key, value) = self.record.parse(client)?;
        let key: &K::Key = key.borrow();
        let Some(token) = self.if_token else {
            let is_there = client.update(KeyRef::<K>(key), &value)?;
            return self.record.report_outcome::<K>(key, output, is_there, "is absent");
        };
        match client.compare_and_set(KeyRef::<K>(key), RecordToken::from_bits(token), &value)? {
            CompareAndSet::Done(_) => self.record.report_outcome::<K>(key, output, true, ""),
            CompareAndSet::Absent => self.record.report_outcome::<K>(key, output, false, "is absent"),
            CompareAndSet::Differs(now) => {
                let otherwise = format!("has changed: its token is {:#x} now", now.to_bits());
                self.record.report_outcome::<K>(key, output, false, &otherwise)
            }
        }
    }
}

impl Delete {
    pub(crate) fn run<K: Keys>(
        &self,
        client: &TableClient<K>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let (mut changes, mut replies) = (Changes::<K>::default(), Vec::new());
        let keys = self.keys.iter().map(|key| K::parse(key, self.key_format));
        let keys = keys.collect::<anyhow::Result<Vec<_>>>()?;
        keys.iter().for_each(|key| _ = changes.delete(KeyRef::<K>(key.borrow())));
        // Also if some of them were not made: those that were are told.
        let ended = client.apply(&changes, &mut replies);
        let mut outcome = Outcome::Done;
        for (key, reply) in keys.iter().zip(&replies) {
            let shown = K::short(key.borrow(), self.key_format);
            if output.is_json() {
                let is_done = reply.status == WriteStatus::Done;
                output.element(&json!({ "key": K::json(key.borrow(), self.key_format), "done": is_done }))?;
            }
            match reply.status {
                WriteStatus::Done => {}
                // The call's error says so.
                _ if reply.is_refused() => {}
                _ => {
                    outcome = Outcome::Wrong;
                    eprintln!("key {shown} is absent");
                }
            }
        }
        ended?;
        output.end_array()?;
        Ok(outcome)
    }
}
