//! One experiment: a data set, a stream of lookups, systems.

pub mod cache;
pub mod host;
pub mod measure;
pub mod options;
pub mod passes;
pub mod report;
pub mod row;
pub mod store;
pub mod threads;
pub mod timeline;
pub mod verify;

use std::collections::BTreeMap;

use fpcache_datasets::requests::{Requests, generate_for};
use fpcache_datasets::{Dataset, count};
use hashbrown::HashMap;

use crate::Verdict;
use crate::machine::{Calibration, Machine, calibrate};
use crate::progress::Bar;
use crate::systems::SystemName;
use crate::systems::maps::{CityHash, Index, Inline, Map, Shape, SideBySide};
use host::Host;
use measure::Measurable;
use options::RunArgs;
use row::Row;

/// Runs an experiment and reports it.
pub fn run(arguments: &RunArgs) -> anyhow::Result<Verdict> {
    arguments.validate()?;
    report::check_json(arguments.json.as_deref())?;
    let bar = Bar::default();
    let calibration = bar.during("measuring this machine", 1, || calibrate(arguments.calibration_buffer));
    let dataset = arguments.dataset.open(&arguments.open_options(&bar))?;
    announce(dataset.notes());

    let mut host = match arguments.systems.contains(&SystemName::Fpcache) {
        true => Some(Host::start(arguments, &dataset, 0)?),
        false => None,
    };
    let measured = measure(arguments, &dataset, host.as_mut(), &bar, calibration);
    let rows = measured.map_err(|error| match &mut host {
        Some(host) => host.explain(error),
        None => error,
    })?;
    report(arguments, &rows)
}

fn report(arguments: &RunArgs, rows: &[Row]) -> anyhow::Result<Verdict> {
    report::deliver(&report::table(rows), rows, arguments.json.as_deref())?;
    Ok(Verdict::of(rows.iter().map(|row| row.mismatches).sum()))
}

/// Prints what a data set or a stream of requests has to say.
pub fn announce(notes: &[String]) {
    notes.iter().for_each(|note| eprintln!("note: {note}"));
}

/// Makes the systems one after another, then runs all passes.
///
/// # Errors
/// If a system cannot be had, or fails.
pub fn measure(
    arguments: &RunArgs,
    dataset: &Dataset,
    mut host: Option<&mut Host>,
    bar: &Bar,
    calibration: Calibration,
) -> anyhow::Result<Vec<Row>> {
    // The memory node's table may have values of another size than the options say.
    let fpcache = host.as_mut().map(|host| host.open(dataset, arguments.client_config(), bar)).transpose()?;
    let mut fpcache = fpcache.map(|system| Box::new(system) as Box<dyn Measurable>);
    let value_bytes = value_bytes(fpcache.as_deref(), arguments);
    let mut systems: Vec<Box<dyn Measurable>> = Vec::new();
    for name in arguments.distinct_systems() {
        match name {
            // There is one exactly if it is among the names, and each name comes once.
            SystemName::Fpcache => systems.extend(fpcache.take()),
            SystemName::Hashmap => systems.push(build_map(HASHMAP, dataset, value_bytes, bar)),
            SystemName::Btreemap => systems.push(build_map(BTREEMAP, dataset, value_bytes, bar)),
        }
    }
    let requests = draw(arguments, dataset, bar)?;
    let systems: Vec<&dyn Measurable> = systems.iter().map(|system| &**system).collect();
    let setting = arguments.setting(&Machine::detect(), calibration);
    arguments.passes(dataset, &requests, value_bytes).measure(&systems, &setting, bar)
}

/// Bytes of the values in the memory node's table, or as asked for without one.
pub fn value_bytes(fpcache: Option<&dyn Measurable>, arguments: &RunArgs) -> usize {
    let table = fpcache.and_then(|system| system.facts().table);
    table.map_or(arguments.value_bytes, |table| table.value_bytes) as usize
}

/// Draws the lookups of all passes, and says what there is to say of them.
pub fn draw(arguments: &RunArgs, dataset: &Dataset, bar: &Bar) -> anyhow::Result<Requests> {
    let options = arguments.request_options(arguments.parts())?;
    let requests = bar.during("drawing lookups", options.lookups as u64, || generate_for(dataset, &options));
    announce(&requests.notes);
    Ok(requests)
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
