//! Tables over several memory nodes, for `create`, `load` and `drop`.

use std::borrow::Borrow;

use anyhow::{bail, ensure};
use clap::Args;
use fpcache_client::{KeyKind, Nodes};

use crate::keys::{KeyFormat, Keys};
use crate::output::counted;
use crate::table_arguments::TableArguments;

/// The memory nodes of a table over several.
#[derive(Clone, Debug, Args)]
pub(crate) struct OverNodes {
    /// Partition the table over these memory nodes, one range of keys each, in key order: URLs
    /// separated by commas. Other commands then need the URL of any one of them
    #[arg(long, value_name = "URL,URL")]
    nodes: Option<String>,
}

impl OverNodes {
    /// The memory nodes, if any are named.
    pub(crate) fn named(&self, place: &TableArguments) -> anyhow::Result<Option<Nodes>> {
        let at = |urls| Ok(Nodes::at_with(urls, place.config())?);
        self.nodes.as_deref().map(at).transpose()
    }
}

/// The keys at which to split a table over this many memory nodes: those that were given, else an
/// even split of all integers.
pub(crate) fn split_at<K: Keys>(named: &[String], nodes: usize) -> anyhow::Result<Vec<K::Owned>> {
    if !named.is_empty() {
        let wanted = nodes.saturating_sub(1);
        ensure!(
            named.len() == wanted,
            "--split-at names {}, but {nodes} memory nodes need {}, where the second range begins and each one after it",
            counted(named.len() as u64, "key"),
            counted(wanted as u64, "key")
        );
        let parse = |key: &String| K::parse(key, KeyFormat { is_hex: false });
        let keys: Vec<K::Owned> = named.iter().map(parse).collect::<Result<_, _>>()?;
        let is_before =
            |at: usize| Borrow::<K::Key>::borrow(&keys[at]) < Borrow::<K::Key>::borrow(&keys[at + 1]);
        if let Some(at) = (0..keys.len().saturating_sub(1)).find(|at| !is_before(*at)) {
            bail!(
                "the keys of --split-at must ascend, but {} does not come after {}",
                named[at + 1],
                named[at]
            );
        }
        return Ok(keys);
    }
    if nodes > 1 && !KeyKind::U64.is::<K>() {
        bail!(
            "byte strings have no default split: name the keys to split at with --split-at, {} for {nodes} memory nodes, or have \
             load find them",
            nodes - 1
        );
    }
    let nodes = nodes as u128;
    let key = |i: u128| (i << 64) / nodes.max(1);
    (1..nodes).map(|i| K::parse(&key(i).to_string(), KeyFormat { is_hex: false })).collect()
}

/// Those of `keys` ascending keys that split them into equal parts.
pub(crate) fn split_of<K: Keys>(
    keys: usize,
    key: impl Fn(usize) -> K::Owned,
    nodes: usize,
) -> anyhow::Result<Vec<K::Owned>> {
    ensure!(
        keys >= nodes,
        "{keys} keys cannot be split over {nodes} memory nodes: name fewer, or create the table with --split-at first"
    );
    Ok((1..nodes).map(|i| key(i * keys / nodes)).collect())
}
