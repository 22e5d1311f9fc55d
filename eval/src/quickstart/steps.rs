//! The quickstart's first steps: a lookup, an ordered query, a scan and writes, each with its cost.

use std::fmt::Write;

use anyhow::{Context, ensure};
use fpcache_client::{Client, Cost};
use fpcache_datasets::Dataset;

/// Records of the scan that is shown.
const SCANNED: usize = 3;

/// Takes the first steps in a table that holds a data set, which it leaves as it was, and says what
/// they cost.
pub fn first_steps(client: &Client, dataset: &Dataset) -> anyhow::Result<String> {
    let keys = dataset.keys();
    let key = *keys.get(keys.len() / 2).context("a data set has keys")?;
    let mut text = String::from("First steps, each with what it costs a compute node:\n");
    let mut step = |call: &str, answer: &str, cost: Cost| {
        let (trips, bytes) = (cost.round_trips, cost.bytes);
        let trips = format!("{trips} round trip{}", if trips == 1 { "" } else { "s" });
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {call:<22}{answer:<24}{trips:<14}{bytes:>6} bytes");
    };

    let mut value = Vec::new();
    let cost = client.get_into(key, &mut value)?.cost;
    step(&format!("get {key}"), &number(&value)?, cost);
    let (found, cost) = client.floor_with(key + 1, |record| record.map(|(key, _)| key))?;
    // Unless the next number is a key too.
    let found = found.context("there is a key below")?;
    step(&format!("floor {}", key + 1), &found.to_string(), cost);
    let mut scanned = Vec::new();
    let cost = client.scan_with(key, SCANNED, |key, _| scanned.push(key))?;
    ensure!(scanned.first() == Some(&key), "a scan from {key} began at {:?}", scanned.first());
    step(&format!("scan {key}, {SCANNED}"), &format!("{} records", scanned.len()), cost);

    if keys.binary_search(&key.wrapping_add(1)).is_err() {
        client.put(key + 1, &7u64.to_le_bytes())?;
        let cost = client.get_into(key + 1, &mut value)?.cost;
        let answer = number(&value)?;
        client.delete(key + 1)?;
        ensure!(!client.contains(key + 1)?, "key {} was deleted and is there", key + 1);
        step(&format!("put {} 7; get", key + 1), &format!("{answer}; deleted again"), cost);
    }
    text.push_str("Writes are requests to the memory node; reads go on meanwhile.\n");
    Ok(text)
}

/// A value of eight bytes.
fn number(value: &[u8]) -> anyhow::Result<String> {
    Ok(u64::from_le_bytes(value.try_into().context("values have eight bytes")?).to_string())
}
