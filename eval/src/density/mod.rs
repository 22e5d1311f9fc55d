//! How few bytes of a compute node's memory let one READ find a key, or tell that it is absent.
//!
//! Of what can be built: the segments of a data set are cut and their keys put into groups (`fpcache_index::groups`), without a
//! memory node; then every key is looked for where its table leads, and keys that are none between them. Of what is built: a memory node
//! in this process loads the keys, or most of them and has the others inserted, and a client looks keys up.

pub mod form;
pub mod measure;
mod node;
mod options;
mod plot;
mod row;

use std::fs;
use std::path::Path;

use anyhow::Context;
use fpcache_datasets::{Dataset, OpenOptions};

pub use options::{DensityArgs, EXAMPLES};

use crate::progress::Bar;
use crate::run::report::{check_json, deliver};
use crate::verdict::Verdict;
use measure::{Setting, measure};
use row::DensityRow;

/// Measures every setting and reports them.
///
/// # Errors
/// If the options make no sense, a data set cannot be had, or a memory node fails.
pub fn density(arguments: &DensityArgs) -> anyhow::Result<Verdict> {
    arguments.validate()?;
    check_json(arguments.json.as_deref())?;
    check_plot(arguments.plot.as_deref())?;
    let bar = Bar::default();
    let mut rows = Vec::new();
    for spec in &arguments.datasets {
        let options = OpenOptions {
            seed: arguments.seed,
            data_dir: arguments.data_dir.clone(),
            progress: Some(&bar),
            ..OpenOptions::default()
        };
        let dataset = spec.open(&options)?;
        for epsilon in &arguments.epsilon {
            for form in arguments.forms() {
                let setting = arguments.setting(form, *epsilon);
                match form.built() {
                    Some(_) => rows.extend(in_memory_nodes(arguments, &setting, &dataset, &bar)?),
                    None => {
                        let phase = format!("{spec}, {}, epsilon {epsilon}", form.name());
                        let figures = bar.during(&phase, 1, || measure(dataset.keys(), &setting))?;
                        rows.push(DensityRow::new(&dataset, &setting, &figures));
                    }
                }
            }
        }
    }
    deliver(&row::table(&rows), &rows, arguments.json.as_deref())?;
    if let Some(path) = &arguments.plot {
        let wrote = fs::write(path, plot::draw(&rows)?);
        wrote.with_context(|| format!("writing the plot to {}", path.display()))?;
        eprintln!("plot: {}", path.display());
    }
    Ok(Verdict::of(rows.iter().map(|row| row.misplaced).sum()))
}

/// Finds out now whether the plot can be written; what is there stays until it is replaced.
fn check_plot(path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let open = fs::OpenOptions::new().append(true).create(true).open(path);
    open.map(drop).with_context(|| {
        format!("--plot {}: the file cannot be written; name one in a folder that is there", path.display())
    })
}

/// A row for each share of inserts.
fn in_memory_nodes(
    arguments: &DensityArgs,
    setting: &Setting,
    dataset: &Dataset,
    bar: &Bar,
) -> anyhow::Result<Vec<DensityRow>> {
    let parameters = node::parameters(setting).context("slots of which memory nodes have groups")?;
    let build_ns = node::grouping_ns(dataset.keys(), parameters, bar)?;
    let row = |inserted: &f64| {
        eprintln!("{}, epsilon {}, {} % inserted", dataset.name(), setting.epsilon, 100.0 * inserted);
        let figures = node::measure(dataset, parameters, *inserted, arguments.lookups, setting.seed, bar)?;
        Ok(DensityRow::of_node(dataset, setting, &figures, build_ns))
    };
    arguments.inserted.iter().map(row).collect()
}
