//! The `create` command.

use std::borrow::Borrow;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use fpcache_client::tuning::Tuned;
use fpcache_client::{
    ByteKeys, ClientError, KeyKind, Nodes, RefusalCode, TableClient, TableName, TableParameters, U64Keys,
};
use fpcache_datasets::{Duplicates, KeySet, OpenOptions, Spec};
use serde_json::json;

use crate::data::kind_of_set;
use crate::keys::{KeyFormat, Keys};
use crate::new_keys::NewKeys;
use crate::output::{Outcome, Output};
use crate::over_nodes::{OverNodes, split_at};
use crate::parameters::{self, Parameters};
use crate::table_arguments::TableArguments;
use crate::table_location::TableLocation;
use crate::tables::NewTable;
use crate::tuning::{self, Tuning};

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The table, as --table names it
    #[arg(value_name = "NAME")]
    name: Option<TableName>,

    #[command(flatten)]
    keys: NewKeys,

    #[command(flatten)]
    parameters: Parameters,

    #[command(flatten)]
    tuning: Tuning,

    /// With --tune: a data set with keys like those that are to come
    #[arg(long, value_name = "DATASET", requires = "tune")]
    like: Option<Spec>,

    /// With --like: folder with published data sets
    #[arg(long = "datasets-dir", value_name = "FOLDER", env = "FPCACHE_DATASETS")]
    data_dir: Option<PathBuf>,

    #[command(flatten)]
    new: NewTable,

    #[command(flatten)]
    over: OverNodes,

    /// Keys at which the ranges of --nodes begin, except the first, separated by commas [default:
    /// equal parts of all u64s]
    #[arg(long, value_name = "KEY,KEY", value_delimiter = ',', requires = "nodes")]
    split_at: Vec<String>,
}

/// Shows which keys are at which memory node.
fn tell_ranges<K: Keys>(nodes: &Nodes, split_at: &[K::Owned], output: &mut Output) -> io::Result<()> {
    let shown: Vec<String> =
        split_at.iter().map(|key| K::text(key.borrow(), KeyFormat { is_hex: false })).collect();
    for (number, url) in nodes.urls().enumerate() {
        let (from, to) = (number.checked_sub(1).and_then(|before| shown.get(before)), shown.get(number));
        let keys = match (from, to) {
            (None, None) => "all keys".to_owned(),
            (None, Some(to)) => format!("keys below {to}"),
            (Some(from), None) => format!("keys from {from} on"),
            (Some(from), Some(to)) => format!("keys from {from} on, below {to}"),
        };
        output.row(&format!("range {}", number + 1), format_args!("{url}: {keys}"))?;
    }
    Ok(())
}

/// Why a table that has records is not created.
fn why_not_created<K: Keys>(client: &TableClient<K>) -> String {
    format!(
        "the table `{}` at {} is there already and has records: use it as it is, create one of another name with --table, or drop this \
         one with `fpcache-cli drop {0}`",
        client.table_name(),
        client.name()
    )
}

impl Create {
    /// Creates the table that is named, which may be that of `--table`, if it was given.
    pub(crate) fn run(
        &self,
        place: &TableArguments,
        of_option: Option<TableName>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let place = &TableArguments { table: self.name.unwrap_or(place.table), ..place.clone() };
        if let Some(option) = of_option.filter(|option| *option != place.table) {
            bail!("the table is called `{}` and, by --table, `{option}`: name it once", place.table);
        }
        if let Some(nodes) = self.over.named(place)? {
            return match self.keys.kind().unwrap_or(KeyKind::U64) {
                KeyKind::U64 => self.create_over::<U64Keys>(&nodes, place, output),
                KeyKind::Bytes => self.create_over::<ByteKeys>(&nodes, place, output),
            };
        }
        // Nothing is made with parameters that make no sense.
        let there = TableLocation::of(place)?.kind(&place.table, self.keys.kind())?;
        match there.or(self.keys.kind()).unwrap_or(KeyKind::U64) {
            KeyKind::U64 => self.checked::<U64Keys>().map(drop)?,
            KeyKind::Bytes => self.checked::<ByteKeys>().map(drop)?,
        }
        let ensured = self.new.ensure(place, self.keys.kind())?;
        let place = &ensured.spot.place;
        let created = match ensured.kind {
            KeyKind::U64 => self.create::<U64Keys>(place, output),
            KeyKind::Bytes => self.create::<ByteKeys>(place, output),
        };
        created.inspect_err(|_| ensured.undo())
    }

