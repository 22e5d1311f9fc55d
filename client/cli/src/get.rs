//! The `get` command.

use std::borrow::Borrow;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use fpcache_client::{Answers, KeyRef, RecordShape, RecordToken, TableClient};
use serde_json::{Value, json};

use crate::keys::{KeyFormat, Keys};
use crate::output::{Outcome, Output};
use crate::value::{Format, TableFormat};

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Key: a u64 in decimal or as in 0x2a, or text, with \xNN for any byte
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,

    /// Write the raw value of one key to this file, or - for standard output. If standard output is
    /// not a terminal, values of variable length are always written raw, unless --format is given
    #[arg(long, value_name = "PATH", conflicts_with_all = ["format", "json", "json_strings"])]
    output: Option<PathBuf>,

    #[command(flatten)]
    format: Format,

    #[command(flatten)]
    key_format: KeyFormat,
}

impl Get {
    /// For one key prints the value alone; for several, one line each with key and value.
    pub(crate) fn run<K: Keys>(
        &self,
        client: &TableClient<K>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let keys = self.keys.iter().map(|key| K::parse(key, self.key_format));
        let keys = keys.collect::<anyhow::Result<Vec<_>>>()?;
        if let Some(path) = &self.output {
            return self.write_to::<K>(client, &keys, path, output);
        }
        let mut answers = Answers::new();
        client.multi_get_into(&keys, &mut answers)?;
        let (shape, format) = (client.shape()?, self.format.in_table(client)?);
        let mut outcome = Outcome::Done;
        for (i, key) in keys.iter().enumerate() {
            let (value, shown) = (answers.value(i), K::text(key.borrow(), self.key_format));
            if output.is_json() {
                output.element(&self.element::<K>(key.borrow(), (i, &answers), &shape, format)?)?;
            }
            match value {
                None => {
                    outcome = Outcome::Wrong;
                    eprintln!("key {} is absent", K::short(key.borrow(), self.key_format));
                }
                Some(_) if output.is_json() => {}
                Some(value) if keys.len() == 1 && format.is_plain() && !output.is_terminal() => {
                    output.bytes(value)?;
                }
                Some(value) if keys.len() == 1 => output.line(format.text(value)?)?,
                Some(value) => output.line(format_args!("{shown} {}", format.text(value)?))?,
            }
        }
        output.end_array()?;
        Ok(outcome)
    }

    /// Writes the value of one key to a file, which is not touched if the key is absent.
    fn write_to<K: Keys>(
        &self,
        client: &TableClient<K>,
        keys: &[K::Owned],
        path: &Path,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        // Of options before the command clap does not see that they conflict with its own.
        ensure!(!output.is_json(), "--output writes the raw value: omit --json and --json-strings");
        let [key] = keys else { bail!("--output takes one key, but {} were given", keys.len()) };
        let key: &K::Key = key.borrow();
        let Some(value) = client.get(KeyRef::<K>(key))? else {
            eprintln!("key {} is absent", K::short(key, self.key_format));
            return Ok(Outcome::Wrong);
        };
        if path.as_os_str() == "-" {
            output.bytes(&value)?;
            return Ok(Outcome::Done);
        }
        fs::write(path, value).with_context(|| format!("writing the value to {}", path.display()))?;
        Ok(Outcome::Done)
    }

    fn element<K: Keys>(
        &self,
        key: &K::Key,
        (i, answers): (usize, &Answers),
        shape: &RecordShape,
        format: TableFormat,
    ) -> anyhow::Result<Value> {
        let value =
            answers.value(i).map(|value| format.json_of::<K>(key, value, self.key_format)).transpose()?;
        let found = answers.found(i);
        let token = found.and_then(|f| f.version).zip(answers.value(i)).map(|(version, value)| {
            // Digits, because JSON's numbers do not hold 64 bits everywhere.
            format!("{:#x}", RecordToken::of(version, &shape.identity::<K>(key, value)).to_bits())
        });
        Ok(json!({
            "key": K::json(key, self.key_format),
            "value": value,
            "version": found.and_then(|f| f.version),
            "token": token,
            "plan": found.map(|f| f.plan.name()),
            "round_trips": found.map(|f| f.cost.round_trips),
            "reads": found.map(|f| f.cost.reads),
            "bytes": found.map(|f| f.cost.bytes),
        }))
    }
}
