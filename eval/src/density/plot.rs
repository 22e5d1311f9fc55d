//! Bytes per key over the share of lookups that one READ settles.

use fpcache_datasets::count::human;

use super::row::{DensityRow, PUBLISHED};
use crate::machine::{COMMIT, Machine};
use crate::plot::figure::{Axis, Reading, Series, Steps, Unit};
use crate::plot::sheet::sheet;

/// Shares that are no nearer to all than this are told apart.
const FINEST: f64 = 1e-5;

/// A line over ε for each form, and of a memory node for each share of inserts and either kind of
/// keys; and one for each system that publishes its bytes, whatever share of lookups they serve.
///
/// # Errors
/// If the drawing library fails.
pub fn draw(rows: &[DensityRow]) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    let names_data = rows.iter().any(|row| row.dataset != rows[0].dataset);
    for row in rows {
        for (label, share) in shares(row) {
            let label = if names_data { format!("{} {label}", row.dataset) } else { label };
            Series::add(&mut lines, &label, point(share, row.bytes_per_key));
        }
    }
    for other in &PUBLISHED {
        if let Some(bytes) = other.bytes_per_key {
            let points = [0.0, 1.0].map(|share| point(share, bytes)).to_vec();
            lines.push(Series { label: other.system.to_owned(), points });
        }
    }
    let x = Axis::new("lookups that one READ settles; at the right end nearly all, or all", Unit::Percentile)
        .by(Steps::Even);
    let y = Axis::new("bytes per key", Unit::Number).by(Steps::Factors);
    sheet(&headings(rows), &[(x, y, &lines)])
}

/// The lines that a row is a point of, with the share there.
fn shares(row: &DensityRow) -> Vec<(String, f64)> {
    // What rows of a memory node alone have.
    if row.absent_bytes_read.is_none() {
        return vec![(format!("{}, alone", row.form), row.present_one_read)];
    }
    let line = |kind: &str| format!("{}, +{:.0} %: {kind}", row.form, 100.0 * row.inserted);
    vec![(line("present"), row.present_one_read), (line("absent"), row.absent_one_read)]
}

fn point(share: f64, bytes: f64) -> (f64, Reading) {
    (-(1.0 - share).max(FINEST).log10(), Reading::of(bytes))
}

fn headings(rows: &[DensityRow]) -> [String; 4] {
    if rows.is_empty() {
        return Default::default();
    }
    let mut sets: Vec<&DensityRow> = Vec::new();
    for row in rows {
        if !sets.iter().any(|set| (&set.dataset, &set.dataset_source) == (&row.dataset, &row.dataset_source))
        {
            sets.push(row);
        }
    }
    let in_words =
        |row: &&DensityRow| format!("{} ({}), {} keys", row.dataset, row.dataset_source, human(row.keys));
    let data: Vec<String> = sets.iter().map(in_words).collect();
    let mut epsilon: Vec<u32> = rows.iter().map(|row| row.epsilon).collect();
    epsilon.sort_unstable();
    epsilon.dedup();
    let epsilon: Vec<String> = epsilon.iter().map(u32::to_string).collect();
    let mut fill: Vec<f64> = rows.iter().map(|row| row.fill).collect();
    fill.sort_unstable_by(f64::total_cmp);
    fill.dedup();
    let fill: Vec<String> = fill.iter().map(f64::to_string).collect();
    let mut place: Vec<String> = Vec::new();
    place.extend(Machine::detect().cpu);
    place.push(format!(
        "fpcache {}{}",
        env!("CARGO_PKG_VERSION"),
        COMMIT.and_then(|c| c.get(..8)).map(|c| format!(" ({c})")).unwrap_or_default()
    ));
    [
        "Bytes of compute-node memory over lookups that one READ settles".to_owned(),
        format!("{}; epsilon {}, fill {}", data.join(", "), epsilon.join(", "), fill.join(", ")),
        "alone: what is built, without a memory node; plain, seeded and pilots: a memory node after so many inserts; others: as published".to_owned(),
        place.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_others_is_drawn_without_rows() {
        let text = draw(&[]).expect("a plot");
        assert!(text.contains("SMART") && text.contains("99.99 %") && !text.contains("groups"), "{text}");
    }
}
