//! Filling tables with records, for `load` and `import`: in bulk, or group by group where there are
//! records already.

use std::borrow::Borrow;
use std::time::Instant;

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use fpcache_client::tuning::Tuned;
use fpcache_client::{
    ClientError, ErrorKind, KeyKind, KeyRef, Loaded, Nodes, RecordShape, TableClient, TableName,
    TableParameters, Tables,
};
use fpcache_datasets::Bar;
use fpcache_datasets::count::human_bytes;

use crate::keys::Keys;
use crate::long_keys;
use crate::output::{Outcome, Output, counted};
use crate::over_nodes::{OverNodes, split_of};
use crate::parameters::Parameters;
use crate::records::{RecordSet, RecordSource};
use crate::summary::{Summary, Times};
use crate::table_arguments::TableArguments;
use crate::table_location::TableLocation;
use crate::tables::NewTable;
use crate::tuning::Tuning;
use crate::write_group::WriteGroup;

/// Records between two reports of progress.
const STEP: u64 = 1 << 16;

/// How a table is filled, and how it is created if it does not exist.
#[derive(Debug, Args)]
pub(crate) struct Filling {
    #[command(flatten)]
    parameters: Parameters,

    #[command(flatten)]
    tuning: Tuning,

    #[command(flatten)]
    new: NewTable,

    #[command(flatten)]
    over: OverNodes,
}

impl Filling {
    /// The memory nodes of a table over several, if any are named.
    pub(crate) fn nodes(&self, place: &TableArguments) -> anyhow::Result<Option<Nodes>> {
        self.over.named(place)
    }

    /// Requests that the memory node would refuse anyway are refused before the records are read.
    /// If they cannot be read, no table is left.
    pub(crate) fn fill<K: Keys, S: RecordSource<K>>(
        &self,
        source: &S,
        place: &TableArguments,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        self.tuning.validate()?;
        let parameters = source.completed(self.parameters).checked::<K>(source.lengths())?;
        if let Some(nodes) = self.over.named(place)? {
            return self.fill_over(source, &nodes, &parameters, place, output);
        }
        let (name, bar) = (&place.table, Bar::of_keys());
        let expected = source.expected().filter(|_| !self.tuning.is_wanted()).unwrap_or(0);
        let found = TableLocation::of(place)?;
        found.kind(name, Some(KeyKind::of::<K>()))?;
        match found {
            TableLocation::At(spot, table) => {
                self.new.check_region(&table)?;
                let client = spot.place.client::<K>()?;
                if client.stats()?.segments > 0 {
                    return self.add(source, &client, name, output, &bar);
                }
                drop(client.load(parameters, expected)?);
            }
            TableLocation::Divided(_) => return self.add(source, &place.client::<K>()?, name, output, &bar),
            TableLocation::Nowhere(nowhere) => {
                self.check_capacity(&parameters, expected, &nowhere.at_first(name)?.tables)?;
            }
        }
        let started = Instant::now();
        let mut records = source.open(&parameters.shape, &bar)?;
        let opened = started.elapsed();
        let (parameters, tuned) = self.tuned(source, place, &records)?;
        records.check(&parameters.shape)?;
        self.note_long_keys(&records, &parameters.shape);
        let ensured = self.new.ensure(place, Some(KeyKind::of::<K>()))?;
        let client = ensured.spot.place.client::<K>().inspect_err(|_| ensured.undo())?;
        let loaded = send(&client, parameters, &mut records, &bar).map_err(|failed| {
            let rest = failed.rest(&client);
            if rest.is_none() {
                ensured.undo();
            }
            let error = during(["loading", "into"], records.name(), name, &client, failed.error);
            match rest {
                Some(rest) => anyhow!("{error}; {rest}: see `fpcache-cli --table {name} stats`"),
                None => error,
            }
        })?;
        let times = Times { reading: opened, filling: started.elapsed() - opened };
        Summary { records: &records, times }.of_load(
            &client,
            output,
            &parameters,
            tuned.as_ref(),
            &loaded,
        )?;
        Ok(Outcome::Done)
    }

    /// Says so where few keys make the slots of all long, and where longer ones may follow.
    fn note_long_keys<K: Keys>(&self, records: &impl RecordSet<K>, shape: &RecordShape) {
        if self.parameters.has_slot_bytes() {
            return;
        }
        let notes = [long_keys::note(records, shape), long_keys::note_of_rest(records, shape)];
        notes.iter().flatten().for_each(|note| eprintln!("note: {note}"));
    }

