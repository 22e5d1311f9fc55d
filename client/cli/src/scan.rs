//! `scan`

use std::borrow::Borrow;
use std::ops::Bound;

use anyhow::bail;
use clap::Args;
use fpcache_client::{KeyRef, KeySpace, TableClient};
use serde_json::json;

use crate::keys::{KeyFormat, Keys};
use crate::output::{Outcome, Output};
use crate::value::{Format, TableFormat};

/// Records per call, which bounds the memory of a long scan.
const PAGE: usize = 10_000;

#[derive(Debug, Args)]
pub(crate) struct Scan {
    /// Start at the least key not below this, or with --reverse at the greatest key not above it
    /// [default: the end of the range]
    #[arg(value_name = "START")]
    start: Option<String>,

    #[command(flatten)]
    range: Range,

    /// List in descending order
    #[arg(long)]
    reverse: bool,

    /// Maximum number of records
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,

    #[command(flatten)]
    format: Format,

    #[command(flatten)]
    key_format: KeyFormat,
}

/// A range of keys.
#[derive(Debug, Args)]
pub(crate) struct Range {
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

impl Range {
    /// Its ends.
    pub(crate) fn bounds<K: Keys>(&self, format: KeyFormat) -> anyhow::Result<Ends<K>> {
        if let Some(prefix) = &self.prefix {
            let prefix = K::parse(prefix, format)?;
            let end = K::end_of(prefix.borrow())?;
            return Ok((Some(prefix), end));
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

/// The keys still to be listed.
struct Left<K: Keys> {
    from: K::Owned,
    to: Bound<K::Owned>,
}

impl Scan {
    pub(crate) fn run<K: Keys>(
        &self,
        client: &TableClient<K>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let mut keys = Some(self.keys::<K>()?);
        let format = self.format.in_table(client)?;
        let mut left = self.limit;
        while let Some(range) = keys.take().filter(|_| left > 0) {
            let wanted = left.min(PAGE);
            // Shown as they come: values may be long.
            let (mut count, mut last, mut shown) = (0, None, Ok(()));
            let take = |key: K::View<'_>, value: &[u8]| {
                if shown.is_ok() && !output.is_closed() {
                    shown = self.show::<K>(key.borrow(), value, format, output);
                }
                count += 1;
                if count == wanted {
                    last = Some(key.borrow().to_owned());
                }
            };
            let from = KeyRef::<K>(range.from.borrow());
            match (&range.to, self.reverse) {
                (Bound::Excluded(to), false) => {
                    client.scan_range(from, KeyRef::<K>(to.borrow()), wanted, take)?;
                }
                (_, false) => _ = client.scan_with(from, wanted, take)?,
                (Bound::Excluded(to), true) => {
                    client.scan_range_back(from, KeyRef::<K>(to.borrow()), wanted, take)?;
                }
                (Bound::Included(to), true) => {
                    client.scan_back_with(KeyRef::<K>(to.borrow()), wanted, take)?;
                }
                (Bound::Unbounded, true) => _ = client.scan_back_to(from, wanted, take)?,
            }
            shown?;
            if output.is_closed() {
                break;
            }
            left -= count.min(left);
            let Some(last) = last else { break };
            keys = match self.reverse {
                true => Some(Left { to: Bound::Excluded(last), ..range }),
                false => K::successor(last.borrow()).map(|from| Left { from, ..range }),
            };
        }
        if output.is_json() {
            output.end_array()?;
        }
        Ok(Outcome::Done)
    }

    /// The keys to list.
    fn keys<K: Keys>(&self) -> anyhow::Result<Left<K>> {
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
        Ok(Left { from: from.unwrap_or_else(|| K::lowest().to_owned()), to })
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
}
