//! One experiment: a data set, a stream of lookups, systems.

pub mod measure;
pub mod options;
pub mod report;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use fpcache_client::{Client, ClientConfig};
use fpcache_datasets::requests::{RequestOptions, generate};
use fpcache_datasets::{Dataset, count};
use hashbrown::HashMap;

use crate::Verdict;
use crate::machine::{Calibration, Machine, calibrate};
use crate::node::{Node, capacity_for};
use crate::progress::Bar;
use crate::systems::SystemName;
use crate::systems::fpcache::{self, FpCache};
use crate::systems::maps::{CityHash, Index, Inline, Map, Shape, SideBySide};
use measure::{Measurable, Workload, rounds};
use options::{RunArgs, Transport};
use report::{Row, Setting, say};

/// Runs an experiment and reports it.
pub fn run(arguments: &RunArgs) -> anyhow::Result<Verdict> {
    arguments.validate()?;
    if let Some(path) = arguments.json.as_deref().filter(|path| *path != Path::new("-")) {
        // Found out now rather than after minutes of work; what is there stays until the figures replace it.
        let open = std::fs::OpenOptions::new().append(true).create(true).open(path);
        open.with_context(|| format!("--json {}: the file cannot be written", path.display()))?;
    }
    let bar = Bar::default();
    let calibration = bar.during("measuring this machine", 1, || calibrate(arguments.calibration_buffer));
    let dataset = arguments.dataset.open(&arguments.open_options(&bar))?;
    announce(dataset.notes());

    let systems = arguments.distinct_systems();
    let mut node = None;
    let client = match systems.contains(&SystemName::Fpcache) {
        true => Some(connect(arguments, &dataset, &mut node)?),
        false => None,
    };
    let measured = measure_all(arguments, &systems, &dataset, client, &bar, calibration);
    let rows = measured.map_err(|error| match &mut node {
        Some(node) => node.explain(error),
        None => error,
    })?;
    report(arguments, &rows)
}

fn report(arguments: &RunArgs, rows: &[Row]) -> anyhow::Result<Verdict> {
    let table = report::table(rows);
    match arguments.json.as_deref() {
        Some(path) if path == Path::new("-") => {
            eprintln!("{table}");
            report::write_json(rows, path)?;
        }
        Some(path) => {
            say(&table)?;
            report::write_json(rows, path)?;
            eprintln!("figures written to {}", path.display());
        }
        None => say(&table)?,
    }
    Ok(Verdict::of(rows.iter().map(|row| row.mismatches).sum()))
}

/// Prints what a data set or a stream of requests has to say.
pub fn announce(notes: &[String]) {
    notes.iter().for_each(|note| eprintln!("note: {note}"));
}

/// A client of the memory node the options ask for; one in a second process is left in `node`.
fn connect(arguments: &RunArgs, dataset: &Dataset, node: &mut Option<Node>) -> anyhow::Result<Client> {
    let config = ClientConfig { plan: arguments.plan, ..ClientConfig::default() };
    let capacity =
        || arguments.capacity.unwrap_or_else(|| capacity_for(&arguments.table(), dataset.len() as u64));
    match (&arguments.url, arguments.transport) {
        (Some(url), _) => Ok(Client::connect_with(url, config)?),
        (None, Transport::Shm) => {
            let node = node.insert(Node::start(capacity(), 0)?);
            Client::connect_with(node.url(), config).map_err(|error| node.explain(error.into()))
        }
        (None, Transport::Local) => {
            let capacity = usize::try_from(capacity()).unwrap_or(usize::MAX);
            Ok(Client::embedded_with(capacity, config)?)
        }
    }
}

/// Makes the systems one after another, then runs all passes.
fn measure_all(
    arguments: &RunArgs,
    names: &[SystemName],
    dataset: &Dataset,
    client: Option<Client>,
    bar: &Bar,
    calibration: Calibration,
) -> anyhow::Result<Vec<Row>> {
    let fpcache = client.map(|client| open_fpcache(arguments, dataset, client, bar)).transpose()?;
    let value_bytes = fpcache
        .as_ref()
        .and_then(|system| Measurable::facts(system).table)
        .map_or(arguments.value_bytes, |table| table.value_bytes) as usize;
    let mut fpcache = fpcache;
    let mut systems: Vec<Box<dyn Measurable>> = Vec::with_capacity(names.len());
    for name in names {
        match name {
            SystemName::Fpcache => {
                // There is one exactly if it is among the names, and each name comes once.
                systems.extend(fpcache.take().map(|system| Box::new(system) as Box<dyn Measurable>));
            }
            SystemName::Hashmap => systems.push(build_map(HASHMAP, dataset, value_bytes, bar)),
            SystemName::Btreemap => systems.push(build_map(BTREEMAP, dataset, value_bytes, bar)),
        }
    }

    let options = RequestOptions {
        lookups: usize::try_from(arguments.lookups).context("--lookups exceeds this machine's memory")?,
        distribution: arguments.distribution,
        negative: arguments.negative,
        seed: arguments.seed,
        shift_every: None,
    };
    let requests = bar.during("drawing lookups", arguments.lookups, || generate(dataset.keys(), &options));
    announce(&requests.notes);
    let workload = Workload {
        dataset,
        requests: &requests,
        value_bytes,
        batch: arguments.batch as usize,
        threads: arguments.threads as usize,
    };
    let setting = Setting {
        distribution: arguments.distribution.to_string(),
        negative: arguments.negative,
        seed: arguments.seed,
        plan: arguments.plan.name(),
        transport: arguments.transport.as_str(),
        machine: Machine::detect(),
        calibration,
    };
    let systems: Vec<&dyn Measurable> = systems.iter().map(|system| &**system).collect();
    measure(&systems, &workload, &setting, arguments.rounds as usize, bar)
}

