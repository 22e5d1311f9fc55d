//! The summaries that `load` and `import` print when a table is filled.

use std::time::Duration;

use fpcache_client::tuning::Tuned;
use fpcache_client::{Loaded, TableClient, TableName, TableParameters};
use fpcache_datasets::count::human_bytes;
use serde_json::json;

use crate::keys::Keys;
use crate::output::Output;
use crate::parameters;
use crate::records::{FILE, RecordSet};
use crate::tuning;

/// Fewer keys than these share bytes that tables without any take, and it is not told how many each
/// has.
pub(crate) const FEW_KEYS: u64 = 1000;

/// How long it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// To read or generate the records, before the first was sent.
    pub(crate) reading: Duration,
    /// To send them.
    pub(crate) filling: Duration,
}

impl Times {
    /// Seconds of both.
    fn seconds(self) -> (f64, f64) {
        (self.reading.as_secs_f64(), self.filling.as_secs_f64())
    }
}

/// What was filled in, and how long that took.
pub(crate) struct Summary<'r, R> {
    pub(crate) records: &'r R,
    pub(crate) times: Times,
}

impl<R> Summary<'_, R> {
    /// Of records that were loaded in bulk.
    pub(crate) fn of_load<K: Keys>(
        &self,
        client: &TableClient<K>,
        output: &mut Output,
        parameters: &TableParameters,
        tuned: Option<&Tuned>,
        loaded: &Loaded,
    ) -> anyhow::Result<()>
    where
        R: RecordSet<K>,
    {
        // The records are there, whatever becomes of this question.
        let used = client.stats().ok().map(|stats| stats.used_bytes);
        let Loaded { keys, segments, .. } = *loaded;
        // Records lie in some; of those that had to be inserted, 0 says that it is not known.
        let segments = Some(segments).filter(|segments| *segments > 0 || keys == 0);
        // Without keys there is nothing to divide by.
        let per_segment = segments.filter(|_| keys > 0).map(|segments| keys as f64 / segments as f64);
        let per_key = used.filter(|_| keys > 0).map(|used| used as f64 / keys as f64);
        let (dataset_s, load_s) = self.times.seconds();
        let (name, source) = (self.records.name(), self.records.source());
        if output.is_json() {
            let more = json!({
                "table": client.table_name().as_str(),
                "dataset": name,
                "dataset_source": source,
                "keys": keys,
                "segments": segments,
                "keys_per_segment": per_segment,
                "used_bytes": used,
                "bytes_per_key": per_key,
                "tuned": tuning::document(tuned),
                "dataset_s": dataset_s,
                "load_s": load_s,
            });
            output.document(&parameters::document::<K>(parameters, more))?;
            return Ok(());
        }
        output.row("loaded", format_args!("{name} ({source})"))?;
        output.row("keys", keys)?;
        if let Some(segments) = segments {
            output.row("segments", format_args!("{segments}{}", each(per_segment, "keys each")))?;
        }
        if let Some(tuned) = tuned {
            output.rows("tuned", tuned)?;
        }
        if let Some(used) = used {
            let each = each(per_key.filter(|_| keys >= FEW_KEYS), "bytes per key");
            output.row("memory", format_args!("{}{each}", human_bytes(used)))?;
        }
        output.row("time", format_args!("{load_s:.2} s, and {dataset_s:.2} s for the {}", what(source)))?;
        Ok(())
    }

    /// Of records that were added to others.
    pub(crate) fn of_records_added<K: Keys>(
        &self,
        table: &TableName,
        output: &mut Output,
        keys: u64,
        new: u64,
    ) -> anyhow::Result<()>
    where
        R: RecordSet<K>,
    {
        let (dataset_s, load_s) = self.times.seconds();
        let (name, source) = (self.records.name(), self.records.source());
        if output.is_json() {
            output.document(&json!({
                "table": table.as_str(),
                "dataset": name,
                "dataset_source": source,
                "keys": keys,
                "new": new,
                "replaced": keys - new,
                "value_bytes": self.records.value_bytes(),
                "dataset_s": dataset_s,
                "load_s": load_s,
            }))?;
            return Ok(());
        }
        output.row("added", format_args!("{name} ({source})"))?;
        output.row("keys", format_args!("{keys}: {new} new, {} updated", keys - new))?;
        output.row("time", format_args!("{load_s:.2} s, and {dataset_s:.2} s for the {}", what(source)))?;
        Ok(())
    }
}

/// A share in parentheses, if there is one.
fn each(share: Option<f64>, of: &str) -> String {
    share.map_or_else(String::new, |share| format!(" ({share:.1} {of})"))
}

/// What the records were read from, in a word.
fn what(source: &str) -> &'static str {
    if source == FILE { "file" } else { "data set" }
}
