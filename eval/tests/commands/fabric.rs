//! `fabric` measures every verb over every transport that needs no card, and every answer is right.

use crate::support::{json_of, run, stderr};
use serde_json::Value;

#[test]
fn every_verb_is_measured_over_every_transport() {
    let rows = json_of("fabric --transport shm,tcp,sim --bytes 8,4096 --batch 1,16 --seconds 0.01");
    assert_eq!(rows.len(), 3 * (4 * 4 + 2 * 2));
    for row in &rows {
        let counted = row["latency"]["operations"].as_u64() > Some(0) && row["rate"].as_f64() > Some(0.0);
        // Of a loaded or a virtual machine, no call is quicker than that.
        assert!(row["latency"]["p50_ns"].as_u64() > Some(20), "{row}");
        assert!(counted && row["mismatches"] == 0, "{row}");
    }
    let verbs_of = |verb: &str| {
        let is_it = |row: &&Value| {
            row["transport"] == "sim" && row["verb"] == verb && row["batch"] == 1 && row["bytes"] == 8
        };
        rows.iter().find(is_it).and_then(|row| row["verbs_per_request"].as_f64()).expect("such a row")
    };
    assert!(verbs_of("rf-rpc") < 2.5 && (verbs_of("read") - 1.0).abs() < 0.01, "{}", verbs_of("rf-rpc"));
    // A WRITE and a READ or two, where the ring takes three of the one and three of the other.
    assert!(verbs_of("rf-rpc") < verbs_of("ring"), "{} {}", verbs_of("rf-rpc"), verbs_of("ring"));
}

#[test]
fn a_transport_that_is_not_there_says_so() {
    let output = run("fabric --transport rdma --bytes 8 --batch 1");
    if !output.status.success() {
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--transport rdma"), "{said}");
    }
}
