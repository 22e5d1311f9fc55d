//! `density`: how few bytes of a compute node's memory let one READ find a key, or tell that it is
//! absent.
//!
//! Of what can be built: the segments of a data set are cut and their keys put into groups
//! (`fpcache_index::groups`), without a memory node; then every key is looked for where its table
//! leads, and keys that are none between them. Of what is built: a memory node in this process
//! loads the keys, or most of them and has the others inserted, and a client looks keys up.

pub mod form;
pub mod measure;
mod node;
mod options;
mod plot;
mod row;

use anyhow::Context;
use fpcache_datasets::{Bar, Dataset, OpenOptions};

pub use options::{DensityArgs, EXAMPLES};

use crate::data::announce;
use crate::run::collected::Collected;
use crate::run::replaced_file::check_file;
use crate::run::report::write_plot;
use crate::verdict::Verdict;
use measure::{Setting, measure};
use row::DensityRow;

/// Measures every setting and reports them.
///
/// # Errors
/// If the options make no sense, a data set cannot be had, or a memory node fails.
pub fn density(arguments: &DensityArgs) -> anyhow::Result<Verdict> {
    arguments.validate()?;
    arguments.plot.as_deref().map_or(Ok(()), |path| check_file("--plot", path))?;
    let mut rows = Collected::new(arguments.json.as_deref())?;
    let measured = measure_all(arguments, &mut rows);
    let drawn = match arguments.plot.as_deref().filter(|_| !rows.rows().is_empty()) {
        Some(path) => plot::draw(rows.rows()).and_then(|plot| write_plot(path, &plot)),
        None => Ok(()),
    };
    rows.deliver(row::table, measured.and(drawn))?;
    Ok(Verdict::of(rows.rows().iter().map(|row| row.misplaced).sum()))
}

fn measure_all(arguments: &DensityArgs, rows: &mut Collected<DensityRow>) -> anyhow::Result<()> {
    let bar = Bar::default();
    for spec in &arguments.datasets {
        let options = OpenOptions {
            seed: arguments.seed,
            data_dir: arguments.data_dir.clone(),
            progress: Some(&bar),
            ..OpenOptions::default()
        };
        let dataset = spec.open(&options)?;
        announce(dataset.notes());
        for epsilon in &arguments.epsilon {
            for form in arguments.forms() {
                let setting = arguments.setting(form, *epsilon);
                match form.built() {
                    Some(_) => in_memory_nodes(arguments, &setting, &dataset, &bar, rows)?,
                    None => {
                        let phase = format!("{spec}, {}, epsilon {epsilon}", form.name());
                        let figures = bar.during(&phase, 1, || measure(dataset.keys(), &setting))?;
                        rows.add([DensityRow::new(&dataset, &setting, &figures)])?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// A row for each share of inserts.
fn in_memory_nodes(
    arguments: &DensityArgs,
    setting: &Setting,
    dataset: &Dataset,
    bar: &Bar,
    rows: &mut Collected<DensityRow>,
) -> anyhow::Result<()> {
    let parameters = node::parameters(setting).context("slots of which memory nodes have groups")?;
    let build_ns = node::grouping_ns(dataset.keys(), parameters, bar)?;
    arguments.inserted.iter().try_for_each(|inserted| {
        let (form, epsilon) = (setting.form.name(), setting.epsilon);
        eprintln!("{}, {form}, epsilon {epsilon}, {} % inserted", dataset.name(), 100.0 * inserted);
        let figures = node::measure(dataset, parameters, *inserted, arguments.lookups, setting.seed, bar)?;
        rows.add([DensityRow::of_node(dataset, setting, arguments.lookups, &figures, build_ns)])
    })
}
