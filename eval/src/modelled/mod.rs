//! Experiments in a model of network cards: any of the systems that are compared, each answer
//! checked, requests and bytes counted.

pub mod options;
pub mod row;
pub mod rows;
pub mod sweep;
pub mod ycsb;

use std::sync::Arc;

use anyhow::Context;
use fpcache::cache::Variant;
use fpcache_datasets::Bar;
use fpcache_datasets::requests::{RequestOptions, generate};
use fpcache_workbench::bench::Operation;
use fpcache_workbench::experiment::{self, Experiment, Fixed, Parameters};
use fpcache_workbench::fpcache::Options;
use fpcache_workbench::nic::{Hosts, NicSpec};
use fpcache_workbench::{BuildError, Sizes};

use crate::data::{DataKeys, KeyLengths, announce};
use crate::run::model::Chosen;
use crate::run::options::RunArgs;
use crate::sweep::points::Over;
use crate::systems::SystemName;
use crate::verdict::Verdict;
use options::{check_memory, hosts, sizes, systems};
use row::{Row, Tag};
use rows::{Place, Rows};

/// Bytes a key that a compute node may keep without `--cache`: 100 MB of 60 M keys.
const BUDGET_PER_KEY: f64 = 100.0 / 60.0;

/// Runs an experiment of lookups over a modelled card.
///
/// # Errors
/// If options contradict each other or the model, there is no memory for the keys, or a system has
/// no figures.
pub fn run(arguments: &RunArgs, card: &str) -> anyhow::Result<Verdict> {
    let nic = NicSpec::named(card)?;
    Modelled::new(arguments, nic, None)?.check_length("--lookups", arguments.lookups)?;
    let mut rows = Rows::new("run", arguments, &arguments, Place::Replaced)?;
    let bar = Bar::default();
    for arguments in seeded(arguments) {
        let modelled = Modelled::new(&arguments, nic, None)?;
        let (keys, source) = modelled.keys(&bar)?;
        modelled.look_up(&keys, &Tag { source, ..Tag::default() }, (&mut rows, &bar))?;
    }
    rows.end()
}

/// The same options with each of the seeds.
fn seeded(arguments: &RunArgs) -> impl Iterator<Item = RunArgs> {
    let seeds = u64::from(arguments.model.seeds.unwrap_or(1));
    (0..seeds).map(|seed| RunArgs { seed: arguments.seed.wrapping_add(seed), ..arguments.clone() })
}

/// Operations, of which the first `warm` are to fill caches.
pub struct Stream {
    operations: Vec<Operation>,
    warm: u64,
    /// Whether their keys are ranks by age.
    by_recency: bool,
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
    /// As the options have them; a swept error bound is that of all systems with models.
    ///
    /// # Errors
    /// If they contradict each other or the model.
    pub fn new(arguments: &'a RunArgs, nic: NicSpec, over: Option<Over>) -> anyhow::Result<Self> {
        options::check_parameters(arguments, over)?;
        let systems = systems(arguments)?;
        let epsilon = (over == Some(Over::Epsilon)).then_some(arguments.epsilon);
        let fixed = Fixed { epsilon, ..Fixed::default() };
        let (sizes, hosts) = (sizes(arguments)?, hosts(arguments, nic)?);
        Ok(Self { arguments, systems, sizes, hosts, fixed })
    }

