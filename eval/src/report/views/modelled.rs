//! Figures of systems in a model of network cards: `run`, `ycsb` and `sweep` with `nic:…`.

use clap::ValueEnum;

use super::paper::{MEASURES, latencies};
use super::{Measure, label_of};
use crate::plot::figure::Figure;
use crate::report::record::Record;
use crate::sweep::points::Over;

/// Settings that may tell rows of one system from each other.
const SETTINGS: [(&str, &str); 13] = [
    ("workload", ""),
    ("dataset", ""),
    ("transport", ""),
    ("clients", "clients"),
    ("memory_nodes", "memory nodes"),
    ("keys", "keys"),
    ("key_bytes", "B keys"),
    ("value_bytes", "B values"),
    ("distribution", ""),
    ("budget", "B budget"),
    ("warm_up", "operations before"),
    ("parameters_are", "parameters"),
    ("parameters", ""),
];

/// What tells a row from the others.
pub fn modelled_label(row: &Record, rows: &[Record]) -> String {
    let label = label_of(row, rows, &["system"], &SETTINGS);
    match (row.text("over"), row.text("value")) {
        (Some(over), Some(value)) => format!("{label}, {over} {value}"),
        _ => label,
    }
}

/// Throughput with its spread over seeds.
const THROUGHPUT: Measure = Measure {
    range: |row| Some((row.number("per_second_min")?, row.number("per_second_max")?)),
    ..MEASURES[0]
};

/// Figures of rows: over the setting that is swept, where it is a number, else side by side.
pub fn modelled(rows: &[Record]) -> Vec<Figure> {
    let measures = || std::iter::once(THROUGHPUT).chain(MEASURES[1..].iter().copied());
    let rows: Vec<Record> = rows
        .iter()
        .filter(|row| row.number("per_second").is_some())
        .map(|row| row.clone().with("scale", row.number("keys").unwrap_or_default()))
        .collect();
    let over =
        rows.first().and_then(|row| row.text("over")).and_then(|over| Over::from_str(over, false).ok());
    let Some(over) = over.filter(|over| *over != Over::Nic) else {
        let label = |row: &Record| modelled_label(row, &rows);
        let mut figures: Vec<Figure> = measures().filter_map(|measure| measure.bars(&rows, label)).collect();
        figures.extend(latencies(&rows));
        return figures;
    };
    let x = over.x_axis();
    let at = |row: &Record| match over {
        Over::Cache => row.number("budget"),
        _ => row.text("value")?.parse().ok(),
    };
    // Parameters name some of what is swept.
    let swept = match over {
        Over::Cache => "budget",
        Over::Theta => "distribution",
        Over::Clients => "clients",
        Over::MemoryNodes => "memory_nodes",
        Over::KeyBytes => "key_bytes",
        Over::ValueBytes => "value_bytes",
        Over::Epsilon | Over::Fill | Over::FingerprintBits | Over::Threads | Over::Nic => "parameters",
    };
    let settings: Vec<(&str, &str)> =
        SETTINGS.into_iter().filter(|(field, _)| *field != swept && *field != "parameters").collect();
    let label = |row: &Record| label_of(row, &rows, &["system"], &settings);
    let mut figures: Vec<Figure> =
        measures().filter_map(|measure| measure.over(&rows, (&x, at), label)).collect();
    figures.extend(latencies(&rows));
    figures
}
