//! The `inspect` command.

mod bytes;
mod duplicates;
mod segments;

use std::fmt::Write;
use std::path::Path;

use clap::Args;
use fpcache_datasets::bytes::inspect::inspect_bytes;
use fpcache_datasets::count::human;
use fpcache_datasets::inspect::{Inspection, inspect};
use fpcache_datasets::{Bar, KeyKind, ParseSpecError, Spec, SpecKind};
use serde::Serialize;

use super::outcome::{Failure, Outcome, announce};
use super::source::SourceArgs;
use duplicates::duplicates;
use segments::by_epsilon;

#[derive(Args)]
pub(super) struct Inspect {
    /// A data set, such as fb:16M or lines:PATH, or the path of a SOSD file.
    #[arg(value_name = "DATASET|PATH", value_parser = spec_or_path)]
    spec: Spec,
    /// Error bounds, in ranks, for which the minimum number of linear segments is computed.
    #[arg(long, value_delimiter = ',', default_value = "8,32,64,256", value_name = "E,E,…")]
    epsilon: Vec<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    source: SourceArgs,
}

/// A spec, else anything that is a file or looks like one.
fn spec_or_path(text: &str) -> Result<Spec, ParseSpecError> {
    text.parse().or_else(|error| {
        let path = Path::new(text);
        let looks_like_file =
            path.exists() || text.contains('/') || text.ends_with(".zst") || text.contains("_uint");
        if looks_like_file { Ok(Spec::new(SpecKind::Sosd(path.to_owned()), None)) } else { Err(error) }
    })
}

/// The JSON object; segments in the order of the ε asked for.
#[derive(Serialize)]
struct Report<'a> {
    name: String,
    keys: u64,
    distinct: u64,
    most_equal: u64,
    min: u64,
    max: u64,
    source: &'a str,
    key_bytes: usize,
    #[serde(serialize_with = "by_epsilon")]
    segments: &'a [(u32, u64)],
    notes: &'a [String],
}

impl Inspect {
    pub(super) fn run(&self) -> Result<Outcome, Failure> {
        let bar = Bar::of_keys();
        let mut epsilons = self.epsilon.clone();
        epsilons.sort_unstable();
        epsilons.dedup();
        if self.spec.key_kind() == KeyKind::Bytes {
            let found = inspect_bytes(&self.spec, &epsilons, &self.source.options(&bar))?;
            announce(&found.notes);
            let spec = self.spec.to_string();
            return Ok(
                if self.json { bytes::json(&spec, &found)? } else { bytes::text(&spec, &found)? }.into()
            );
        }
        let found = inspect(&self.spec, &epsilons, &self.source.options(&bar))?;
        announce(&found.notes);
        let text = if self.json { self.json(&found)? } else { self.text(&found)? };
        Ok(text.into())
    }

    fn json(&self, found: &Inspection) -> Result<String, Failure> {
        let report = Report {
            name: self.spec.to_string(),
            keys: found.keys,
            distinct: found.distinct,
            most_equal: found.most_equal,
            min: found.min,
            max: found.max,
            source: found.source,
            key_bytes: found.key_bytes,
            segments: &found.segments,
            notes: &found.notes,
        };
        Ok(serde_json::to_string(&report)? + "\n")
    }

    fn text(&self, found: &Inspection) -> Result<String, Failure> {
        let mut text = String::new();
        writeln!(text, "{} ({}, {} bytes per key on disk)", self.spec, found.source, found.key_bytes)?;
        writeln!(text, "keys        {} ({})", found.keys, human(found.keys))?;
        writeln!(text, "distinct    {} ({})", found.distinct, human(found.distinct))?;
        writeln!(text, "duplicates  {}", duplicates(found.keys - found.distinct, found.most_equal))?;
        writeln!(text, "range       {} to {}", found.min, found.max)?;
        for (epsilon, count) in &found.segments {
            let per_segment = found.distinct as f64 / *count as f64;
            writeln!(text, "segments    {count} at ε {epsilon} ({per_segment:.1} keys each)")?;
        }
        Ok(text)
    }
}
