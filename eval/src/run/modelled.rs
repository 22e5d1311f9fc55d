//! `run` in a model of network cards: any of the systems that are compared, each answer checked, requests and bytes counted.

use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};
use fpcache::cache::Variant;
use fpcache_client::{Plan, PlanChoice};
use fpcache_datasets::KeyKind;
use fpcache_datasets::count::{human, human_bytes};
use fpcache_datasets::requests::generate;
use fpcache_workbench::Sizes;
use fpcache_workbench::bench::Operation;
use fpcache_workbench::experiment::{self, Experiment, Fixed, Parameters};
use fpcache_workbench::fpcache::Options;
use fpcache_workbench::nic::{Bound, Hosts, NicSpec};
use serde::Serialize;

use super::announce;
use super::options::RunArgs;
use super::report::{check_json, deliver, new_table};
use crate::Verdict;
use crate::data::{DataKeys, KeyLengths};
use crate::machine::free_memory;
use crate::progress::Bar;
use crate::systems::SystemName;

/// Compute nodes that clients are spread over, and clients without `--clients`: those of the FPCache paper.
const COMPUTE_NODES: u32 = 6;
const CLIENTS: u32 = 384;
/// Bytes a key that a compute node may keep without `--cache`: 100 MB of 60 M keys.
const BUDGET_PER_KEY: f64 = 100.0 / 60.0;

/// A system's figures.
#[derive(Debug, Serialize)]
struct Row {
    system: &'static str,
    transport: &'static str,
    clients: u32,
    memory_nodes: u32,
    dataset: String,
    keys: u64,
    key_bytes: usize,
    value_bytes: usize,
    distribution: String,
    shift_every: Option<u64>,
    negative: f64,
    seed: u64,
    /// Bytes a compute node may keep.
    budget: u64,
    round_trips_per_operation: f64,
    requests_per_operation: f64,
    /// From and to memory nodes, and to other compute nodes.
    bytes_per_operation: f64,
    #[serde(flatten)]
    run: experiment::Run,
}

/// Runs the experiment over a modelled card.
///
/// # Errors
/// If options contradict each other or the model, or there is no memory for the keys.
pub fn run(arguments: &RunArgs, card: &str) -> anyhow::Result<Verdict> {
    let nic = NicSpec::named(card)?;
    let systems = systems(arguments)?;
    let (sizes, hosts) = (sizes(arguments)?, hosts(arguments, nic)?);
    check_json(arguments.json.as_deref())?;
    let bar = Bar::default();
    // Keys have the bytes that are modelled, not those of the data set.
    let mut open = arguments.open_options(&bar);
    open.key_bytes = None;
    let dataset = fpcache_client::U64Keys::open(&arguments.dataset, &open)?;
    announce(dataset.notes());
    let keys = Arc::new(dataset.into_keys());
    check_memory(&systems, sizes, keys.len() as u64, arguments.lookups)?;
    let drawn = bar.during("drawing lookups", 2 * arguments.lookups, || {
        Ok::<_, anyhow::Error>(generate(&keys, &arguments.request_options(2)?))
    })?;
    announce(&drawn.notes);
    let operations: Vec<_> = drawn.keys.iter().map(|key| Operation::Read { key: *key }).collect();
    let budget = (keys.len() as f64 * BUDGET_PER_KEY) as u64;
    let experiment = Experiment {
        keys: Arc::clone(&keys),
        sizes,
        hosts,
        budget: arguments.cache.budget.0.unwrap_or(budget),
        operations: &operations,
        warm: arguments.lookups,
        fixed: Fixed::default(),
        window: None,
    };
    let mut rows = Vec::new();
    for (at, system) in systems.iter().enumerate() {
        let run = bar.during(&format!("{} ({} of {})", system.as_str(), at + 1, systems.len()), 1, || {
            measure(arguments, &experiment, *system)
        })?;
        rows.push(row(arguments, &experiment, *system, run));
    }
    let wrong = rows.iter().map(|row| row.run.measured.wrong).sum();
    deliver(&table(arguments, &experiment, &rows), &rows, arguments.json.as_deref())?;
    Ok(Verdict::of(wrong))
}

/// One system: FPCache as the options say, the others with their published parameters.
fn measure(
    arguments: &RunArgs,
    experiment: &Experiment<'_>,
    system: SystemName,
) -> anyhow::Result<experiment::Run> {
    let name: experiment::SystemName = system.as_str().parse()?;
    let run = match system {
        SystemName::Fpcache => experiment.run_fpcache(&options(arguments, experiment)),
        _ => experiment.run(name, Parameters::Published),
    };
    run.map_err(|error| anyhow!("{}: {error}", system.as_str()))
}