    /// Refuses records that a new table has no room for, by the least that `expected` records take.
    fn check_capacity(
        &self,
        parameters: &TableParameters,
        expected: u64,
        tables: &Tables,
    ) -> anyhow::Result<()> {
        let least = parameters.estimated_bytes(expected, f64::from(parameters.max_slots));
        let list = tables.list()?;
        let left = list.capacity_bytes.saturating_sub(list.granted_bytes);
        ensure!(
            least <= left,
            "{expected} records take at least {}, but the memory node at {} has {} left of its capacity: drop tables, or restart \
             it with a larger --capacity",
            human_bytes(least),
            tables.url(),
            human_bytes(left)
        );
        let most = self.new.options().region_bytes.unwrap_or(u64::MAX);
        ensure!(
            least <= most,
            "{expected} records take at least {}, but --region-bytes is {}: allow more",
            human_bytes(least),
            human_bytes(most)
        );
        Ok(())
    }

    /// Creates a table over several memory nodes, with an equal number of keys on each, and loads
    /// it before it is visible.
    fn fill_over<K: Keys, S: RecordSource<K>>(
        &self,
        source: &S,
        nodes: &Nodes,
        parameters: &TableParameters,
        place: &TableArguments,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let (name, bar, started) = (&place.table, Bar::of_keys(), Instant::now());
        if nodes.find(name)?.is_some()
            && let Ok(client) = place.at(nodes).client::<K>()
        {
            self.new.check_regions(&place.at(nodes))?;
            nodes.complete(name)?;
            return self.add(source, &client, name, output, &bar);
        }
        let mut records = source.open(&parameters.shape, &bar)?;
        let opened = started.elapsed();
        let (parameters, tuned) = self.tuned(source, place, &records)?;
        records.check(&parameters.shape)?;
        self.note_long_keys(&records, &parameters.shape);
        ensure!(
            records.are_all_known() || nodes.len() == 1,
            "{}: its records take more than --sort-memory, so that it is not known which keys split them evenly over {} memory nodes: \
             allow more, or name the keys first with `fpcache-cli create {name} --nodes {} --split-at KEY,KEY`",
            records.name(),
            nodes.len(),
            nodes
        );
        let split = split_of::<K>(records.known(), |i| records.key(i), nodes.len())?;
        let table = nodes.begin::<K>(name, &split, self.new.options())?;
        let loaded = match send(table.client(), parameters, &mut records, &bar) {
            Ok(loaded) => loaded,
            Err(Failed { error, .. }) => {
                table.undo();
                return Err(during(["loading", "into"], records.name(), name, table.client(), error));
            }
        };
        let client = table.finish()?;
        let times = Times { reading: opened, filling: started.elapsed() - opened };
        Summary { records: &records, times }.of_load(
            &client,
            output,
            &parameters,
            tuned.as_ref(),
            &loaded,
        )?;
        Ok(Outcome::Done)
    }

    /// Puts the records into an existing table.
    fn add<K: Keys, S: RecordSource<K>>(
        &self,
        source: &S,
        client: &TableClient<K>,
        name: &TableName,
        output: &mut Output,
        bar: &Bar,
    ) -> anyhow::Result<Outcome> {
        let mut others = self.parameters.other_than(&client.table()?.record.parameters);
        others.extend(self.tuning.is_wanted().then_some("--tune"));
        if !others.is_empty() {
            let has = match client.stats()?.keys {
                0 => "was created with parameters that cannot be changed".to_owned(),
                keys => {
                    format!("already holds {}, and its parameters cannot be changed", counted(keys, "record"))
                }
            };
            bail!(
                "the table `{name}` at {} {has}: omit {} to add to it, or drop it",
                client.name(),
                others.join(", ")
            );
        }
        let started = Instant::now();
        let shape = client.shape()?;
        let mut records = source.open(&shape, bar)?;
        let opened = started.elapsed();
        // Once the first group is sent, the table has changed.
        records.check(&shape)?;
        let mut added = 0;
        let (keys, new) = add_all(client, &mut records, bar, &mut added).map_err(|error| {
            let is_passing = error.downcast_ref().is_some_and(is_passing);
            let is_refused = error.downcast_ref().is_some_and(ClientError::is_of_refused_change);
            let error = during(["adding", "to"], records.name(), name, client, error);
            let sure = if added == 0 { String::new() } else { format!(", and the first {added} are") };
            match (is_passing, added) {
                (true, _) => anyhow!(
                    "{error}; a part of the records may be there{sure}: once the memory node answers, the same command again adds \
                     the rest"
                ),
                // Those that there was room for are made.
                (false, 0) if is_refused => anyhow!("{error}; some of the records may be there"),
                (false, 0) => error,
                (false, _) => anyhow!("{error}; the first {} are there", counted(added, "record")),
            }
        })?;
        let times = Times { reading: opened, filling: started.elapsed() - opened };
        Summary { records: &records, times }.of_records_added::<K>(name, output, keys, new)?;
        Ok(Outcome::Done)
    }

