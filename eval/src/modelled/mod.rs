//! Experiments in a model of network cards: any of the systems that are compared, each answer checked, requests and bytes counted.

pub mod options;
pub mod row;
pub mod sweep;
pub mod ycsb;

use std::sync::Arc;

use anyhow::anyhow;
use fpcache::cache::Variant;
use fpcache_datasets::requests::generate;
use fpcache_workbench::Sizes;
use fpcache_workbench::bench::Operation;
use fpcache_workbench::experiment::{self, Experiment, Fixed, Parameters};
use fpcache_workbench::fpcache::Options;
use fpcache_workbench::nic::{Hosts, NicSpec};

use crate::data::{DataKeys, KeyLengths, announce};
use crate::progress::Bar;
use crate::run::options::RunArgs;
use crate::run::report::{check_json, deliver};
use crate::systems::SystemName;
use crate::verdict::Verdict;
use options::{check_memory, hosts, sizes, systems};
use row::{Row, Tag, table};

/// Bytes a key that a compute node may keep without `--cache`: 100 MB of 60 M keys.
const BUDGET_PER_KEY: f64 = 100.0 / 60.0;

/// Runs an experiment of lookups over a modelled card.
///
/// # Errors
/// If options contradict each other or the model, or there is no memory for the keys.
pub fn run(arguments: &RunArgs, card: &str) -> anyhow::Result<Verdict> {
    let modelled = Modelled::new(arguments, NicSpec::named(card)?)?;
    modelled.check_length("--lookups", arguments.lookups)?;
    check_json(arguments.json.as_deref())?;
    let bar = Bar::default();
    let (keys, source) = modelled.keys(&bar)?;
    let rows = modelled.look_up(&keys, &Tag { source, ..Tag::default() }, &bar)?;
    deliver(&table(&rows), &rows, arguments.json.as_deref())?;
    Ok(Verdict::of(rows.iter().map(Row::wrong).sum()))
}

/// Systems, records and machines.
pub struct Modelled<'a> {
    arguments: &'a RunArgs,
    systems: Vec<SystemName>,
    sizes: Sizes,
    hosts: Hosts,
    /// What is fixed for systems that have it.
    fixed: Fixed,
}

impl<'a> Modelled<'a> {
    /// As the options have them.
    ///
    /// # Errors
    /// If they contradict each other or the model.
    pub fn new(arguments: &'a RunArgs, nic: NicSpec) -> anyhow::Result<Self> {
        let systems = systems(arguments)?;
        let (sizes, hosts, fixed) = (sizes(arguments)?, hosts(arguments, nic)?, Fixed::default());
        Ok(Self { arguments, systems, sizes, hosts, fixed })
    }

    /// Refuses so few operations that next to nothing is measured; `option` is the one that says how many.
    ///
    /// # Errors
    /// Names the least that would do.
    pub fn check_length(&self, option: &str, operations: u64) -> anyhow::Result<()> {
        options::check_length(option, operations, &self.hosts)
    }

    /// The data set's keys, which stand for longer ones, and where they come from.
    ///
    /// # Errors
    /// If they cannot be had, or there is no memory for any of the systems.
    pub fn keys(&self, bar: &Bar) -> anyhow::Result<(Arc<Vec<u64>>, String)> {
        let RunArgs { dataset, lookups, .. } = self.arguments;
        if let Some(count) = dataset.count() {
            check_memory(&self.systems, self.sizes, count, *lookups)?;
        }
        // Keys have the bytes that are modelled, not those of the data set.
        let mut open = self.arguments.open_options(bar);
        open.key_bytes = None;
        let dataset = fpcache_client::U64Keys::open(dataset, &open)?;
        announce(dataset.notes());
        let source = dataset.source().to_owned();
        let keys = Arc::new(dataset.into_keys());
        check_memory(&self.systems, self.sizes, keys.len() as u64, *lookups)?;
        Ok((keys, source))
    }

    /// Measures lookups: as many to fill caches as are measured.
    ///
    /// # Errors
    /// If a system cannot be built.
    pub fn look_up(&self, keys: &Arc<Vec<u64>>, tag: &Tag, bar: &Bar) -> anyhow::Result<Vec<Row>> {
        let lookups = self.arguments.lookups;
        let drawn = bar.during("drawing lookups", 2 * lookups, || {
            Ok::<_, anyhow::Error>(generate(keys, &self.arguments.request_options(2)?))
        })?;
        announce(&drawn.notes);
        let operations: Vec<_> = drawn.keys.iter().map(|key| Operation::Read { key: *key }).collect();
        self.measure(keys, (&operations, lookups), tag, bar)
    }

    /// Measures operations, of which so many are to fill caches.
    ///
    /// # Errors
    /// If a system cannot be built.
    pub fn measure(
        &self,
        keys: &Arc<Vec<u64>>,
        (operations, warm): (&[Operation], u64),
        tag: &Tag,
        bar: &Bar,
    ) -> anyhow::Result<Vec<Row>> {
        let experiment = Experiment {
            keys: Arc::clone(keys),
            sizes: self.sizes,
            hosts: self.hosts,
            budget: self.arguments.cache.budget.0.unwrap_or((keys.len() as f64 * BUDGET_PER_KEY) as u64),
            operations,
            warm,
            fixed: self.fixed,
            window: None,
            search: None,
        };
        let mut rows = Vec::new();
        for (at, system) in self.systems.iter().enumerate() {
            let what = format!("{} ({} of {})", system.as_str(), at + 1, self.systems.len());
            let run = bar.during(&what, 1, || self.measure_one(&experiment, *system))?;
            rows.push(Row::new(self.arguments, &experiment, *system, tag, run));
        }
        Ok(rows)
    }

