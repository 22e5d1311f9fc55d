//! The page has every figure of the files that the commands wrote, and needs nothing else.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{done, json_in, program, refusal, stderr, stdout};

/// Runs a command that writes figures.
fn make(folder: &Path, options: &str) {
    let output = program()
        .current_dir(folder)
        .args(options.split_whitespace())
        .output()
        .expect("the program was built");
    assert!(output.status.success(), "{options}: {}", stderr(&output));
}

/// Figures of every command, in a folder.
fn samples() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let small = "--dataset ipv4:5K --lookups 1K --rounds 1 --calibration-buffer 1MiB";
    for options in [
        format!("run {small} --system fpcache,hashmap --cache 64KiB --timeline 100 --json run.json"),
        format!("sweep {small} --over cache --values 64KiB,128KiB --variants fd,full --out sweep"),
        format!("sweep {small} --over threads --values 1,2 --out threads"),
        "ycsb --dataset ipv4:5K --workload A --ops 1K --rounds 1 --rate 20K --calibration-buffer 1MiB --json a.json".to_owned(),
        "ycsb --dataset ipv4:5K --workload A --ops 1K --rounds 1 --rate 40K --calibration-buffer 1MiB --json b.json".to_owned(),
        "peers --keys 1K --seconds 0.01 --rounds 1 --system fpcache,hashmap --json peers.json".to_owned(),
        "density --dataset ipv4:5K --epsilon 16,64 --json density.json".to_owned(),
        "waits --keys 10K --seconds 0.02 --every-us 500 --load idle --json waits.json".to_owned(),
        "fabric --transport shm --bytes 8,64 --batch 1 --seconds 0.005 --json fabric.json".to_owned(),
        format!("growth {small} --order random --json growth.json"),
        format!("growth {small} --order random --direct --json direct.json"),
        "scale --dataset uniform --keys 2K,4K --lookups 1K --rounds 1 --plot scale.svg --json scale.json".to_owned(),
        "quickstart --size small --keys 2K --lookups 200 --out tour".to_owned(),
    ] {
        make(folder.path(), &options);
    }
    #[cfg(feature = "workbench")]
    for options in [
        "paper --figure 9 --scale 20K --json paper.json",
        "run --transport nic:cx6-100g --dataset uniform:5K --lookups 2K --clients 48 --system fpcache,smart --seeds 2 --json cards.json",
        "sweep --transport nic:cx6-100g --dataset uniform:5K --lookups 2K --clients 48 --over cache --values 50KB,1MB --json cards-cache.json",
        "ycsb --transport nic:cx6-100g --dataset uniform:5K --ops 2K --clients 48 --workload A,F --json cards-ycsb.json",
    ] {
        make(folder.path(), options);
    }
    folder
}

/// All numbers and texts of a row, but lists that are drawn.
fn leaves(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().filter(|(name, _)| *name != "made").for_each(|(_, value)| leaves(value, found))
        }
        Value::Array(list) => list.iter().for_each(|value| leaves(value, found)),
        Value::Null => {}
        Value::String(text) => found.push(escaped(text)),
        value => found.push(value.to_string()),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// The tags of a document in their order, each closed where it must be, whatever lies between.