    /// Creates the table over several memory nodes.
    fn create_over<K: Keys>(
        &self,
        nodes: &Nodes,
        place: &TableArguments,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let (parameters, tuned) = self.tuned::<K>(place)?;
        let split_at = split_at::<K>(&self.split_at, nodes.len())?;
        let at_nodes = place.at(nodes);
        if nodes.find(&place.table)?.is_some()
            && let Ok(client) = at_nodes.client::<K>()
        {
            self.new.check_regions(&at_nodes)?;
            // A service that starts takes it as it is; who gives the command means a new one.
            ensure!(client.stats()?.keys == 0, why_not_created(&client));
        }
        nodes.create::<K>(&place.table, parameters, &split_at, self.new.options())?;
        if output.is_json() {
            output.document(&json!({
                "table": place.table.as_str(),
                "nodes": nodes.len(),
                "key_kind": K::NAME,
                "split_at": split_at
                    .iter()
                    .map(|key| K::text(key.borrow(), KeyFormat { is_hex: false }))
                    .collect::<Vec<_>>(),
                "tuned": tuning::document(tuned.as_ref()),
            }))?;
            return Ok(Outcome::Done);
        }
        if let Some(tuned) = tuned {
            output.rows("tuned", tuned)?;
        }
        tell_ranges::<K>(nodes, &split_at, output)?;
        Ok(Outcome::Done)
    }

    /// The table's parameters; and why these, if they were found.
    fn tuned<K: Keys>(&self, place: &TableArguments) -> anyhow::Result<(TableParameters, Option<Tuned>)> {
        if !self.tuning.is_wanted() {
            return Ok((self.checked::<K>()?, None));
        }
        self.tuning.validate()?;
        let like = self
            .like
            .as_ref()
            .context("--tune auto: name keys like those that are to come, as in --like fb:1M")?;
        ensure!(
            kind_of_set(like).is::<K>(),
            "--like {like}: its keys are no {}s, which those of the table are",
            K::NAME
        );
        // What is found suits the keys, however often one comes.
        let duplicates = Some(Duplicates::First);
        let data_dir = self.data_dir.clone();
        let dataset = K::open(like, &OpenOptions { duplicates, data_dir, ..OpenOptions::default() })?;
        dataset.notes().iter().for_each(|note| eprintln!("note: {note}"));
        let key = |at| K::at(&dataset, at, &mut Vec::new()).to_owned();
        self.parameters.tuned::<K>(self.keys.lengths::<K>(), &self.tuning, place, dataset.len(), key)
    }

    fn checked<K: Keys>(&self) -> anyhow::Result<TableParameters> {
        self.parameters.checked::<K>(self.keys.lengths::<K>())
    }

    fn create<K: Keys>(&self, place: &TableArguments, output: &mut Output) -> anyhow::Result<Outcome> {
        let client: TableClient<K> = place.client()?;
        let (parameters, tuned) = self.tuned::<K>(place)?;
        client.create(parameters).map_err(|error| match error {
            // What the memory node advises is for who has records.
            ClientError::Refused(refusal) if refusal.code == RefusalCode::NotEmpty => {
                anyhow!(why_not_created(&client))
            }
            error => error.into(),
        })?;
        if output.is_json() {
            let more = json!({
                "url": client.name(),
                "table": client.table_name().as_str(),
                "tuned": tuning::document(tuned.as_ref()),
            });
            output.document(&parameters::document::<K>(&parameters, more))?;
        } else if let Some(tuned) = tuned {
            output.rows("tuned", tuned)?;
        }
        Ok(Outcome::Done)
    }
}
