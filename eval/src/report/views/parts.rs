//! Figures of `density`, `waits` and `fabric`.

use super::{Measure, differ, label_of, percentiles};
use crate::plot::figure::{Axis, Figure, Steps, Unit};
use crate::report::record::Record;

/// What tells rows of one form from each other.
const DENSITY: [(&str, &str); 5] = [
    ("dataset", ""),
    ("keys", "keys"),
    ("fill", "fill"),
    ("epsilon", "epsilon"),
    ("inserted", "keys inserted per key loaded"),
];

/// What tells a form from the others.
pub fn density_label(row: &Record, rows: &[Record]) -> String {
    label_of(row, rows, &["form"], &DENSITY)
}

/// Figures of `density`.
pub fn density(rows: &[Record]) -> Vec<Figure> {
    let measures = [
        Measure::new("Compute node's memory", "bytes per key", Unit::Bytes, |row| {
            row.number("bytes_per_key")
        }),
        Measure::new("Keys that the first READ has", "share of keys", Unit::Share, |row| {
            row.number("present_one_read")
        }),
        Measure::new("Absent keys told by the first READ", "share of absent keys", Unit::Share, |row| {
            row.number("absent_one_read")
        }),
        Measure::new("Bytes read", "bytes of the first READ", Unit::Bytes, |row| row.number("bytes_read")),
        Measure::new("Bytes read for absent keys", "bytes of the first READ", Unit::Bytes, |row| {
            row.number("absent_bytes_read")
        }),
        Measure::new("Directory with its models", "bytes per key", Unit::Bytes, |row| {
            row.number("directory_bytes_per_key")
        }),
        Measure::new("Copies", "records copied by rebuilds per insert", Unit::Number, |row| {
            row.number("copies_per_insert")
        }),
        Measure::new("Building", "time per key", Unit::Nanoseconds, |row| {
            row.number("build_ns").filter(|ns| *ns > 0.0)
        }),
    ];
    let over = ["epsilon", "inserted"].into_iter().find(|field| differ(rows, field));
    let x = match over {
        Some("epsilon") => {
            Axis::new("epsilon: half-width of a window, in slots", Unit::Number).by(Steps::Factors)
        }
        _ => Axis::new("keys inserted, for a key loaded", Unit::Number).by(Steps::Even),
    };
    let x = x.ticks_at_values();
    // Keys grow with those inserted.
    let settings: Vec<_> = DENSITY
        .into_iter()
        .filter(|(field, _)| Some(*field) != over && (over != Some("inserted") || *field != "keys"))
        .collect();
    let figure = |measure: &Measure| match over {
        Some(field) => measure.over(rows, (&x, |row: &Record| row.number(field)), |row| {
            label_of(row, rows, &["form"], &settings)
        }),
        None => measure.bars(rows, |row| density_label(row, rows)),
    };
    measures.iter().filter_map(figure).collect()
}

/// What tells a load from the others.
pub fn load_label(row: &Record, rows: &[Record]) -> String {
    label_of(row, rows, &["load"], &[("keys", "keys"), ("every_us", "µs apart"), ("fsync", "log")])
}

/// Figures of `waits`.
pub fn waits(rows: &[Record]) -> Vec<Figure> {
    let of = |prefix: &'static str| -> Vec<(String, &str, &Record)> {
        rows.iter().map(|row| (load_label(row, rows), prefix, row)).collect()
    };
    let seen = percentiles("Latency percentiles of puts", "a put", &of("latency."));
    let own = percentiles(
        "The same without waiting for a processor",
        "a put, when it had a processor",
        &of("own_latency."),
    );
    seen.into_iter().chain(own).collect()
}

/// What tells a verb from the others.
pub fn verb_label(row: &Record, rows: &[Record]) -> String {
    label_of(row, rows, &["transport", "verb"], &[("bytes", "B"), ("batch", "to a doorbell")])
}

/// Figures of `fabric`: one of each transport and batch.
pub fn fabric(rows: &[Record]) -> Vec<Figure> {
    let mut ways: Vec<(&str, f64)> = Vec::new();
    for row in rows {
        if let (Some(transport), Some(batch)) = (row.text("transport"), row.number("batch"))
            && !ways.contains(&(transport, batch))
        {
            ways.push((transport, batch));
        }
    }
    let measures = [
        Measure::new("Latency", "median time of a doorbell", Unit::Nanoseconds, |row| {
            row.number("latency.p50_ns")
        }),
        Measure::new("Rate", "requests per second", Unit::Count, |row| row.number("rate")),
        Measure::new("Round trips", "round trips per request", Unit::Number, |row| {
            row.number("round_trips_per_request")
        }),
    ];
    let x = Axis::new("bytes of a request", Unit::Bytes).by(Steps::Factors).ticks_at_values();
    let mut figures = Vec::new();
    for (transport, batch) in ways {
        let of_way =
            |row: &&Record| row.text("transport") == Some(transport) && row.number("batch") == Some(batch);
        let of_way: Vec<Record> = rows.iter().filter(of_way).cloned().collect();
        for measure in &measures {
            let verb = |row: &Record| row.text("verb").unwrap_or_default().to_owned();
            let figure = measure.over(&of_way, (&x, |row: &Record| row.number("bytes")), verb);
            figures.extend(figure.map(|figure| Figure {
                title: format!("{}, {transport}, {} to a doorbell", figure.title, Unit::Count.show(batch)),
                ..figure
            }));
        }
    }
    figures
}
