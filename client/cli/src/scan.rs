//! `scan`

use std::borrow::Borrow;

use clap::Args;
use fpcache_client::{Client, KeyRef};
use serde_json::json;

use crate::Outcome;
use crate::keys::{KeyFormat, Keys};
use crate::output::Output;
use crate::value::{Format, TableFormat};

/// Records asked for at once: bounds the memory a long scan takes here.
const PAGE: usize = 10_000;

#[derive(Debug, Args)]
pub(crate) struct Scan {
    /// Where to start: the least key not below this [default: the least of all]
    #[arg(value_name = "START")]
    start: Option<String>,

    /// The same, as an option
    #[arg(long, value_name = "KEY", conflicts_with = "start")]
    from: Option<String>,

    /// Where to end: below this key
    #[arg(long, value_name = "KEY")]
    to: Option<String>,

    /// List the keys that begin so, of byte strings
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["start", "from", "to"])]
    prefix: Option<String>,

    /// Most records to list
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,

    #[command(flatten)]
    format: Format,

    #[command(flatten)]
    key_format: KeyFormat,
}

impl Scan {
    pub(crate) fn run<K: Keys>(&self, client: &Client<K>, output: &mut Output) -> anyhow::Result<Outcome> {
        let (start, end) = self.range::<K>()?;
        let format = self.format.in_table(client)?;
        let (mut from, mut left) = (Some(start), self.limit);
        while let Some(start) = from.take().filter(|_| left > 0) {
            let wanted = left.min(PAGE);
            // Shown as they come: values may be long.
            let (mut count, mut last, mut shown) = (0, None, Ok(()));
            let take = |key: K::View<'_>, value: &[u8]| {
                if shown.is_ok() {
                    shown = self.show::<K>(key.borrow(), value, format, output);
                }
                count += 1;
                if count == wanted {
                    last = Some(key.borrow().to_owned());
                }
            };
            let start = KeyRef::<K>(start.borrow());
            match &end {
                Some(end) => client.scan_range(start, KeyRef::<K>(end.borrow()), wanted, take)?,
                None => client.scan_with(start, wanted, take)?,
            };
            shown?;
            left -= count.min(left);
            from = last.and_then(|key: K::Owned| K::successor(key.borrow()));
        }
        if output.is_json() {
            output.end_array()?;
        }
        Ok(Outcome::Done)
    }

    fn show<K: Keys>(
        &self,
        key: &K::Key,
        value: &[u8],
        format: TableFormat,
        output: &mut Output,
    ) -> anyhow::Result<()> {
        if output.is_json() {
            let key = K::json(key, self.key_format);
            output.element(&json!({ "key": key, "value": format.json(value)? }))?;
        } else {
            output.line(format_args!("{} {}", K::text(key, self.key_format), format.text(value)?))?;
        }
        Ok(())
    }

    /// Where the scan begins, and where it ends if it does.
    fn range<K: Keys>(&self) -> anyhow::Result<(K::Owned, Option<K::Owned>)> {
        if let Some(prefix) = &self.prefix {
            let prefix = K::parse(prefix, self.key_format)?;
            let end = K::behind(prefix.borrow())?;
            return Ok((prefix, end));
        }
        let parse = |key: &String| K::parse(key, self.key_format);
        let start = self.start.as_ref().or(self.from.as_ref()).map(parse).transpose()?;
        Ok((start.unwrap_or_else(|| K::lowest().to_owned()), self.to.as_ref().map(parse).transpose()?))
    }
}
