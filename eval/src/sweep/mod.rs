//! `sweep`: an experiment at several values of one setting.

pub mod lines;
pub mod options;
pub mod plot;
pub mod points;
pub mod store;

use std::path::Path;

use fpcache_client::{ByteKeys, U64Keys};
use fpcache_datasets::count::{human, human_bytes};
use fpcache_datasets::{Bar, KeyKind, KeySet};

use crate::data::DataKeys;
use crate::machine::{Calibration, Machine};
use crate::made::Made;
use crate::run::host::Host;
use crate::run::measure::Measurable;
use crate::run::report::{
    doubts, doubts_of, duration, least_to_most, none, percent, rate, say, write_recorded,
};
use crate::run::row::Row;
use crate::run::values::ValueBytes;
use crate::run::{BTREEMAP, HASHMAP, build_map, draw, values};
use crate::systems::SystemName;
use crate::table::new_table;
use crate::verdict::Verdict;
use lines::{Line, label};
use options::SweepArgs;
use points::{Over, Point};
use store::Store;

/// Runs a sweep, or what is left of it, and reports it.
pub fn sweep(arguments: &SweepArgs) -> anyhow::Result<Verdict> {
    #[cfg(feature = "workbench")]
    if arguments.is_modelled() {
        return crate::modelled::sweep::sweep(arguments);
    }
    match arguments.run.dataset.key_kind() {
        KeyKind::U64 => sweep_over::<U64Keys>(arguments),
        KeyKind::Bytes => sweep_over::<ByteKeys>(arguments),
    }
}

fn sweep_over<K: DataKeys>(arguments: &SweepArgs) -> anyhow::Result<Verdict> {
    let points = arguments.points()?;
    let to_stdout = arguments.run.json.as_deref() == Some(Path::new("-"));
    let json = arguments.run.json.as_deref().filter(|_| !to_stdout);
    let mut store = Store::open(
        &arguments.folder(),
        json,
        arguments.over.name(),
        arguments.experiment(),
        arguments.fresh,
    )?;
    let (done, left): (Vec<_>, Vec<_>) = points.iter().partition(|point| store.has(point.value));
    if !done.is_empty() {
        eprintln!("{} of {} points were there already", done.len(), points.len());
    }
    if left.is_empty() {
        store.write()?;
    } else {
        store.refuse_other_build(&Made::now())?;
        eprintln!("{}", on_interruption(arguments.fresh));
        let bar = Bar::default();
        let calibration = arguments.run.calibrate(&bar);
        let dataset = arguments.run.open::<K>(&bar)?;
        store.refuse_other_source(dataset.source())?;
        let mut sweep = Sweep::<K>::new(arguments, &dataset, &bar, calibration);
        sweep.run(&left, None, &mut store)?;
    }
    let rows = store.rows();
    let text = format!(
        "{}\nresults: {} and {}\nplot: {}",
        table(&rows, arguments.over),
        store.json().display(),
        store.csv().display(),
        store.plot().display()
    );
    if to_stdout {
        eprintln!("{text}");
        write_recorded(store.recorded(), Path::new("-"))?;
    } else {
        say(&text)?;
    }
    Ok(Verdict::of(rows.iter().map(|row| row.mismatches).sum()))
}

/// What to do after Ctrl-C, which ends the process without another word.
fn on_interruption(is_fresh: bool) -> String {
    let without = if is_fresh { ", without --fresh," } else { "" };
    format!("if this is interrupted, the same command{without} goes on after the last point that was done")
}

/// What is kept from point to point.
pub struct Sweep<'a, K: DataKeys> {
    arguments: &'a SweepArgs,
    lines: Vec<Line>,
    dataset: &'a K::Set,
    bar: &'a Bar,
    machine: Machine,
    calibration: Calibration,
    /// Lookups, and the distribution they were drawn from.
    drawn: Option<(String, K::Drawn)>,
    /// Maps, each with the size of its values.
    maps: Vec<(SystemName, ValueBytes, Box<dyn Measurable<K>>)>,
}

impl<'a, K: DataKeys> Sweep<'a, K> {
    /// A sweep over an open data set.
    pub fn new(
        arguments: &'a SweepArgs,
        dataset: &'a K::Set,
        bar: &'a Bar,
        calibration: Calibration,
    ) -> Self {
        Self {
            arguments,
            lines: arguments.lines(),
            dataset,
            bar,
            machine: Machine::detect(),
            calibration,
            drawn: None,
            maps: Vec::new(),
        }
    }

    /// Measures these points and puts each into the store once it is done. `host` may be a memory
    /// node that holds the table of the first. To be called by the main thread, as [`Host::start`].
    ///
    /// # Errors
    /// If a point fails; those before it are in the store.
    pub fn run(
        &mut self,
        points: &[&Point],
        mut host: Option<Host<K>>,
        store: &mut Store,
    ) -> anyhow::Result<()> {
        for (at, point) in points.iter().enumerate() {
            let has_fpcache = point.run.systems.contains(&SystemName::Fpcache);
            let needs_another = host.is_none() || (at > 0 && self.arguments.over.changes_table());
            if has_fpcache && needs_another {
                // The old memory node goes before the new one comes: both may not fit.
                drop(host.take());
                host = Some(self.new_host(points, at)?);
            }
            let show = self.arguments.over.show(point.value);
            eprintln!("point {} of {}: {} {show}", at + 1, points.len(), self.arguments.over.name());
            let rows = self.measure(point, host.as_mut(), store);
            store.add(rows.map_err(|error| Host::explain_any(host.as_mut(), error))?)?;
        }
        Ok(())
    }

