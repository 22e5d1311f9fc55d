//! The quickstart's page of figures.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use fpcache_datasets::Dataset;
use serde::Serialize;

use super::lines::{Figures, LINES, Line};
use crate::made::Recorded;
use crate::report;
use crate::report::read::Found;
use crate::run::report::write_json;
use crate::run::row::Row;
use crate::systems::Facts;

/// One way to look up keys of one data set.
#[derive(Clone, Debug, Serialize)]
pub struct TourRow {
    /// The data set as asked for.
    dataset: String,
    /// published, stand-in or shipped.
    dataset_source: String,
    /// Keys loaded.
    keys: u64,
    /// The system and its plan, or how many keys it is asked for.
    way: &'static str,
    /// Keys per call.
    batch: u64,
    /// Lookups of every pass.
    lookups: u64,
    /// Nanoseconds of a lookup in the median pass.
    ns_per_lookup: f64,
    /// Bytes that each process that looks up keeps per key.
    process_bytes_per_key: f64,
    /// Bytes at the memory node per key; null for maps.
    memory_node_bytes_per_key: Option<f64>,
    /// Dependent round trips a lookup waited for; null for maps.
    rtts_per_op: Option<f64>,
    /// Bytes read per lookup; null for maps.
    bytes_per_op: Option<f64>,
    /// Wrong answers.
    mismatches: u64,
}

impl TourRow {
    /// All lines of a data set.
    pub fn of(dataset: &Dataset, facts: &[Facts], figures: &[Figures]) -> Vec<Self> {
        let keys = dataset.len() as f64;
        let row = |(line, figures): (&Line, &Figures)| {
            let (facts, verified) = (&facts[line.system], &figures.verified);
            let per_lookup = |count: u64| count as f64 / verified.lookups.max(1) as f64;
            Self {
                dataset: dataset.name().to_owned(),
                dataset_source: dataset.source().to_string(),
                keys: dataset.len() as u64,
                way: line.label,
                batch: line.batch as u64,
                lookups: verified.lookups,
                ns_per_lookup: figures.ns,
                process_bytes_per_key: facts.process_bytes as f64 / keys,
                memory_node_bytes_per_key: facts.memory_node_bytes.map(|bytes| bytes as f64 / keys),
                rtts_per_op: verified.costs.map(|costs| per_lookup(costs.round_trips)),
                bytes_per_op: verified.costs.map(|costs| per_lookup(costs.bytes)),
                mismatches: verified.mismatches,
            }
        };
        LINES.iter().zip(figures).map(row).collect()
    }
}

/// Writes the page of the tour's figures, and of those within budgets, into `folder`, with the rows
/// beside it, or else below the folder of this build; `None` if this program was not built where it
/// lies.
///
/// # Errors
/// If `folder` was asked for and cannot be written; else that is only said.
pub fn write(
    tour: &[TourRow],
    budgets: &[Recorded<Row>],
    folder: Option<&Path>,
) -> anyhow::Result<Option<PathBuf>> {
    let rows = Recorded::now(tour);
    let mut found = Found::default();
    found.add("quickstart.json", &serde_json::to_string(&rows)?);
    if !budgets.is_empty() {
        found.add("results.json", &serde_json::to_string(budgets)?);
    }
    let html = report::page("FPCache: the quickstart", found)?;
    if let Some(folder) = folder {
        write_json(tour, &folder.join("quickstart.json"))?;
        let page = folder.join("report.html");
        report::write(&page, &html)?;
        return Ok(Some(page));
    }
    let Some(folder) = build_folder().map(|target| target.join("quickstart")) else { return Ok(None) };
    let page = folder.join("report.html");
    let made = fs::create_dir_all(&folder)
        .with_context(|| format!("{}: the folder cannot be made", folder.display()));
    match made.and_then(|()| report::write(&page, &html)) {
        Ok(()) => Ok(Some(page)),
        Err(error) => {
            eprintln!("note: no page with these figures: {error:#}");
            Ok(None)
        }
    }
}

/// Cargo's folder of what it built, if this program lies where Cargo put it: beside the folder of
/// its dependencies.
fn build_folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let profile = program.parent().filter(|profile| profile.join("deps").is_dir())?;
    Some(profile.parent()?.to_owned())
}