    /// Refuses so few operations that next to nothing is measured; `option` is the one that says
    /// how many.
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
        let dataset = &self.arguments.dataset;
        if let Some(count) = dataset.count() {
            self.check_memory(count)?;
        }
        // Keys have the bytes that are modelled, not those of the data set.
        let mut open = self.arguments.open_options(bar);
        open.key_bytes = None;
        let dataset = fpcache_client::U64Keys::open(dataset, &open)?;
        announce(dataset.notes());
        let source = dataset.source().to_owned();
        let keys = Arc::new(dataset.into_keys());
        self.check_memory(keys.len() as u64)?;
        Ok((keys, source))
    }

    /// Whether there is memory for any of the systems over `keys` keys.
    ///
    /// # Errors
    /// Says how many there is memory for.
    pub fn check_memory(&self, keys: u64) -> anyhow::Result<()> {
        check_memory(&self.systems, self.sizes, keys, options::operations(self.arguments))
    }

    /// Measures lookups, after those that fill caches.
    ///
    /// # Errors
    /// If they cannot be drawn, or rows not be written.
    pub fn look_up(
        &self,
        keys: &Arc<Vec<u64>>,
        tag: &Tag,
        (rows, bar): (&mut Rows, &Bar),
    ) -> anyhow::Result<()> {
        let all = options::operations(self.arguments);
        let lookups = usize::try_from(all).context("--lookups and --warm-up exceed this machine's memory")?;
        let drawn = bar.during("drawing lookups", all, || {
            let options = RequestOptions { lookups, ..self.arguments.request_options(1)? };
            Ok::<_, anyhow::Error>(generate(keys, &options))
        })?;
        announce(&drawn.notes);
        let operations: Vec<_> = drawn.keys.iter().map(|key| Operation::Read { key: *key }).collect();
        let warm = options::warm_up(self.arguments);
        self.measure(keys, &Stream { operations, warm, by_recency: false }, tag, (rows, bar))
    }

    /// Measures operations: a row for each system, also where it has no figures.
    ///
    /// # Errors
    /// If rows cannot be written.
    pub fn measure(
        &self,
        keys: &Arc<Vec<u64>>,
        stream: &Stream,
        tag: &Tag,
        (rows, bar): (&mut Rows, &Bar),
    ) -> anyhow::Result<()> {
        let budget = self.arguments.cache.budget();
        let experiment = Experiment {
            keys: Arc::clone(keys),
            sizes: self.sizes,
            hosts: self.hosts,
            budget: budget.unwrap_or((keys.len() as f64 * BUDGET_PER_KEY) as u64),
            operations: &stream.operations,
            warm: stream.warm,
            by_recency: stream.by_recency,
            fixed: self.fixed,
            window: None,
            search: None,
        };
        for (at, system) in self.systems.iter().enumerate() {
            let what = format!("{} ({} of {})", system.as_str(), at + 1, self.systems.len());
            let run = rows.once(&tag.name(self.arguments.seed, *system), || {
                bar.during(&what, 1, || self.measure_one(&experiment, *system))
            });
            rows.add(Row::new(self.arguments, &experiment, *system, tag, run))?;
        }
        Ok(())
    }

    /// One system: with the parameters that all are to have, or FPCache as the options say and the
    /// others as published.
    fn measure_one(
        &self,
        experiment: &Experiment<'_>,
        system: SystemName,
    ) -> Result<experiment::Run, BuildError> {
        let name: Result<experiment::SystemName, _> = system.as_str().parse();
        let name = name.map_err(|error| BuildError(error.to_string()))?;
        match (self.arguments.model.parameters, system) {
            (Some(Chosen::Best), _) => experiment.run(name, Parameters::Best),
            (None, SystemName::Fpcache) => experiment.run_fpcache(&self.fpcache(experiment)),
            (Some(Chosen::Published) | None, _) => experiment.run(name, Parameters::Published),
        }
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

/// What tests of modelled experiments share.
#[cfg(test)]
pub mod testing {
    use serde_json::Value;

    /// The rows of a file without how and when they were made.
    pub fn rows_in(file: &std::path::Path) -> Vec<Value> {
        let text = std::fs::read_to_string(file).expect("JSON");
        let mut rows: Vec<Value> = serde_json::from_str(&text).expect("rows");
        rows.iter_mut().filter_map(Value::as_object_mut).for_each(|row| drop(row.remove("made")));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::testing::rows_in;
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::{assert_refused, command};

    fn parse(options: &str) -> RunArgs {
        let Command::Run(arguments) =
            command("run", &format!("--transport nic:cx6-100g {options}")).expect("options")
        else {
            panic!("no `run`")
        };
        *arguments
    }

    #[test]
    fn contradictions_are_refused_with_what_there_is() {
        let refused = |options: &str| run(&parse(options), "cx6-100g").map_err(|error| format!("{error:#}"));
        let cases = [
            ("--dataset words", "uniform"),
            ("--dataset uniform:10K --system fpcache,hashmap", "smart"),
            ("--dataset uniform:10K --threads 2", "--clients"),
            ("--dataset uniform:10K --clients 100", "102"),
            ("--dataset uniform:10K --batch 8", "one key"),
            ("--dataset uniform:10K --plan at-node", "two-stage"),
            ("--dataset uniform:10K --spin 0s", "--spin: not with nic:cx6-100g"),
            ("--dataset uniform:10K --fingerprint-bits none", "--fingerprint-bits none: not with nic"),
            ("--dataset uniform:10K --capacity 1GiB", "--capacity: not with nic:cx6-100g"),
            ("--dataset uniform:10K --rounds 5", "--seeds"),
            ("--dataset uniform:10K --cache none", "write a size"),
            ("--dataset uniform:10K --parameters best --epsilon 16", "--epsilon is a parameter of fpcache"),
            ("--dataset uniform:10K --parameters published --groups", "--groups"),
            ("--dataset uniform:10K --lookups 5K --shift-every 10K", "--shift-every: not with nic:cx6-100g"),
            ("--dataset uniform:10K --lookups 5K --warm-up 1K --shift-every 6K", "--warm-up"),
            ("--dataset uniform:10K --key-bytes 4", "8 or more"),
            ("--dataset uniform:10K --value-bytes vary", "a number"),
            ("--dataset uniform:10K --lookups 1000G", "fewer --lookups"),
            ("--dataset uniform:10K --lookups 3839", "use 3840"),
            ("--dataset uniform:10K --clients 6 --lookups 59", "use 60"),
            // Before this many keys are drawn.
            ("--dataset uniform:2G --key-bytes 128 --value-bytes 128", "of this machine"),
            ("--dataset uniform:10K --cache 1KiB", "raise"),
        ];
        assert_refused(refused, &cases);
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
            rows_in(&file)
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

    fn rows(options: &str) -> Vec<serde_json::Value> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rows.json");
        let options =
            format!("--dataset uniform:20K --lookups 10K --clients 48 {options} --json {}", file.display());
        assert_eq!(run(&parse(&options), "cx6-100g").expect("figures"), Verdict::AllRight);
        assert!(!folder.path().join("rows.json.runs").exists(), "finished runs are not kept any more");
        rows_in(&file)
    }

    #[test]
    fn all_systems_have_the_parameters_that_are_chosen() {
        let of = |options: &str| {
            rows(&format!(
                "--cache 100KB --key-bytes 128 --value-bytes 128 --system fpcache,sherman {options}"
            ))
        };
        let (own, published, best) =
            (of("--epsilon 64"), of("--parameters published"), of("--parameters best"));
        let said = |rows: &[serde_json::Value], field: &str| {
            [0, 1].map(|at: usize| rows[at][field].as_str().expect(field).to_owned())
        };
        assert!(said(&own, "parameters")[0].starts_with("epsilon 64,"), "{own:?}");
        assert!(
            said(&published, "parameters")[0].starts_with("epsilon 16, fingerprints of 64 bits"),
            "{published:?}"
        );
        assert_eq!(own[1]["per_second"], published[1]["per_second"]);
        assert_eq!(said(&own, "parameters_are"), ["options", "published"]);
        assert_eq!(said(&best, "parameters_are"), ["best", "best"]);
        let rate = |rows: &[serde_json::Value]| rows[1]["per_second"].as_f64().expect("a rate");
        assert!(rate(&best) > 1.2 * rate(&published), "{best:?}");
    }

    #[test]
    fn what_fills_caches_is_as_long_as_is_said() {
        let of = |options: &str| rows(&format!("--system smart --cache 300KB {options}")).swap_remove(0);
        let (short, usual, long) = (of("--warm-up 1K"), of(""), of("--warm-up 100K"));
        let trips = |row: &serde_json::Value| row["round_trips_per_operation"].as_f64().expect("a number");
        assert_eq!((&short["warm_up"], &usual["warm_up"]), (&1_000.into(), &10_000.into()));
        assert!(trips(&short) > trips(&usual) && trips(&usual) > trips(&long), "{short} {usual} {long}");
        assert_eq!(short["tally"]["operations"], long["tally"]["operations"]);
    }

    #[test]
    fn several_seeds_give_the_median_run_and_its_spread() {
        let of = |options: &str| rows(&format!("--system smart,rolex --cache 300KB {options}"));
        let all = of("--seed 5 --seeds 3");
        assert_eq!(all.len(), 2);
        let mut rates: Vec<f64> = [5, 6, 7]
            .map(|seed| of(&format!("--seed {seed}"))[0]["per_second"].as_f64().expect("a rate"))
            .into();
        rates.sort_by(f64::total_cmp);
        let of = |field: &str| all[0][field].as_f64().expect(field);
        assert_eq!([of("per_second_min"), of("per_second"), of("per_second_max")][..], rates[..]);
        assert!(rates[0] < rates[2] && all[0]["seeds"] == 3, "{}", all[0]);
    }

    #[test]
    fn a_system_that_cannot_be_built_has_a_row_that_says_why_and_takes_no_other_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rows.json");
        let options = format!(
            "--dataset uniform:20K --lookups 10K --clients 48 --cache 1KiB --system sherman,fpcache,smart --json {}",
            file.display()
        );
        let error = format!("{:#}", run(&parse(&options), "cx6-100g").expect_err("no room for models"));
        assert!(error.contains("1 of 3") && error.contains("fpcache"), "{error}");
        let rows = rows_in(&file);
        assert_eq!(rows.len(), 3);
        assert!(rows[1]["error"].as_str().is_some_and(|why| why.contains("raise")), "{}", rows[1]);
        assert!(rows[0]["per_second"].is_number() && rows[2]["per_second"].is_number(), "{rows:?}");
    }
}