fn assert_tags_balance(html: &str) {
    let (mut open, mut rest): (Vec<&str>, &str) = (Vec::new(), html);
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').expect("a tag ends");
        assert!(!tag.contains('<'), "a tag within a tag: {tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        rest = after;
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().expect("a name");
        match tag {
            _ if name == "!DOCTYPE" || name == "meta" || tag.ends_with('/') => {}
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "closed by </{name}>"),
            _ => open.push(name),
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn a_page_has_every_figure_of_every_command_and_refers_to_nothing_outside() {
    let folder = samples();
    fs::write(folder.path().join("mine.json"), r#"[{"mine": 1}]"#).expect("writable");
    let said = stderr(&done(&format!("report {}", folder.path().display())));
    assert!(said.contains("mine.json is left out"), "{said}");
    let html = fs::read_to_string(folder.path().join("report.html")).expect("a page");

    let mut files = 0;
    for folder in [folder.path().to_owned(), folder.path().join("sweep"), folder.path().join("tour")] {
        for entry in folder.read_dir().expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|extension| extension != "json") || path.ends_with("mine.json") {
                continue;
            }
            files += 1;
            for mut row in json_in(&path) {
                let command = row["made"]["command"].as_str().expect("what made it").to_owned();
                assert!(
                    command.starts_with("fpcache-eval ") && html.contains(&escaped(&command)),
                    "{command}"
                );
                assert!(html.contains(
                    row["made"]["date"].as_str().expect("a date").split('T').next().expect("a day")
                ));
                // Drawn, and in the table of its figure as people read it.
                row.as_object_mut().expect("a row").remove("timeline");
                let mut found = Vec::new();
                leaves(&row, &mut found);
                assert!(found.len() > 5, "{row}");
                for value in found {
                    assert!(html.contains(&format!("<td>{value}</td>")), "{value} of {}", path.display());
                }
            }
        }
    }
    assert!(files >= 12, "{files} files");
    for part in [
        "Throughput over bytes kept on the compute node",
        "Latency over load",
        "Latency percentiles",
        "Hit rate",
        "Round trips",
        "Bytes read",
        "Compute node&#39;s memory",
        "Throughput along a pass",
        "prefers-color-scheme: dark",
        "@media print",
        "role=\"img\" aria-label=\"",
        "<h2 id=\"left-out-h\">Left out</h2>",
        "mine.json",
    ] {
        assert!(html.contains(part), "{part}");
    }
    for outside in ["http:", "https:", "src=", "@import", "url(", "<script", "<link", "//"] {
        assert!(!html.contains(outside), "{outside} is in the page");
    }
    assert_tags_balance(&html);
    let figures = html.matches("<figure ").count();
    assert!(figures > 40 && figures == html.matches("role=\"img\"").count(), "{figures} figures");
    assert_eq!(html.matches("class=\"box\"").count(), html.matches("tabindex=\"0\"").count());

    // The same files give the same page, which replaces the old one.
    let again = done(&format!("report {} --out -", folder.path().display()));
    assert_eq!(stdout(&again), html);
    done(&format!("report {}", folder.path().display()));
}

#[test]
fn whatever_a_file_holds_is_text() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    make(folder.path(), "density --dataset ipv4:2K --epsilon 16 --json density.json");
    let path = folder.path().join("density.json");
    let mut rows = json_in(&path);
    let evil = "</td><script src=\"http://x/\">alert('1')</script>&<svg onload=\u{1b}";
    for row in &mut rows {
        for field in ["dataset", "dataset_source", "form", evil] {
            row[field] = evil.into();
        }
        row["made"]["command"] = evil.into();
        row["made"]["machine"]["cpu"] = evil.into();
        row["bytes_per_key"] = 1e300.into();
    }
    fs::write(folder.path().join("<b>.json"), serde_json::to_vec(&rows).expect("JSON")).expect("writable");
    fs::write(folder.path().join("<i>.json"), "{}").expect("writable");
    let html = stdout(&done(&format!("report {} --out -", folder.path().display())));
    assert!(html.contains("&lt;i&gt;.json") && !html.contains("<i>"));
    assert!(html.contains("&lt;script src=&quot;http://x/&quot;&gt;") && html.contains("&lt;b&gt;.json"));
    assert!(!html.contains("<script") && !html.contains("<svg onload") && !html.contains('\u{1b}'));
    assert_tags_balance(&html);
}

#[test]
fn what_cannot_be_done_is_said_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = |options: &str| refusal(&format!("report {options}"));
    let nowhere = report("/no/such/folder");
    assert!(nowhere.contains("/no/such/folder") && nowhere.contains("JSON"), "{nowhere}");
    let empty = report(&folder.path().display().to_string());
    for command in ["run", "sweep", "ycsb", "peers", "density", "growth", "waits", "fabric", "paper"] {
        assert!(empty.contains(command), "{command} in {empty}");
    }
    fs::write(folder.path().join("half.json"), "[{\"sys").expect("writable");
    assert!(report(&folder.path().display().to_string()).contains("half.json is left out: it is no JSON"));
    make(folder.path(), "density --dataset ipv4:2K --epsilon 16 --json density.json");
    let path = folder.path().display();
    assert!(report(&format!("{path} --out /no/such/folder/x.html")).contains("--out"));
    // A page never takes the place of something else.
    assert!(report(&format!("{path} --out {path}/density.json")).contains("left as it is"));
    assert!(fs::read_to_string(folder.path().join("density.json")).expect("there").starts_with('['));
    assert!(report(&format!("{path} --out {path}")).contains("--out"));
}
