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
        let run = format!("run --data {data} --lookups 100 --calibration-buffer 1MiB");
        assert_refused(&run, &[(options, remedy)]);
    }
    let said = refusal("run --data ipv4 --key-bytes 24 --calibration-buffer 1MiB");
    assert!(said.contains("--key-bytes") && said.contains("ycsb:1M"), "{said}");
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
    assert_refused(&options, &[("", "duplicates first")]);
    for policy in ["first", "last", "sum"] {
        let output = done(&format!("{options} --duplicates {policy}"));
        assert!(stdout(&output).contains("every answer was right"), "{}", stdout(&output));
        assert!(stderr(&output).contains("3 of 5 keys are distinct"), "{}", stderr(&output));
    }
}

#[test]
fn a_region_too_small_is_refused_with_the_size_that_would_do() {
    let cases = [("--transport shm", "--capacity"), ("--transport local", "--capacity")];
    assert_refused("run --dataset uniform:20K --capacity 64KiB --calibration-buffer 1MiB", &cases);
}

#[test]
fn bad_options_are_refused_before_any_work() {
    let cases = [
        ("--plan guess", "two-stage"),
        ("--threads 33 --system jakiro", "32 threads"),
        ("--threads 33 --system jakiro-reply", "32 threads"),
        ("--cache 8MiB --policy best", "heat, frequency, lru"),
        ("--cache 8MiB --variant fp", "fd, f, d, full"),
        ("--cache 8MiB --on-conflict stop", "cheapest, range"),
        ("--timeline 1", "points between"),
        ("--url shm://nobody-is-here", "nobody-is-here"),
    ];
    assert_refused("run --dataset ipv4 --calibration-buffer 1MiB", &cases);
}
