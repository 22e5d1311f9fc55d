//! `load`

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use clap::Args;
use fpcache_client::tuning::Tuned;
use fpcache_client::{
    ByteKeys, Changes, ClientError, KeyKind, KeyRef, Loaded, Nodes, RefusalCode, TableClient, TableName,
    TableParameters, U64Keys, WriteReply, WriteStatus,
};
use fpcache_datasets::count::human_bytes;
use fpcache_datasets::{KeySet, write_value};
use serde_json::json;

use crate::data::Data;
use crate::keys::{KeyFormat, KeyLengths, Keys};
use crate::output::{Outcome, Output, counted};
use crate::over_nodes::{OverNodes, split_of};
use crate::parameters::Parameters;
use crate::place::Place;
use crate::progress::Bar;
use crate::tables::{NewTable, kind_of};
use crate::tuning::{self, Tuning};

/// Records between two reports of progress.
const STEP: usize = 1 << 16;
/// Records sent together to a table that has records.
const BATCH: usize = 1024;
/// Bytes of each value, if their length varies.
pub(crate) const VALUE_BYTES: u32 = 8;

#[derive(Debug, Args)]
pub(crate) struct Load {
    #[command(flatten)]
    data: Data,

    #[command(flatten)]
    parameters: Parameters,

    #[command(flatten)]
    tuning: Tuning,

    #[command(flatten)]
    new: NewTable,

    #[command(flatten)]
    over: OverNodes,
}

impl Load {
    pub(crate) fn run(&self, place: &Place, output: &mut Output) -> anyhow::Result<Outcome> {
        match self.data.key_kind() {
            KeyKind::U64 => self.load::<U64Keys>(place, output),
            KeyKind::Bytes => self.load::<ByteKeys>(place, output),
        }
    }

    /// Requests that the memory node would refuse anyway are refused before the data set is read.
    /// If the data set cannot be read, no table is left.
    fn load<K: Keys>(&self, place: &Place, output: &mut Output) -> anyhow::Result<Outcome> {
        self.tuning.validate()?;
        let parameters = self.parameters.checked::<K>(K::LENGTHS)?;
        if let Some(nodes) = self.over.named(place)? {
            return self.load_over::<K>(&nodes, place, output);
        }
        let (tables, name, bar) = (place.tables()?, &place.table, Bar::default());
        if kind_of(&tables, name, Some(self.data.key_kind()))?.is_some() {
            let client = place.client::<K>()?;
            if client.stats()?.segments > 0 {
                return self.add(&client, name, output, &bar);
            }
            drop(client.load(parameters, 0)?);
        }
        let started = Instant::now();
        let dataset = self.data.open::<K>(&bar)?;
        let opened = started.elapsed();
        let lengths = K::lengths(&dataset);
        let every = lengths.every.filter(|_| !self.data.wants_any_length());
        let keys = KeyLengths { every, ..lengths };
        let (parameters, tuned) = self.parameters.tuned::<K>(keys, &self.tuning, place, &dataset)?;
        let ensured = self.new.ensure(&tables, name, Some(self.data.key_kind()))?;
        let client = place.client::<K>().inspect_err(|_| ensured.undo(&tables, name))?;
        let loaded = send(&client, parameters, &dataset, &bar).map_err(|error| {
            let rest = match may_be_loaded(&error) {
                true => format!(
                    "; the load may have succeeded all the same: see `fpcache-cli --table {name} stats`"
                ),
                false => {
                    ensured.undo(&tables, name);
                    String::new()
                }
            };
            anyhow!("loading {} into `{name}` at {}: {error}{rest}", dataset.name(), client.name())
        })?;
        let time = Times { dataset: opened, load: started.elapsed() - opened };
        report::<K>(&client, output, (&parameters, tuned.as_ref()), &dataset, &loaded, &time)?;
        Ok(Outcome::Done)
    }

