//! `scale`: lookups over the number of keys. In a table larger than the processor's caches every
//! lookup waits for memory, and in larger ones for page tables too, so each point is compared with
//! a chain of reads over a buffer as large as the system's table.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use fpcache_client::{ByteKeys, U64Keys};
use fpcache_datasets::count::{human, human_bytes};
use fpcache_datasets::{Bar, KeyKind, Spec};

use crate::counts::positive_count;
use crate::data::DataKeys;
use crate::machine::{Calibration, calibrate};
use crate::plot::figure::{Axis, Reading, Series, Steps, Unit};
use crate::plot::sheet::sheet;
use crate::run::collected::Collected;
use crate::run::host::Host;
use crate::run::measure;
use crate::run::options::RunArgs;
use crate::run::replaced_file::check_file;
use crate::run::report::{ratio_of, write_plot};
use crate::run::row::Row;
use crate::systems::SystemName;
use crate::table::new_table;
use crate::verdict::Verdict;

/// Ends the help of `scale`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval scale --dataset uniform --keys 1M,4M,16M,64M
  fpcache-eval scale --dataset fb --keys 1M,4M,16M --system fpcache,hashmap --plot fb.svg --json fb.json

Each number of keys has a memory node of its own. Its lookups are held against reads at random places, each depending on \
the one before, of a buffer as large as the table in the memory node, or as a map.

Exit code: 0 if every answer was right, 1 if one was wrong, 2 if the experiment failed.";

/// The options of `scale`.
#[derive(Args, Clone, Debug)]
pub struct ScaleArgs {
    /// Numbers of keys, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1M,4M,16M", value_parser = positive_count, help_heading = "Scale")]
    pub keys: Vec<u64>,

    /// File for the plot [default: scale-DATASET.svg]
    #[arg(long, value_name = "FILE", help_heading = "Scale")]
    pub plot: Option<PathBuf>,

    /// All other settings.
    #[command(flatten)]
    pub run: RunArgs,
}

impl ScaleArgs {
    /// The options of each point, in ascending order of keys.
    ///
    /// # Errors
    /// If the options are invalid.
    fn points(&self) -> anyhow::Result<Vec<RunArgs>> {
        self.run.validate()?;
        ensure!(self.run.url.is_none(), "--url: scale starts memory nodes of its own, omit it");
        ensure!(
            self.run.dataset.count().is_none(),
            "--dataset {}: --keys says how many keys there are, write the data set's name alone",
            self.run.dataset
        );
        let mut keys = self.keys.clone();
        keys.sort_unstable();
        keys.dedup();
        let point = |keys| RunArgs {
            dataset: Spec::new(self.run.dataset.kind().clone(), Some(keys)),
            ..self.run.clone()
        };
        Ok(keys.into_iter().map(point).collect())
    }

    fn plot(&self) -> PathBuf {
        let name = self.run.dataset.to_string().replace(['/', ':'], "-");
        self.plot.clone().unwrap_or_else(|| format!("scale-{name}.svg").into())
    }
}

/// Measures every point and reports them.
///
/// # Errors
/// If the options make no sense, or a point fails.
pub fn scale(arguments: &ScaleArgs) -> anyhow::Result<Verdict> {
    let points = arguments.points()?;
    let path = arguments.plot();
    check_file("--plot", &path)?;
    let mut rows = Collected::new(arguments.run.json.as_deref())?;
    let measured = measure_all(&points, &mut rows);
    let name = arguments.run.dataset.to_string();
    let drawn = match rows.rows() {
        [] => Ok(()),
        rows => plot(&name, rows).and_then(|plot| write_plot(&path, &plot)),
    };
    rows.deliver(|rows| table(&name, rows), measured.and(drawn))?;
    Ok(Verdict::of(rows.rows().iter().map(|row| row.mismatches).sum()))
}

fn measure_all(points: &[RunArgs], rows: &mut Collected<Row>) -> anyhow::Result<()> {
    let bar = Bar::default();
    for (at, run) in points.iter().enumerate() {
        eprintln!("point {} of {}: {}", at + 1, points.len(), run.dataset);
        rows.add(match run.dataset.key_kind() {
            KeyKind::U64 => point::<U64Keys>(run, at as u32, &bar)?,
            KeyKind::Bytes => point::<ByteKeys>(run, at as u32, &bar)?,
        })?;
    }
    Ok(())
}

/// One number of keys: lookups, and then, when the memory is free again, the reads that those of
/// each system are held against.
fn point<K: DataKeys>(run: &RunArgs, ordinal: u32, bar: &Bar) -> anyhow::Result<Vec<Row>> {
    let mut rows = {
        let dataset = run.open::<K>(bar)?;
        let mut host = match run.systems.contains(&SystemName::Fpcache) {
            true => Some(Host::<K>::start(run, &dataset, ordinal)?),
            false => None,
        };
        // The buffer's size is known once the table is there.
        let measured = measure(run, &dataset, host.as_mut(), bar, UNKNOWN);
        measured.map_err(|error| Host::explain_any(host.as_mut(), error))?
    };
    let sizes: Vec<u64> = rows.iter().map(footprint).collect();
    let calibrations = calibrations(&sizes, |bytes| {
        let phase = format!("reading {} at random", human_bytes(bytes));
        bar.during(&phase, 1, || calibrate(bytes, run.pages))
    });
    rows.iter_mut().zip(calibrations).for_each(|(row, calibration)| row.calibration = calibration);
    Ok(rows)
}

