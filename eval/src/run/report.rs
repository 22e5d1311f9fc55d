//! Output of rows: a table with notes, and JSON.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use fpcache_datasets::count::{human, human_bytes};
use serde::Serialize;

use crate::made::Recorded;
use crate::run::replaced_file::{check_file, replace};
use crate::run::row::Row;
use crate::run::timeline::{Shift, TimelinePoint, median};
use crate::table::{new_table, with_notes_wrapped};

/// Prints a line, or several, for people. A reader such as `head` that has seen enough is no
/// failure.
pub fn say(text: &str) -> anyhow::Result<()> {
    unless_closed(writeln!(io::stdout(), "{}", with_notes_wrapped(text)))
        .context("writing to standard output")
}

fn unless_closed(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Writes the rows, each with what [made](crate::made) it, as one JSON array to a file, or to
/// standard output for `-`.
pub fn write_json<T: Serialize>(rows: &[T], path: &Path) -> anyhow::Result<()> {
    write_recorded(&Recorded::now(rows), path)
}

/// As [`write_json`], for rows of which that is known.
pub fn write_recorded<T: Serialize>(rows: &[Recorded<T>], path: &Path) -> anyhow::Result<()> {
    let mut json = serde_json::to_vec_pretty(rows)?;
    json.push(b'\n');
    if path == Path::new("-") {
        return unless_closed(io::stdout().write_all(&json))
            .context("writing the figures to standard output");
    }
    replace(path, &json)
}

/// Writes a plot, and says where it is.
pub fn write_plot(path: &Path, plot: &str) -> anyhow::Result<()> {
    std::fs::write(path, plot).with_context(|| format!("writing the plot to {}", path.display()))?;
    eprintln!("plot: {}", path.display());
    Ok(())
}

/// Finds out now, rather than after minutes of work, whether the figures can be written; what is
/// there stays until they replace it, and nothing stays where nothing was.
pub fn check_json(path: Option<&Path>) -> anyhow::Result<()> {
    path.filter(|path| *path != Path::new("-")).map_or(Ok(()), |path| check_file("--json", path))
}

/// Hands figures over: the table to people, the rows to programs. With rows on standard output the
/// table goes to standard error.
pub fn deliver<T: Serialize>(table: &str, rows: &[T], json: Option<&Path>) -> anyhow::Result<()> {
    match json {
        Some(path) if path == Path::new("-") => {
            eprintln!("{}", with_notes_wrapped(table));
            write_json(rows, path)
        }
        Some(path) => {
            say(table)?;
            write_json(rows, path)?;
            eprintln!("figures written to {}", path.display());
            Ok(())
        }
        None => say(table),
    }
}

/// The rows as a table, under a title that says what was measured on what.
pub fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut table = new_table(
        "system | lookups/s | least to most | ns/lookup | time : hashmap | p50 | p99 | p99.99 | \
         round trips | bytes read | at memory node | in this process",
    );
    let hashmap = rows.iter().find(|row| row.system == "hashmap").map(Row::ns_per_op);
    for row in rows {
        table.add_row([
            row.system.clone(),
            rate(row.ops_per_s),
            least_to_most(row.ops_per_s_min, row.ops_per_s_max),
            format!("{:.1}", row.ns_per_op()),
            hashmap.map_or_else(none, |ns| ratio(row.ns_per_op(), ns)),
            duration(row.p50_ns),
            duration(row.p99_ns),
            duration(row.p9999_ns),
            row.rtts_per_op.map_or_else(none, |rtts| format!("{rtts:.2}")),
            row.bytes_per_op.map_or_else(none, |bytes| format!("{bytes:.0} B")),
            row.memory_node_bytes_per_key.map_or_else(none, bytes_per_key),
            bytes_per_key(row.process_bytes_per_key),
        ]);
    }
    let mut text = format!(
        "{} ({}): {}\n{table}\n",
        first.dataset,
        first.dataset_source,
        first.what_was_asked(first.value_bytes_in_words(), &first.dist, first.threads)
    );
    for row in rows {
        text.push_str(&explanation(row));
        text.push_str(&timeline_explanation(row).unwrap_or_default());
    }
    text.push_str(&doubts(rows.iter().map(|row| doubts_of(row.system.clone(), row))));
    let c = &first.calibration;
    text.push_str(&format!(
        "latencies are of a {}; this machine during the run: {:.0} ns per random read of {}, {:.1} GB/s copied, \
         {:.0} ns to read the clock\n",
        first.latency_of,
        c.random_read_ns,
        human_bytes(c.buffer_bytes),
        c.copy_gb_s,
        c.clock_read_ns,
    ));
    if rows.iter().all(|row| row.mismatches == 0) {
        text.push_str("every answer was right");
    }
    text
}

