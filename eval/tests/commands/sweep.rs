//! `sweep` measures every point once, keeps what is done, goes on after a kill, and leaves the
//! files of others alone.

#[allow(dead_code)]
use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::support::{eventually, program, run, stderr, stdout};
use serde_json::Value;

const SMALL: &str = "--dataset uniform:5K --lookups 1K --calibration-buffer 1MiB --rounds 1";

/// The rows of a results file.
fn rows(path: &Path) -> Vec<Value> {
    serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON")
}

/// What identifies a row: point, system and line.
fn keys(rows: &[Value]) -> Vec<String> {
    let key = |row: &Value| {
        format!("{} {} {} {} {}", row["sweep"], row["system"], row["plan"], row["variant"], row["lookups"])
    };
    rows.iter().map(key).collect()
}

/// Splits a line of CSV.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cells.last_mut().expect("never empty").push(c),
        }
    }
    cells
}

/// Whether tags of a document are closed in order, and texts hold no bare signs.
fn is_well_formed(xml: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for (at, _) in xml.match_indices('<') {
        let Some(end) = xml[at..].find('>') else { return false };
        let tag = &xml[at + 1..at + end];
        let text = xml[at + end + 1..].split('<').next().unwrap_or_default();
        let is_entity =
            |rest: &str| ["amp;", "lt;", "gt;", "quot;", "apos;", "#"].iter().any(|e| rest.starts_with(e));
        if text.split('&').skip(1).any(|rest| !is_entity(rest)) {
            return false;
        }
        match tag {
            tag if tag.starts_with('!') || tag.ends_with('/') => {}
            tag if tag.starts_with('/') => {
                if open.pop() != Some(&tag[1..]) {
                    return false;
                }
            }
            tag => open.push(tag.split_whitespace().next().unwrap_or_default()),
        }
    }
    open.is_empty()
}

#[test]
fn every_setting_can_be_swept_and_all_files_agree() {
    for (over, values, options, lines) in [
        ("cache", "256KiB,1MiB", "--variants fd,full --dist zipf:0.99", 2),
        ("epsilon", "64,8", "--plans two-stage,range", 2),
        ("fingerprint-bits", "8,64", "--system fpcache,hashmap", 2),
        ("value-bytes", "1,64", "--system fpcache,btreemap", 2),
        ("fill", "0.5,0.9", "", 1),
        ("theta", "0.5,0.99", "--cache 1MiB --policies heat,lru", 2),
        ("threads", "1,2", "--transport local", 1),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let out = folder.path().display();
        let output = run(&format!("sweep --over {over} --values {values} {SMALL} {options} --out {out}"));
        assert!(output.status.success(), "{over}: {}", stderr(&output));
        let rows = rows(&folder.path().join("results.json"));
        assert_eq!(rows.len(), 2 * lines, "{over}");
        assert!(rows.iter().all(|row| row["mismatches"] == 0), "{over}");
        let values: Vec<f64> = rows.iter().filter_map(|row| row["sweep"]["value"].as_f64()).collect();
        assert!(values.is_sorted() && values[0] < values[lines], "{over}: {values:?}");

        let csv = fs::read_to_string(folder.path().join("results.csv")).expect("written");
        let table: Vec<Vec<String>> = csv.lines().map(cells).collect();
        assert_eq!(table.len(), rows.len() + 1);
        let mut fields: Vec<String> = Vec::new();
        for (field, value) in rows[0].as_object().expect("an object") {
            match value.as_object() {
                Some(inner) => fields.extend(inner.keys().map(|name| format!("{field}.{name}"))),
                None => fields.push(field.clone()),
            }
        }
        let mut columns = table[0].clone();
        columns.sort();
        fields.sort();
        assert_eq!(columns, fields, "{over}");
        let column = table[0].iter().position(|name| name == "ops_per_s").expect("there");
        for (line, row) in table[1..].iter().zip(&rows) {
            assert_eq!(line.len(), table[0].len(), "{over}");
            assert_eq!(line[column].parse::<f64>().ok(), row["ops_per_s"].as_f64());
        }

        let plot = fs::read_to_string(folder.path().join("plot.svg")).expect("written");
        assert!(is_well_formed(&plot), "{over}: {plot}");
        for part in ["lookups per second", "uniform:5K", "(generated)"] {
            assert!(plot.contains(part), "{over}: {part} is missing");
        }
        assert!(stdout(&output).contains("plot.svg"), "{}", stdout(&output));
        assert!(stdout(&output).contains(" series "), "{}", stdout(&output));
    }
}

#[test]
fn a_killed_sweep_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (killed, whole) = (folder.path().join("killed"), folder.path().join("whole"));
    let sweep = |out: &Path| {
        format!(
            "sweep --over epsilon --values 8,16,32,64 --plans two-stage,range --dataset uniform:5K --lookups 10K \
             --calibration-buffer 1MiB --out {}",
            out.display()
        )
    };
    let mut child = program()
        .args(sweep(&killed).split_whitespace())
        // A memory node that goes down with its parent may leave its address behind: in here.
        .env("XDG_RUNTIME_DIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program was built");
    let results = killed.join("results.json");
    assert!(eventually(|| results.exists()), "no point was finished");
    child.kill().expect("it runs");
    let status = child.wait().expect("it ended");
    let before = rows(&results);
    assert!(!status.success() && !before.is_empty() && before.len() < 8, "{status}, {} rows", before.len());
    // As if the kill had met it while it wrote.
    fs::write(killed.join("results.json.tmp"), "[{\"system\": \"fpc").expect("writable");

    let output = run(&sweep(&killed));
    assert!(output.status.success(), "{}", stderr(&output));
    let done = format!("{} of 4 points were there already", before.len() / 2);
    assert!(stderr(&output).contains(&done), "{}", stderr(&output));
    assert!(stderr(&output).contains("the same command goes on after"), "{}", stderr(&output));
    assert!(run(&sweep(&whole)).status.success());
    let after = rows(&results);
    assert_eq!(keys(&after), keys(&rows(&whole.join("results.json"))));
    // What was there is there to the digit.
    assert!(before.iter().all(|row| after.contains(row)));

    // Nothing is left to do: nothing is measured, also with another order of the values.
    let again = run(&sweep(&killed).replace("8,16,32,64", "64,8"));
    assert!(stderr(&again).contains("2 of 2 points were there already"), "{}", stderr(&again));
    assert_eq!(rows(&results), after);
}

