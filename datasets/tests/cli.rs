//! The command line tool, run as a process.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fpcache-datasets"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("FPCACHE_DATASETS")
        .output()
        .unwrap()
}

fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn fail(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn list_names_everything_and_how_to_get_it() {
    let folder = TempDir::new().unwrap();
    let text = succeed(folder.path(), &["list"]);
    let names = "fb wiki osm books ipv4 normal lognormal sosd:PATH words lines:PATH stand-in";
    for part in names.split(' ').chain(["curl -fL", "md5sum -c"]) {
        assert!(text.contains(part), "{part}");
    }
    // A row of the table had 102 columns.
    let (table, _) = text.split_once("Published files").unwrap();
    let wide = table.lines().filter(|line| line.chars().count() > 80);
    assert_eq!(wide.collect::<Vec<_>>(), [""; 0]);
    let json: Value = serde_json::from_str(&succeed(folder.path(), &["list", "--json"])).unwrap();
    assert_eq!(json["datasets"].as_array().unwrap().len(), 17);
    assert_eq!(json["published"][0]["md5"], "3b0f820caa0d62150e87ce94ec989978");
}

/// A part of a file under its name passed for the published one, a misspelt folder for none, and
/// `-` for standard output.
#[test]
fn what_a_folder_has_is_told_and_is_no_published_file_by_its_name() {
    let folder = TempDir::new().unwrap();
    let listed = || -> Value {
        serde_json::from_str(&succeed(folder.path(), &["list", "--json", "--datasets-dir", "."])).unwrap()
    };
    let fb = |list: &Value| {
        let sets = list["datasets"].as_array().unwrap();
        let fb = sets.iter().find(|set| set["name"] == "fb").unwrap();
        (fb["source"].clone(), fb["keys"].clone())
    };
    assert_eq!(fb(&listed()), ("stand-in".into(), 200_000_000.into()));
    succeed(folder.path(), &["generate", "fb:2K", "-o", "fb_200M_uint64", "--force"]);
    assert_eq!(fb(&listed()), ("file".into(), 2_000.into()));
    let text = succeed(folder.path(), &["list", "--datasets-dir", "."]);
    assert!(text.contains("fb_200M_uint64 has 2.00 K keys"), "{text}");
    // It was passed over for the stand-in, which nobody gets who asks for it.
    fs::write(folder.path().join("fb_200M_uint64"), "cut").unwrap();
    assert_eq!(fb(&listed()), ("file".into(), Value::Null));
    let text = succeed(folder.path(), &["list", "--datasets-dir", "."]);
    assert!(text.contains("fb_200M_uint64 cannot be read"), "{text}");
    fail(folder.path(), &["inspect", "fb:2K", "--datasets-dir", "."]);

    let error = fail(folder.path(), &["inspect", "fb:2K", "--datasets-dir", "nowhere"]);
    assert!(error.contains("nowhere: reading the folder of data sets failed"), "{error}");
    let error = fail(folder.path(), &["generate", "words:10", "-o", "-"]);
    assert!(error.contains("not to standard output") && !folder.path().join("-").exists(), "{error}");
}

#[test]
fn generated_files_can_be_inspected_and_verified() {
    let folder = TempDir::new().unwrap();
    for (spec, file) in [("fb:2K", "a_uint64"), ("sequential:2K", "b_uint32")] {
        succeed(folder.path(), &["generate", spec, "-o", file]);
        let json: Value =
            serde_json::from_str(&succeed(folder.path(), &["inspect", file, "--epsilon", "64,8", "--json"]))
                .unwrap();
        assert_eq!(
            (&json["keys"], &json["distinct"], &json["source"]),
            (&2_000.into(), &2_000.into(), &"file".into())
        );
        assert!(json["segments"]["8"].as_u64() >= json["segments"]["64"].as_u64());
        assert!(succeed(folder.path(), &["verify", file]).contains("format OK"));
    }
    let error = fail(folder.path(), &["generate", "fb:2K", "-o", "a_uint64"]);
    assert!(error.contains("--force"), "{error}");
    succeed(folder.path(), &["generate", "fb:3K", "-o", "a_uint64", "--force"]);
    assert_eq!(fs::metadata(folder.path().join("a_uint64")).unwrap().len(), 8 + 8 * 3_000);
}

#[test]
fn what_does_not_fit_32_bits_leaves_no_file() {
    let folder = TempDir::new().unwrap();
    let error = fail(folder.path(), &["generate", "uniform:1K", "-o", "u_uint32"]);
    assert!(error.contains("u_uint32") && error.contains("_uint64"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    for name in ["plain", "x_uint64.zst", "missing/x_uint64"] {
        fail(folder.path(), &["generate", "uniform:1K", "-o", name]);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_published_name_is_not_given_to_a_stand_in_by_accident() {
    let folder = TempDir::new().unwrap();
    let error = fail(folder.path(), &["generate", "fb:1K", "-o", "fb_200M_uint64"]);
    assert!(error.contains("name of a published file") && error.contains("--force"), "{error}");
    succeed(folder.path(), &["generate", "fb:1K", "-o", "fb_200M_uint64", "--force"]);
}

#[test]
fn duplicates_are_counted_and_stand_ins_announced() {
    let folder = TempDir::new().unwrap();
    let output = run(folder.path(), &["inspect", "wiki:200K", "--json", "--epsilon", "64"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["keys"], &json["source"]), (&200_000.into(), &"stand-in".into()));
    assert!(json["distinct"].as_u64().unwrap() < 200_000);
    assert!(String::from_utf8(output.stderr).unwrap().contains("wiki_ts_200M_uint64"));
}

#[test]
fn inspect_shows_the_shipped_keys() {
    let folder = TempDir::new().unwrap();
    let text = succeed(folder.path(), &["inspect", "ipv4", "--epsilon", "64"]);
    assert!(text.contains("385602 (386 K)") && text.contains("914 at ε 64"), "{text}");
    // It was `0 (at most 1 equal keys)`.
    assert!(text.contains("duplicates  0\n"), "{text}");
}

#[test]
fn verify_looks_at_every_file_and_fails_for_one() {
    let folder = TempDir::new().unwrap();
    succeed(folder.path(), &["generate", "sequential:10", "-o", "good_uint64"]);
    fs::write(folder.path().join("bad_uint64"), [1, 2, 3]).unwrap();
    fs::copy(folder.path().join("good_uint64"), folder.path().join("fb_200M_uint64")).unwrap();
    let output = run(folder.path(), &["verify", "bad_uint64", "fb_200M_uint64", "good_uint64"]);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1));
    assert!(out.contains("good_uint64: format OK"), "{out}");
    assert!(err.contains("bad_uint64: truncated") && err.contains("is not the published"), "{err}");
}

/// It ended with 1, as for a file that is wrong.
#[test]
fn verify_ends_with_2_for_what_it_could_not_check() {
    let folder = TempDir::new().unwrap();
    succeed(folder.path(), &["generate", "sequential:10", "-o", "good_uint64"]);
    fs::write(folder.path().join("bad_uint64"), [1, 2, 3]).unwrap();
    fs::write(folder.path().join("lines.xz"), "a\n").unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    for (paths, code) in [
        (&["none_uint64", "good_uint64"][..], 2),
        (&["lines:none"], 2),
        (&["lines:lines.xz"], 2),
        (&["none_uint64", "bad_uint64"], 2),
        (&["bad_uint64", "none_uint64"], 2),
        (&["lines"], 2),
        (&["lines:empty"], 1),
        (&["good_uint64", "bad_uint64"], 1),
        (&["good_uint64"], 0),
    ] {
        let output = run(folder.path(), &[&["verify"], paths].concat());
        assert_eq!(output.status.code(), Some(code), "{paths:?}: {output:?}");
        let is_checked = String::from_utf8(output.stdout).unwrap().contains("good_uint64: format OK");
        assert_eq!(is_checked, paths.contains(&"good_uint64"));
    }
}

/// A pipe or a device was replaced by a file, and a link too.
#[test]
fn what_is_replaced_is_a_file_and_links_to_it_stay() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    succeed(folder.path(), &["generate", "words:10", "-o", "real"]);
    symlink("real", path("link")).unwrap();
    succeed(folder.path(), &["generate", "words:20", "-o", "link", "--force"]);
    assert!(path("link").is_symlink());
    assert_eq!(fs::read_to_string(path("real")).unwrap().lines().count(), 20);
    symlink("/dev/null", path("null_uint64")).unwrap();
    UnixListener::bind(path("socket")).unwrap();
    for (name, spec) in [("null_uint64", "sequential:10"), ("socket", "words:10")] {
        let error = fail(folder.path(), &["generate", spec, "-o", name, "--force"]);
        assert!(error.contains("no regular file"), "{error}");
        assert!(!path(name).metadata().unwrap().is_file());
    }
}

#[test]
fn unknown_names_show_the_known_ones() {
    let folder = TempDir::new().unwrap();
    let error = fail(folder.path(), &["inspect", "facebook"]);
    assert!(error.contains("lognormal") && error.contains("fb:16M"), "{error}");
    let error = fail(folder.path(), &["inspect", "nowhere/x_uint64"]);
    assert!(error.contains("no such file"), "{error}");
}

#[test]
fn help_has_examples() {
    let folder = TempDir::new().unwrap();
    for command in [
        &["--help"][..],
        &["list", "--help"],
        &["generate", "--help"],
        &["inspect", "--help"],
        &["verify", "--help"],
    ] {
        assert!(succeed(folder.path(), command).contains("Examples:"), "{command:?}");
    }
}

#[test]
fn byte_strings_are_written_as_lines_inspected_and_verified() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let text = succeed(path, &["generate", "ycsb:2K", "--key-bytes", "30", "-o", "y.txt"]);
    assert!(text.contains("2.00 K lines"), "{text}");
    assert_eq!(fs::metadata(path.join("y.txt")).unwrap().len(), 31 * 2_000);
    let json: Value =
        serde_json::from_str(&succeed(path, &["inspect", "lines:y.txt", "--epsilon", "8", "--json"]))
            .unwrap();
    assert_eq!((&json["keys"], &json["shortest"], &json["longest"]), (&2_000.into(), &30.into(), &30.into()));
    assert!(json["segments"]["8"].as_u64() > Some(1), "{json}");
    let text = succeed(path, &["inspect", "ycsb:2K", "--key-bytes", "30"]);
    assert!(text.contains("30 to 30 bytes") && text.contains("alphabet    14"), "{text}");
    let text = succeed(path, &["verify", "lines:y.txt"]);
    assert!(text.contains("2.00 K lines of 30 to 30 bytes, sorted, each once"), "{text}");
    fs::write(path.join("bad"), "b\n\n").unwrap();
    assert!(fail(path, &["verify", "lines:bad"]).contains("line 2 is empty"));
    fs::write(path.join("unsorted"), "b\na\n").unwrap();
    succeed(path, &["inspect", "lines:unsorted"]);
    assert!(fail(path, &["inspect", "lines:unsorted", "--unsorted", "refuse"]).contains("line 2 is below"));
}

#[test]
fn keys_that_are_no_text_leave_no_file() {
    let folder = TempDir::new().unwrap();
    let error = fail(folder.path(), &["generate", "binary:5K", "-o", "b.txt"]);
    assert!(error.contains("contains a newline"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
