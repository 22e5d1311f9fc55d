//! Refusals of `run`, with what it would accept.

use super::*;

#[test]
fn files_of_lines_are_data_sets_and_bad_ones_are_explained() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("lines.txt");
    let data = format!("lines:{}", path.display());
    std::fs::write(&path, b"pear\napple\n\xff\xfe\nfig").expect("writable");
    let rows = rows_of(&data, "--lookups 100");
    assert_right_over_bytes(&data, "", &rows);
    assert_eq!((&rows[0]["keys"], &rows[0]["key_bytes_min"]), (&4.into(), &2.into()));
    for (content, options, remedy) in [
        (&b"pear\napple\n"[..], "--unsorted refuse", "--unsorted"),
        (b"a\na\n", "", "--duplicates"),
        (b"a\n\nb\n", "", "line 2"),
        (b"a\nbb\n", "--key-bytes 1", "length"),
    ] {
        std::fs::write(&path, content).expect("writable");
        let output = run(&format!("run --data {data} --lookups 100 --calibration-buffer 1MiB {options}"));
        assert_eq!(output.status.code(), Some(2), "{options}");
        assert!(stderr(&output).contains(remedy), "{options}: {}", stderr(&output));
    }
    let output = run("run --data ipv4 --key-bytes 24 --calibration-buffer 1MiB");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--key-bytes") && stderr(&output).contains("ycsb:1M"));
}

#[test]
fn duplicates_are_refused_until_their_meaning_is_chosen() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("twice_uint64");
    let keys = [1u64, 5, 5, 5, 9];
    let mut bytes = (keys.len() as u64).to_le_bytes().to_vec();
    bytes.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
    std::fs::write(&path, bytes).expect("writable");
    let options = format!("run --dataset sosd:{} --lookups 100 --calibration-buffer 1MiB", path.display());
    let output = run(&options);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("duplicates first"), "{}", stderr(&output));
    for policy in ["first", "last", "sum"] {
        let output = run(&format!("{options} --duplicates {policy}"));
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).contains("every answer was right"), "{}", stdout(&output));
        assert!(stderr(&output).contains("3 of 5 keys are distinct"), "{}", stderr(&output));
    }
}

#[test]
fn a_region_too_small_is_refused_with_the_size_that_would_do() {
    for transport in ["shm", "local"] {
        let output = run(&format!(
            "run --dataset uniform:20K --capacity 64KiB --transport {transport} --calibration-buffer 1MiB"
        ));
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("--capacity"), "{}", stderr(&output));
    }
}

#[test]
fn bad_options_are_refused_before_any_work() {
    for (options, remedy) in [
        ("", "--dataset"),
        ("--dataset facebook", "fb:16M"),
        ("--dataset ipv4 --system redis", "hashmap"),
        ("--dataset ipv4 --plan guess", "two-stage"),
        ("--dataset ipv4 --negative 2", "0 to 1"),
        ("--dataset ipv4 --threads 0", "1..=1024"),
        ("--dataset ipv4 --threads 33 --system jakiro", "32 threads"),
        ("--dataset ipv4 --threads 33 --system jakiro-reply", "32 threads"),
        ("--dataset ipv4 --cache 0", "8MiB"),
        ("--dataset ipv4 --cache lots", "8MiB"),
        ("--dataset ipv4 --policy lru", "--cache"),
        ("--dataset ipv4 --cache 8MiB --policy best", "heat, frequency, lru"),
        ("--dataset ipv4 --cache 8MiB --variant fp", "fd, f, d, full"),
        ("--dataset ipv4 --cache 8MiB --on-conflict stop", "cheapest, range"),
        ("--dataset ipv4 --cold", "--cache"),
        ("--dataset ipv4 --shift-every never", "above 0"),
        ("--dataset ipv4 --shift-every 3M", "more lookups"),
        ("--dataset ipv4 --timeline 1", "points between"),
        ("--dataset ipv4 --url shm://nobody-is-here", "nobody-is-here"),
    ] {
        let output = run(&format!("run --calibration-buffer 1MiB {options}"));
        assert_eq!(output.status.code(), Some(2), "{options}");
        assert!(stderr(&output).contains(remedy), "{options}: {}", stderr(&output));
    }
}
