//! The `verify` command.

use std::borrow::Borrow;
use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use fpcache_client::{Answers, KeyKind, TableClient, TableName};
use fpcache_datasets::{Bar, KeySet, write_value};
use serde_json::json;

use crate::data::Data;
use crate::keys::{KeyFormat, Keys};
use crate::load::VALUE_BYTES;
use crate::output::{Outcome, Output, counted};

/// Keys looked up together.
const GROUP: usize = 256;
/// Groups between two reports of progress.
const STEP: usize = 256;
/// Wrong keys that are printed one by one.
const SHOWN: u64 = 5;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    data: Data,
}

/// Counts of wrong answers.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    missing: u64,
    wrong: u64,
}

impl Tally {
    /// Counts a key that is missing or has a wrong value, and prints it if it is one of the first.
    fn count(&mut self, key: &str, is_missing: bool) {
        *(if is_missing { &mut self.missing } else { &mut self.wrong }) += 1;
        let so_far = self.missing + self.wrong;
        if so_far <= SHOWN {
            eprintln!("key {key} {}", if is_missing { "is missing" } else { "has a wrong value" });
        } else if so_far == SHOWN + 1 {
            eprintln!("further keys are counted but not shown");
        }
    }
}

impl Verify {
    /// The kind of the table's keys, which must be that of the data set's.
    pub(crate) fn checked(&self, kind: KeyKind, table: &TableName) -> anyhow::Result<KeyKind> {
        let wanted = self.data.key_kind();
        ensure!(
            kind == wanted,
            "the table `{table}` has keys of the kind {kind}, but the data set's are of the kind {wanted}: name the table \
             it was loaded into with --table"
        );
        Ok(kind)
    }

    pub(crate) fn run<K: Keys>(
        &self,
        client: &TableClient<K>,
        table: &TableName,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        // Those that are there now: the table's record counts those of its last directory.
        let held = client.stats()?.keys;
        let bar = Bar::of_keys();
        let dataset = self.data.open::<K>(&bar)?;
        if dataset.len() as u64 != held {
            let (holds, name, asked) = (counted(held, "key"), dataset.name(), dataset.len());
            eprintln!("note: the table `{table}` at {} holds {holds}, {name} has {asked}", client.name());
        }
        let started = Instant::now();
        let tally = check(client, &dataset, client.shape()?.value_bytes, &bar)?;
        let seconds = started.elapsed().as_secs_f64();
        let Tally { missing, wrong } = tally;
        let (name, source, keys) = (dataset.name(), dataset.source(), dataset.len());
        if output.is_json() {
            output.document(&json!({
                "dataset": name,
                "dataset_source": source,
                "keys": keys,
                "table": table.as_str(),
                "held_keys": held,
                "missing": missing,
                "wrong": wrong,
                "seconds": seconds,
            }))?;
        } else {
            let verdict = match (missing, wrong) {
                (0, 0) => "every value is right".to_owned(),
                _ => format!("{missing} missing, {wrong} with a wrong value"),
            };
            let keys = counted(keys as u64, "key");
            output.line(format_args!(
                "{keys} of {name} ({source}) looked up in `{table}` in {seconds:.2} s: {verdict}"
            ))?;
        }
        Ok(if missing + wrong == 0 { Outcome::Done } else { Outcome::Wrong })
    }
}

fn check<K: Keys>(
    client: &TableClient<K>,
    dataset: &K::Set,
    value_bytes: Option<u32>,
    bar: &Bar,
) -> Result<Tally, fpcache_client::ClientError> {
    let mut tally = Tally::default();
    let (mut answers, mut expected) = (Answers::new(), vec![0; value_bytes.unwrap_or(VALUE_BYTES) as usize]);
    let (mut keys, mut buffer): (Vec<K::Owned>, _) = (Vec::with_capacity(GROUP), Vec::new());
    let phase = bar.phase("verifying", dataset.len() as u64);
    for (group, first) in (0..dataset.len()).step_by(GROUP).enumerate() {
        let indices = first..dataset.len().min(first + GROUP);
        keys.clear();
        keys.extend(indices.clone().map(|i| K::at(dataset, i, &mut buffer).to_owned()));
        client.multi_get_into(&keys, &mut answers)?;
        for (at, i) in indices.enumerate() {
            let value = answers.value(at);
            write_value(dataset.value(i), &mut expected);
            if value != Some(&expected) {
                tally.count(&K::short(keys[at].borrow(), KeyFormat { is_hex: false }), value.is_none());
            }
        }
        if group.is_multiple_of(STEP) {
            phase.advance(first as u64);
        }
    }
    Ok(tally)
}
