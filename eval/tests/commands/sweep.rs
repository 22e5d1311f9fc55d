//! `sweep` measures every point once, keeps what is done, goes on after a kill, and leaves the
//! files of others alone.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::support::{
    assert_refused, done, eventually, json_in, json_of, program, refusal, run, stderr, stdout,
};
use serde_json::Value;

const SMALL: &str = "--dataset uniform:5K --lookups 1K --calibration-buffer 1MiB --rounds 1";

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
        let output = done(&format!("sweep --over {over} --values {values} {SMALL} {options} --out {out}"));
        let rows = json_in(&folder.path().join("results.json"));
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
    let before = json_in(&results);
    assert!(!status.success() && !before.is_empty() && before.len() < 8, "{status}, {} rows", before.len());
    // As if the kill had met it while it wrote.
    fs::write(killed.join("results.json.tmp"), "[{\"system\": \"fpc").expect("writable");

    let said = stderr(&done(&sweep(&killed)));
    let there = format!("{} of 4 points were there already", before.len() / 2);
    assert!(said.contains(&there) && said.contains("the same command goes on after"), "{said}");
    done(&sweep(&whole));
    let after = json_in(&results);
    assert_eq!(keys(&after), keys(&json_in(&whole.join("results.json"))));
    // What was there is there to the digit.
    assert!(before.iter().all(|row| after.contains(row)));

    // Nothing is left to do: nothing is measured, also with another order of the values.
    let again = run(&sweep(&killed).replace("8,16,32,64", "64,8"));
    assert!(stderr(&again).contains("2 of 2 points were there already"), "{}", stderr(&again));
    assert_eq!(json_in(&results), after);
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
        let said = refusal(&format!("{} {options}", kept.join(" ")));
        assert!(said.contains("another sweep") && said.contains(remedy), "{said}");
        assert_eq!(fs::read(&results).expect("still there"), ours);
    }
    let fresh = sweep("--seed 7 --fresh");
    assert!(fresh.status.success(), "{}", stderr(&fresh));
    assert!(stderr(&fresh).contains("without --fresh, goes on after"), "{}", stderr(&fresh));
    assert_eq!(json_in(&results)[0]["seed"], 7);

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
    let swept = json_of(&format!("sweep --over epsilon --values 8 {SMALL} --out {out}"));
    let single = json_of(&format!("run --epsilon 8 --system fpcache {SMALL}"));
    let fields =
        |rows: &[Value]| -> Vec<String> { rows[0].as_object().expect("an object").keys().cloned().collect() };
    assert_eq!(fields(&swept), fields(&single));
    assert_eq!((&swept[0]["epsilon"], swept.len()), (&Value::from(8), 1));
}

#[test]
fn bad_options_are_refused_before_any_work() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out");
    let sweep = format!("sweep {SMALL} --out {}", out.display());
    let cases = [
        ("--over epsilon --values 8,5000", "--values 5000"),
        ("--over cache --values 4MiB --cache 8MiB", "what is swept"),
        ("--over cache --values 4MiB --variants fd,xl", "full"),
        ("--over cache --values 4MiB --policies old", "lru"),
    ];
    assert_refused(&sweep, &cases);
    assert!(!out.exists(), "no work is done");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("writable");
    let said = refusal(&format!("sweep {SMALL} --over epsilon --values 8 --out {}", file.display()));
    assert!(said.contains("--out"), "{said}");
    let said = refusal(&format!("{sweep} --over epsilon --values 8 --json /no/such/x.json"));
    assert!(said.contains("/no/such/x.json") && !said.contains("memory node: process"), "{said}");
}
