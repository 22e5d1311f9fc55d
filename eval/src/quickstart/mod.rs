//! The quickstart: first steps; then, for three data sets, what a compute node keeps and what
//! lookups cost; budgets for one of them; and times, compared with in-process maps.

mod lines;
pub mod options;
mod page;
mod steps;
mod tables;

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use fpcache_client::{Client, ClientConfig, Plan, PlanChoice, TableParameters, U64Keys};
use fpcache_datasets::requests::{Distribution, RequestOptions};
use fpcache_datasets::{Bar, Dataset, OpenOptions, Spec, SpecKind, count};

use crate::data::{DataKeys, Stream, announce};
use crate::leftovers::TemporaryFolder;
use crate::machine::calibrate;
use crate::made::Recorded;
use crate::node::{Node, capacity_for};
use crate::pages::MemoryPages;
use crate::run::host::Host;
use crate::run::measure::{Measurable, median, rounds};
use crate::run::report::say;
use crate::run::row::Row;
use crate::run::store::StoreArgs;
use crate::run::values::ValueBytes;
use crate::run::verify::Verified;
use crate::run::workload::{Lookups, Workload};
use crate::run::{BTREEMAP, HASHMAP, build_map};
use crate::sweep::Sweep;
use crate::sweep::options::SweepArgs;
use crate::sweep::store::Store;
use crate::systems::Facts;
use crate::systems::fpcache::{self, FpCache};
use crate::verdict::Verdict;
use lines::{Figures, GROUP, LINES, Line, Stop};
use options::{QuickstartArgs, Size};
use page::TourRow;

const SEED: u64 = 42;
/// Values of the default table.
const VALUES: ValueBytes = ValueBytes::Fixed(8);
/// Passes of each line, which take turns.
const ROUNDS: usize = 3;
/// Least budget of the sweep's first point.
const LEAST_BUDGET: u64 = 64 << 10;
/// The budgets, as multiples of the first, which lies between a quarter and half of the models'
/// size.
const BUDGETS: [u64; 6] = [1, 4, 8, 16, 32, 64];
const CALIBRATION_BUFFER: u64 = 64 << 20;

/// Runs the quickstart.
pub fn quickstart(arguments: &QuickstartArgs) -> anyhow::Result<Verdict> {
    let start = Instant::now();
    let (keys, lookups) = match arguments.size {
        Size::Small => (200_000, 100_000),
        Size::Normal => (2_000_000, 300_000),
    };
    let keys = arguments.keys.unwrap_or(keys);
    let lookups = arguments.lookups.unwrap_or(lookups);
    say(&format!(
        "FPCache {}: records in a second process, read without asking it.\n\
         {} lookups of each kind; every answer is checked.\n",
        env!("CARGO_PKG_VERSION"),
        count::human(lookups)
    ))?;
    if cfg!(debug_assertions) {
        say("note: built without --release, so the figures say nothing about speed\n")?;
    }
    let mut tour = Tour {
        arguments,
        lookups,
        bar: Bar::default(),
        mismatches: 0,
        answers: 0,
        rows: Vec::new(),
        budgets: Vec::new(),
    };
    let mut stops = Vec::new();
    for (ordinal, kind) in [SpecKind::Ipv4, SpecKind::Fb, SpecKind::Wiki].into_iter().enumerate() {
        // The shipped addresses are all taken unless fewer are asked for.
        let count = match kind {
            SpecKind::Ipv4 => arguments.keys.filter(|&keys| keys < IPV4_KEYS),
            _ => Some(keys),
        };
        let spec = Spec::new(kind, count);
        stops.push(tour.stop(&spec, ordinal as u32).with_context(|| format!("data set {spec}"))?);
    }
    say(&tables::times(&stops))?;
    let page = page::write(&tour.rows, &tour.budgets, arguments.out.as_deref())?;
    say(&closing(&tour, start.elapsed().as_secs_f64(), page.as_deref()))?;
    Ok(Verdict::of(tour.mismatches))
}

/// Keys of the shipped data set; a test compares.
const IPV4_KEYS: u64 = 385_602;

fn closing(tour: &Tour<'_>, seconds: f64, page: Option<&Path>) -> String {
    let verdict = match tour.mismatches {
        0 => format!("All {} checked answers were right", count::human(tour.answers)),
        wrong => format!("{wrong} of {} checked answers were WRONG", count::human(tour.answers)),
    };
    let page = page.map_or_else(String::new, |page| format!("page: {}\n", page.display()));
    format!(
        "{verdict}; {seconds:.0} s in all.
{page}
Next:
  cargo run --release -- run --dataset fb:16M --batch 32 --dist zipf:0.99
                                         one experiment, all figures
  cargo run --release -- sweep --over cache --values 4MiB,8MiB --dataset fb:16M
                                         budgets, and a plot
  cargo run --release -- --help          all experiments
  cargo run --release -p fpcache-memserver
                                         a memory node; it says how to go on"
    )
}

