//! `waits`: how long a put to one table waits while another table of the same memory node is busy.
//! One thread serves both.

mod loads;
mod options;
mod probe;
mod row;

use anyhow::Context;
use fpcache_client::{ClientConfig, Tables, U64Keys};
use fpcache_datasets::{Bar, count};
use fpcache_memserver::durability::SyncPolicy;

pub use options::{EXAMPLES, WaitsArgs};

use crate::machine::{Calibration, calibrate};
use crate::node::Node;
use crate::pages::MemoryPages;
use crate::run::collected::Collected;
use crate::run::store::StoreArgs;
use crate::verdict::Verdict;
use loads::{Burden, LoadName};
use probe::{DEADLINE, Latencies, Probe};
use row::WaitsRow;

/// Measures the waits under each load and reports them.
///
/// # Errors
/// If a memory node fails, or refuses what a load needs.
pub fn waits(arguments: &WaitsArgs) -> anyhow::Result<Verdict> {
    const CALIBRATION_BYTES: u64 = 64 << 20;
    let mut rows = Collected::new(arguments.json.as_deref())?;
    let bar = Bar::default();
    let calibration =
        bar.during("measuring this machine", 1, || calibrate(CALIBRATION_BYTES, MemoryPages::Huge));
    let all = LoadName::all();
    let loads = if arguments.loads.is_empty() { &all } else { &arguments.loads };
    let measured = loads.iter().enumerate().try_for_each(|(ordinal, load)| {
        let phase = format!("{load}, with {} keys", count::human(arguments.keys));
        let row = bar.during(&phase, 1, || measure(arguments, *load, ordinal as u32, calibration));
        rows.add([row.with_context(|| format!("--load {load}"))?])
    });
    rows.deliver(row::table, measured)?;
    Ok(Verdict::AllRight)
}

/// Measures the waits under one load, over a memory node of its own.
fn measure(
    arguments: &WaitsArgs,
    load: LoadName,
    ordinal: u32,
    calibration: Calibration,
) -> anyhow::Result<WaitsRow> {
    let folder = || arguments.store_dir.clone().unwrap_or_else(std::env::temp_dir);
    let store = StoreArgs { store_dir: load.is_synced().then(folder), fsync: SyncPolicy::Always };
    let mut node = Node::start::<U64Keys>(load.capacity(arguments.keys), ordinal, &store)?;
    let measured = under(arguments, load, &node);
    let (latencies, done) = measured.map_err(|error| node.explain(error))?;
    Ok(WaitsRow::new(arguments, load, &store, &latencies, done, calibration))
}

fn under(arguments: &WaitsArgs, load: LoadName, node: &Node) -> anyhow::Result<(Latencies, loads::Done)> {
    let url = node.url();
    let tables = Tables::connect_with(url, ClientConfig::default().with_deadline(DEADLINE))?;
    let probe = Probe::new(url, node.process_id(), arguments.every_us)?;
    let config = ClientConfig::default().with_table("busy".parse()?).with_deadline(DEADLINE);
    let burden = Burden { url, tables: &tables, config, keys: arguments.keys, seconds: arguments.seconds };
    probe.beside(|probing| burden.run(load, probing))
}