/// One calibration for each size, in a buffer of that size; of equal ones one is made.
fn calibrations(sizes: &[u64], mut make: impl FnMut(u64) -> Calibration) -> Vec<Calibration> {
    let mut made: Vec<Calibration> = Vec::new();
    for (at, bytes) in sizes.iter().enumerate() {
        let same = sizes[..at].iter().position(|other| other == bytes).map(|at| made[at]);
        made.push(same.unwrap_or_else(|| make(*bytes)));
    }
    made
}

/// Stands for what is measured later.
const UNKNOWN: Calibration =
    Calibration { buffer_bytes: 0, random_read_ns: 0.0, copy_gb_s: 0.0, clock_read_ns: 0.0 };

/// Bytes that the system's lookups read from: the memory node's, or those of a map.
fn footprint(row: &Row) -> u64 {
    let per_key = row.memory_node_bytes_per_key.unwrap_or(row.process_bytes_per_key);
    (per_key * row.keys as f64) as u64
}

/// Nanoseconds of a lookup in the fastest pass: what disturbs a pass says nothing about the size.
fn fastest(row: &Row) -> f64 {
    row.threads as f64 * 1e9 / row.ops_per_s_max
}

/// Of each row: how much its lookups, and the machine's reads, grew since the first row of the
/// system.
fn growths(rows: &[Row]) -> Vec<(f64, f64)> {
    let growth = |row: &Row| {
        let first = rows.iter().find(|other| other.system == row.system).unwrap_or(row);
        let reads = row.calibration.random_read_ns / first.calibration.random_read_ns;
        (fastest(row) / fastest(first), reads)
    };
    rows.iter().map(growth).collect()
}

/// The points of the data set of this name, which rows name with their numbers of keys.
fn table(name: &str, rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut table = new_table(
        "keys | system | size | ns/lookup | random read | lookup : read | lookup : first | \
         read : first",
    )
    .named_by(2);
    for (row, (lookups, reads)) in rows.iter().zip(growths(rows)) {
        let read = row.calibration.random_read_ns;
        table.add_row([
            human(row.keys),
            row.system.clone(),
            human_bytes(footprint(row)),
            format!("{:.1}", fastest(row)),
            format!("{read:.1} ns"),
            ratio_of(fastest(row) / read),
            ratio_of(lookups),
            ratio_of(reads),
        ]);
    }
    format!(
        "{name} ({}): {}, fastest of {} passes\n{table}",
        first.dataset_source,
        first.what_was_asked(first.value_bytes_in_words(), &first.dist, first.threads),
        first.rounds
    )
}

/// A line per system, and the machine's own below.
fn plot(name: &str, rows: &[Row]) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    let is_alone = rows.iter().all(|row| row.system == rows[0].system);
    for row in rows {
        let slowest = row.threads as f64 * 1e9 / row.ops_per_s_min;
        let lookup = Reading { value: fastest(row), range: Some((fastest(row), slowest)) };
        Series::add(&mut lines, &format!("{} lookup", row.system), (row.keys as f64, lookup));
        let read = Reading::of(row.calibration.random_read_ns);
        let of = if is_alone { "as much".to_owned() } else { format!("as much as {}", row.system) };
        Series::add(&mut lines, &format!("random read of {of}"), (row.keys as f64, read));
    }
    let headings = match rows.first() {
        None => Default::default(),
        Some(row) => [
            format!("{name}: a lookup over the number of keys"),
            format!(
                "{}-byte values; lookups {}, {} at once",
                row.value_bytes_in_words(),
                row.dist,
                row.threads
            ),
            format!("fastest of {} passes; bars reach to the slowest", row.rounds),
            row.place(),
        ],
    };
    let x = Axis::new("keys", Unit::Count).by(Steps::Factors).ticks_at_values();
    sheet(&headings, &[(x, Axis::new("nanoseconds", Unit::Nanoseconds), &lines)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::{assert_refused, command};

    fn parse(options: &str) -> Result<Vec<RunArgs>, String> {
        let Command::Scale(arguments) = command("scale", options)? else { panic!("no `scale`") };
        arguments.points().map_err(|error| error.to_string())
    }

    #[test]
    fn points_ascend_and_each_comes_once() {
        let points = parse("--dataset uniform --keys 4M,1M,4M").unwrap();
        let specs: Vec<String> = points.iter().map(|run| run.dataset.to_string()).collect();
        assert_eq!(specs, ["uniform:1M", "uniform:4M"]);
        assert_eq!(points[0].systems, [SystemName::Fpcache]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_does() {
        let cases = [
            ("--keys 1M", "--dataset"),
            ("--dataset uniform:1M --keys 1M", "name alone"),
            ("--dataset uniform --keys 0", "above 0"),
            ("--dataset uniform --url shm://fpcache", "omit it"),
        ];
        assert_refused(parse, &cases);
    }

    /// One buffer, as large as the largest system's memory, flattered the others.
    #[test]
    fn each_system_is_held_against_a_buffer_of_its_own_size() {
        let mut made = 0;
        let all = calibrations(&[300, 100, 300], |buffer_bytes| {
            made += 1;
            Calibration { buffer_bytes, ..UNKNOWN }
        });
        assert_eq!((made, all.iter().map(|of| of.buffer_bytes).collect()), (2, vec![300, 100, 300]));
    }

    #[test]
    fn nothing_is_drawn_without_rows() {
        assert!(plot("uniform", &[]).unwrap().contains("</svg>"));
        assert_eq!(table("uniform", &[]), "");
    }
}