/// Sentences about a system that reads from a memory node.
fn explanation(row: &Row) -> String {
    let (Some(segments), Some(model_bytes), Some(epsilon), Some(bits), Some(fill), Some(plan)) =
        (row.segments, row.model_bytes, row.epsilon, row.fingerprint_bits, row.fill, row.plan.as_deref())
    else {
        return String::new();
    };
    let fingerprints = match bits {
        0 => "no fingerprints".to_owned(),
        bits => format!("{bits}-bit fingerprints"),
    };
    let loaded = row.load_s.map(|s| format!(", loaded in {s:.2} s")).unwrap_or_default();
    let shares = [
        ("cached", row.cached_share),
        ("two-stage", row.two_stage_share),
        ("range", row.range_share),
        ("speculative", row.speculative_share),
        ("groups", row.groups_share),
        ("at-node", row.at_node_share),
    ];
    let shares: Vec<String> = shares
        .into_iter()
        .filter_map(|(name, share)| Some((name, share.filter(|share| *share > 0.0)?)))
        .map(|(name, share)| format!("{:.0} % {name}", 100.0 * share))
        .collect();
    let noun = if segments == 1 { "segment" } else { "segments" };
    format!(
        "{system}: {} {noun} of {:.0} keys on average, models {} ({:.3} B/key); epsilon {epsilon}, {fingerprints}, fill \
         {fill}{loaded}\n{system}: plan {plan} ({}), {:.4} false candidates per lookup\n{}",
        human(segments),
        row.keys as f64 / segments as f64,
        human_bytes(model_bytes),
        row.model_bytes_per_key.unwrap_or_default(),
        shares.join(", "),
        row.false_candidates_per_op.unwrap_or_default(),
        cache_explanation(row).unwrap_or_default(),
        system = row.system,
    )
}

/// A sentence about the compute node's budget, if there is one.
fn cache_explanation(row: &Row) -> Option<String> {
    let budget = row.cache_bytes_budget?;
    let mut text = format!(
        "{}: cache {} of {}",
        row.system,
        row.cache_bytes_used.map_or_else(none, human_bytes),
        human_bytes(budget)
    );
    if let (Some(entries), Some(capacity)) = (row.cache_entries, row.cache_capacity) {
        text.push_str(&format!(", {} entries in room for {}", human(entries), human(capacity)));
    }
    if let Some(bytes) = row.cache_bytes_per_entry {
        text.push_str(&format!(" at {bytes:.1} B"));
    }
    if let Some(rate) = row.hit_rate {
        text.push_str(&format!("; {} hits", percent(rate)));
    }
    let choices = [row.variant.as_deref(), row.policy.as_deref(), row.on_conflict.as_deref()];
    let [variant, policy, on_conflict] = choices.map(Option::unwrap_or_default);
    text.push_str(&format!("; variant {variant}, policy {policy}, on conflict {on_conflict}"));
    if row.cold == Some(true) {
        text.push_str(", every pass from empty");
    }
    text.push('\n');
    Some(text)
}

/// What a row's figures may say against themselves, with what they are of.
pub fn doubts_of(of: String, row: &Row) -> Doubts {
    Doubts {
        of,
        passes: (row.ops_per_s_min, row.ops_per_s_max),
        mean_ns: row.ns_per_op() * row.batch as f64,
        p99_ns: row.p99_ns,
    }
}

/// What a system's timeline shows, if there is one.
fn timeline_explanation(row: &Row) -> Option<String> {
    let points = row.timeline.as_deref().filter(|points| !points.is_empty())?;
    let rates = || points.iter().map(|point| point.ops_per_s);
    let hits =
        |point: &TimelinePoint| point.hit_rate.map(|rate| format!(", {} hits in the last", percent(rate)));
    let at_end = points.last().and_then(hits).unwrap_or_default();
    let mut text = format!(
        "{}: {} points along {}: lookups/s from {} to {}, median {}{at_end}\n",
        row.system,
        points.len(),
        human(points.last().map_or(0, |point| point.lookups)),
        rate(rates().reduce(f64::min).unwrap_or_default()),
        rate(rates().reduce(f64::max).unwrap_or_default()),
        rate(median(rates()).unwrap_or_default()),
    );
    for shift in row.shifts.as_deref().unwrap_or_default() {
        text.push_str(&shift_explanation(&row.system, shift));
    }
    Some(text)
}

fn shift_explanation(system: &str, shift: &Shift) -> String {
    let end = match shift.recovered_after {
        Some(lookups) => format!("within 5 % of steady after {} lookups", human(lookups)),
        None => "not within 5 % of steady before the next shift or the end".to_owned(),
    };
    format!(
        "{system}: popular keys moved at {}: steady {}/s, at worst {}/s ({} dip), {end}\n",
        human(shift.at),
        rate(shift.steady_ops_per_s),
        rate(shift.worst_ops_per_s),
        percent(shift.dip),
    )
}

/// Stands where a figure does not apply.
pub fn none() -> String {
    "–".to_owned()
}

/// How many times as long.
pub fn ratio(ns: f64, reference: f64) -> String {
    ratio_of(ns / reference)
}