fn options(arguments: &RunArgs, experiment: &Experiment<'_>) -> Options {
    let table = arguments.table(&KeyLengths::every(experiment.sizes.key));
    Options {
        epsilon: arguments.epsilon,
        width: table.width,
        plan: arguments.plan,
        variant: arguments.cache.variant.unwrap_or(Variant::Fd),
        fill: arguments.fill(),
        ..Options::published(experiment.budget, experiment.sizes)
    }
}

/// The systems, of which the maps of a plain `run` are none.
fn systems(arguments: &RunArgs) -> anyhow::Result<Vec<SystemName>> {
    let all = arguments.distinct_systems();
    if all == [SystemName::Fpcache, SystemName::Hashmap, SystemName::Btreemap] {
        return Ok(vec![SystemName::Fpcache]);
    }
    let other = all.iter().find(|system| !system.is_modelled() && **system != SystemName::Fpcache);
    ensure!(
        other.is_none(),
        "--system {}: it does not run in the model of network cards: use {}",
        other.map_or("", |other| other.as_str()),
        experiment::SystemName::ALL.map(experiment::SystemName::name).join(", ")
    );
    Ok(all)
}

/// Bytes of keys and values; refuses what the model does not have.
fn sizes(arguments: &RunArgs) -> anyhow::Result<Sizes> {
    let RunArgs { cache, .. } = arguments;
    let transport = arguments.transport.as_str();
    ensure!(
        arguments.dataset.key_kind() == KeyKind::U64,
        "--dataset {}: with {transport} integers stand for keys of --key-bytes: use fb, wiki, uniform or another set of these",
        arguments.dataset
    );
    let others = [
        ("--batch", arguments.batch != 1, "every client looks up one key at a time"),
        ("--threads", arguments.threads != 1, "use --clients"),
        ("--timeline", arguments.timeline.is_some(), "`fpcache-eval paper --figure 10` has one"),
        ("--url", arguments.url.is_some(), "the memory node is modelled"),
        ("--store-dir", arguments.store.store_dir.is_some(), "the memory node is modelled"),
        ("--groups", arguments.groups, "tables are without them"),
        ("--inline-bytes", arguments.inline_bytes.is_some(), "all values lie beside their keys"),
        ("--policy", cache.policy.is_some(), "the hot cache goes by heat"),
        ("--on-conflict", cache.on_conflict.is_some(), "lookups go on by what is cheapest"),
        ("--cold", cache.cold, "caches are filled by as many lookups as are measured"),
    ];
    for (option, is_given, because) in others {
        ensure!(!is_given, "{option}: not with {transport}: {because}");
    }
    let is_plan = !matches!(arguments.plan, PlanChoice::Fixed(Plan::Groups | Plan::AtNode));
    ensure!(is_plan, "--plan: with {transport} there are auto, two-stage, range and speculative");
    let value = arguments
        .value_bytes
        .fixed()
        .context("--value-bytes: values have one length in the model: write a number")?;
    let (key, value) = (arguments.key_bytes.unwrap_or(8), value as usize);
    ensure!(key >= 8 && value >= 8, "--key-bytes and --value-bytes: 8 or more in the model");
    Ok(Sizes { key, value })
}

/// The machines: as many clients on each compute node.
fn hosts(arguments: &RunArgs, nic: NicSpec) -> anyhow::Result<Hosts> {
    let clients = arguments.clients.unwrap_or(CLIENTS);
    let nodes = clients.min(COMPUTE_NODES);
    ensure!(
        clients.is_multiple_of(nodes),
        "--clients {clients}: six compute nodes have as many each: use {}",
        clients.next_multiple_of(nodes)
    );
    let (compute_nodes, threads) = (u16::try_from(nodes)?, u16::try_from(clients / nodes)?);
    Ok(Hosts { compute_nodes, threads, memory_nodes: u16::try_from(arguments.nodes)?, ..Hosts::paper(nic) })
}

/// Whether there is memory for any of the systems, before it is looked for.
fn check_memory(systems: &[SystemName], sizes: Sizes, keys: u64, lookups: u64) -> anyhow::Result<()> {
    // A request, its key while they are drawn, and what is expected of it.
    const LOOKUP: u64 = 40;
    let of = |system: &SystemName| {
        let name: Result<experiment::SystemName, _> = system.as_str().parse();
        name.map_or(0, |name| name.host_bytes(sizes)) as u64
    };
    let each = systems.iter().map(of).max().unwrap_or(0) + 8;
    let (needs, free) = (each * keys + 2 * lookups * LOOKUP, free_memory()?);
    let fits = free.saturating_sub(2 * lookups * LOOKUP) / each;
    ensure!(
        needs <= free,
        "{} keys of {}/{} B and {} lookups take about {} of this machine, which has {} free: use {}",
        human(keys),
        sizes.key,
        sizes.value,
        human(lookups),
        human_bytes(needs),
        human_bytes(free),
        if fits == 0 { "fewer --lookups".to_owned() } else { format!("{} keys", human(fits)) }
    );
    Ok(())
}

