//! Figures that compare FPCache with others: the quickstart and `peers`.

use super::{Measure, label_of, side_by_side};
use crate::plot::figure::{Axis, Figure, Reading, Unit};
use crate::report::record::Record;

/// What tells a line of the quickstart from the others.
pub fn tour_label(row: &Record, rows: &[Record]) -> String {
    label_of(row, rows, &["way"], &[("dataset", "")])
}

/// Figures of the quickstart.
pub fn tour(rows: &[Record]) -> Vec<Figure> {
    let measures = [
        Measure::new("Time of a lookup", "nanoseconds per lookup", Unit::Nanoseconds, |row| {
            row.number("ns_per_lookup")
        }),
        Measure::new("Kept by each process that looks up", "bytes per key", Unit::Bytes, |row| {
            row.number("process_bytes_per_key")
        }),
        Measure::new("Round trips", "round trips per lookup", Unit::Number, |row| row.number("rtts_per_op")),
        Measure::new("Bytes read", "bytes read per lookup", Unit::Bytes, |row| row.number("bytes_per_op")),
    ];
    let mut figures = Vec::new();
    for measure in &measures {
        // Beside each other for each way to look up.
        let mut datasets: Vec<&str> = rows.iter().filter_map(|row| row.text("dataset")).collect();
        datasets.dedup();
        let mut things: Vec<(String, Vec<Option<Reading>>)> = Vec::new();
        for row in rows {
            let Some(at) = datasets.iter().position(|name| row.text("dataset") == Some(name)) else {
                continue;
            };
            let way = row.text("way").unwrap_or_default();
            let thing = match things.iter().position(|(label, _)| label == way) {
                Some(thing) => thing,
                None => {
                    things.push((way.to_owned(), vec![None; datasets.len()]));
                    things.len() - 1
                }
            };
            things[thing].1[at] = measure.reading(row);
        }
        figures.extend(Figure::bars(measure.title, measure.axis(), &datasets, things));
    }
    figures
}

/// What tells a peer's row from the others.
pub fn peer_label(row: &Record, _: &[Record]) -> String {
    let parts = ["system", "transport", "operation"].into_iter().filter_map(|field| row.text(field));
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Figures of `peers`.
pub fn peers(rows: &[Record]) -> Vec<Figure> {
    let throughput = Measure {
        range: |row| Some((row.number("keys_per_s_min")?, row.number("keys_per_s_max")?)),
        ..Measure::new("Throughput", "keys looked up per second", Unit::Count, |row| row.number("keys_per_s"))
    };
    let label = |row: &Record| peer_label(row, rows);
    let percentiles = [("p50_ns", "50 %"), ("p99_ns", "99 %")];
    let processors =
        [("client_cpu_s_per_million", "client"), ("server_cpu_s_per_million", "server or memory node")];
    let x = Axis::new("load: keys per second", Unit::Count);
    let at_load = Measure::new("99th percentile of a call", "time of a call", Unit::Nanoseconds, |row| {
        row.number("p99_ns")
    });
    let by_system = |row: &Record| {
        [row.text("system"), row.text("transport")].into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    [
        throughput.bars(rows, label),
        side_by_side(("Latency percentiles", "time of a call", Unit::Nanoseconds), &percentiles, rows, label),
        at_load.over(rows, (&x, |row: &Record| row.number("keys_per_s")), by_system),
        side_by_side(("Processor time", "seconds per million keys", Unit::Number), &processors, rows, label),
    ]
    .into_iter()
    .flatten()
    .collect()
}
