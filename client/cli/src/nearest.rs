//! The `floor`, `ceiling`, `first` and `last` commands.

use std::borrow::Borrow;

use clap::Args;
use fpcache_client::{Cost, KeyRef, TableClient};
use serde_json::{Value, json};

use crate::keys::{KeyFormat, Keys};
use crate::output::{Outcome, Output};
use crate::value::{Format, TableFormat};

/// The record to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Floor,
    Ceiling,
}

#[derive(Debug, Args)]
pub(crate) struct Nearest {
    /// Key, as for get; it may be absent
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,

    #[command(flatten)]
    end: NearestFormats,
}

#[derive(Debug, Args)]
pub(crate) struct NearestFormats {
    #[command(flatten)]
    format: Format,

    #[command(flatten)]
    key_format: KeyFormat,
}

/// A record that was found, as it is printed.
type Shown<K> = (Option<(<K as fpcache_client::KeySpace>::Owned, Vec<u8>)>, Cost);

impl Nearest {
    /// For one key prints the record's key and value; for several, one line each that begins with
    /// the requested key.
    pub(crate) fn run<K: Keys>(
        &self,
        side: Side,
        client: &TableClient<K>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let key_format = self.end.key_format;
        let keys = self.keys.iter().map(|key| K::parse(key, key_format));
        let keys = keys.collect::<anyhow::Result<Vec<_>>>()?;
        let mut found: Vec<Shown<K>> = Vec::with_capacity(keys.len());
        let take = |record: Option<(K::View<'_>, &[u8])>, cost| {
            found.push((record.map(|(key, value)| (key.borrow().to_owned(), value.to_vec())), cost));
        };
        match side {
            Side::Floor => client.multi_floor_with(&keys, take)?,
            Side::Ceiling => client.multi_ceiling_with(&keys, take)?,
        }
        let format = self.end.format.in_table(client)?;
        let mut outcome = Outcome::Done;
        for (asked, shown) in keys.iter().zip(&found) {
            let asked: &K::Key = asked.borrow();
            if output.is_json() {
                output.element(&self.end.element::<K>(Some(asked), shown, format)?)?;
            }
            let Some((key, value)) = &shown.0 else {
                outcome = Outcome::Wrong;
                let where_to = if side == Side::Floor { "at or below" } else { "at or above" };
                eprintln!("there is no key {where_to} {}", K::short(asked, key_format));
                continue;
            };
            let (key, value) = (K::text(key.borrow(), key_format), format.text(value)?);
            match keys.len() {
                _ if output.is_json() => {}
                1 => output.line(format_args!("{key} {value}"))?,
                _ => output.line(format_args!("{} {key} {value}", K::text(asked, key_format)))?,
            }
        }
        output.end_array()?;
        Ok(outcome)
    }
}

impl NearestFormats {
    /// The record at one end of the table: the one with the greatest key for `Floor`.
    pub(crate) fn run<K: Keys>(
        &self,
        side: Side,
        client: &TableClient<K>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let own = |record: Option<(K::View<'_>, &[u8])>| {
            record.map(|(key, value)| (key.borrow().to_owned(), value.to_vec()))
        };
        let shown: Shown<K> = match side {
            Side::Floor => client.floor_with(KeyRef::<K>(K::highest()), own)?,
            Side::Ceiling => client.ceiling_with(KeyRef::<K>(K::lowest()), own)?,
        };
        let format = self.format.in_table(client)?;
        if output.is_json() {
            output.document(&self.element::<K>(None, &shown, format)?)?;
        }
        let Some((key, value)) = &shown.0 else {
            eprintln!("the table is empty");
            return Ok(Outcome::Wrong);
        };
        if !output.is_json() {
            let key = K::text(key.borrow(), self.key_format);
            output.line(format_args!("{key} {}", format.text(value)?))?;
        }
        Ok(Outcome::Done)
    }

    fn element<K: Keys>(
        &self,
        asked: Option<&K::Key>,
        (record, cost): &Shown<K>,
        format: TableFormat,
    ) -> anyhow::Result<Value> {
        let value =
            record.as_ref().map(|(key, value)| format.json_of::<K>(key.borrow(), value, self.key_format));
        let value = value.transpose()?;
        let mut element = json!({
            "key": record.as_ref().map(|(key, _)| K::json(key.borrow(), self.key_format)),
            "value": value,
            "round_trips": cost.round_trips,
            "reads": cost.reads,
            "bytes": cost.bytes,
        });
        if let (Some(asked), Some(fields)) = (asked, element.as_object_mut()) {
            fields.insert("asked".into(), K::json(asked, self.key_format));
        }
        Ok(element)
    }
}
