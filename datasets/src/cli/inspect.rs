//! The `inspect` command.

mod bytes;
mod duplicates;

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

/// The JSON object.
#[derive(Serialize)]
struct Report<'a, T> {
    name: String,
    #[serde(flatten)]
    found: &'a T,
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
            let text = if self.json { self.json(&found)? } else { bytes::text(&self.spec, &found)? };
            return Ok(text.into());
        }
        let found = inspect(&self.spec, &epsilons, &self.source.options(&bar))?;
        announce(&found.notes);
        let text = if self.json { self.json(&found)? } else { self.text(&found)? };
        Ok(text.into())
    }

    fn json(&self, found: &impl Serialize) -> Result<String, Failure> {
        Ok(serde_json::to_string(&Report { name: self.spec.to_string(), found })? + "\n")
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
