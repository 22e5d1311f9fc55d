//! The plot of a sweep: throughput over the swept setting, and the hit rate below it if there is a
//! hot cache. There is one line per system, plan, variant and policy; thin bars reach from the
//! slowest pass to the fastest.

use clap::ValueEnum;
use fpcache_datasets::count::human_bytes;

use crate::plot::figure::{Axis, Reading, Series, Steps, Unit};
use crate::plot::sheet::{MARK, sheet};
use crate::run::row::Row;
use crate::sweep::lines::label;
use crate::sweep::points::Over;

/// Draws a sweep's rows, which are in ascending order of the swept value.
///
/// # Errors
/// If the drawing library fails.
pub fn draw(rows: &[Row]) -> anyhow::Result<String> {
    let Some((first, over)) = rows.first().and_then(|row| Some((row, over(row)?))) else {
        return Ok(format!("<svg xmlns=\"http://www.w3.org/2000/svg\">{MARK}</svg>\n"));
    };
    let series = |reading: fn(&Row) -> Option<Reading>| {
        let mut series: Vec<Series> = Vec::new();
        for row in rows {
            let label = label(row, rows);
            if series.iter().all(|line| line.label != label) {
                series.push(Series { label: label.clone(), points: Vec::new() });
            }
            if let Some(reading) = reading(row) {
                let at = row.sweep.as_ref().map_or(0.0, |tag| tag.value);
                Series::add(&mut series, &label, (at, reading));
            }
        }
        series
    };
    let rates = series(|row| {
        let range = Some((row.ops_per_s_min, row.ops_per_s_max));
        Some(Reading { value: row.ops_per_s, range })
    });
    let hits = series(|row| row.hit_rate.map(Reading::of));
    let mut panels = vec![(over.x_axis(), Axis::new("lookups per second", Unit::Count), &rates[..])];
    if rows.iter().any(|row| row.hit_rate.is_some()) {
        panels.push((over.x_axis(), Axis::new("hit rate", Unit::Share).by(Steps::All), &hits));
    }
    sheet(&of_sweep(first, rows, over), &panels)
}

fn over(row: &Row) -> Option<Over> {
    Over::from_str(&row.sweep.as_ref()?.over, false).ok()
}

fn of_sweep(row: &Row, rows: &[Row], over: Over) -> [String; 4] {
    let title = format!("{} ({}): lookups over {}", row.dataset, row.dataset_source, over.name());
    [title, asked(row, over), settings(row, rows, over), row.place()]
}

/// What was looked up, with a letter for the setting that is swept.
pub fn asked(row: &Row, over: Over) -> String {
    let named = |is_swept: bool, value: String, name: &str| if is_swept { name.to_owned() } else { value };
    row.what_was_asked(
        named(over == Over::ValueBytes, row.value_bytes_in_words(), "N"),
        named(over == Over::Theta, row.dist.clone(), "zipf:θ"),
        named(over == Over::Threads, row.threads.to_string(), "N"),
    )
}

/// Settings of the table and of the passes.
fn settings(row: &Row, rows: &[Row], over: Over) -> String {
    let mut parts = Vec::new();
    if let Some(epsilon) = row.epsilon.filter(|_| over != Over::Epsilon) {
        parts.push(format!("epsilon {epsilon}"));
    }
    if let Some(bits) = row.fingerprint_bits.filter(|_| over != Over::FingerprintBits) {
        parts.push(format!("{bits}-bit fingerprints"));
    }
    if let Some(fill) = row.fill.filter(|_| over != Over::Fill) {
        parts.push(format!("fill {fill}"));
    }
    if let Some(form) = &row.groups {
        parts.push(format!("{form} groups"));
    }
    if let Some(transport) = &row.transport {
        parts.push(format!("transport {transport}"));
    }
    if let Some(fsync) = &row.fsync {
        parts.push(format!("fsync {fsync}"));
    }
    if let Some(budget) = row.cache_bytes_budget.filter(|_| over != Over::Cache) {
        parts.push(format!("cache {}", human_bytes(budget)));
    }
    // Within a budget that is too small for all of them these are the pages that were kept.
    let models = rows.iter().filter_map(|row| row.model_bytes).max();
    if let (Over::Cache, Some(models)) = (over, models) {
        parts.push(format!("models {}", human_bytes(models)));
    }
    if row.cold == Some(true) {
        parts.push("every pass from an empty cache".to_owned());
    }
    parts.push(match row.rounds {
        1 => "one pass".to_owned(),
        rounds => format!("median of {rounds} passes"),
    });
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::setting::PointTag;

    #[test]
    fn models_are_those_of_the_budget_that_has_room_for_them() {
        let row = |budget: u64, models| Row {
            sweep: Some(PointTag { over: "cache".into(), value: budget as f64, experiment: String::new() }),
            cache_bytes_budget: Some(budget),
            model_bytes: Some(models),
            ops_per_s: 1.0,
            ops_per_s_min: 1.0,
            ops_per_s_max: 1.0,
            ..Row::default()
        };
        let text = draw(&[row(1 << 18, 17_000), row(1 << 23, 4 << 20), row(1 << 24, 4 << 20)]).unwrap();
        assert!(text.contains("models 4.00 MiB") && !text.contains("models 16"), "{text}");
    }

    #[test]
    fn nothing_is_drawn_as_an_empty_document() {
        assert!(draw(&[]).unwrap().contains(MARK));
    }
}
