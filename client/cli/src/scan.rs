//! The `scan` command.

use std::borrow::Borrow;
use std::io::{self, IsTerminal};
use std::ops::Bound;

use anyhow::bail;
use clap::Args;
use fpcache_client::{KeySpace, TableClient};
use serde_json::json;

use crate::keys::{KeyFormat, Keys};
use crate::numbers::number;
use crate::output::{Outcome, Output};
use crate::value::{Format, TableFormat};
use crate::walk::{KeyBounds, walk, walk_keys};

/// The limit that is not given.
const DEFAULT: u64 = 10;

#[derive(Debug, Args)]
pub(crate) struct Scan {
    /// Start at the least key not below this, or with --reverse at the greatest key not above it
    /// [default: the end of the range]
    #[arg(value_name = "START")]
    start: Option<String>,

    #[command(flatten)]
    range: RangeArguments,

    /// List in descending order
    #[arg(long)]
    reverse: bool,

    /// Maximum number of records [default: 10]
    #[arg(long, value_name = "N", value_parser = number)]
    limit: Option<u64>,

    /// List keys alone: long values are not read
    #[arg(long)]
    keys_only: bool,

    #[command(flatten)]
    format: Format,

    #[command(flatten)]
    key_format: KeyFormat,
}

/// A range of keys.
#[derive(Debug, Args)]
pub(crate) struct RangeArguments {
    /// First key of the range, inclusive
    #[arg(long, value_name = "KEY")]
    from: Option<String>,

    /// End of the range, exclusive
    #[arg(long, value_name = "KEY")]
    to: Option<String>,

    /// Keys with this prefix (byte strings only)
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
}

/// The start of a range and its exclusive end, if it has one.
pub(crate) type Ends<K> = (Option<<K as KeySpace>::Owned>, Option<<K as KeySpace>::Owned>);

impl RangeArguments {
    /// Its ends.
    pub(crate) fn bounds<K: Keys>(&self, format: KeyFormat) -> anyhow::Result<Ends<K>> {
        if let Some(prefix) = &self.prefix {
            let (from, to) = K::parse_prefix(prefix, format)?;
            return Ok((Some(from), to));
        }
        let parse = |key: &String| K::parse(key, format);
        let (from, to) =
            (self.from.as_ref().map(parse).transpose()?, self.to.as_ref().map(parse).transpose()?);
        check_order::<K>(from.as_ref(), to.as_ref(), format)?;
        Ok((from, to))
    }
}

/// Fails if a range ends before it begins.
fn check_order<K: Keys>(
    from: Option<&K::Owned>,
    to: Option<&K::Owned>,
    format: KeyFormat,
) -> anyhow::Result<()> {
    if let (Some(from), Some(to)) = (from, to)
        && from > to
    {
        let (from, to) = (K::short(from.borrow(), format), K::short(to.borrow(), format));
        bail!("the range from {from} to {to} ends before it begins: swap the two");
    }
    Ok(())
}

impl Scan {
    pub(crate) fn run<K: Keys>(
        &self,
        client: &TableClient<K>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let (span, format) = (self.span::<K>()?, self.format.in_table(client)?);
        // One more tells whether there are more.
        let (limit, wanted) = (self.limit.unwrap_or(DEFAULT), self.limit.unwrap_or(DEFAULT + 1));
        let (mut shown, mut is_cut) = (0, false);
        let mut take = |key: &K::Key, value: Option<&[u8]>| {
            is_cut = shown == limit;
            if !is_cut {
                shown += 1;
                self.show::<K>(key, value, format, output)?;
            }
            Ok(!output.is_closed())
        };
        match self.keys_only {
            true => walk_keys(client, span, self.reverse, wanted, |key| take(key, None))?,
            false => walk(client, span, self.reverse, wanted, |key, value| take(key, Some(value)))?,
        }
        output.end_array()?;
        if is_cut && (!output.is_json() || io::stderr().is_terminal()) {
            eprintln!("{shown} records shown; --limit N for more, or `fpcache-cli export`");
        }
        Ok(Outcome::Done)
    }

    /// The keys to list.
    fn span<K: Keys>(&self) -> anyhow::Result<KeyBounds<K>> {
        let (from, to) = self.range.bounds::<K>(self.key_format)?;
        let start = self.start.as_ref().map(|start| K::parse(start, self.key_format)).transpose()?;
        let (from, to) = match (start, self.reverse) {
            (None, _) => (from, to.map_or(Bound::Unbounded, Bound::Excluded)),
            (Some(start), false) if from.is_none() => {
                check_order::<K>(Some(&start), to.as_ref(), self.key_format)?;
                (Some(start), to.map_or(Bound::Unbounded, Bound::Excluded))
            }
            (Some(start), true) if from.is_none() && to.is_none() => (None, Bound::Included(start)),
            (Some(_), false) => bail!("START is the beginning of the range: omit --from and --prefix"),
            (Some(_), true) => {
                bail!("with --reverse, START is the end of the range: omit it to use --from and --to")
            }
        };
        Ok(KeyBounds { from: from.unwrap_or_else(|| K::lowest().to_owned()), to })
    }

    fn show<K: Keys>(
        &self,
        key: &K::Key,
        value: Option<&[u8]>,
        format: TableFormat,
        output: &mut Output,
    ) -> anyhow::Result<()> {
        match value {
            Some(value) if output.is_json() => {
                let value = format.json_of::<K>(key, value, self.key_format)?;
                output.element(&json!({ "key": K::json(key, self.key_format), "value": value }))?;
            }
            Some(value) => {
                output.line(format_args!("{} {}", K::text(key, self.key_format), format.text(value)?))?;
            }
            None if output.is_json() => output.element(&json!({ "key": K::json(key, self.key_format) }))?,
            None => output.line(K::text(key, self.key_format))?,
        }
        Ok(())
    }
}