/// A ratio, to three digits: more would say more than is known.
pub fn ratio_of(ratio: f64) -> String {
    let decimals = match ratio.abs() {
        100.0.. => 0,
        10.0..100.0 => 1,
        0.1..10.0 => 2,
        _ => 3,
    };
    format!("{ratio:.decimals$}×")
}

/// Bytes per key.
pub fn bytes_per_key(bytes: f64) -> String {
    format!("{bytes:.1} B/key")
}

/// A share of 1.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A rate per second.
pub fn rate(per_second: f64) -> String {
    human(per_second as u64)
}

/// Rates of the slowest and the fastest pass.
pub fn least_to_most(least: f64, most: f64) -> String {
    if least < most { format!("{} to {}", rate(least), rate(most)) } else { none() }
}

/// What figures may say against themselves.
#[derive(Clone, Debug)]
pub struct Doubts {
    /// What they are of.
    pub of: String,
    /// Rates of the slowest and the fastest pass.
    pub passes: (f64, f64),
    /// Nanoseconds of a call in the median pass, by its rate.
    pub mean_ns: f64,
    /// 99th percentile of calls that were timed one by one.
    pub p99_ns: u64,
}

impl Doubts {
    /// How many times the slowest pass's rate the fastest has, if that is much.
    fn spread(&self) -> Option<String> {
        /// Passes of a machine with nothing else to do differ by less.
        const MUCH: f64 = 1.3;
        let (least, most) = self.passes;
        (least > 0.0 && most > MUCH * least).then(|| format!("{} ({})", self.of, ratio_of(most / least)))
    }

    /// The mean and the percentile, if that is less.
    fn beyond_percentile(&self) -> Option<String> {
        let Self { of, mean_ns, p99_ns, .. } = self;
        let is_beyond = *mean_ns > *p99_ns as f64;
        is_beyond.then(|| format!("{of} ({}, {})", duration(*mean_ns as u64), duration(*p99_ns)))
    }
}

/// Notes of figures that say something against themselves, a line of each kind; empty if none do.
pub fn doubts(all: impl Iterator<Item = Doubts>) -> String {
    let (mut spreads, mut beyond) = (Vec::new(), Vec::new());
    for one in all {
        spreads.extend(one.spread());
        beyond.extend(one.beyond_percentile());
    }
    let mut text = String::new();
    if !spreads.is_empty() {
        let these = spreads.join(", ");
        text += &format!("note: fastest passes beside slowest; ratios are as uncertain: {these}\n");
    }
    if !beyond.is_empty() {
        let these = beyond.join(", ");
        text += &format!(
            "note: calls of the median pass took more on average than 99 of 100 of those that were timed, as where this \
             process waits for a processor: {these}\n"
        );
    }
    text
}

/// A duration in the fitting unit.
pub fn duration(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..999_950 => format!("{:.1} µs", ns as f64 / 1e3),
        999_950..9_995_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_fitting_unit() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(12_345), "12.3 µs");
        assert_eq!((duration(999_949), duration(999_950)), ("999.9 µs".to_owned(), "1.00 ms".to_owned()));
        // It was `4530.2 µs`.
        assert_eq!(duration(4_530_200), "4.53 ms");
        assert_eq!(duration(12_345_678), "12.3 ms");
    }

    #[test]
    fn ratios_have_three_digits() {
        let told = [175.53, 17.553, 9.876, 0.956, 0.0123].map(ratio_of);
        assert_eq!(told, ["176×", "17.6×", "9.88×", "0.96×", "0.012×"]);
    }

    #[test]
    fn passes_that_differ_and_a_mean_beyond_the_percentile_are_noted() {
        let row = |least, most, p99_ns| {
            let row =
                Row { system: "fpcache".to_owned(), ops_per_s: 1e6, threads: 2, batch: 4, ..Row::default() };
            Row { ops_per_s_min: least, ops_per_s_max: most, p99_ns, ..row }
        };
        let notes = |row: &Row| {
            table(std::slice::from_ref(row)).lines().filter(|line| line.starts_with("note: ")).count()
        };
        // A call of four keys takes 8 µs in each of two threads.
        assert_eq!(notes(&row(0.9e6, 1.1e6, 9_000)), 0);
        let told = |row: Row| doubts([&row, &row].into_iter().map(|row| doubts_of(row.system.clone(), row)));
        let spread = told(row(0.829e6, 8.07e6, 9_000));
        assert!(spread.ends_with(": fpcache (9.73×), fpcache (9.73×)\n"), "{spread}");
        let beyond = told(row(0.9e6, 1.1e6, 7_000));
        assert!(beyond.ends_with(": fpcache (8000 ns, 7000 ns), fpcache (8000 ns, 7000 ns)\n"), "{beyond}");
        assert_eq!(notes(&row(0.829e6, 8.07e6, 7_000)), 2);
        assert!(table(&[row(0.829e6, 8.07e6, 7_000)]).contains("829 K to 8.07 M"));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = write_json::<Row>(&[], Path::new("/no/such/folder/x.json")).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/folder/x.json"));
    }
}
