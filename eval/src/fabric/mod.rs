//! `fabric`: READs, WRITEs, compare-and-swap and calls over each transport, without keys.

mod measure;
mod nodes;
mod options;
mod perftest;
mod row;

use anyhow::{Context, ensure};
use fpcache_datasets::Bar;

pub use options::{EXAMPLES, FabricArgs};

use crate::run::report::{check_json, deliver};
use crate::verdict::Verdict;

/// Measures each transport and reports it.
///
/// # Errors
/// If a transport fails, or there is no transport.
pub fn fabric(arguments: &FabricArgs) -> anyhow::Result<Verdict> {
    ensure!(!arguments.transports.is_empty(), "--transport: name one, such as shm");
    check_json(arguments.json.as_deref())?;
    let bar = Bar::default();
    let mut rows = Vec::new();
    for way in &arguments.transports {
        let name = way.name();
        let measured = bar.during(&format!("measuring {name}"), 1, || nodes::measure(*way, arguments));
        rows.extend(measured.with_context(|| format!("--transport {name}"))?);
    }
    deliver(&row::table(&rows), &rows, arguments.json.as_deref())?;
    Ok(Verdict::of(rows.iter().map(|row| row.mismatches).sum()))
}
