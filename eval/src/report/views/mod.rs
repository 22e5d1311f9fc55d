//! The figures of each kind of rows, and what several of them share.

pub mod beside;
pub mod lookups;
pub mod modelled;
pub mod paper;
pub mod parts;
pub mod writes;

use super::record::Record;
use crate::plot::figure::{Axis, Figure, Reading, Series, Steps, Unit};

/// Something that rows have one of each.
#[derive(Clone, Copy)]
pub struct Measure {
    /// The figure's title, to which a sweep adds what it is over.
    pub title: &'static str,
    /// What it is, with its unit where the numbers do not say it.
    pub name: &'static str,
    /// The unit.
    pub unit: Unit,
    /// A row's.
    pub value: fn(&Record) -> Option<f64>,
    /// The least and the most of its passes.
    pub range: fn(&Record) -> Option<(f64, f64)>,
}

impl Measure {
    /// One without a range.
    pub const fn new(
        title: &'static str,
        name: &'static str,
        unit: Unit,
        value: fn(&Record) -> Option<f64>,
    ) -> Self {
        Self { title, name, unit, value, range: |_| None }
    }

    fn reading(&self, record: &Record) -> Option<Reading> {
        Some(Reading { value: (self.value)(record)?, range: (self.range)(record) })
    }

    fn axis(&self) -> Axis {
        Axis::new(self.name, self.unit)
    }

    /// Of each row, by its label.
    pub fn bars(&self, rows: &[Record], label: impl Fn(&Record) -> String) -> Option<Figure> {
        let things = rows.iter().map(|row| (label(row), vec![self.reading(row)])).collect();
        Figure::bars(self.title, self.axis(), &[self.name], things)
    }

    /// Over a number that each row has, a line for each label.
    pub fn over(
        &self,
        rows: &[Record],
        (x, at): (&Axis, impl Fn(&Record) -> Option<f64>),
        label: impl Fn(&Record) -> String,
    ) -> Option<Figure> {
        let mut series = Vec::new();
        for row in rows {
            if let (Some(x), Some(reading)) = (at(row), self.reading(row)) {
                push(&mut series, label(row), (x, reading));
            }
        }
        Figure::lines(format!("{} over {}", self.title, x.short()), x.clone(), self.axis(), series)
    }
}

/// Adds a point to the line of this label.
pub fn push(series: &mut Vec<Series>, label: String, point: (f64, Reading)) {
    match series.iter_mut().find(|line| line.label == label) {
        Some(line) => line.points.push(point),
        None => series.push(Series { label, points: vec![point] }),
    }
}

/// A number that several fields have, side by side for each row.
fn side_by_side(
    (title, name, unit): (&str, &str, Unit),
    fields: &[(&str, &str)],
    rows: &[Record],
    label: impl Fn(&Record) -> String,
) -> Option<Figure> {
    let kinds: Vec<&str> = fields.iter().map(|(_, kind)| *kind).collect();
    let readings =
        |row: &Record| fields.iter().map(|(field, _)| row.number(field).map(Reading::of)).collect();
    let things = rows.iter().map(|row| (label(row), readings(row))).collect();
    Figure::bars(title, Axis::new(name, unit), &kinds, things)
}

/// The values of `of`, and those of `settings` in which rows with the same differ.
fn label_of(row: &Record, rows: &[Record], of: &[&str], settings: &[(&str, &str)]) -> String {
    let base = |row: &Record| of.iter().filter_map(|field| row.text(field)).collect::<Vec<_>>().join(" ");
    let own = base(row);
    let others: Vec<&Record> = rows.iter().filter(|other| base(other) == own).collect();
    let mut label = own;
    for (field, name) in settings {
        let value = row.get(field);
        if others.iter().any(|other| other.get(field) != value) {
            let said = match (row.text(field), row.number(field)) {
                (Some(text), _) => text.to_owned(),
                (None, Some(number)) => format!("{} {name}", Unit::Count.show(number)),
                _ => format!("no {name}"),
            };
            label.push_str(", ");
            label.push_str(said.trim());
        }
    }
    label
}

/// Settings of lookups that may tell rows of one system from each other.
const SETTINGS: [(&str, &str); 21] = [
    ("dataset", ""),
    ("keys", "keys"),
    ("value_bytes", "B values"),
    ("inline_bytes", "B of them in slots"),
    ("dist", ""),
    ("negative", "absent"),
    ("batch", "keys per call"),
    ("threads", "threads"),
    ("rate", "operations/s due"),
    ("transport", "transport"),
    ("memory_nodes", "memory nodes"),
    ("spin_us", "us of spinning"),
    ("plan", "plan"),
    ("variant", "variant"),
    ("policy", "policy"),
    ("cache_bytes_budget", "B budget"),
    ("epsilon", "epsilon"),
    ("fingerprint_bits", "bits"),
    ("fill", "fill"),
    ("groups", "groups"),
    ("seed", "seed"),
];

/// Settings without what lies along an axis.
fn settings_but(fields: &[&str]) -> Vec<(&'static str, &'static str)> {
    SETTINGS.into_iter().filter(|(field, _)| !fields.contains(field)).collect()
}

/// The latencies that rows have, by their percentile.
const PERCENTILES: [(f64, &str, &str); 5] = [
    (0.5, "p50_ns", "50 %"),
    (0.95, "p95_ns", "95 %"),
    (0.99, "p99_ns", "99 %"),
    (0.999, "p999_ns", "99.9 %"),
    (0.9999, "p9999_ns", "99.99 %"),
];

/// Latency over percentiles, a line for each label. Each row has sets of them, by what their fields
/// begin with.
fn percentiles(title: &str, of: &str, rows: &[(String, &str, &Record)]) -> Option<Figure> {
    let mut series = Vec::new();
    for (label, prefix, row) in rows {
        for (share, field, _) in PERCENTILES {
            if let Some(ns) = row.number(&format!("{prefix}{field}")) {
                push(&mut series, label.clone(), (-(1.0 - share).log10(), Reading::of(ns)));
            }
        }
    }
    let x =
        Axis::new("share of calls that took no longer", Unit::Percentile).by(Steps::Even).ticks_at_values();
    Figure::lines(title, x, Axis::new(format!("time of {of}"), Unit::Nanoseconds).by(Steps::Factors), series)
}

/// A figure for each label: every percentile as a line over a number that rows have.
fn percentiles_over(
    rows: &[Record],
    (x, at): (&Axis, impl Fn(&Record) -> Option<f64>),
    label: impl Fn(&Record) -> String,
) -> Vec<Figure> {
    let mut labels: Vec<String> = Vec::new();
    rows.iter().map(&label).for_each(|label| {
        if !labels.contains(&label) {
            labels.push(label);
        }
    });
    let figure = |of: &String| {
        let mut series = Vec::new();
        for row in rows.iter().filter(|row| label(row) == **of) {
            for (_, field, name) in PERCENTILES {
                if let (Some(x), Some(ns)) = (at(row), row.number(field)) {
                    push(&mut series, name.to_owned(), (x, Reading::of(ns)));
                }
            }
        }
        let y = Axis::new("time of a call, at most", Unit::Nanoseconds).by(Steps::Factors);
        Figure::lines(format!("Latency percentiles over {}: {of}", x.short()), x.clone(), y, series)
    };
    labels.iter().filter_map(figure).collect()
}

/// Whether rows differ in a field.
fn differ(rows: &[Record], field: &str) -> bool {
    rows.iter().any(|row| row.get(field) != rows.first().and_then(|first| first.get(field)))
}
