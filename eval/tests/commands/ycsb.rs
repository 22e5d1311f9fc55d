//! `ycsb` runs the workloads it is asked for, looks at every answer and writes every figure.

use crate::support::{assert_refused, done, json_in, json_of, number, stdout};
use serde_json::Value;

/// Every field a row must have beside those of `run`, and some of these.
const FIELDS: &str = "workload mix operations operations_by_kind duration_s rate due begun arrivals \
     insert_order inserted ran_out_of_inserts latencies ops_ratio reads_ratio ratio_to rebuilds rebuild_ms_mean \
     node_rebuild_ms_max node_rebuild_ms_p99 refreshes_per_op window_full_waits copies_per_insert final_mismatches \
     system dataset dist keys ops_per_s p99_ns memory_node_bytes_per_key machine";

fn rows(options: &str) -> Vec<Value> {
    rows_of("uniform:20K", options)
}

fn rows_of(data: &str, options: &str) -> Vec<Value> {
    json_of(&format!("ycsb --dataset {data} --ops 4K --rounds 2 --calibration-buffer 1MiB {options}"))
}

fn assert_right(row: &Value) {
    assert_eq!((&row["mismatches"], &row["final_mismatches"]), (&0.into(), &0.into()), "{row}");
    assert!(row["ops_per_s"].as_f64() > Some(0.0));
    for field in FIELDS.split(' ') {
        assert!(row.get(field).is_some(), "{field}");
    }
}

#[test]
fn a_read_only_workload_needs_no_writes() {
    let rows = rows("--workload C");
    assert_eq!(rows.len(), 1);
    assert_right(&rows[0]);
    assert_eq!(rows[0]["workload"], "C");
    assert_eq!(rows[0]["dist"], "zipf:0.99");
    assert_eq!((&rows[0]["keys"], &rows[0]["operations"]), (&20_000.into(), &4_000.into()));
    assert_eq!(rows[0]["latencies"]["read"]["operations"], 4_000);
    assert_eq!((&rows[0]["ops_ratio"], &rows[0]["rate"]), (&Value::Null, &Value::Null));
    assert_eq!((&rows[0]["rebuilds"], &rows[0]["rebuild_ms_mean"]), (&0.into(), &Value::Null));
}

#[test]
fn operations_that_were_due_and_not_begun_are_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("ycsb.json");
    let text = stdout(&done(&format!(
        "ycsb --dataset uniform:20K --workload B --ops 4K --rounds 1 --rate 100M --duration 50ms --calibration-buffer 1MiB \
         --json {}",
        json.display()
    )));
    assert!(text.contains(" of 5.00 M due were begun"), "{text}");
    let rows = json_in(&json);
    let (due, begun) = (number(&rows[0], "due"), number(&rows[0], "begun"));
    assert!((due / 5e6 - 1.0).abs() < 0.02 && begun < due / 2.0, "{due} {begun}");
    let timed = |kind| number(&rows[0]["latencies"][kind], "operations");
    let timed = timed("read") + timed("update");
    assert!((timed - due).abs() <= 2.0, "{timed} {due}");
}

#[test]
fn groups_threads_time_and_instants_are_as_asked_for() {
    for options in
        ["--group 32 --threads 3", "--transport local --cache 1MiB", "--duration 20ms --value-bytes 100"]
    {
        rows(&format!("--workload c --dist uniform {options}")).iter().for_each(assert_right);
    }
    let rows = rows("--workload C --rate 100k --arrivals fixed");
    assert_right(&rows[0]);
    assert_eq!((&rows[0]["rate"], &rows[0]["arrivals"]), (&100_000.into(), &"fixed".into()));
    assert!(rows[0]["ops_per_s"].as_f64() < Some(101_000.0));
}

#[test]
fn the_table_says_what_was_measured() {
    let options = "--data uniform:20K --ops 2K --rounds 1 --calibration-buffer 1MiB --threads 2";
    let text = stdout(&done(&format!("ycsb --workload C {options}")));
    for part in ["uniform:20K", "20.0 K keys loaded", "2 threads", "every answer was right", "copies/insert"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn bad_options_end_with_their_remedy() {
    let cases = [
        ("--workload G", "xstore-prod1"),
        ("", "--workload"),
        ("--workload A --negative 0.1", "omit it"),
        ("--workload C --json /no/such/folder/x.json", "/no/such/folder/x.json"),
    ];
    assert_refused("ycsb --dataset ipv4", &cases);
}

#[test]
fn every_workload_runs_and_ends_right() {
    let rows = rows(
        "--workload A,B,C,D,E,F,paper-d,paper-e,xstore-b,xstore-d,xstore-prod1,xstore-prod2 --threads 2",
    );
    assert_eq!(rows.len(), 12);
    for row in &rows {
        assert_right(row);
        assert_eq!(row["ratio_to"], "C");
        let kinds = row["operations_by_kind"].as_object().expect("an object");
        assert_eq!(kinds.values().filter_map(Value::as_u64).sum::<u64>(), 4_000);
    }
    assert_eq!(rows[2]["ops_ratio"], 1.0);
    // They were medians of the rounds' ratios, which the rates beside them contradicted.
    for row in &rows {
        let quotient = number(row, "ops_per_s") / number(&rows[2], "ops_per_s");
        assert!((number(row, "ops_ratio") / quotient - 1.0).abs() < 1e-9, "{row}");
    }
    assert!(rows[0]["latencies"]["update"]["p99_ns"].as_u64() > Some(0));
    for row in &rows {
        // No workload has the time of another's rebuilds.
        assert_eq!(row["rebuild_ms_mean"].is_null(), row["rebuilds"] == 0, "{row}");
        assert!(row["rebuild_ms_mean"].as_f64() <= row["node_rebuild_ms_max"].as_f64(), "{row}");
    }
    // Four workloads insert 5 % of three passes each.
    let inserted = rows[0]["inserted"].as_u64().expect("a number");
    assert!((2_000..2_800).contains(&inserted), "{inserted}");
}

#[test]
fn changes_go_in_groups_and_in_every_order() {
    for options in ["--group 32", "--group 7 --threads 3 --value-bytes 40", "--transport local --rate 200k"] {
        rows(&format!("--mix read=0.3,update=0.3,insert=0.2,scan=0.1,rmw=0.1 {options}"))
            .iter()
            .for_each(assert_right);
    }
    for order in ["random", "append", "descending", "middle", "hotspot-moves", "fresh"] {
        rows(&format!("--workload D --insert-order {order}")).iter().for_each(assert_right);
    }
}

#[test]
fn every_workload_runs_over_byte_strings_and_ends_right() {
    for (data, options) in [
        ("ycsb:10K --key-bytes 24", "--workload A,B,C,D,E,F --threads 2"),
        ("words:10K", "--workload D,E --insert-order append --value-bytes 40"),
        ("paths:5K", "--mix read=0.3,update=0.3,insert=0.2,scan=0.1,rmw=0.1 --group 7 --threads 2"),
        ("prefixes:5K", "--workload A,E --transport local --rate 50k"),
    ] {
        for row in rows_of(data, options) {
            assert_right(&row);
            assert_eq!(row["key_space"], "bytes");
        }
    }
}