#[test]
fn results_of_others_are_refused_and_left_as_they_are() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out");
    let sweep = |options: &str| {
        run(&format!("sweep --over epsilon --values 8 {SMALL} --out {} {options}", out.display()))
    };
    assert!(sweep("").status.success());
    let results = out.join("results.json");
    let ours = fs::read(&results).expect("written");

    for (options, remedy) in
        [("--seed 7", "seed=42, not seed=7"), ("--lookups 2K", ""), ("--rounds 2", "--fresh")]
    {
        let command = format!("sweep --over epsilon --values 8 {SMALL} --out {}", out.display());
        // Given twice, an option is refused: it takes the other's place.
        let name = options.split(' ').next().expect("a name");
        let words: Vec<&str> = command.split_whitespace().collect();
        let at = words.iter().position(|word| *word == name);
        let kept: Vec<&str> = match at {
            Some(at) => [&words[..at], &words[at + 2..]].concat(),
            None => words,
        };
        let output = run(&format!("{} {options}", kept.join(" ")));
        assert_eq!(output.status.code(), Some(2), "{options}");
        assert!(
            stderr(&output).contains("another sweep") && stderr(&output).contains(remedy),
            "{}",
            stderr(&output)
        );
        assert_eq!(fs::read(&results).expect("still there"), ours);
    }
    let fresh = sweep("--seed 7 --fresh");
    assert!(fresh.status.success(), "{}", stderr(&fresh));
    assert!(stderr(&fresh).contains("without --fresh, goes on after"), "{}", stderr(&fresh));
    assert_eq!(rows(&results)[0]["seed"], 7);

    let foreign = folder.path().join("theirs.json");
    fs::write(&foreign, "{\"precious\": true}").expect("writable");
    for options in ["", "--fresh"] {
        let output = sweep(&format!("--seed 7 --json {} {options}", foreign.display()));
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).contains("theirs.json") && stderr(&output).contains("--json"),
            "{}",
            stderr(&output)
        );
        assert_eq!(fs::read_to_string(&foreign).expect("still there"), "{\"precious\": true}");
    }
    // The rows of a single run are no sweep's.
    let single = folder.path().join("single.json");
    assert!(run(&format!("run --system hashmap {SMALL} --json {}", single.display())).status.success());
    let output = sweep(&format!("--seed 7 --json {}", single.display()));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn rows_go_to_standard_output_if_asked_and_are_those_of_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().display();
    let swept = run(&format!("sweep --over epsilon --values 8 {SMALL} --out {out} --json -"));
    let swept: Vec<Value> = serde_json::from_slice(&swept.stdout).expect("standard output is JSON alone");
    let single = run(&format!("run --epsilon 8 --system fpcache {SMALL} --json -"));
    let single: Vec<Value> = serde_json::from_slice(&single.stdout).expect("standard output is JSON alone");
    let fields =
        |rows: &[Value]| -> Vec<String> { rows[0].as_object().expect("an object").keys().cloned().collect() };
    assert_eq!(fields(&swept), fields(&single));
    assert_eq!((&swept[0]["epsilon"], swept.len()), (&Value::from(8), 1));
}

#[test]
fn bad_options_are_refused_before_any_work() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out");
    for (options, remedy) in [
        ("--over epsilon --values 8,5000", "--values 5000"),
        ("--over fingerprint-bits --values 8,12", "8, 16, 32 or 64"),
        ("--over value-bytes --values 0", "1 to 65536"),
        ("--over fill --values 0", "--values 0"),
        ("--over theta --values 17", "at most 16"),
        ("--over threads --values 1025", "1 to 1024"),
        ("--over cache --values 4MiB,none", "8MiB"),
        ("--over colour --values 1", "epsilon"),
        ("--over cache --values 4MiB --cache 8MiB", "what is swept"),
        ("--over cache --values 4MiB --variants fd,xl", "full"),
        ("--over cache --values 4MiB --policies old", "lru"),
        ("--over epsilon --values 8 --plans guess", "two-stage"),
    ] {
        let output = run(&format!("sweep {SMALL} --out {} {options}", out.display()));
        assert_eq!(output.status.code(), Some(2), "{options}");
        assert!(stderr(&output).contains(remedy), "{options}: {}", stderr(&output));
        assert!(!stderr(&output).contains("memory node: process") && !out.exists(), "{options}");
    }
    let file = folder.path().join("file");
    fs::write(&file, "").expect("writable");
    let output = run(&format!("sweep {SMALL} --over epsilon --values 8 --out {}", file.display()));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--out"), "{}", stderr(&output));
    let nowhere =
        format!("sweep {SMALL} --over epsilon --values 8 --out {} --json /no/such/x.json", out.display());
    let output = run(&nowhere);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/no/such/x.json"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("memory node: process"), "{}", stderr(&output));
}
