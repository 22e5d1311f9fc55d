//! `verify`

use std::time::Instant;

use clap::Args;
use fpcache_client::{Answers, Client};
use fpcache_datasets::{Dataset, write_value};
use serde_json::json;

use crate::Outcome;
use crate::data::Data;
use crate::output::Output;
use crate::progress::Bar;

/// Keys looked up together.
const GROUP: usize = 256;
/// Groups between two reports of progress.
const STEP: usize = 256;
/// Wrong keys that are shown one by one.
const SHOWN: u64 = 5;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    data: Data,
}

/// What was wrong.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    missing: u64,
    wrong: u64,
}

impl Tally {
    /// Counts a key that is missing, or has a wrong value, and shows it if it is among the first.
    fn count(&mut self, key: u64, is_missing: bool) {
        *(if is_missing { &mut self.missing } else { &mut self.wrong }) += 1;
        let so_far = self.missing + self.wrong;
        if so_far <= SHOWN {
            eprintln!("key {key} {}", if is_missing { "is missing" } else { "has a wrong value" });
        } else if so_far == SHOWN + 1 {
            eprintln!("further keys are only counted");
        }
    }
}

impl Verify {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> anyhow::Result<Outcome> {
        let record = client.table()?.record;
        let bar = Bar::default();
        let dataset = self.data.open(&bar)?;
        if dataset.len() as u64 != record.keys {
            let (held, asked) = (record.keys, dataset.len());
            eprintln!("note: {} holds {held} keys, {} has {asked}", client.name(), dataset.name());
        }
        let started = Instant::now();
        let tally = check(client, &dataset, record.parameters.value_bytes as usize, &bar)?;
        let seconds = started.elapsed().as_secs_f64();
        let Tally { missing, wrong } = tally;
        let (name, source, keys) = (dataset.name(), dataset.source(), dataset.len());
        if output.is_json() {
            output.document(&json!({
                "dataset": name,
                "dataset_source": source,
                "keys": keys,
                "held_keys": record.keys,
                "missing": missing,
                "wrong": wrong,
                "seconds": seconds,
            }))?;
        } else {
            let verdict = match (missing, wrong) {
                (0, 0) => "every value is right".to_owned(),
                _ => format!("{missing} missing, {wrong} with a wrong value"),
            };
            output.line(format_args!("{keys} keys of {name} ({source}) in {seconds:.2} s: {verdict}"))?;
        }
        Ok(if missing + wrong == 0 { Outcome::Done } else { Outcome::Wrong })
    }
}

fn check(
    client: &Client,
    dataset: &Dataset,
    value_bytes: usize,
    bar: &Bar,
) -> Result<Tally, fpcache_client::ClientError> {
    let mut tally = Tally::default();
    let mut answers = Answers::new();
    let mut expected = vec![0; value_bytes];
    let phase = bar.phase("verifying", dataset.len() as u64);
    for (group, keys) in dataset.keys().chunks(GROUP).enumerate() {
        client.multi_get_into(keys, &mut answers)?;
        for (i, key) in keys.iter().enumerate() {
            write_value(dataset.value(group * GROUP + i), &mut expected);
            let value = answers.value(i);
            if value != Some(&expected) {
                tally.count(*key, value.is_none());
            }
        }
        if group.is_multiple_of(STEP) {
            phase.advance((group * GROUP) as u64);
        }
    }
    Ok(tally)
}