/// What is kept from data set to data set.
struct Tour<'a> {
    arguments: &'a QuickstartArgs,
    lookups: u64,
    bar: Bar,
    mismatches: u64,
    answers: u64,
    /// Figures of all data sets.
    rows: Vec<TourRow>,
    /// Those within budgets.
    budgets: Vec<Recorded<Row>>,
}

impl Tour<'_> {
    /// One data set: a fresh memory node, all lines, a table of what they cost.
    fn stop(&mut self, spec: &Spec, ordinal: u32) -> anyhow::Result<Stop> {
        let data_dir =
            std::env::var_os("FPCACHE_DATASETS").filter(|folder| !folder.is_empty()).map(Into::into);
        let options = OpenOptions { data_dir, progress: Some(&self.bar), ..OpenOptions::default() };
        let dataset = spec.open(&options)?;
        announce(dataset.notes());
        let parameters = TableParameters::default();
        let mut node = Node::start::<U64Keys>(
            capacity_for::<U64Keys>(&parameters, dataset.len() as u64),
            ordinal,
            &StoreArgs::default(),
        )?;
        let is_first = ordinal == 0;
        let figures =
            self.measure(&dataset, node.url(), parameters, is_first).map_err(|error| node.explain(error))?;
        if *spec.kind() == SpecKind::Fb {
            let budgets = self.budgets(&dataset, node.url()).map_err(|error| node.explain(error))?;
            say(&budgets)?;
        }
        let name = dataset.name().split(':').next().unwrap_or_default().to_owned();
        Ok(Stop { name, figures })
    }

    /// A small sweep over the compute node's budget, from below the models' size to far above it,
    /// with the two variants of the hot cache that differ most.
    fn budgets(&mut self, dataset: &Dataset, url: &str) -> anyhow::Result<String> {
        let models = Client::connect(url)?.table()?.model_bytes;
        // What was not asked for goes when it has been shown.
        let (folder, _temporary) = match &self.arguments.out {
            Some(folder) => (folder.clone(), None),
            None => {
                let folder = std::env::temp_dir().join(format!("fpcache-quickstart-{}", std::process::id()));
                (folder.clone(), Some(TemporaryFolder::new(folder)))
            }
        };
        let arguments = self.sweep(dataset.name(), models)?;
        let calibration = calibrate(CALIBRATION_BUFFER, MemoryPages::Huge);
        let mut sweep = Sweep::<U64Keys>::new(&arguments, dataset, &self.bar, calibration);
        let mut host = Host::at(url, TableParameters::default(), VALUES);
        let mut points = arguments.points()?;
        points.retain(|point| match sweep.try_budget(&mut host, point) {
            Ok(()) => true,
            Err(error) => {
                eprintln!("note: no budget of {}: {error:#}", arguments.over.show(point.value));
                false
            }
        });
        let mut store = Store::open(&folder, None, arguments.over.name(), arguments.experiment(), true)?;
        sweep.run(&points.iter().collect::<Vec<_>>(), Some(host), &mut store)?;
        store.write()?;
        self.budgets.extend_from_slice(store.recorded());
        for row in store.rows() {
            // Two verified passes: one that warms the cache, one whose costs count.
            self.answers += 2 * row.lookups;
            self.mismatches += row.mismatches;
        }
        let files = match &self.arguments.out {
            Some(_) => format!("plot: {}\nfigures: {}\n", store.plot().display(), store.json().display()),
            None => "A plot and all figures: quickstart --out FOLDER\n".to_owned(),
        };
        Ok(format!("{}\n{files}", tables::budgets(&store.rows(), arguments.over)))
    }

    /// The sweep as a user would write it.
    fn sweep(&self, dataset: &str, model_bytes: u64) -> anyhow::Result<SweepArgs> {
        let least = (model_bytes / 4).next_power_of_two().max(LEAST_BUDGET);
        let budgets: Vec<String> = BUDGETS.iter().map(|factor| (least * factor).to_string()).collect();
        let budgets = budgets.join(",");
        let lookups = (self.lookups / 4).max(1).to_string();
        let words = ["--over", "cache", "--values", &budgets, "--variants", "fd,full", "--system", "fpcache"]
            .into_iter()
            .chain(["--dataset", dataset, "--dist", "zipf:0.99", "--lookups", &lookups, "--rounds", "2"]);
        Ok(SweepArgs::of(words)?)
    }

    fn measure(
        &mut self,
        dataset: &Dataset,
        url: &str,
        parameters: TableParameters,
        is_first: bool,
    ) -> anyhow::Result<Vec<Figures>> {
        let config = |plan| ClientConfig::default().with_plan(PlanChoice::Fixed(plan));
        let connect = |plan| Client::connect_with(url, config(plan));
        let (two_stage, range) = (connect(Plan::TwoStage)?, connect(Plan::Range)?);
        let load = fpcache::load(&two_stage, dataset, VALUES, parameters, &self.bar)?;
        if is_first {
            say(&format!(
                "{} keys of {} loaded in {:.2} s.\n",
                dataset.len(),
                dataset.name(),
                load.as_secs_f64()
            ))?;
            say(&steps::first_steps(&Client::connect(url)?, dataset)?)?;
        }
        let two_stage = FpCache::open(two_stage, "fpcache two-stage", &config(Plan::TwoStage), Some(load))?;
        let range = FpCache::open(range, "fpcache range", &config(Plan::Range), None)?;
        let hashmap = build_map::<U64Keys>(HASHMAP, dataset, VALUES, &self.bar);
        let btreemap = build_map::<U64Keys>(BTREEMAP, dataset, VALUES, &self.bar);
        let systems: [&dyn Measurable<U64Keys>; 4] = [&two_stage, &range, &*hashmap, &*btreemap];
        let options = RequestOptions {
            lookups: self.lookups as usize,
            distribution: Distribution::Uniform,
            negative: 0.0,
            seed: SEED,
            shift_every: None,
        };
        let drawn = U64Keys::draw(dataset, &options);
        let figures = self.lines(&systems, dataset, &U64Keys::stream(&drawn))?;
        let facts: Vec<Facts> = systems.iter().map(|system| system.facts()).collect();
        say(&tables::costs(dataset, &facts, &figures))?;
        self.rows.extend(TourRow::of(dataset, &facts, &figures));
        Ok(figures)
    }

    /// All lines.
    fn lines(
        &mut self,
        systems: &[&dyn Measurable<U64Keys>],
        dataset: &Dataset,
        requests: &Stream<'_, U64Keys>,
    ) -> anyhow::Result<Vec<Figures>> {
        let mut figures: Vec<Option<Figures>> = LINES.iter().map(|_| None).collect();
        for batch in [1, GROUP] {
            let workload = Workload {
                dataset,
                lookups: Lookups::all(requests),
                values: VALUES,
                batch,
                threads: 1,
                stretch: None,
                warm_up: None,
                cold: false,
            };
            let lines: Vec<(usize, &Line)> =
                LINES.iter().enumerate().filter(|(_, line)| line.batch == batch).collect();
            let chosen: Vec<&dyn Measurable<U64Keys>> =
                lines.iter().map(|(_, line)| systems[line.system]).collect();
            let mut verified = Vec::with_capacity(chosen.len());
            for system in &chosen {
                verified.push(self.verify(*system, &workload)?);
            }
            let passes = rounds(&chosen, |_| workload, ROUNDS, (MemoryPages::Huge, &self.bar))?;
            for (((at, _), verified), passes) in lines.into_iter().zip(verified).zip(&passes) {
                let ns = median(passes).map_or(f64::NAN, |pass| 1e9 / pass.ops_per_s(requests.keys.len()));
                figures[at] = Some(Figures { ns, verified });
            }
        }
        // Every line has one of the two batch sizes.
        Ok(figures.into_iter().flatten().collect())
    }

    fn verify(
        &mut self,
        system: &dyn Measurable<U64Keys>,
        workload: &Workload<'_, '_, U64Keys>,
    ) -> anyhow::Result<Verified> {
        let verified = system.verify(workload, &self.bar)?;
        self.answers += workload.lookups.len() as u64;
        self.mismatches += verified.mismatches;
        if let Some(mismatch) = &verified.first_mismatch {
            eprintln!("WRONG: {} answers of {}; the first: {mismatch}", verified.mismatches, system.name());
        }
        Ok(verified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_data_set_has_the_keys_it_is_said_to_have() {
        let dataset = Spec::new(SpecKind::Ipv4, None).open(&OpenOptions::default()).unwrap();
        assert_eq!(dataset.len() as u64, IPV4_KEYS);
    }
}
