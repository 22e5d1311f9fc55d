//! `scan`

use clap::Args;
use fpcache_client::Client;
use serde_json::json;

use crate::Outcome;
use crate::arguments::key;
use crate::output::Output;
use crate::value::Format;

/// Records asked for at once: bounds the memory a long scan takes here.
const PAGE: usize = 10_000;

#[derive(Debug, Args)]
pub(crate) struct Scan {
    /// Where to start: the least key not below this, in decimal or as in 0x2a
    #[arg(value_name = "START", value_parser = key)]
    start: u64,

    /// Most records to list
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,

    #[command(flatten)]
    format: Format,
}

impl Scan {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> anyhow::Result<Outcome> {
        let (mut from, mut left) = (Some(self.start), self.limit);
        while let Some(start) = from.filter(|_| left > 0) {
            let wanted = left.min(PAGE);
            let records = client.scan(start, wanted)?;
            for (key, value) in &records {
                if output.is_json() {
                    output.element(&json!({ "key": key, "value": self.format.json(value)? }))?;
                } else {
                    output.line(format_args!("{key} {}", self.format.text(value)?))?;
                }
            }
            left -= records.len().min(left);
            let last = records.last().filter(|_| records.len() == wanted);
            from = last.and_then(|(key, _)| key.checked_add(1));
        }
        if output.is_json() {
            output.end_array()?;
        }
        Ok(Outcome::Done)
    }
}
