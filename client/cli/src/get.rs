//! `get`

use clap::Args;
use fpcache_client::{Answers, Client, RecordToken};
use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::key;
use crate::output::Output;
use crate::value::Format;

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Key, in decimal or as in 0x2a
    #[arg(required = true, value_name = "KEY", value_parser = key)]
    keys: Vec<u64>,

    #[command(flatten)]
    format: Format,
}

impl Get {
    /// One key gives its value alone; several give a line each, the key first.
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> anyhow::Result<Outcome> {
        let mut answers = Answers::new();
        client.multi_get_into(&self.keys, &mut answers)?;
        let mut outcome = Outcome::Done;
        for (i, key) in self.keys.iter().enumerate() {
            let value = answers.value(i);
            if output.is_json() {
                output.element(&self.element(*key, i, &answers)?)?;
            }
            match value {
                None => {
                    outcome = Outcome::Wrong;
                    eprintln!("key {key} is absent");
                }
                Some(_) if output.is_json() => {}
                Some(value) if self.keys.len() == 1 => output.line(self.format.text(value)?)?,
                Some(value) => output.line(format_args!("{key} {}", self.format.text(value)?))?,
            }
        }
        if output.is_json() {
            output.end_array()?;
        }
        Ok(outcome)
    }

    fn element(&self, key: u64, i: usize, answers: &Answers) -> anyhow::Result<Value> {
        let value = answers.value(i).map(|value| self.format.json(value)).transpose()?;
        let found = answers.found(i);
        let token = found.and_then(|f| f.version).zip(answers.value(i)).map(|(version, value)| {
            let record: Vec<u8> = key.to_le_bytes().iter().chain(value).copied().collect();
            // Digits, because JSON's numbers do not hold 64 bits everywhere.
            format!("{:#x}", RecordToken::of(version, &record).to_bits())
        });
        Ok(json!({
            "key": key,
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
