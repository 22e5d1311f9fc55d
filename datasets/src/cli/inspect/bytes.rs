//! The `inspect` command for byte strings.

use std::fmt::Write;

use fpcache_datasets::bytes::inspect::ByteInspection;
use fpcache_datasets::count::{human, human_bytes};
use serde::Serialize;

use super::super::outcome::Failure;
use super::duplicates::duplicates;
use super::segments::by_epsilon;

/// The JSON object; segments in the order of the ε asked for.
#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    keys: u64,
    distinct: u64,
    most_equal: u64,
    source: &'a str,
    shortest: usize,
    longest: usize,
    mean_length: f64,
    shared_by_all: usize,
    mean_shared: f64,
    most_shared: usize,
    alphabet: usize,
    numbers: u64,
    #[serde(serialize_with = "by_epsilon")]
    segments: &'a [(u32, u64)],
    memory_bytes: u64,
    notes: &'a [String],
}

pub(super) fn json(name: &str, found: &ByteInspection) -> Result<String, Failure> {
    let report = Report {
        name,
        keys: found.keys,
        distinct: found.distinct,
        most_equal: found.most_equal,
        source: &found.source,
        shortest: found.shortest,
        longest: found.longest,
        mean_length: found.mean_length,
        shared_by_all: found.shared_by_all,
        mean_shared: found.mean_shared,
        most_shared: found.most_shared,
        alphabet: found.alphabet,
        numbers: found.numbers,
        segments: &found.segments,
        memory_bytes: found.memory_bytes,
        notes: &found.notes,
    };
    Ok(serde_json::to_string(&report)? + "\n")
}

pub(super) fn text(name: &str, found: &ByteInspection) -> Result<String, Failure> {
    let mut text = String::new();
    let percent = 100.0 * found.numbers as f64 / found.distinct as f64;
    writeln!(text, "{name} ({}, {} in memory)", found.source, human_bytes(found.memory_bytes))?;
    writeln!(text, "keys        {} ({})", found.keys, human(found.keys))?;
    writeln!(text, "distinct    {} ({})", found.distinct, human(found.distinct))?;
    writeln!(text, "duplicates  {}", duplicates(found.keys - found.distinct, found.most_equal))?;
    writeln!(
        text,
        "length      {} to {} bytes, {:.1} on average",
        found.shortest, found.longest, found.mean_length
    )?;
    writeln!(
        text,
        "shared      {} bytes by all, {:.1} by neighbours on average, at most {}",
        found.shared_by_all, found.mean_shared, found.most_shared
    )?;
    writeln!(text, "alphabet    {} different bytes", found.alphabet)?;
    writeln!(text, "numbers     {} of the 8 bytes after the common prefix ({percent:.1} %)", found.numbers)?;
    for (epsilon, count) in &found.segments {
        let per_segment = found.numbers as f64 / *count as f64;
        writeln!(text, "segments    {count} at ε {epsilon} over these numbers ({per_segment:.1} each)")?;
    }
    Ok(text)
}
