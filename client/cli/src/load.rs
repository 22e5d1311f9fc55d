//! `load`

use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use clap::Args;
use fpcache_client::{Changes, Client, ClientError, Loaded, TableParameters, WriteReply, WriteStatus};
use fpcache_datasets::count::human_bytes;
use fpcache_datasets::{Dataset, write_value};
use serde_json::json;

use crate::Outcome;
use crate::data::Data;
use crate::output::Output;
use crate::parameters::Parameters;
use crate::progress::Bar;

/// Records between two reports of progress.
const STEP: usize = 1 << 16;
/// Records sent together to a table that is there.
const BATCH: usize = 1024;

#[derive(Debug, Args)]
pub(crate) struct Load {
    #[command(flatten)]
    data: Data,

    #[command(flatten)]
    parameters: Parameters,
}

impl Load {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> anyhow::Result<Outcome> {
        let parameters = self.parameters.checked()?;
        let bar = Bar::default();
        if client.stats()?.segments > 0 {
            return self.add(client, output, &bar);
        }
        // Begun and dropped: what the memory node refuses in any case it refuses before the data set is read.
        drop(client.load(parameters, 0)?);
        let started = Instant::now();
        let dataset = self.data.open(&bar)?;
        let opened = started.elapsed();
        let loaded = send(client, parameters, &dataset, &bar)
            .map_err(|e| anyhow!("loading {} into {}: {e}", dataset.name(), client.name()))?;
        let time = Times { dataset: opened, load: started.elapsed() - opened };
        report(client, output, &parameters, &dataset, &loaded, &time)?;
        Ok(Outcome::Done)
    }

    /// Puts the data set into a table that is there.
    fn add(&self, client: &Client, output: &mut Output, bar: &Bar) -> anyhow::Result<Outcome> {
        if self.parameters.any_given() {
            bail!(
                "{} already holds a table, whose parameters stay: leave --epsilon, --fingerprint-bits, --fill and \
                 --value-bytes away to add to it, or restart the memory node",
                client.name()
            );
        }
        let value_bytes = client.table()?.record.parameters.value_bytes as usize;
        let started = Instant::now();
        let dataset = self.data.open(bar)?;
        let opened = started.elapsed();
        let new = add_all(client, value_bytes, &dataset, bar)
            .map_err(|e| anyhow!("adding {} to {}: {e}", dataset.name(), client.name()))?;
        let (dataset_s, load_s) = (opened.as_secs_f64(), (started.elapsed() - opened).as_secs_f64());
        let keys = dataset.len() as u64;
        if output.is_json() {
            output.document(&json!({
                "dataset": dataset.name(),
                "dataset_source": dataset.source(),
                "keys": keys,
                "new": new,
                "replaced": keys - new,
                "value_bytes": value_bytes,
                "dataset_s": dataset_s,
                "load_s": load_s,
            }))?;
        } else {
            output.row("added", format_args!("{} ({})", dataset.name(), dataset.source()))?;
            output.row("keys", format_args!("{keys}: {new} new, {} got another value", keys - new))?;
            output.row("time", format_args!("{load_s:.2} s, and {dataset_s:.2} s for the data set"))?;
        }
        Ok(Outcome::Done)
    }
}

fn report(
    client: &Client,
    output: &mut Output,
    parameters: &TableParameters,
    dataset: &Dataset,
    loaded: &Loaded,
    time: &Times,
) -> anyhow::Result<()> {
    let used = client.stats()?.used_bytes;
    let Loaded { keys, segments } = *loaded;
    let (per_segment, per_key) = (keys as f64 / segments as f64, used as f64 / keys as f64);
    let (dataset_s, load_s) = (time.dataset.as_secs_f64(), time.load.as_secs_f64());
    if output.is_json() {
        output.document(&json!({
            "dataset": dataset.name(),
            "dataset_source": dataset.source(),
            "keys": keys,
            "segments": segments,
            "keys_per_segment": per_segment,
            "used_bytes": used,
            "bytes_per_key": per_key,
            "epsilon": parameters.epsilon,
            "fingerprint_bits": parameters.width.bits(),
            "fill": parameters.fill,
            "value_bytes": parameters.value_bytes,
            "dataset_s": dataset_s,
            "load_s": load_s,
        }))?;
        return Ok(());
    }
    output.row("loaded", format_args!("{} ({})", dataset.name(), dataset.source()))?;
    output.row("keys", keys)?;
    output.row("segments", format_args!("{segments} ({per_segment:.1} keys each)"))?;
    output.row("memory", format_args!("{} ({per_key:.1} bytes per key)", human_bytes(used)))?;
    output.row("time", format_args!("{load_s:.2} s, and {dataset_s:.2} s for the data set"))?;
    Ok(())
}

struct Times {
    dataset: Duration,
    load: Duration,
}

fn send(
    client: &Client,
    parameters: TableParameters,
    dataset: &Dataset,
    bar: &Bar,
) -> Result<Loaded, ClientError> {
    let mut load = client.load(parameters, dataset.len() as u64)?;
    let mut value = vec![0; parameters.value_bytes as usize];
    let phase = bar.phase("loading", dataset.len() as u64);
    for (i, key) in dataset.keys().iter().enumerate() {
        write_value(dataset.value(i), &mut value);
        load.push(*key, &value)?;
        if i.is_multiple_of(STEP) {
            phase.advance(i as u64);
        }
    }
    load.finish()
}

/// Puts every record, a batch at a time, and says how many keys were not there before.
fn add_all(client: &Client, value_bytes: usize, dataset: &Dataset, bar: &Bar) -> anyhow::Result<u64> {
    let mut value = vec![0; value_bytes];
    let (mut inserts, mut puts, mut replies, mut new) = (Changes::new(), Changes::new(), Vec::new(), 0);
    let phase = bar.phase("adding", dataset.len() as u64);
    for (batch, keys) in dataset.keys().chunks(BATCH).enumerate() {
        inserts.clear();
        puts.clear();
        for (i, key) in keys.iter().enumerate() {
            write_value(dataset.value(batch * BATCH + i), &mut value);
            inserts.insert(*key, &value);
        }
        apply(client, &inserts, keys, &mut replies)?;
        for (i, (key, reply)) in keys.iter().zip(&replies).enumerate() {
            if reply.status == WriteStatus::Done {
                new += 1;
            } else {
                write_value(dataset.value(batch * BATCH + i), &mut value);
                puts.put(*key, &value);
            }
        }
        apply(client, &puts, keys, &mut replies)?;
        phase.advance((batch * BATCH) as u64);
    }
    Ok(new)
}

/// Applies changes of these keys, none of which may fail for want of room.
fn apply(
    client: &Client,
    changes: &Changes,
    keys: &[u64],
    replies: &mut Vec<WriteReply>,
) -> Result<(), ClientError> {
    client.apply(changes, replies)?;
    let key = keys.first().copied().unwrap_or_default();
    match replies.iter().find(|r| matches!(r.status, WriteStatus::NoRoom | WriteStatus::NotDurable)) {
        Some(WriteReply { status: WriteStatus::NoRoom, .. }) => Err(ClientError::NoRoom { key }),
        Some(_) => Err(ClientError::NotDurable { key }),
        None => Ok(()),
    }
}
