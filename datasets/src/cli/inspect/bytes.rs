//! The `inspect` command for byte strings.

use std::fmt::Write;

use fpcache_datasets::Spec;
use fpcache_datasets::bytes::inspect::ByteInspection;
use fpcache_datasets::count::{human, human_bytes};

use super::super::outcome::Failure;
use super::duplicates::duplicates;

pub(super) fn text(name: &Spec, found: &ByteInspection) -> Result<String, Failure> {
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