fn row(arguments: &RunArgs, experiment: &Experiment<'_>, system: SystemName, run: experiment::Run) -> Row {
    let tally = run.measured.tally;
    Row {
        system: system.as_str(),
        transport: arguments.transport.as_str(),
        clients: experiment.hosts.clients() as u32,
        memory_nodes: arguments.nodes,
        dataset: arguments.dataset.to_string(),
        keys: experiment.keys.len() as u64,
        key_bytes: experiment.sizes.key,
        value_bytes: experiment.sizes.value,
        distribution: arguments.distribution.to_string(),
        shift_every: arguments.shift_every,
        negative: arguments.negative,
        seed: arguments.seed,
        budget: experiment.budget,
        round_trips_per_operation: tally.per_operation(tally.round_trips),
        requests_per_operation: tally.per_operation(tally.requests()),
        bytes_per_operation: tally.per_operation(tally.bytes_from + tally.bytes_to),
        run,
    }
}

fn table(arguments: &RunArgs, experiment: &Experiment<'_>, rows: &[Row]) -> String {
    let header = [
        "system",
        "Mops/s",
        "p50",
        "p99",
        "p99.9",
        "trips/op",
        "requests/op",
        "B/op",
        "one trip",
        "requests",
        "bytes",
        "cores",
        "threads",
        "bound by",
        "cache",
        "beside",
    ];
    let mut table = new_table(&header);
    let (share, per_op) =
        (|share: f64| format!("{:.0} %", 100.0 * share), |count: f64| format!("{count:.2}"));
    for row in rows {
        let measured = &row.run.measured;
        let (usage, footprint) = (measured.usage, measured.footprint);
        let [p50, _, p99, p999] = measured.latency_us.map(|us| format!("{us:.1} us"));
        table.add_row([
            row.system.to_owned(),
            format!("{:.2}", measured.per_second / 1e6),
            p50,
            p99,
            p999,
            per_op(row.round_trips_per_operation),
            per_op(row.requests_per_operation),
            format!("{:.0}", row.bytes_per_operation),
            share(measured.one_trip),
            share(usage.served.max(usage.issued)),
            share(usage.bytes_from.max(usage.bytes_to).max(usage.compute_bytes)),
            share(usage.cores),
            share(usage.threads),
            bound(measured.bound).to_owned(),
            human_bytes(footprint.cached),
            human_bytes(footprint.beside),
        ]);
    }
    let mut text = format!(
        "{}: {} keys of {}/{} B, {}, {} clients, {} memory node(s), {} for each compute node; shares are those of the busiest card, \
         core or of all threads\n{table}\n",
        arguments.transport.as_str(),
        human(experiment.keys.len() as u64),
        experiment.sizes.key,
        experiment.sizes.value,
        arguments.distribution,
        experiment.hosts.clients(),
        arguments.nodes,
        human_bytes(experiment.budget),
    );
    for row in rows {
        text += &format!("{}: {}\n", row.system, row.run.parameters);
        if let Some(wrong) = &row.run.measured.first_wrong {
            text +=
                &format!("{}: {} wrong answers, the first: {wrong}\n", row.system, row.run.measured.wrong);
        }
    }
    text
}

/// What binds, for people.
const fn bound(bound: Bound) -> &'static str {
    match bound {
        Bound::Rate => "requests",
        Bound::Bandwidth => "bytes",
        Bound::Cpu => "processors",
        Bound::Latency => "latency",
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
            ("--dataset uniform:10K --plan groups", "two-stage"),
            ("--dataset uniform:10K --key-bytes 4", "8 or more"),
            ("--dataset uniform:10K --value-bytes vary", "a number"),
            ("--dataset uniform:10K --lookups 1000G", "fewer --lookups"),
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
            assert!(number("per_second") > 1e5 && number("bytes_per_operation") > 16.0, "{row}");
            assert!(
                (number("clients"), number("memory_nodes")) == (48.0, 2.0) && row["bound"].is_string(),
                "{row}"
            );
        }
        assert_eq!(first, rows("second"));
    }
}
