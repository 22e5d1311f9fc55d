//! `run`: one experiment over a data set, a stream of lookups, and systems.

pub mod cache;
pub mod collected;
pub mod host;
pub mod measure;
pub mod model;
pub mod options;
pub mod passes;
pub mod replaced_file;
pub mod report;
pub mod row;
pub mod setting;
pub mod store;
pub mod threads;
pub mod timeline;
pub mod transport;
pub mod values;
pub mod verify;
pub mod workload;

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use fpcache_client::{ByteKeys, U64Keys};
use fpcache_datasets::{Bar, KeyKind, KeySet, count};
use hashbrown::HashMap;

use crate::data::{DataKeys, announce};
use crate::machine::{Calibration, Machine};
use crate::systems::SystemName;
use crate::systems::fpcache::FpCache;
use crate::systems::jakiro::Jakiro;
use crate::systems::maps::{CityHash, Index, Inline, Map, Packed, Shape, SideBySide};
use crate::verdict::Verdict;
use host::Host;
use measure::Measurable;
use options::RunArgs;
use row::Row;
use values::ValueBytes;

/// Runs an experiment and reports it.
pub fn run(arguments: &RunArgs) -> anyhow::Result<Verdict> {
    if let Some(card) = arguments.transport.card() {
        #[cfg(feature = "workbench")]
        return crate::modelled::run(arguments, card);
        #[cfg(not(feature = "workbench"))]
        bail!(
            "--transport nic:{card}: this program was built without the model of network cards: build it with \
             `cargo build --release -p fpcache-eval --features workbench`"
        );
    }
    match arguments.dataset.key_kind() {
        KeyKind::U64 => run_over::<U64Keys>(arguments),
        KeyKind::Bytes => run_over::<ByteKeys>(arguments),
    }
}

fn run_over<K: DataKeys>(arguments: &RunArgs) -> anyhow::Result<Verdict> {
    arguments.validate()?;
    report::check_json(arguments.json.as_deref())?;
    let bar = Bar::default();
    let calibration = arguments.calibrate(&bar);
    let dataset = arguments.open::<K>(&bar)?;
    let mut host = match arguments.systems.contains(&SystemName::Fpcache) {
        true => Some(Host::<K>::start(arguments, &dataset, 0)?),
        false => None,
    };
    let measured = measure(arguments, &dataset, host.as_mut(), &bar, calibration);
    let rows = measured.map_err(|error| Host::explain_any(host.as_mut(), error))?;
    report(arguments, &rows)
}

fn report(arguments: &RunArgs, rows: &[Row]) -> anyhow::Result<Verdict> {
    report::deliver(&report::table(rows), rows, arguments.json.as_deref())?;
    Ok(Verdict::of(rows.iter().map(|row| row.mismatches).sum()))
}

/// Makes the systems one after another, then runs all passes.
///
/// # Errors
/// If a system cannot be had, or fails.
pub fn measure<K: DataKeys>(
    arguments: &RunArgs,
    dataset: &K::Set,
    mut host: Option<&mut Host<K>>,
    bar: &Bar,
    calibration: Calibration,
) -> anyhow::Result<Vec<Row>> {
    // The memory node's table may have values of another size than the options say.
    let fpcache = host.as_mut().map(|host| host.open(dataset, arguments.client_config(), bar)).transpose()?;
    let mut fpcache = fpcache.map(|system| Box::new(system) as Box<dyn Measurable<K>>);
    let values = values(fpcache.as_deref(), arguments)?;
    let mut systems: Vec<Box<dyn Measurable<K>>> = Vec::new();
    let mut jakiro = None;
    for name in arguments.distinct_systems() {
        match name {
            // There is one exactly if it is among the names, and each name comes once.
            SystemName::Fpcache => systems.extend(fpcache.take()),
            SystemName::FpcacheClient => {
                // With models and budget of its own.
                let system = host.as_mut().map(|host| host.open(dataset, arguments.client_config(), bar));
                let boxed = |system: FpCache<K>| Box::new(system.by_client()) as Box<dyn Measurable<K>>;
                systems.extend(system.transpose()?.map(boxed));
            }
            SystemName::Hashmap => systems.push(build_map::<K>(HASHMAP, dataset, values, bar)),
            SystemName::Btreemap => systems.push(build_map::<K>(BTREEMAP, dataset, values, bar)),
            SystemName::Jakiro | SystemName::JakiroReply => {
                let system = match jakiro.take() {
                    Some(system) => system,
                    None => Jakiro::<K>::load(dataset, values, arguments.transport, bar)?,
                };
                systems.push(Box::new(system.by(name)));
                // Both ask one server.
                jakiro = Some(system);
            }
            modelled => bail!("{} runs in a model of network cards alone", modelled.as_str()),
        }
    }
    let drawn = draw::<K>(arguments, dataset, bar)?;
    let requests = K::stream(&drawn);
    let systems: Vec<&dyn Measurable<K>> = systems.iter().map(|system| &**system).collect();
    let setting = arguments.setting(&Machine::detect(), calibration);
    arguments.passes(dataset, &requests, values).measure(&systems, &setting, bar)
}

