//! The figures of a form, and what is published of other systems.

use fpcache_datasets::Dataset;
use fpcache_datasets::count::human;
use serde::Serialize;

use super::measure::{Figures, Setting};
use crate::machine::{COMMIT, Machine};
use crate::run::report::{new_table, none};

/// One form over one data set.
#[derive(Clone, Debug, Serialize)]
pub struct DensityRow {
    /// The data set.
    pub dataset: String,
    /// Where its keys come from.
    pub dataset_source: String,
    /// Keys.
    pub keys: u64,
    /// `line`, `plain`, `seeded` or `pilots`.
    pub form: &'static str,
    /// Error bound of the models.
    pub epsilon: u32,
    /// Share of slots that was asked for.
    pub fill: f64,
    /// Share of slots that hold keys.
    pub fill_reached: f64,
    /// Keys inserted after the load, as a share of those loaded.
    pub inserted: f64,
    /// Share of the keys that the first READ has.
    pub present_one_read: f64,
    /// Share of absent keys of which it tells that they are absent.
    pub absent_one_read: f64,
    /// Bytes of the first READ, on average.
    pub bytes_read: f64,
    /// Bytes that a compute node keeps for each key: all of them.
    pub bytes_per_key: f64,
    /// Those of the directory with its models among them.
    pub directory_bytes_per_key: f64,
    /// Slots on either side of a prediction that are searched without a table.
    pub window: f64,
    /// Segments.
    pub segments: u64,
    /// Nanoseconds for each key to put them into groups, beyond cutting and placing.
    pub build_ns: f64,
    /// Keys that were nowhere they should be.
    pub misplaced: u64,
    /// The machine.
    pub machine: Machine,
    /// The commit this program was built from.
    pub commit: Option<&'static str>,
    /// The version of this program.
    pub version: &'static str,
}

impl DensityRow {
    pub fn new(dataset: &Dataset, setting: &Setting, figures: &Figures) -> Self {
        let per_key = |count: u64| count as f64 / figures.keys.max(1) as f64;
        Self {
            dataset: dataset.name().to_owned(),
            dataset_source: dataset.source().to_string(),
            keys: figures.keys,
            form: setting.form.name(),
            epsilon: setting.epsilon,
            fill: setting.fill,
            fill_reached: figures.keys as f64 / figures.slots.max(1) as f64,
            inserted: 0.0,
            present_one_read: per_key(figures.present_one_read),
            absent_one_read: figures.absent_one_read as f64 / figures.absent.max(1) as f64,
            bytes_read: per_key(figures.slots_read) * setting.slot_bytes as f64,
            bytes_per_key: per_key(figures.directory_bytes + figures.table_bytes),
            directory_bytes_per_key: per_key(figures.directory_bytes),
            window: figures.window,
            segments: figures.segments,
            build_ns: figures.grouping.as_secs_f64() * 1e9 / figures.keys.max(1) as f64,
            misplaced: figures.misplaced,
            machine: Machine::detect(),
            commit: COMMIT,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// What others keep and READ, for keys and values of eight bytes, after their papers; where marked †, as follows from constants in
/// their public source.
const PUBLISHED: [(&str, &str, &str); 6] = [
    ("SMART (OSDI 2023)", "8.4", "1 READ of 34 B"),
    ("CHIME (SOSP 2024)", "0.43 †", "1 READ of 164.5 B †"),
    ("Sherman (SIGMOD 2022)", "0.65 †", "1 READ of 1,024 B"),
    ("ROLEX (FAST 2023)", "1.0", "1 batch of about 3 leaves of 256 B"),
    ("XStore (OSDI 2020)", "1.05", "2 READs: 136 B of keys, then the value"),
    ("DMTree", "84/(32 x fill) + K/(32 x fill) †", "1 READ of 16 B a match, 8-bit fingerprints"),
];

/// The rows as people read them.
pub fn table(rows: &[DensityRow]) -> String {
    let mut table = new_table(&[
        "dataset",
        "keys",
        "form",
        "ε",
        "one READ",
        "absent",
        "READ",
        "B/key",
        "of directory",
        "window",
        "build",
    ]);
    for row in rows {
        table.add_row([
            row.dataset.clone(),
            human(row.keys),
            row.form.to_owned(),
            row.epsilon.to_string(),
            format!("{:.3} %", 100.0 * row.present_one_read),
            format!("{:.2} %", 100.0 * row.absent_one_read),
            format!("{:.0} B", row.bytes_read),
            format!("{:.3}", row.bytes_per_key),
            format!("{:.3}", row.directory_bytes_per_key),
            format!("±{:.0}", row.window),
            if row.build_ns == 0.0 { none() } else { format!("{:.0} ns/key", row.build_ns) },
        ]);
    }
    let mut others = new_table(&["published", "B/key", "a lookup whose cache has what it needs"]);
    PUBLISHED.iter().for_each(|(name, bytes, reads)| {
        others.add_row([*name, *bytes, *reads]);
    });
    format!("{table}\n{others}\n† follows from constants in the system's public source")
}
