//! Figures of lookups: `run`, `scale` and `sweep`.

use clap::ValueEnum;

use super::{Measure, SETTINGS, differ, label_of, percentiles, percentiles_over, push, settings_but};
use crate::plot::figure::{Axis, Figure, Reading, Steps, Unit};
use crate::report::record::Record;
use crate::sweep::points::Over;

/// What tells a row of lookups from the others.
pub fn lookup_label(row: &Record, rows: &[Record]) -> String {
    let label = label_of(row, rows, &["system"], &SETTINGS);
    match (row.text("sweep.over"), row.number("sweep.value")) {
        (Some(over), Some(value)) => format!("{label}, {over} {}", show_over(over, value)),
        _ => label,
    }
}

fn show_over(over: &str, value: f64) -> String {
    Over::from_str(over, false).map_or_else(|_| Unit::Number.show(value), |over| over.show(value))
}

/// The slowest and the fastest pass.
pub const RANGE: fn(&Record) -> Option<(f64, f64)> =
    |row| Some((row.number("ops_per_s_min")?, row.number("ops_per_s_max")?));

/// What every row of lookups may have.
pub const LOOKUPS: [Measure; 9] = [
    Measure {
        range: RANGE,
        ..Measure::new("Throughput", "lookups per second", Unit::Count, |row| row.number("ops_per_s"))
    },
    Measure::new("Hit rate", "lookups answered by the hot cache", Unit::Share, |row| row.number("hit_rate")),
    Measure::new("Round trips", "round trips per lookup", Unit::Number, |row| row.number("rtts_per_op")),
    Measure::new("READ requests", "READs per lookup", Unit::Number, |row| row.number("reads_per_op")),
    Measure::new("Bytes read", "bytes read per lookup", Unit::Bytes, |row| row.number("bytes_per_op")),
    Measure::new("Compute node's memory", "bytes per key, cache included", Unit::Bytes, |row| {
        row.number("process_bytes_per_key")
    }),
    Measure::new("Models", "bytes of models per key", Unit::Bytes, |row| row.number("model_bytes_per_key")),
    Measure::new("Memory node's memory", "bytes per key", Unit::Bytes, |row| {
        row.number("memory_node_bytes_per_key")
    }),
    Measure::new("Hot cache", "bytes per entry", Unit::Bytes, |row| row.number("cache_bytes_per_entry")),
];

/// Figures of `run`, `scale` and `sweep`.
pub fn lookups(rows: &[Record]) -> Vec<Figure> {
    let over = rows.first().and_then(|row| row.text("sweep.over"));
    let mut figures = match over {
        Some(over) => swept(rows, over),
        None if differ(rows, "keys") => {
            let x = Axis::new("keys", Unit::Count).by(Steps::Factors).ticks_at_values();
            over_setting(rows, &x, |row| row.number("keys"), &["keys", "dataset"])
        }
        None => single(rows, &LOOKUPS, "a call", |row| lookup_label(row, rows)),
    };
    figures.extend(timelines(rows));
    figures
}

fn swept(rows: &[Record], over: &str) -> Vec<Figure> {
    let known = Over::from_str(over, false).ok();
    let other = || Axis::new(over, Unit::Number).by(Steps::Even).ticks_at_values();
    let x = known.map_or_else(other, Over::x_axis);
    let field = match over {
        "cache" => "cache_bytes_budget",
        "theta" => "dist",
        "fingerprint-bits" => "fingerprint_bits",
        "value-bytes" => "value_bytes",
        other => other,
    };
    let value = |row: &Record| row.number("sweep.value");
    let mut figures = over_setting(rows, &x, value, &[field]);
    if known == Some(Over::Threads) {
        let settings = settings_but(&[field]);
        let load = Axis::new("load: lookups per second reached", Unit::Count).by(Steps::Even);
        let label = |row: &Record| label_of(row, rows, &["system"], &settings);
        figures.extend(percentiles_over(rows, (&load, |row: &Record| row.number("ops_per_s")), label));
    }
    figures
}

/// Every measure and the percentiles over a setting.
fn over_setting(
    rows: &[Record],
    x: &Axis,
    at: impl Fn(&Record) -> Option<f64> + Copy,
    but: &[&str],
) -> Vec<Figure> {
    let settings = settings_but(but);
    let label = |row: &Record| label_of(row, rows, &["system"], &settings);
    let mut figures: Vec<Figure> =
        LOOKUPS.iter().filter_map(|measure| measure.over(rows, (x, at), label)).collect();
    figures.extend(percentiles_over(rows, (x, at), label));
    figures
}

/// Bars of every measure, throughput over the compute node's bytes, and latency percentiles.
pub fn single(
    rows: &[Record],
    measures: &[Measure],
    call: &str,
    label: impl Fn(&Record) -> String + Copy,
) -> Vec<Figure> {
    let mut figures: Vec<Figure> = measures.iter().filter_map(|measure| measure.bars(rows, label)).collect();
    let bytes = |row: &Record| Some(row.number("process_bytes_per_key")? * row.number("keys")?);
    let x = Axis::new("bytes kept on the compute node", Unit::Bytes).by(Steps::Factors);
    if let Some(throughput) = measures.first() {
        figures.extend(throughput.over(rows, (&x, bytes), label));
    }
    let latencies: Vec<_> = rows.iter().map(|row| (label(row), "", row)).collect();
    figures.extend(percentiles("Latency percentiles", call, &latencies));
    figures
}

/// Throughput and hit rate along a pass.
fn timelines(rows: &[Record]) -> Vec<Figure> {
    let of = |field: &str| {
        let mut series = Vec::new();
        for row in rows {
            for point in row.list("timeline") {
                if let (Some(x), Some(value)) = (point.number("lookups"), point.number(field)) {
                    push(&mut series, lookup_label(row, rows), (x, Reading::of(value)));
                }
            }
        }
        series
    };
    let x = || Axis::new("lookups since the pass began", Unit::Count);
    let rate = Axis::new("lookups per second", Unit::Count);
    let hits = Axis::new("lookups answered by the hot cache", Unit::Share);
    let rate = Figure::lines("Throughput along a pass", x(), rate, of("ops_per_s"));
    let hits = Figure::lines("Hit rate along a pass", x(), hits, of("hit_rate"));
    [rate, hits].into_iter().flatten().collect()
}
