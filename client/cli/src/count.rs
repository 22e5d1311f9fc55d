//! The `count` command.

use std::borrow::Borrow;

use clap::Args;
use fpcache_client::{KeyRef, TableClient};
use serde_json::json;

use crate::keys::{KeyFormat, Keys};
use crate::output::{Outcome, Output};
use crate::scan::RangeArguments;

#[derive(Debug, Args)]
pub(crate) struct Count {
    #[command(flatten)]
    range: RangeArguments,

    #[command(flatten)]
    key_format: KeyFormat,
}

impl Count {
    pub(crate) fn run<K: Keys>(
        &self,
        client: &TableClient<K>,
        output: &mut Output,
    ) -> anyhow::Result<Outcome> {
        let (start, end) = self.range.bounds::<K>(self.key_format)?;
        let start = start.unwrap_or_else(|| K::lowest().to_owned());
        let end = end.as_ref().map(|end| KeyRef::<K>(end.borrow()));
        let (count, cost) = client.count_with_cost(KeyRef::<K>(start.borrow()), end)?;
        if output.is_json() {
            output.document(&json!({
                "count": count,
                "round_trips": cost.round_trips,
                "reads": cost.reads,
                "bytes": cost.bytes,
            }))?;
        } else {
            output.line(count)?;
        }
        Ok(Outcome::Done)
    }
}