    /// The parameters of a new table for these records; and why these, if they were found.
    fn tuned<K: Keys, S: RecordSource<K>>(
        &self,
        source: &S,
        place: &TableArguments,
        records: &S::Records,
    ) -> anyhow::Result<(TableParameters, Option<Tuned>)> {
        source.completed(self.parameters).tuned::<K>(
            records.lengths(),
            &self.tuning,
            place,
            records.known(),
            |i| records.key(i),
        )
    }
}

/// The error of a call about these records; one in the records themselves, which names their place,
/// as it is.
fn during<K: Keys>(
    [doing, to]: [&str; 2],
    records: &str,
    table: &TableName,
    client: &TableClient<K>,
    error: anyhow::Error,
) -> anyhow::Error {
    match error.downcast::<ClientError>() {
        // It was many.
        Ok(ClientError::OutcomeUnknown { why }) => anyhow!(
            "{doing} {records} {to} `{table}` at {}: it is unknown whether what was sent last took effect: {why}",
            client.name()
        ),
        Ok(error) => anyhow!("{doing} {records} {to} `{table}` at {}: {error}", client.name()),
        Err(error) => error,
    }
}

/// Whether the same command again, into the same table, may add the rest after this error.
fn is_passing(error: &ClientError) -> bool {
    // Once it is whole, it is another one.
    let is_other_table = matches!(error, ClientError::TableNotWhole { .. });
    !is_other_table && matches!(error.kind(), ErrorKind::Retry | ErrorKind::Unknown)
}

/// How a load failed.
struct Failed {
    error: anyhow::Error,
    stage: LoadStage,
}

/// The progress of a load that failed.
#[derive(Clone, Copy)]
enum LoadStage {
    /// No record had been passed on.
    Begin,
    Midway,
    /// All had, and its end was asked for.
    End,
}

impl Failed {
    /// What may be in the table all the same, which had no records before; `None` if nothing is.
    fn rest<K: Keys>(&self, client: &TableClient<K>) -> Option<&'static str> {
        // Into a table that has its parameters they are inserted as they come.
        let has_some = || client.stats().is_ok_and(|stats| stats.keys > 0);
        match (self.stage, self.is_outcome_unknown()) {
            (LoadStage::Begin, _) => None,
            (LoadStage::End, true) => Some("the load may have succeeded all the same"),
            (LoadStage::Midway, true) => Some("a part of the records may be there"),
            (_, false) => has_some().then_some("a part of the records may be there"),
        }
    }

    /// Whether what was sent last may have been done at the memory node, perhaps without reaching
    /// the disk.
    fn is_outcome_unknown(&self) -> bool {
        matches!(self.error.downcast_ref(), Some(ClientError::OutcomeUnknown { .. }))
    }
}

fn send<K: Keys>(
    client: &TableClient<K>,
    parameters: TableParameters,
    records: &mut impl RecordSet<K>,
    bar: &Bar,
) -> Result<Loaded, Failed> {
    let (sample, known) = (records.sample(), records.known() as u64);
    let load = client.load_like(parameters, known, sample.iter().map(Borrow::borrow));
    let mut load = load.map_err(|error| Failed { error: error.into(), stage: LoadStage::Begin })?;
    let (phase, mut sent) = (bar.phase("loading", known), 0);
    let passed = records.each(&mut |key, value| {
        load.push(KeyRef::<K>(key), value)?;
        if u64::is_multiple_of(sent, STEP) {
            phase.advance(sent);
        }
        sent += 1;
        Ok(())
    });
    passed.map_err(|error| Failed { error, stage: LoadStage::Midway })?;
    load.finish().map_err(|error| Failed { error: error.into(), stage: LoadStage::End })
}

/// Puts all records, a group at a time, and returns how many there are, and how many of them new.
/// `added` counts those of whole groups.
fn add_all<K: Keys>(
    client: &TableClient<K>,
    records: &mut impl RecordSet<K>,
    bar: &Bar,
    added: &mut u64,
) -> anyhow::Result<(u64, u64)> {
    let phase = bar.phase("adding", records.known() as u64);
    let (mut group, mut keys, mut new) = (WriteGroup::<K>::default(), 0, 0);
    records.each(&mut |key, value| {
        keys += 1;
        group.push(key, value);
        if group.is_full() {
            new += group.send(client)?;
            *added = keys;
            phase.advance(keys);
        }
        Ok(())
    })?;
    new += group.send(client)?;
    Ok((keys, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was told that the same command again would add it.
    #[test]
    fn a_table_that_is_being_dropped_takes_no_rest_of_the_records() {
        let why = "the table `t` over several memory nodes is being dropped".to_owned();
        assert!(!is_passing(&ClientError::TableNotWhole { why }));
        assert!(is_passing(&ClientError::Emptied));
        assert!(is_passing(&ClientError::OutcomeUnknown { why: "no reply".to_owned() }));
    }
}