    /// One system: FPCache as the options say, the others with their published parameters.
    fn measure_one(
        &self,
        experiment: &Experiment<'_>,
        system: SystemName,
    ) -> anyhow::Result<experiment::Run> {
        let name: experiment::SystemName = system.as_str().parse()?;
        let run = match system {
            SystemName::Fpcache => experiment.run_fpcache(&self.fpcache(experiment)),
            _ => experiment.run(name, Parameters::Published),
        };
        run.map_err(|error| anyhow!("{}: {error}", system.as_str()))
    }

    fn fpcache(&self, experiment: &Experiment<'_>) -> Options {
        let arguments = self.arguments;
        let table = arguments.table(&KeyLengths::every(experiment.sizes.key));
        Options {
            epsilon: arguments.epsilon,
            width: table.width,
            plan: arguments.plan,
            groups: arguments.groups(),
            variant: arguments.cache.variant.unwrap_or(Variant::Fd),
            fill: arguments.fill(),
            ..Options::published(experiment.budget, experiment.sizes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(options: &str) -> RunArgs {
        let words = ["fpcache-eval", "run", "--transport", "nic:cx6-100g"].into_iter();
        let words = words.chain(options.split_whitespace());
        match Cli::of(words).expect("options").command {
            Some(Command::Run(arguments)) => *arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn contradictions_are_refused_with_what_there_is() {
        for (options, remedy) in [
            ("--dataset words", "uniform"),
            ("--dataset uniform:10K --system fpcache,hashmap", "smart"),
            ("--dataset uniform:10K --threads 2", "--clients"),
            ("--dataset uniform:10K --clients 100", "102"),
            ("--dataset uniform:10K --batch 8", "one key"),
            ("--dataset uniform:10K --plan at-node", "two-stage"),
            ("--dataset uniform:10K --spin 0s", "--spin: not with nic:cx6-100g"),
            ("--dataset uniform:10K --fingerprint-bits none", "--fingerprint-bits none: not with nic"),
            ("--dataset uniform:10K --capacity 1GiB", "--capacity: not with nic:cx6-100g"),
            ("--dataset uniform:10K --rounds 5", "the same"),
            ("--dataset uniform:10K --lookups 5K --shift-every 10K", "--shift-every: not with nic:cx6-100g"),
            ("--dataset uniform:10K --key-bytes 4", "8 or more"),
            ("--dataset uniform:10K --value-bytes vary", "a number"),
            ("--dataset uniform:10K --lookups 1000G", "fewer --lookups"),
            ("--dataset uniform:10K --lookups 3839", "use 3840"),
            ("--dataset uniform:10K --clients 6 --lookups 59", "use 60"),
            // Before so many keys are drawn.
            ("--dataset uniform:2G --key-bytes 128 --value-bytes 128", "of this machine"),
            ("--dataset uniform:10K --cache 1KiB", "raise"),
        ] {
            let error = format!("{:#}", run(&parse(options), "cx6-100g").expect_err(options));
            assert!(error.contains(remedy), "{options}: {error}");
        }
    }

    #[test]
    fn every_system_has_a_row_with_right_answers_and_the_same_figures_twice() {
        let folder = tempfile::tempdir().expect("a folder");
        let rows = |name: &str| {
            let file = folder.path().join(name);
            let all = experiment::SystemName::ALL.map(experiment::SystemName::name).join(",");
            let options = format!(
                "--dataset uniform:20K --lookups 10K --dist zipf:0.9 --negative 0.1 --clients 48 --nodes 2 --cache 300KB \
                 --key-bytes 16 --value-bytes 64 --system {all} --json {}",
                file.display()
            );
            assert_eq!(run(&parse(&options), "cx6-100g").expect("figures"), Verdict::AllRight);
            let text = std::fs::read_to_string(file).expect("JSON");
            let mut rows: Vec<serde_json::Value> = serde_json::from_str(&text).expect("rows");
            rows.iter_mut().filter_map(|row| row.as_object_mut()).for_each(|row| drop(row.remove("made")));
            rows
        };
        let first = rows("first");
        assert_eq!(first.len(), experiment::SystemName::ALL.len());
        for row in &first {
            let number = |field: &str| row[field].as_f64().expect(field);
            let fill = (row["system"] == "fpcache").then_some(0.85);
            assert_eq!((row["fill"].as_f64(), &row["dataset_source"]), (fill, &"generated".into()), "{row}");
            assert!(number("per_second") > 1e5 && number("bytes_per_operation") > 16.0, "{row}");
            assert!(
                (number("clients"), number("memory_nodes")) == (48.0, 2.0) && row["bound"].is_string(),
                "{row}"
            );
        }
        assert_eq!(first, rows("second"));
    }
}
