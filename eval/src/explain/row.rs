//! A form and ε, what it takes, what it costs, and why it is chosen or not.

use fpcache::tuning::{Candidate, FingerprintWorth, Split, cheapest};
use fpcache_datasets::Dataset;
use fpcache_datasets::count::human;
use serde::Serialize;

use super::options::{ExplainArgs, Form};
use crate::density::measure::Setting;
use crate::table::new_table;

/// One form and ε over one data set.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainRow {
    /// The data set.
    pub dataset: String,
    /// published, stand-in, shipped, file or generated.
    pub dataset_source: String,
    /// Its keys.
    pub keys: u64,
    /// Bytes of every value.
    pub value_bytes: u32,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// What lookups go over.
    pub transport: &'static str,
    /// Nanoseconds of a round trip.
    pub round_trip_ns: f64,
    /// Bytes of the compute node; null: as many as there is use for.
    pub budget: Option<u64>,
    /// Exponent of the lookups' Zipf distribution.
    pub theta: f64,
    /// Share of lookups of absent keys.
    pub negative: f64,
    /// Of the tables.
    pub form: &'static str,
    /// Of the models.
    pub epsilon: u32,
    /// Of the segments.
    pub fill: f64,
    /// Bits of a fingerprint.
    pub fingerprint_bits: u32,
    /// Slots of a window.
    pub window: f64,
    /// Directory and models.
    pub model_bytes_per_key: f64,
    /// All tables.
    pub table_bytes_per_key: f64,
    /// Everything that the compute node keeps within the budget.
    pub bytes_per_key: f64,
    /// Slots, fingerprints and tables in the memory node.
    pub region_bytes_per_key: f64,
    /// Shares of present and absent keys that a table's READ settles.
    pub present_one_read: f64,
    pub absent_one_read: f64,
    /// The share of tables that the budget has.
    pub tables_here: f64,
    /// Entries of the hot cache that it has.
    pub entries: u64,
    /// The share of lookups of present keys that these answer.
    pub by_entry: f64,
    /// Of the mean lookup.
    pub round_trips: f64,
    pub bytes_read: f64,
    pub ns: f64,
    /// How many times the time it takes without fingerprints; null if there are none.
    pub times_without_fingerprints: Option<f64>,
    /// The share of the memory node's bytes that these take.
    pub fingerprint_share: Option<f64>,
    /// Whether the models have room.
    pub fits: bool,
    /// Whether it is the one to take.
    pub chosen: bool,
    /// Why, or why not.
    pub why: String,
}

impl ExplainRow {
    /// A row that is not compared with others yet.
    pub fn new(
        dataset: &Dataset,
        arguments: &ExplainArgs,
        form: Form,
        (setting, candidate): (&Setting, &Candidate),
        split: &Split,
    ) -> Self {
        let asked = arguments.asked();
        let per_key = |bytes: f64| bytes / candidate.keys.max(1.0);
        let worth = FingerprintWorth::of(candidate, &asked);
        Self {
            dataset: dataset.name().to_owned(),
            dataset_source: dataset.source().to_owned(),
            keys: candidate.keys as u64,
            value_bytes: arguments.value_bytes,
            slot_bytes: setting.slot_bytes,
            transport: arguments.transport.name(),
            round_trip_ns: asked.costs.round_trip,
            budget: asked.budget,
            theta: asked.theta,
            negative: asked.negative,
            form: form.name(),
            epsilon: setting.epsilon,
            fill: setting.fill,
            fingerprint_bits: candidate.fingerprint_bits,
            window: candidate.window,
            model_bytes_per_key: per_key(candidate.model_bytes),
            table_bytes_per_key: per_key(candidate.table_bytes),
            bytes_per_key: per_key(split.bytes),
            region_bytes_per_key: candidate.region_bytes_per_key(),
            present_one_read: candidate.one_read.0,
            absent_one_read: candidate.one_read.1,
            tables_here: split.tables,
            entries: split.entries as u64,
            by_entry: split.by_entry,
            round_trips: split.way.round_trips,
            bytes_read: split.way.bytes,
            ns: split.ns,
            times_without_fingerprints: worth.map(|worth| worth.times),
            fingerprint_share: worth.map(|worth| worth.share),
            fits: split.fits,
            chosen: false,
            why: String::new(),
        }
    }
}

/// Chooses one row, if the models of any have room, and says of each why it is or is not.
pub fn choose(rows: &mut [ExplainRow]) {
    let Some(at) = cheapest(rows.iter().map(|row| (row.fits, row.ns, row.bytes_per_key))) else {
        rows.iter_mut().for_each(|row| row.why = "models exceed the budget".to_owned());
        return;
    };
    let (ns, bytes) = (rows[at].ns, rows[at].bytes_per_key);
    for (other, row) in rows.iter_mut().enumerate() {
        row.chosen = other == at;
        row.why = if row.chosen {
            "chosen".to_owned()
        } else if !row.fits {
            "models exceed the budget".to_owned()
        } else {
            format!("{:.2}× the time, {:.2}× the bytes", row.ns / ns, row.bytes_per_key / bytes)
        };
    }
}

/// The rows as people read them.
pub fn table(rows: &[ExplainRow]) -> String {
    let mut table = new_table(
        "form | ε | fill | bits | models | tables | tables here | by entry | used | region | \
         round trips | READ | lookup | why",
    )
    .named_by(2)
    .with_text(13);
    for row in rows {
        table.add_row([
            row.form.to_owned(),
            row.epsilon.to_string(),
            format!("{:.2}", row.fill),
            row.fingerprint_bits.to_string(),
            format!("{:.3}", row.model_bytes_per_key),
            format!("{:.3}", row.table_bytes_per_key),
            format!("{:.0} %", 100.0 * row.tables_here),
            format!("{:.1} %", 100.0 * row.by_entry),
            format!("{:.3}", row.bytes_per_key),
            format!("{:.1}", row.region_bytes_per_key),
            format!("{:.3}", row.round_trips),
            format!("{:.0} B", row.bytes_read),
            format!("{:.0} ns", row.ns),
            row.why.clone(),
        ]);
    }
    let Some(first) = rows.first() else { return table.to_string() };
    let chosen = rows.iter().find(|row| row.chosen);
    let worth = chosen.and_then(|row| {
        Some(FingerprintWorth { share: row.fingerprint_share?, times: row.times_without_fingerprints? })
    });
    let offer = worth
        .filter(FingerprintWorth::is_nothing)
        .map_or(String::new(), |worth| format!("\nchosen: {worth}"));
    format!(
        "{table}\n{}, {} keys, slots of {} bytes, {}: a round trip takes {:.0} ns; bytes are for each key; {}{offer}",
        first.dataset,
        human(first.keys),
        first.slot_bytes,
        first.transport,
        first.round_trip_ns,
        first.budget.map_or("no budget".to_owned(), |budget| format!("a budget of {budget} bytes"))
    )
}
