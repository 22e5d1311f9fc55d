//! The figures of a form, and what is published of other systems.

use fpcache_datasets::Dataset;
use fpcache_datasets::count::human;
use serde::Serialize;

use super::measure::{Figures, Setting};
use super::node;
use crate::run::report::none;
use crate::table::new_table;

/// One form over one data set.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DensityRow {
    /// The data set.
    pub dataset: String,
    /// Where its keys come from.
    pub dataset_source: String,
    /// Keys.
    pub keys: u64,
    /// `line` or `cut`; and of a memory node `plain`, `seeded` or `pilots`.
    pub form: &'static str,
    /// Error bound of the models.
    pub epsilon: u32,
    /// Share of slots that was asked for.
    pub fill: f64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Keys that were looked up, and as many that are absent; null without a memory node, where all
    /// are.
    pub lookups: Option<u64>,
    /// Seed of generated keys, inserts and absent keys.
    pub seed: u64,
    /// Share of slots that hold keys; null of a memory node.
    pub fill_reached: Option<f64>,
    /// Keys inserted after the load, as a share of those loaded.
    pub inserted: f64,
    /// How many these are.
    pub inserted_keys: u64,
    /// Share of the keys that the first READ has.
    pub present_one_read: f64,
    /// Share of absent keys of which it tells that they are absent.
    pub absent_one_read: f64,
    /// Bytes of the first READ, on average; of a memory node all bytes that a lookup of a present
    /// key reads.
    pub bytes_read: f64,
    /// Bytes that a lookup of an absent key reads; null without a memory node.
    pub absent_bytes_read: Option<f64>,
    /// Bytes that a compute node keeps for each key: all of them.
    pub bytes_per_key: f64,
    /// Those of the directory with its models among them.
    pub directory_bytes_per_key: f64,
    /// Those of separators: null without a memory node, as what follows.
    pub separator_bytes_per_key: Option<f64>,
    /// Those of the tables' names, and of what fills them up to words.
    pub name_bytes_per_key: Option<f64>,
    /// Those of what says where the tables lie.
    pub index_bytes_per_key: Option<f64>,
    /// Those of room for tables to come, and of tables of segments that are no more.
    pub room_bytes_per_key: Option<f64>,
    /// Slots on either side of a prediction that are searched without a table; null of a memory
    /// node.
    pub window: Option<f64>,
    /// Segments.
    pub segments: u64,
    /// Nanoseconds for each key to put them into groups, beyond cutting and placing; what loading
    /// takes a memory node more.
    pub build_ns: f64,
    /// Records that rebuilds copied for each insert; null if there were none.
    pub copies_per_insert: Option<f64>,
    /// Keys that were nowhere they should be, and answers that were wrong.
    pub misplaced: u64,
}

impl DensityRow {
    /// What was asked for, without figures.
    fn of_setting(dataset: &Dataset, setting: &Setting) -> Self {
        Self {
            dataset: dataset.name().to_owned(),
            dataset_source: dataset.source().to_string(),
            form: setting.form.name(),
            epsilon: setting.epsilon,
            fill: setting.fill,
            slot_bytes: setting.slot_bytes,
            seed: setting.seed,
            ..Self::default()
        }
    }

    pub fn new(dataset: &Dataset, setting: &Setting, figures: &Figures) -> Self {
        let counts = &figures.counts;
        let per_key = |count: u64| count as f64 / counts.keys.max(1) as f64;
        Self {
            keys: counts.keys,
            fill_reached: Some(counts.keys as f64 / counts.slots.max(1) as f64),
            present_one_read: per_key(counts.present_one_read),
            absent_one_read: counts.absent_one_read as f64 / counts.absent.max(1) as f64,
            bytes_read: per_key(counts.slots_read) * setting.slot_bytes as f64,
            bytes_per_key: per_key(counts.directory_bytes + counts.table_bytes),
            directory_bytes_per_key: per_key(counts.directory_bytes),
            window: Some(figures.window()),
            segments: counts.segments,
            build_ns: figures.grouping.as_secs_f64() * 1e9 / counts.keys.max(1) as f64,
            misplaced: counts.misplaced,
            ..Self::of_setting(dataset, setting)
        }
    }

