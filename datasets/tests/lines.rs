//! Files of lines: every form of them comes out the same, and what cannot be keys is named.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use fpcache_datasets::bytes::inspect::inspect_bytes;
use fpcache_datasets::bytes::{LinesWriter, verify};
use fpcache_datasets::{
    ByteDataset, DatasetError, Duplicates, ErrorKind, KeyKind, OpenOptions, Spec, SpecKind, Unsorted,
};
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tempfile::TempDir;

fn put(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn open_with(path: &Path, options: &OpenOptions<'_>) -> Result<ByteDataset, DatasetError> {
    Spec::new(SpecKind::Lines(path.to_owned()), None).open_bytes(options)
}

fn open(path: &Path) -> Result<ByteDataset, DatasetError> {
    open_with(path, &OpenOptions::default())
}

fn keys(dataset: &ByteDataset) -> Vec<Vec<u8>> {
    let mut cursor = dataset.keys().cursor();
    let mut keys = Vec::new();
    while let Some(key) = cursor.next_key() {
        keys.push(key.to_vec());
    }
    keys
}

/// Opens a file that must be refused, and checks that the error names the file, the line and a
/// remedy.
fn refused(path: &Path, options: &OpenOptions<'_>, line: &str, remedy: &str) -> DatasetError {
    let error = open_with(path, options).unwrap_err();
    let text = error.to_string();
    for part in [path.to_str().unwrap(), line, remedy] {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
    error
}

#[test]
fn every_form_of_a_file_gives_the_same_keys() {
    let folder = TempDir::new().unwrap();
    let lines: Vec<String> = (100_000..160_000).map(|i| format!("key {i}")).collect();
    let text = lines.join("\n").into_bytes();
    let ended = [&text[..], b"\n"].concat();
    let cut = 400_001;
    let forms = [
        ("plain.txt", text.clone()),
        ("ended", ended.clone()),
        ("a.gz", gz(&text)),
        ("b.zst", zst(&ended)),
        // The content tells, where the name does not.
        ("gzip.txt", gz(&ended)),
        ("zstd", zst(&text)),
        ("members.gz", [gz(&text[..cut]), gz(&text[cut..])].concat()),
        ("frames.zst", [zst(&text[..cut]), zst(&text[cut..])].concat()),
    ];
    for (name, content) in forms {
        let path = put(&folder, name, &content);
        let dataset = open(&path).unwrap();
        assert!(
            keys(&dataset).iter().eq(lines.iter().map(String::as_bytes).collect::<Vec<_>>().iter()),
            "{name}"
        );
        assert_eq!((dataset.source(), dataset.value(7), dataset.notes().len()), ("file", 7, 0), "{name}");
        assert_eq!(dataset.keys().every_length(), Some(10));
    }
}

#[test]
fn keys_are_just_bytes() {
    let folder = TempDir::new().unwrap();
    let path = put(&folder, "bytes", b"\0\n\0\0\n \r\n\xC3\x28\n\xFF\xFE");
    let dataset = open(&path).unwrap();
    assert_eq!(keys(&dataset), [&b"\0"[..], b"\0\0", b" \r", b"\xC3\x28", b"\xFF\xFE"]);
    assert!(dataset.notes()[0].contains("1 of 5 lines end in a carriage return"), "{:?}", dataset.notes());
}

#[test]
fn empty_lines_are_named() {
    let folder = TempDir::new().unwrap();
    for (content, line) in [("\na\n", 1), ("a\n\nb\n", 2), ("a\nb\n\n", 3), ("\n", 1)] {
        let path = put(&folder, "e.txt", content.as_bytes());
        let error =
            refused(&path, &OpenOptions::default(), &format!("line {line} is empty"), "remove empty lines");
        assert_eq!(error.kind(), ErrorKind::BadFile);
    }
    for content in [&b""[..], &gz(b""), &zst(b"")] {
        let error =
            refused(&put(&folder, "n", content), &OpenOptions::default(), "no line", "use a file with keys");
        assert!(matches!(error, DatasetError::NoLines { .. }));
    }
}

#[test]
fn a_line_of_4096_bytes_is_a_key_and_a_longer_one_is_named() {
    let folder = TempDir::new().unwrap();
    let longest = "x".repeat(4_096);
    let dataset = open(&put(&folder, "l", format!("a\n{longest}").as_bytes())).unwrap();
    assert_eq!((dataset.keys().longest(), dataset.len()), (4_096, 2));
    for tail in ["", "\n", "\nz\n", &"y".repeat(1 << 19)] {
        let content = format!("a\nb\n{longest}!{tail}");
        for (name, content) in [("o", content.as_bytes().to_vec()), ("o.gz", gz(content.as_bytes()))] {
            let error = refused(
                &put(&folder, name, &content),
                &OpenOptions::default(),
                "line 3 is longer",
                "shorten",
            );
            assert!(matches!(error, DatasetError::LongLine { line: 3, .. }));
        }
    }
}

#[test]
fn lines_out_of_order_are_sorted_or_refused() {
    let folder = TempDir::new().unwrap();
    let path = put(&folder, "u.txt", b"b\nd\nc\na\n");
    let dataset = open(&path).unwrap();
    assert_eq!(keys(&dataset), [b"a", b"b", b"c", b"d"]);
    assert_eq!((0..4).map(|i| dataset.value(i)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(dataset.notes()[0].contains("2 lines were below the line before them"), "{:?}", dataset.notes());
    let one = open(&put(&folder, "one.txt", b"b\na\nc\n")).unwrap();
    assert!(one.notes()[0].contains("1 line was below the line before it"), "{:?}", one.notes());
    let refuse = OpenOptions { unsorted: Unsorted::Refuse, ..OpenOptions::default() };
    let error = refused(&path, &refuse, "line 3 is below", "LC_ALL=C sort");
    assert_eq!(error.kind(), ErrorKind::BadFile);
    assert!(open_with(&put(&folder, "s", b"a\nb"), &refuse).is_ok());
}

#[test]
fn equal_lines_are_refused_unless_a_policy_is_given() {
    let folder = TempDir::new().unwrap();
    for (content, line, first) in [("a\na\nb\nc\nc\nc", 2, 1), ("c\nb\na\nc\na\nc\n", 5, 3)] {
        let path = put(&folder, "d", content.as_bytes());
        let place = format!("line {line} is the same as line {first};");
        let error = refused(&path, &OpenOptions::default(), &place, "--duplicates first, last or sum");
        assert_eq!(error.kind(), ErrorKind::Duplicates);
    }
    let path = put(&folder, "d", b"c\na\nb\nc\na\nc");
    for (policy, values) in
        [(Duplicates::First, [0, 2, 3]), (Duplicates::Last, [1, 2, 5]), (Duplicates::Sum, [1, 2, 12])]
    {
        let options = OpenOptions { duplicates: Some(policy), ..OpenOptions::default() };
        let dataset = open_with(&path, &options).unwrap();
        assert_eq!(keys(&dataset), [b"a", b"b", b"c"]);
        assert_eq!((0..3).map(|i| dataset.value(i)).collect::<Vec<_>>(), values, "{policy}");
        assert_eq!(dataset.crowded(2), [2]);
        assert!(dataset.notes().iter().any(|note| note.contains("3 of 6 keys are distinct")));
    }
}

#[test]
fn a_sample_is_exact_ordered_seeded_and_uniform() {
    let folder = TempDir::new().unwrap();
    let lines: String = (0..20_000).map(|i| format!("{i:05}\n")).collect();
    let path = put(&folder, "s", lines.as_bytes());
    let take = |count, seed| {
        let spec = Spec::new(SpecKind::Lines(path.clone()), Some(count));
        spec.open_bytes(&OpenOptions { seed, ..OpenOptions::default() }).map(|dataset| keys(&dataset))
    };
    let sample = take(2_000, 1).unwrap();
    assert!(sample.len() == 2_000 && sample.is_sorted());
    assert_eq!(sample, take(2_000, 1).unwrap());
    assert_ne!(sample, take(2_000, 2).unwrap());
    let low = sample.iter().filter(|key| key[0] == b'0').count();
    assert!((900..1_100).contains(&low), "{low}");
    assert_eq!(take(20_000, 1).unwrap().len(), 20_000);
    let error = take(20_001, 1).unwrap_err();
    assert!(matches!(error, DatasetError::TooMany { available: 20_000, .. }), "{error}");
}

#[test]
fn damaged_compression_is_an_error_that_names_the_format() {
    let folder = TempDir::new().unwrap();
    let text: String = (0..50_000).map(|i| format!("{}\n", i * 7_919 % 1_000_003)).collect();
    for (name, whole, format) in
        [("x.gz", gz(text.as_bytes()), "gzip"), ("x.zst", zst(text.as_bytes()), "zstd")]
    {
        let mut flipped = whole.clone();
        let middle = flipped.len() / 2;
        flipped[middle..middle + 40].fill(0xA5);
        for content in [&flipped[..], &whole[..whole.len() / 2], &whole[..5], b"plain\ntext\n"] {
            let error = open(&put(&folder, name, content)).unwrap_err();
            assert!(
                error.kind() == ErrorKind::BadFile
                    && error.to_string().contains(&format!("bad {format} data")),
                "{error}"
            );
        }
    }
}

#[test]
fn kinds_are_not_mixed_up_and_missing_files_are_named() {
    let folder = TempDir::new().unwrap();
    let path = put(&folder, "k", b"a\n");
    let spec = Spec::new(SpecKind::Lines(path), None);
    assert_eq!(spec.key_kind(), KeyKind::Bytes);
    let error = spec.open(&OpenOptions::default()).unwrap_err();
    assert!(
        error.kind() == ErrorKind::BadRequest
            && error.to_string().contains("has byte-string keys, but u64 keys"),
        "{error}"
    );
    let error = "fb:1K".parse::<Spec>().unwrap().open_bytes(&OpenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("fb:1K has u64 keys, but byte-string keys were requested"), "{error}");
    let error = open(Path::new("/nowhere/x.txt")).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Io && error.to_string().contains("/nowhere/x.txt: no such file"),
        "{error}"
    );
}

#[test]
fn verify_counts_and_hashes_the_decompressed_content() {
    let folder = TempDir::new().unwrap();
    let text = b"b\naa\naa\nc\n";
    let plain = verify(&put(&folder, "v", text), None).unwrap();
    assert_eq!((plain.keys, plain.lengths, plain.unsorted, plain.duplicates), (4, (1, 2), 1, 1));
    assert_eq!(plain, verify(&put(&folder, "v.gz", &gz(text)), None).unwrap());
    assert_eq!(plain, verify(&put(&folder, "v.zst", &zst(text)), None).unwrap());
    assert!(verify(&put(&folder, "w", b"a\n\n"), None).is_err());
}

#[test]
fn inspection_tells_what_the_keys_are_like() {
    let folder = TempDir::new().unwrap();
    let path = put(&folder, "i", b"user10\nuser11\nuser110000000\nuser110000001\nuser2\nuser2\n");
    let found =
        inspect_bytes(&Spec::new(SpecKind::Lines(path), None), &[8], &OpenOptions::default()).unwrap();
    assert_eq!((found.keys, found.distinct, found.most_equal, found.alphabet), (6, 5, 2, 7));
    assert_eq!((found.shortest, found.longest, found.shared_by_all, found.most_shared), (5, 13, 4, 12));
    // 10, 11, 11000000 twice and 2.
    assert_eq!((found.numbers, found.segments), (4, vec![(8, 1)]));
}

#[test]
fn the_writer_leaves_no_half_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.txt");
    let mut writer = LinesWriter::create(&path, false).unwrap();
    writer.push(b"a").unwrap();
    let error = writer.push(b"b\nc").unwrap_err();
    assert!(matches!(error, DatasetError::NewlineInKey { index: 1, .. }), "{error}");
    drop(writer);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let mut writer = LinesWriter::create(&path, false).unwrap();
    writer.push(b"\xFF").unwrap();
    assert_eq!(writer.finish().unwrap(), (1, 2));
    assert_eq!(fs::read(&path).unwrap(), b"\xFF\n");
    assert!(matches!(LinesWriter::create(&path, false), Err(DatasetError::Exists { .. })));
    for name in ["x.gz", "x.zst"] {
        let error = LinesWriter::create(&folder.path().join(name), false).map(drop).unwrap_err();
        assert!(matches!(error, DatasetError::CompressedOutput { .. }), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_read_or_refused_without_a_panic(
        content in prop::collection::vec(prop::sample::select(vec![b'\n', b'\n', 0, b'a', b'b', 0xFF, 0x1F, 0x8B, 8]), 0..60),
        name in prop::sample::select(vec!["p", "p.gz", "p.zst"]),
        packed in any::<bool>(),
    ) {
        let folder = TempDir::new().unwrap();
        let stored = match name {
            "p.gz" if packed => gz(&content),
            "p.zst" if packed => zst(&content),
            _ => content.clone(),
        };
        let options = OpenOptions { duplicates: Some(Duplicates::First), ..OpenOptions::default() };
        let outcome = open_with(&put(&folder, name, &stored), &options);
        if stored.starts_with(&[0x1F, 0x8B, 8]) && !packed {
            return Ok(());
        }
        if !packed && name != "p" {
            // No content is an empty file of either format.
            prop_assert!(outcome.is_err());
            return Ok(());
        }
        let text = content.strip_suffix(b"\n").unwrap_or(&content);
        let mut lines: Vec<Vec<u8>> = text.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
        let good = !content.is_empty() && lines.iter().all(|line| !line.is_empty());
        prop_assert_eq!(outcome.is_ok(), good);
        if let Ok(dataset) = outcome {
            prop_assert_eq!(dataset.positions(), lines.len() as u64);
            lines.sort();
            lines.dedup();
            prop_assert_eq!(keys(&dataset), lines);
        }
    }
}
