//! `load`

use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use fpcache_client::{Client, FingerprintWidth, Loaded, TableParameters};
use fpcache_datasets::count::human_bytes;
use fpcache_datasets::{Dataset, write_value};
use serde_json::json;

use crate::Outcome;
use crate::data::Data;
use crate::output::Output;
use crate::progress::Bar;

/// Records between two reports of progress.
const STEP: usize = 1 << 16;

#[derive(Debug, Args)]
pub(crate) struct Load {
    #[command(flatten)]
    data: Data,

    /// Greatest half-width of the models' windows, in slots
    #[arg(long, value_name = "SLOTS", default_value_t = TableParameters::default().epsilon)]
    epsilon: u32,

    /// Bits of a fingerprint: 8, 16, 32 or 64
    #[arg(long, value_name = "BITS", default_value = "64", value_parser = width)]
    fingerprint_bits: FingerprintWidth,

    /// Share of slots that hold a record, above 0 and at most 1
    #[arg(long, value_name = "SHARE", default_value_t = TableParameters::default().fill)]
    fill: f64,

    /// Bytes of a value: the key's position in the data set, repeated
    #[arg(long, value_name = "BYTES", default_value_t = TableParameters::default().value_bytes)]
    value_bytes: u32,
}

fn width(text: &str) -> Result<FingerprintWidth, String> {
    let unknown = || format!("`{text}` is none of 8, 16, 32 and 64");
    let bits = text.parse().map_err(|_| unknown())?;
    FingerprintWidth::from_bits(bits).map_err(|_| unknown())
}

impl Load {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> anyhow::Result<Outcome> {
        let parameters = self.parameters()?;
        let bar = Bar::default();
        // Begun and dropped: what the memory node refuses in any case it refuses before the data set is read.
        drop(client.load(parameters, 0)?);
        let started = Instant::now();
        let dataset = self.data.open(&bar)?;
        let opened = started.elapsed();
        let loaded = send(client, parameters, &dataset, &bar)
            .map_err(|e| anyhow!("loading {} into {}: {e}", dataset.name(), client.name()))?;
        let time = Times { dataset: opened, load: started.elapsed() - opened };
        self.report(client, output, &dataset, &loaded, &time)?;
        Ok(Outcome::Done)
    }

    fn parameters(&self) -> anyhow::Result<TableParameters> {
        let parameters = TableParameters {
            width: self.fingerprint_bits,
            value_bytes: self.value_bytes,
            epsilon: self.epsilon,
            fill: self.fill,
            ..TableParameters::default()
        };
        parameters.validate()?;
        Ok(parameters)
    }

    fn report(
        &self,
        client: &Client,
        output: &mut Output,
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
                "epsilon": self.epsilon,
                "fingerprint_bits": self.fingerprint_bits.bits(),
                "fill": self.fill,
                "value_bytes": self.value_bytes,
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
) -> Result<Loaded, fpcache_client::ClientError> {
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