/// Bytes of the values in the memory node's table, or as asked for without one.
///
/// # Errors
/// If they vary in a table of others: then it is unknown what they should be.
pub fn values<K: DataKeys>(
    fpcache: Option<&dyn Measurable<K>>,
    arguments: &RunArgs,
) -> anyhow::Result<ValueBytes> {
    let table = fpcache.and_then(|system| system.facts().table);
    let Some(table) = table else { return Ok(arguments.value_bytes) };
    let fixed = table.shape.value_bytes.map(ValueBytes::Fixed);
    ensure!(
        fixed.is_some() || arguments.url.is_none(),
        "--url: the lengths of that memory node's values vary, so that answers cannot be checked: omit it and say \
         --value-bytes vary, or load values of one size there"
    );
    Ok(fixed.unwrap_or(arguments.value_bytes))
}

/// Draws the lookups of all passes, and prints the notes on them.
pub fn draw<K: DataKeys>(arguments: &RunArgs, dataset: &K::Set, bar: &Bar) -> anyhow::Result<K::Drawn> {
    let options = arguments.request_options(arguments.parts())?;
    let drawn = bar.during("drawing lookups", options.lookups as u64, || K::draw(dataset, &options));
    announce(K::notes(&drawn));
    Ok(drawn)
}

/// The two kinds of map, for [`build_map`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapKind(SystemName);

/// hashbrown with CityHash64.
pub const HASHMAP: MapKind = MapKind(SystemName::Hashmap);
/// The standard library's ordered map.
pub const BTREEMAP: MapKind = MapKind(SystemName::Btreemap);

/// The map of a data set in the best shape for its values.
pub fn build_map<K: DataKeys>(
    kind: MapKind,
    dataset: &K::Set,
    values: ValueBytes,
    bar: &Bar,
) -> Box<dyn Measurable<K>> {
    let phase = format!("building the {} of {} keys", kind.0.as_str(), count::human(dataset.len() as u64));
    bar.during(&phase, 1, || match values {
        ValueBytes::Fixed(8) => of_shape::<K, Inline<8>>(kind, dataset, values),
        ValueBytes::Fixed(16) => of_shape::<K, Inline<16>>(kind, dataset, values),
        ValueBytes::Fixed(32) => of_shape::<K, Inline<32>>(kind, dataset, values),
        ValueBytes::Fixed(64) => of_shape::<K, Inline<64>>(kind, dataset, values),
        ValueBytes::Fixed(128) => of_shape::<K, Inline<128>>(kind, dataset, values),
        ValueBytes::Fixed(256) => of_shape::<K, Inline<256>>(kind, dataset, values),
        ValueBytes::Fixed(_) => of_shape::<K, SideBySide>(kind, dataset, values),
        ValueBytes::UpTo(_) => of_shape::<K, Packed>(kind, dataset, values),
    })
}

fn of_shape<K: DataKeys, S: Shape + 'static>(
    kind: MapKind,
    dataset: &K::Set,
    values: ValueBytes,
) -> Box<dyn Measurable<K>> {
    fn boxed<K: DataKeys, I: Index<K, S::Stored> + 'static, S: Shape + 'static>(
        dataset: &K::Set,
        values: ValueBytes,
    ) -> Box<dyn Measurable<K>> {
        Box::new(Map::<K, I, S>::build(dataset, values))
    }
    match kind {
        BTREEMAP => boxed::<K, BTreeMap<K::Owned, S::Stored>, S>(dataset, values),
        _ => boxed::<K, HashMap<K::Owned, S::Stored, CityHash>, S>(dataset, values),
    }
}

#[cfg(all(test, not(feature = "workbench")))]
mod tests {
    use super::*;

    #[test]
    fn modelled_cards_without_the_model_are_answered_with_how_to_get_it() {
        let words = "--dataset uniform:10K --system smart --transport nic:cx6-100g --clients 12";
        let error = run(&RunArgs::of(words.split(' ')).expect("options")).expect_err("no model").to_string();
        assert!(error.contains("--features workbench"), "{error}");
    }
}