    /// Creates a table over several memory nodes, with an equal number of keys on each, and loads
    /// it before it is visible.
    fn load_over<K: Keys>(
        &self,
        nodes: &Nodes,
        place: &Place,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let (name, bar, started) = (&place.table, Bar::default(), Instant::now());
        if nodes.find(name)?.is_some()
            && let Ok(client) = place.at(nodes).client::<K>()
        {
            nodes.complete(name)?;
            return self.add(&client, name, output, &bar);
        }
        let dataset = self.data.open::<K>(&bar)?;
        let opened = started.elapsed();
        let lengths = K::lengths(&dataset);
        let every = lengths.every.filter(|_| !self.data.wants_any_length());
        let keys = KeyLengths { every, ..lengths };
        let (parameters, tuned) = self.parameters.tuned::<K>(keys, &self.tuning, place, &dataset)?;
        let table = nodes.begin::<K>(name, &split_of::<K>(&dataset, nodes.len())?, self.new.options())?;
        let loaded = match send(table.client(), parameters, &dataset, &bar) {
            Ok(loaded) => loaded,
            Err(error) => {
                table.undo();
                bail!("loading {} into `{name}` at {}: {error}", dataset.name(), table.client().name());
            }
        };
        let client = table.finish()?;
        let time = Times { dataset: opened, load: started.elapsed() - opened };
        report::<K>(&client, output, (&parameters, tuned.as_ref()), &dataset, &loaded, &time)?;
        Ok(Outcome::Done)
    }

    /// Puts the data set into an existing table.
    fn add<K: Keys>(
        &self,
        client: &TableClient<K>,
        name: &TableName,
        output: &mut Output,
        bar: &Bar,
    ) -> anyhow::Result<Outcome> {
        if self.parameters.any_given() || self.tuning.is_wanted() {
            let has = match client.stats()?.keys {
                0 => "was created with parameters that cannot be changed".to_owned(),
                keys => {
                    format!("already holds {}, and its parameters cannot be changed", counted(keys, "record"))
                }
            };
            bail!(
                "the table `{name}` at {} {has}: omit --tune, --epsilon, --fingerprint-bits, --fill, --value-bytes, \
                 --slot-bytes and --groups to add to it, or drop it",
                client.name()
            );
        }
        let value_bytes = client.shape()?.value_bytes.unwrap_or(VALUE_BYTES) as usize;
        let started = Instant::now();
        let dataset = self.data.open::<K>(bar)?;
        let opened = started.elapsed();
        let new = add_all(client, value_bytes, &dataset, bar)
            .map_err(|e| anyhow!("adding {} to `{name}` at {}: {e}", dataset.name(), client.name()))?;
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
            output.row("keys", format_args!("{keys}: {new} new, {} updated", keys - new))?;
            output.row("time", format_args!("{load_s:.2} s, and {dataset_s:.2} s for the data set"))?;
        }
        Ok(Outcome::Done)
    }
}

fn report<K: Keys>(
    client: &TableClient<K>,
    output: &mut Output,
    (parameters, tuned): (&TableParameters, Option<&Tuned>),
    dataset: &K::Set,
    loaded: &Loaded,
    time: &Times,
) -> anyhow::Result<()> {
    let used = client.stats()?.used_bytes;
    let Loaded { keys, segments, .. } = *loaded;
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
            "fingerprint_bits": parameters.fingerprint_bits(),
            "fill": parameters.fill,
            "groups": parameters.groups.map(|groups| [groups.stride, groups.reach]),
            "group_form": parameters.groups.map(|groups| groups.name().name()),
            "key_kind": K::NAME,
            "key_bytes": parameters.shape.key_bytes,
            "value_bytes": parameters.shape.value_bytes,
            "slot_bytes": parameters.shape.room,
            "tuned": tuning::document(tuned),
            "dataset_s": dataset_s,
            "load_s": load_s,
        }))?;
        return Ok(());
    }
    output.row("loaded", format_args!("{} ({})", dataset.name(), dataset.source()))?;
    output.row("keys", keys)?;
    output.row("segments", format_args!("{segments} ({per_segment:.1} keys each)"))?;
    if let Some(tuned) = tuned {
        output.row("tuned", tuned)?;
    }
    output.row("memory", format_args!("{} ({per_key:.1} bytes per key)", human_bytes(used)))?;
    output.row("time", format_args!("{load_s:.2} s, and {dataset_s:.2} s for the data set"))?;
    Ok(())
}