    /// A memory node for the `at`-th point and those that share its table; all their clients are
    /// tried, so that a budget too small for the data is refused before anything is measured.
    fn new_host(&self, points: &[&Point], at: usize) -> anyhow::Result<Host<K>> {
        let mut host = Host::start(&points[at].run, self.dataset, at as u32)?;
        if self.arguments.over == Over::Cache && host.is_shared() {
            for point in &points[at..] {
                if let Err(error) = self.try_budget(&mut host, point) {
                    let value = Over::Cache.show(point.value);
                    return Err(host.explain(error).context(format!("a budget of {value}")));
                }
            }
        }
        Ok(host)
    }

    /// Whether the memory node's table can be used within a point's budget.
    ///
    /// # Errors
    /// If it cannot, or if the memory node is gone.
    pub fn try_budget(&self, host: &mut Host<K>, point: &Point) -> anyhow::Result<()> {
        for line in &self.lines {
            host.open(self.dataset, line.client_config(&point.run), self.bar)?;
        }
        Ok(())
    }

    fn measure(
        &mut self,
        point: &Point,
        host: Option<&mut Host<K>>,
        store: &Store,
    ) -> anyhow::Result<Vec<Row>> {
        let run = &point.run;
        let mut lines: Vec<Box<dyn Measurable<K>>> = Vec::new();
        if let Some(host) = host {
            for line in &self.lines {
                lines.push(Box::new(host.open(self.dataset, line.client_config(run), self.bar)?));
            }
        }
        let values = values(lines.first().map(|line| &**line), run)?;
        self.prepare_maps(point, values);
        self.prepare_requests(point)?;
        let Some((_, drawn)) = &self.drawn else { return Ok(Vec::new()) };
        let requests = K::stream(drawn);

        let mut systems: Vec<&dyn Measurable<K>> = Vec::new();
        for name in run.distinct_systems() {
            let map = self.maps.iter().find(|(map, ..)| *map == name);
            match map {
                Some((.., map)) => systems.push(&**map),
                None => systems.extend(lines.iter().map(|line| &**line)),
            }
        }
        let mut setting = run.setting(&self.machine, self.calibration);
        setting.sweep = Some(store.tag(point.value));
        run.passes(self.dataset, &requests, values).measure(&systems, &setting, self.bar)
    }

    fn prepare_maps(&mut self, point: &Point, values: ValueBytes) {
        self.maps.retain(|(_, of, _)| *of == values);
        for name in point.run.distinct_systems() {
            let kind = match name {
                SystemName::Fpcache => continue,
                SystemName::Hashmap => HASHMAP,
                SystemName::Btreemap => BTREEMAP,
                // The options refuse the others.
                _ => continue,
            };
            if !self.maps.iter().any(|(map, ..)| *map == name) {
                self.maps.push((name, values, build_map(kind, self.dataset, values, self.bar)));
            }
        }
    }

    /// Only the distribution differs between points.
    fn prepare_requests(&mut self, point: &Point) -> anyhow::Result<()> {
        let distribution = point.run.distribution.to_string();
        if self.drawn.as_ref().is_none_or(|(of, _)| *of != distribution) {
            // The old ones go first: both may not fit.
            self.drawn = None;
            self.drawn = Some((distribution, draw::<K>(&point.run, self.dataset, self.bar)?));
        }
        Ok(())
    }
}

/// All points and lines as a table under a title.
pub fn table(rows: &[Row], over: Over) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let has_cache = rows.iter().any(|row| row.cache_bytes_budget.is_some());
    let mut header = vec![over.name(), "series", "lookups/s", "least to most", "ns/lookup"];
    if has_cache {
        header.extend(["hit rate", "bytes used", "entries", "per entry"]);
    }
    header.extend(["p50", "p99", "round trips", "bytes read"]);
    let mut table = new_table(&header.join(" | ")).named_by(2);
    let value_of = |row: &Row| row.sweep.as_ref().map_or_else(none, |tag| over.show(tag.value));
    for row in rows {
        let mut cells = vec![value_of(row), label(row, rows), rate(row.ops_per_s)];
        cells.push(least_to_most(row.ops_per_s_min, row.ops_per_s_max));
        cells.push(format!("{:.1}", row.ns_per_op()));
        if has_cache {
            cells.push(row.hit_rate.map_or_else(none, percent));
            cells.push(row.cache_bytes_used.map_or_else(none, human_bytes));
            cells.push(row.cache_entries.map_or_else(none, human));
            cells.push(row.cache_bytes_per_entry.map_or_else(none, |bytes| format!("{bytes:.1} B")));
        }
        cells.push(duration(row.p50_ns));
        cells.push(duration(row.p99_ns));
        cells.push(row.rtts_per_op.map_or_else(none, |trips| format!("{trips:.2}")));
        cells.push(row.bytes_per_op.map_or_else(none, |bytes| format!("{bytes:.0} B")));
        table.add_row(cells);
    }
    let of = |row: &Row| format!("{} at {}", label(row, rows), value_of(row));
    let notes = doubts(rows.iter().map(|row| doubts_of(of(row), row)));
    let text = format!(
        "{} ({}), {}\n{table}\n{notes}",
        first.dataset,
        first.dataset_source,
        plot::asked(first, over)
    );
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates that differed by a factor of two were shown as if they were certain.
    #[test]
    fn a_point_has_the_spread_of_its_passes_and_a_note_if_that_is_wide() {
        let row = Row {
            system: "fpcache".to_owned(),
            ops_per_s: 2e6,
            ops_per_s_min: 1e6,
            ops_per_s_max: 2e6,
            p99_ns: 9_000,
            threads: 1,
            batch: 1,
            ..Row::default()
        };
        let text = table(&[row], Over::Cache);
        assert!(text.contains("1.00 M to 2.00 M"), "{text}");
        assert!(text.contains("note: fastest passes beside slowest") && text.ends_with("(2.00×)"), "{text}");
    }
}
