//! The best use of a compute node's bytes: for a data set, lengths of values, a fabric and a
//! budget, every form of tables and ε with what it takes and what a lookup costs, and which is
//! chosen.
//!
//! Shares and bytes are counted, by cutting and grouping the data set's keys ([`crate::density`]);
//! times follow from them and from what the fabric charges, by the sums that read plans are chosen
//! by.

mod options;
mod row;

use anyhow::Context;
use fpcache::layout::{Grouping, TableParameters};
use fpcache::tuning::{Candidate, Split};
use fpcache_datasets::{Bar, OpenOptions};

pub use options::{EXAMPLES, ExplainArgs};

use crate::data::announce;
use crate::density::measure::{Setting, measure};
use crate::run::report::{check_json, deliver};
use crate::verdict::Verdict;
use row::ExplainRow;

/// Measures every form and ε that is asked for, and says which is chosen and what each costs.
///
/// # Errors
/// If the options make no sense, or the data set cannot be had.
pub fn explain(arguments: &ExplainArgs) -> anyhow::Result<Verdict> {
    arguments.validate()?;
    check_json(arguments.json.as_deref())?;
    let bar = Bar::default();
    let options = OpenOptions {
        seed: arguments.seed,
        data_dir: arguments.data_dir.clone(),
        progress: Some(&bar),
        ..OpenOptions::default()
    };
    let dataset = arguments.dataset.open(&options)?;
    announce(dataset.notes());
    let (asked, slot_bytes) = (arguments.asked(), arguments.slot_bytes());
    let mut rows = Vec::new();
    for form in arguments.forms() {
        for epsilon in &arguments.epsilon {
            let fill = arguments.fill.unwrap_or_else(|| form.measured().default_fill());
            let setting = Setting {
                form: form.measured(),
                epsilon: *epsilon,
                fill,
                slot_bytes: slot_bytes as u64,
                seed: arguments.seed,
            };
            let phase = format!("{}, {}, epsilon {epsilon}", dataset.name(), form.name());
            let figures = bar.during(&phase, 1, || measure(dataset.keys(), &setting))?;
            let groups = form.groups().and_then(|groups| Grouping::for_slots(groups, slot_bytes));
            let parameters = TableParameters { groups, epsilon: *epsilon, fill, ..arguments.parameters() };
            let parameters = parameters.with_width(arguments.fingerprint_bits);
            let candidate = Candidate::of(&figures.counts, &parameters);
            let split = Split::of(&candidate, &asked);
            rows.push(ExplainRow::new(&dataset, arguments, form, (&setting, &candidate), &split));
        }
    }
    row::choose(&mut rows);
    let chosen = rows.iter().find(|row| row.chosen).context(
        "the budget is too small for the models of every ε that is compared: raise --budget, or compare a greater --epsilon",
    );
    deliver(&row::table(&rows), &rows, arguments.json.as_deref())?;
    chosen?;
    Ok(Verdict::AllRight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::command;

    /// The rows of a run with these options.
    fn rows(options: &str) -> Vec<serde_json::Value> {
        let folder = tempfile::tempdir().expect("a folder");
        let json = folder.path().join("rows.json");
        let options = format!("{options} --json {}", json.display());
        let Ok(Command::Explain(arguments)) = command("explain", &options) else { panic!("no `explain`") };
        assert_eq!(explain(&arguments).expect("a run"), Verdict::AllRight);
        serde_json::from_slice(&std::fs::read(&json).expect("rows")).expect("JSON")
    }

    fn chosen(rows: &[serde_json::Value]) -> Vec<&str> {
        rows.iter().filter(|row| row["chosen"] == true).filter_map(|row| row["form"].as_str()).collect()
    }

    #[test]
    fn a_run_chooses_groups_where_round_trips_are_dear_and_there_is_room() {
        let rows = rows("--dataset fb:20K --epsilon 64,128");
        assert_eq!(chosen(&rows), ["seeded"]);
        assert!(rows.iter().all(|row| row["dataset_source"] == "stand-in"), "{rows:?}");
    }

    #[test]
    fn pilots_are_chosen_where_slots_are_long() {
        let rows = rows("--dataset fb:20K --epsilon 64,128 --value-bytes 128");
        assert_eq!(chosen(&rows), ["pilots"]);
    }
}