/// All passes over all systems.
pub fn measure(
    systems: &[&dyn Measurable],
    workload: &Workload<'_>,
    setting: &Setting,
    round_count: usize,
    bar: &Bar,
) -> anyhow::Result<Vec<Row>> {
    let mut verified = Vec::with_capacity(systems.len());
    for system in systems {
        let result = system.verify(workload, bar)?;
        if let Some(mismatch) = &result.first_mismatch {
            eprintln!(
                "WRONG: {} of {} answers of {}; the first: {mismatch}",
                result.mismatches,
                workload.requests.len(),
                system.name()
            );
        }
        verified.push(result);
    }
    let passes = rounds(systems, workload, round_count, bar)?;
    let mut rows = Vec::with_capacity(systems.len());
    for ((system, verified), passes) in systems.iter().zip(&verified).zip(&passes) {
        let latency = bar.during("measuring latency", 1, || system.latency(workload))?;
        rows.push(Row::new(setting, workload, system.name(), &system.facts(), verified, passes, &latency));
    }
    Ok(rows)
}

/// Loads the data unless the memory node has them already.
fn open_fpcache(
    arguments: &RunArgs,
    dataset: &Dataset,
    client: Client,
    bar: &Bar,
) -> anyhow::Result<FpCache> {
    let load = match &arguments.url {
        Some(url) => {
            let held = client.table().with_context(|| format!("opening the memory node {url}"))?.record.keys;
            ensure!(
                held == dataset.len() as u64,
                "the memory node {url} holds {held} keys, {} has {}: load that data set into it (fpcache-cli --url \
                 {url} load {}), or name the one it holds",
                dataset.name(),
                dataset.len(),
                dataset.name(),
            );
            None
        }
        None => Some(fpcache::load(&client, dataset, arguments.table(), bar)?),
    };
    FpCache::open(client, SystemName::Fpcache.as_str(), load)
}

/// The two kinds of map, for [`build_map`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapKind(SystemName);

/// hashbrown with CityHash64.
pub const HASHMAP: MapKind = MapKind(SystemName::Hashmap);
/// The standard library's ordered map.
pub const BTREEMAP: MapKind = MapKind(SystemName::Btreemap);

/// The map of a data set in the best shape for its values.
pub fn build_map(kind: MapKind, dataset: &Dataset, value_bytes: usize, bar: &Bar) -> Box<dyn Measurable> {
    let phase = format!("building the {} of {} keys", kind.0.as_str(), count::human(dataset.len() as u64));
    bar.during(&phase, 1, || match value_bytes {
        8 => of_shape::<Inline<8>>(kind, dataset, value_bytes),
        16 => of_shape::<Inline<16>>(kind, dataset, value_bytes),
        32 => of_shape::<Inline<32>>(kind, dataset, value_bytes),
        64 => of_shape::<Inline<64>>(kind, dataset, value_bytes),
        128 => of_shape::<Inline<128>>(kind, dataset, value_bytes),
        256 => of_shape::<Inline<256>>(kind, dataset, value_bytes),
        _ => of_shape::<SideBySide>(kind, dataset, value_bytes),
    })
}

fn of_shape<S: Shape + 'static>(kind: MapKind, dataset: &Dataset, value_bytes: usize) -> Box<dyn Measurable>
where
    S::Stored: 'static,
{
    fn boxed<I: Index<S::Stored> + 'static, S: Shape + 'static>(
        dataset: &Dataset,
        value_bytes: usize,
    ) -> Box<dyn Measurable> {
        Box::new(Map::<I, S>::build(dataset, value_bytes))
    }
    match kind {
        BTREEMAP => boxed::<BTreeMap<u64, S::Stored>, S>(dataset, value_bytes),
        _ => boxed::<HashMap<u64, S::Stored, CityHash>, S>(dataset, value_bytes),
    }
}