    /// Of a memory node and its client.
    pub fn of_node(
        dataset: &Dataset,
        setting: &Setting,
        lookups: u64,
        figures: &node::Figures,
        build_ns: f64,
    ) -> Self {
        let per_key = |count: u64| count as f64 / figures.keys.max(1) as f64;
        let (parts, inserted) = (&figures.parts, figures.inserted);
        Self {
            keys: figures.keys,
            lookups: Some(lookups),
            inserted: figures.share,
            inserted_keys: inserted,
            present_one_read: figures.present.in_one_read(),
            absent_one_read: figures.absent.in_one_read(),
            bytes_read: figures.present.bytes_read(),
            absent_bytes_read: Some(figures.absent.bytes_read()),
            bytes_per_key: per_key(figures.bytes),
            directory_bytes_per_key: per_key(figures.directory_bytes),
            separator_bytes_per_key: Some(per_key(parts.separators)),
            name_bytes_per_key: Some(per_key(parts.names)),
            index_bytes_per_key: Some(per_key(parts.index)),
            room_bytes_per_key: Some(per_key(parts.room)),
            segments: figures.segments,
            build_ns,
            copies_per_insert: (inserted > 0).then(|| figures.copies as f64 / inserted as f64),
            misplaced: figures.wrong,
            ..Self::of_setting(dataset, setting)
        }
    }
}

/// What another system keeps and READs.
pub struct Published {
    pub system: &'static str,
    /// Bytes of a compute node's memory for each key, where that is one number.
    pub bytes_per_key: Option<f64>,
    /// The same for people.
    bytes: &'static str,
    /// What a lookup takes whose cache has what it needs.
    reads: &'static str,
}

const fn published(
    system: &'static str,
    bytes_per_key: Option<f64>,
    bytes: &'static str,
    reads: &'static str,
) -> Published {
    Published { system, bytes_per_key, bytes, reads }
}

/// What others keep and READ, for keys and values of eight bytes, after their papers; where marked
/// †, as follows from constants in their public source.
pub const PUBLISHED: [Published; 7] = [
    published("SMART (OSDI 2023)", Some(8.4), "8.4", "1 READ of 34 B"),
    published("CHIME (SOSP 2024)", Some(0.43), "0.43 †", "1 READ of 164.5 B †"),
    published("Sherman (SIGMOD 2022)", Some(0.65), "0.65 †", "1 READ of 1,024 B"),
    published("ROLEX (FAST 2023)", Some(1.0), "1.0", "1 batch of about 3 leaves of 256 B"),
    published("XStore (OSDI 2020)", Some(1.05), "1.05", "2 READs: 136 B of keys, then the value"),
    published("DMTree", None, "2.9/fill †", "1 READ of 24 B for each match of an 8-bit fingerprint"),
    published("Outback", None, "bits of seeds", "1 call to the memory node; keys in no order"),
];

/// The rows as people read them.
pub fn table(rows: &[DensityRow]) -> String {
    let mut table = new_table(
        "dataset | keys | form | ε | inserted | one READ | absent | READ | B/key | of directory | \
         of room | window | build",
    )
    .named_by(5);
    for row in rows {
        table.add_row([
            row.dataset.clone(),
            human(row.keys),
            row.form.to_owned(),
            row.epsilon.to_string(),
            format!("{:.0} %", 100.0 * row.inserted),
            format!("{:.3} %", 100.0 * row.present_one_read),
            format!("{:.2} %", 100.0 * row.absent_one_read),
            format!("{:.0} B", row.bytes_read),
            format!("{:.3}", row.bytes_per_key),
            format!("{:.3}", row.directory_bytes_per_key),
            row.room_bytes_per_key.map_or_else(none, |bytes| format!("{bytes:.3}")),
            row.window.map_or_else(none, |window| format!("±{window:.0}")),
            if row.build_ns == 0.0 { none() } else { format!("{:.0} ns/key", row.build_ns) },
        ]);
    }
    let mut others = new_table("published | B/key | a lookup whose cache has what it needs");
    PUBLISHED.iter().for_each(|other| {
        others.add_row([other.system, other.bytes, other.reads]);
    });
    format!("{table}\n{others}\n† follows from constants in the system's public source")
}
