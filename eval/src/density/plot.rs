//! Bytes per key over the share of lookups that one READ settles.

use fpcache_datasets::count::human;

use super::row::{DensityRow, PUBLISHED};
use crate::plot::axes::Axis;
use crate::plot::over_axes;
use crate::plot::series::Figures;

/// Shares that are no nearer to all than this are told apart.
const FINEST: f64 = 1e-5;

/// A line over ε for each form, and of a memory node for each share of inserts and either kind of keys; and one for each system that
/// publishes its bytes, whatever share of lookups they serve.
///
/// # Errors
/// If the drawing library fails.
pub fn draw(rows: &[DensityRow]) -> anyhow::Result<String> {
    let mut lines: Vec<(String, Vec<Figures>)> = Vec::new();
    let names_data = rows.iter().any(|row| row.dataset != rows[0].dataset);
    for row in rows {
        for (label, share) in shares(row) {
            let label = if names_data { format!("{} {label}", row.dataset) } else { label };
            let point = point(share, row.bytes_per_key);
            match lines.iter_mut().find(|(other, _)| *other == label) {
                Some((_, points)) => points.push(point),
                None => lines.push((label, vec![point])),
            }
        }
    }
    for other in &PUBLISHED {
        if let Some(bytes) = other.bytes_per_key {
            lines.push((other.system.to_owned(), [0.0, 1.0].map(|share| point(share, bytes)).to_vec()));
        }
    }
    let bytes: Vec<f64> = lines.iter().flat_map(|(_, points)| points.iter().map(|p| p.rate)).collect();
    let axes = (shares_axis(), bytes_axis(&bytes));
    over_axes(&headings(rows), lines, axes, ("lookups that one READ settles", "bytes per key"))
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

fn point(share: f64, bytes: f64) -> Figures {
    Figures { x: (1.0 - share).max(FINEST), rate: bytes, slowest: bytes, fastest: bytes, hit_rate: None }
}

/// By the share of those that one READ does not settle.
fn shares_axis() -> Axis {
    let ticks =
        [(1.0, "0 %"), (0.1, "90 %"), (0.01, "99 %"), (1e-3, "99.9 %"), (1e-4, "99.99 %"), (FINEST, "all")];
    Axis::of_ticks(ticks.map(|(value, text)| (value, text.to_owned())).to_vec())
}

/// Ticks around all of these.
fn bytes_axis(bytes: &[f64]) -> Axis {
    const STEPS: [f64; 9] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
    let (least, most) =
        bytes.iter().fold((0.1, 1.0), |(least, most): (f64, f64), b| (least.min(*b), most.max(*b)));
    let first = STEPS.iter().rposition(|step| *step <= least).unwrap_or(0);
    let mut ticks: Vec<f64> = STEPS[first..].iter().copied().take_while(|step| *step < most).collect();
    ticks.push(STEPS.into_iter().chain([10.0, 20.0, 50.0]).find(|step| *step >= most).unwrap_or(most));
    Axis::of_ticks(ticks.into_iter().map(|tick| (tick, format!("{tick}"))).collect())
}

fn headings(rows: &[DensityRow]) -> [String; 4] {
    let Some(row) = rows.first() else { return Default::default() };
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
    place.extend(row.machine.cpu.clone());
    place.push(format!(
        "fpcache {}{}",
        row.version,
        row.commit.and_then(|c| c.get(..8)).map(|c| format!(" ({c})")).unwrap_or_default()
    ));
    [
        "Bytes of compute-node memory over lookups that one READ settles".to_owned(),
        format!("{}; epsilon {}, fill {}", data.join(", "), epsilon.join(", "), fill.join(", ")),
        "alone: what is built, without a memory node; groups and seeded: a memory node after so many inserts; others: as published".to_owned(),
        place.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_around_all_bytes() {
        for (bytes, ends) in [
            (&[0.3][..], ("0.1", "1")),
            (&[0.055, 8.4], ("0.05", "10")),
            (&[0.001, 300.0], ("0.01", "300")),
            (&[], ("0.1", "1")),
        ] {
            let ticks = bytes_axis(bytes).ticks();
            assert_eq!((ticks[0].as_str(), ticks[ticks.len() - 1].as_str()), ends, "{bytes:?}: {ticks:?}");
        }
    }

    #[test]
    fn nothing_but_others_is_drawn_without_rows() {
        let text = draw(&[]).expect("a plot");
        assert!(text.contains("SMART") && text.contains("99.99 %") && !text.contains("groups"), "{text}");
    }
}