/// Whether a load that failed this way may have succeeded at the memory node, perhaps without
/// reaching the disk.
fn may_be_loaded(error: &ClientError) -> bool {
    match error {
        ClientError::Fabric(_) | ClientError::OutcomeUnknown { .. } => true,
        ClientError::Refused(refusal) => refusal.code == RefusalCode::NotDurable,
        _ => false,
    }
}

struct Times {
    dataset: Duration,
    load: Duration,
}

fn send<K: Keys>(
    client: &TableClient<K>,
    parameters: TableParameters,
    dataset: &K::Set,
    bar: &Bar,
) -> Result<Loaded, ClientError> {
    let sample = K::sample(dataset);
    let mut load = client.load_like(parameters, dataset.len() as u64, sample.iter().map(Borrow::borrow))?;
    let mut value = vec![0; parameters.shape.value_bytes.unwrap_or(VALUE_BYTES) as usize];
    let mut buffer = Vec::new();
    let phase = bar.phase("loading", dataset.len() as u64);
    for i in 0..dataset.len() {
        write_value(dataset.value(i), &mut value);
        load.push(KeyRef::<K>(K::at(dataset, i, &mut buffer)), &value)?;
        if i.is_multiple_of(STEP) {
            phase.advance(i as u64);
        }
    }
    load.finish()
}

/// Puts all records, a batch at a time, and returns the number of new keys.
fn add_all<K: Keys>(
    client: &TableClient<K>,
    value_bytes: usize,
    dataset: &K::Set,
    bar: &Bar,
) -> anyhow::Result<u64> {
    let (mut value, mut buffer) = (vec![0; value_bytes], Vec::new());
    let (mut inserts, mut puts) = (Changes::<K>::default(), Changes::<K>::default());
    let (mut replies, mut new) = (Vec::new(), 0);
    let phase = bar.phase("adding", dataset.len() as u64);
    for first in (0..dataset.len()).step_by(BATCH) {
        let batch = first..dataset.len().min(first + BATCH);
        inserts.clear();
        puts.clear();
        for i in batch.clone() {
            write_value(dataset.value(i), &mut value);
            inserts.insert(KeyRef::<K>(K::at(dataset, i, &mut buffer)), &value);
        }
        let key = K::at(dataset, first, &mut buffer).to_owned();
        apply(client, &inserts, &key, &mut replies)?;
        for (i, reply) in batch.zip(&replies) {
            if reply.status == WriteStatus::Done {
                new += 1;
            } else {
                write_value(dataset.value(i), &mut value);
                puts.put(KeyRef::<K>(K::at(dataset, i, &mut buffer)), &value);
            }
        }
        apply(client, &puts, &key, &mut replies)?;
        phase.advance(first as u64);
    }
    Ok(new)
}

/// Applies changes, the first of this key; an error if one finds no room.
fn apply<K: Keys>(
    client: &TableClient<K>,
    changes: &Changes<K>,
    first: &K::Owned,
    replies: &mut Vec<WriteReply>,
) -> Result<(), ClientError> {
    client.apply(changes, replies)?;
    let key = K::short(first.borrow(), KeyFormat { is_hex: false });
    match replies.iter().find(|r| matches!(r.status, WriteStatus::NoRoom | WriteStatus::NotDurable)) {
        Some(WriteReply { status: WriteStatus::NoRoom, .. }) => Err(ClientError::NoRoom { key, node: None }),
        Some(_) => Err(ClientError::NotDurable { key, node: None }),
        None => Ok(()),
    }
}
