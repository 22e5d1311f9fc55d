//! SOSD files: both widths, plain and compressed, samples, duplicates, and every kind of bad file.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use fpcache_datasets::bytes::LinesWriter;
use fpcache_datasets::sosd::{SosdReader, SosdWriter};
use fpcache_datasets::verify::verify;
use fpcache_datasets::{
    Dataset, DatasetError, Duplicates, ErrorKind, OpenOptions, OutputFile, Spec, SpecKind,
};
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tempfile::TempDir;

/// The bytes of a file with this header and these keys of `width` bytes.
fn encode(count: u64, keys: &[u64], width: usize) -> Vec<u8> {
    let keys = keys.iter().flat_map(|key| key.to_le_bytes()[..width].to_vec());
    count.to_le_bytes().into_iter().chain(keys).collect()
}

fn put(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn open(path: &Path, count: Option<u64>, options: &OpenOptions<'_>) -> Result<Dataset, DatasetError> {
    Spec::new(SpecKind::Sosd(path.to_owned()), count).open(options)
}

/// Opens a file that must be refused, and checks that the error names the file, the offset and a
/// remedy.
fn refused(path: &Path, offset: u64, remedy: &str) -> DatasetError {
    let error = open(path, None, &OpenOptions::default()).unwrap_err();
    let text = error.to_string();
    for part in [path.to_str().unwrap(), &format!("offset {offset}"), remedy] {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
    error
}

#[test]
fn both_widths_come_back_as_written_plain_and_compressed() {
    let folder = TempDir::new().unwrap();
    let mut keys: Vec<u64> = (0..100_000).map(|i| i * i % 65_521 + i * 40_000).collect();
    keys.sort_unstable();
    keys.dedup();
    *keys.last_mut().unwrap() = u64::from(u32::MAX);
    for (name, width) in [("a_uint32", 4), ("a_uint64", 8)] {
        let path = folder.path().join(name);
        let mut writer = SosdWriter::create(&path, false).unwrap();
        keys.chunks(777).for_each(|chunk| writer.push(chunk).unwrap());
        assert_eq!(writer.finish().unwrap(), keys.len() as u64);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes, encode(keys.len() as u64, &keys, width));
        let compressed = put(&folder, &format!("{name}.zst"), &zst(&bytes));
        let cut = 8 + 1_000 * width;
        let two_frames =
            put(&folder, &format!("two_{name}.zst"), &[zst(&bytes[..cut]), zst(&bytes[cut..])].concat());
        for path in [path, compressed, two_frames] {
            let data = open(&path, None, &OpenOptions::default()).unwrap();
            assert!(data.keys() == keys, "{}", path.display());
            assert_eq!((data.key_bytes(), data.source(), data.value(99)), (width, "file", 99));
        }
    }
}

#[test]
fn short_files_are_truncated() {
    let folder = TempDir::new().unwrap();
    let keys: Vec<u64> = (1..=10).collect();
    let whole = encode(10, &keys, 8);
    for cut in [0, 3, 7, 8, 9, 50, 87] {
        let path = put(&folder, "t_uint64", &whole[..cut]);
        let error = if cut == 48 { continue } else { refused(&path, cut as u64, "again") };
        assert!(matches!(error, DatasetError::Truncated { .. }), "{cut}: {error}");
        if cut > 0 {
            let path = put(&folder, "t_uint64.zst", &zst(&whole[..cut]));
            assert!(matches!(refused(&path, cut as u64, "again"), DatasetError::Truncated { .. }));
        }
    }
}

#[test]
fn a_count_beyond_all_memory_is_refused_before_memory_is_asked_for() {
    let folder = TempDir::new().unwrap();
    for count in [u64::MAX, u64::MAX / 8, 1 << 60, 1 << 40] {
        let bytes = encode(count, &[1, 2, 3], 8);
        refused(&put(&folder, "h_uint64", &bytes), 32, "again");
        // Compressed, the size is only known at the end: either the memory or the content is
        // missing.
        let path = put(&folder, "h_uint64.zst", &zst(&bytes));
        let error = open(&path, None, &OpenOptions::default()).unwrap_err();
        assert!(
            matches!(error, DatasetError::Truncated { .. } | DatasetError::OutOfMemory { .. }),
            "{error}"
        );
    }
}

#[test]
fn bytes_after_the_last_key_are_miscounted() {
    let folder = TempDir::new().unwrap();
    let mut bytes = encode(3, &[1, 2, 3, 4], 8);
    for (name, content) in [("m_uint64", bytes.clone()), ("m_uint64.zst", zst(&bytes))] {
        let error = refused(&put(&folder, name, &content), 32, "correct the count");
        assert!(matches!(error, DatasetError::Miscounted { excess: 8, .. }), "{error}");
    }
    bytes.truncate(33);
    let error = refused(&put(&folder, "m_uint64", &bytes), 32, "correct the count");
    assert!(matches!(error, DatasetError::Miscounted { excess: 1, .. }), "{error}");
}

#[test]
fn an_empty_file_is_refused() {
    let folder = TempDir::new().unwrap();
    let error = refused(&put(&folder, "e_uint64", &encode(0, &[], 8)), 0, "use a file with keys");
    assert!(matches!(error, DatasetError::Empty { .. }));
}

#[test]
fn unsorted_keys_are_found_also_across_chunks() {
    let folder = TempDir::new().unwrap();
    for (at, width, name) in
        [(1, 8, "u_uint64"), (1 << 15, 8, "u_uint64"), (70_000, 4, "u_uint32"), (1 << 15, 4, "u_uint32")]
    {
        let mut keys: Vec<u64> = (0..80_000).map(|i| 10 + i * 2).collect();
        keys[at] = keys[at - 1] - 1;
        let path = put(&folder, name, &encode(80_000, &keys, width));
        let error = refused(&path, (8 + at * width) as u64, "sort the keys");
        assert!(matches!(error, DatasetError::Unsorted { .. }));
    }
}

#[test]
fn the_wrong_suffix_is_told_from_the_size() {
    let folder = TempDir::new().unwrap();
    let keys = [1, 2, 3, 4, 5, 6];
    for (bytes, name, suffix, offset) in
        [(encode(6, &keys, 4), "w_uint64", "_uint32", 32), (encode(6, &keys, 8), "w_uint32", "_uint64", 32)]
    {
        for (name, content) in [(name.to_owned(), bytes.clone()), (format!("{name}.zst"), zst(&bytes))] {
            let error = refused(&put(&folder, &name, &content), offset, &format!("end in {suffix}"));
            assert!(matches!(error, DatasetError::WrongWidth { .. }), "{error}");
        }
    }
    let error = open(&put(&folder, "w", &encode(6, &keys, 8)), None, &OpenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("rename the file to end in _uint32 or _uint64"));
}

#[test]
fn damaged_compression_is_an_error() {
    let folder = TempDir::new().unwrap();
    let keys: Vec<u64> = (0..50_000).map(|i| i * 1_234_567).collect();
    let good = zst(&encode(50_000, &keys, 8));
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle..middle + 40].fill(0xA5);
    for content in [&flipped[..], &good[..good.len() / 2], &good[..5], b"not zstd at all"] {
        let error = open(&put(&folder, "z_uint64.zst", content), None, &OpenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadFile, "{error}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = open(Path::new("/nowhere/x_uint64"), None, &OpenOptions::default()).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("/nowhere/x_uint64: no such file"));
}

#[test]
fn duplicates_are_refused_unless_a_policy_is_given() {
    let folder = TempDir::new().unwrap();
    let path = put(&folder, "d_uint64", &encode(7, &[5, 5, 5, 8, 9, 9, 12], 8));
    let error = refused(&path, 16, "--duplicates first, last or sum");
    assert_eq!(error.kind(), ErrorKind::Duplicates);
    // The file has duplicates whether or not a sample has.
    assert_eq!(open(&path, Some(1), &OpenOptions::default()).unwrap_err().kind(), ErrorKind::Duplicates);
    for (policy, values) in
        [(Duplicates::First, [0, 3, 4, 6]), (Duplicates::Last, [2, 3, 5, 6]), (Duplicates::Sum, [3, 3, 9, 6])]
    {
        let options = OpenOptions { duplicates: Some(policy), ..OpenOptions::default() };
        let data = open(&path, None, &options).unwrap();
        assert_eq!(data.keys(), [5, 8, 9, 12]);
        assert_eq!((0..4).map(|i| data.value(i)).collect::<Vec<_>>(), values, "{policy}");
        assert!(data.notes().iter().any(|note| note.contains("4 of 7")), "{:?}", data.notes());
    }
}

#[test]
fn a_sample_is_exact_ordered_seeded_and_uniform() {
    let folder = TempDir::new().unwrap();
    let keys: Vec<u64> = (0..100_000).map(|i| i * 10).collect();
    let path = put(&folder, "s_uint64", &encode(100_000, &keys, 8));
    let take = |seed| {
        open(&path, Some(10_000), &OpenOptions { seed, ..OpenOptions::default() }).unwrap().into_keys()
    };
    let sample = take(1);
    assert_eq!(sample.len(), 10_000);
    assert!(sample.windows(2).all(|pair| pair[0] < pair[1]) && sample.iter().all(|key| key % 10 == 0));
    assert_eq!(sample, take(1));
    assert_ne!(sample, take(2));
    for tenth in 0..10 {
        let within = sample.iter().filter(|&&key| key / 100_000 == tenth).count();
        assert!((880..1_120).contains(&within), "{tenth}: {within}");
    }
    assert_eq!(open(&path, Some(100_000), &OpenOptions::default()).unwrap().keys(), keys);
    let error = open(&path, Some(100_001), &OpenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadRequest);
}

#[test]
fn published_names_in_the_data_folder_are_preferred_to_stand_ins() {
    let folder = TempDir::new().unwrap();
    let options = OpenOptions { data_dir: Some(folder.path().to_owned()), ..OpenOptions::default() };
    let open = |spec: &str| spec.parse::<Spec>().unwrap().open(&options);
    assert_eq!(open("fb:3").unwrap().source(), "stand-in");
    put(&folder, "wiki_ts_200M_uint64.zst", &zst(&encode(4, &[7, 7, 8, 9], 8)));
    put(&folder, "fb_200M_uint64", &encode(4, &[1, 2, 3, 4], 8));
    let fb = open("fb:3").unwrap();
    assert_eq!((fb.source(), fb.len(), fb.name()), ("file", 3, "fb:3"));
    let wiki = open("wiki").unwrap();
    assert_eq!((wiki.source(), wiki.keys()), ("file", &[7, 8, 9][..]));
    assert!(
        wiki.notes().iter().any(|note| note.contains("--duplicates first (implied)")),
        "{:?}",
        wiki.notes()
    );
    assert_eq!((wiki.value(0), wiki.value(1)), (0, 2));
    let refuse = OpenOptions { duplicates: Some(Duplicates::Refuse), ..options.clone() };
    assert_eq!("wiki".parse::<Spec>().unwrap().open(&refuse).unwrap_err().kind(), ErrorKind::Duplicates);
}

#[test]
fn of_several_published_files_the_first_with_enough_keys_is_taken() {
    let folder = TempDir::new().unwrap();
    let options = OpenOptions { data_dir: Some(folder.path().to_owned()), ..OpenOptions::default() };
    let open = |spec: &str| spec.parse::<Spec>().unwrap().open(&options);
    for spec in ["osm:3", "books:3"] {
        let stand_in = open(spec).unwrap();
        assert_eq!(stand_in.source(), "stand-in");
        assert!(stand_in.notes()[0].contains("200M_uint64 (not in "), "{:?}", stand_in.notes());
    }
    put(&folder, "books_200M_uint32.zst", &zst(&encode(3, &[1, 2, 3], 4)));
    put(&folder, "osm_cellids_800M_uint64", &encode(3, &[4, 5, 6], 8));
    let books = open("books").unwrap();
    assert_eq!((books.source(), books.key_bytes(), books.keys()), ("file", 4, &[1, 2, 3][..]));
    assert!(books.notes()[0].contains("books_200M_uint32.zst has 3 keys"), "{:?}", books.notes());
    assert_eq!(open("osm").unwrap().keys(), [4, 5, 6]);
    put(&folder, "books_200M_uint64", &encode(3, &[7, 8, 9], 8));
    put(&folder, "osm_cellids_200M_uint64", &encode(3, &[10, 11, 12], 8));
    let books = open("books:3").unwrap();
    assert_eq!((books.keys(), books.key_bytes(), books.notes().len()), (&[7, 8, 9][..], 8, 1));
    assert_eq!(open("osm").unwrap().keys(), [10, 11, 12]);
    // By its name the smaller file has 200 M keys; more than that only the larger one may have.
    let error = open("osm:300M").unwrap_err().to_string();
    assert!(error.contains("osm:300M has 3 keys"), "{error}");
    fs::remove_file(folder.path().join("osm_cellids_800M_uint64")).unwrap();
    assert_eq!(open("osm:300M").unwrap_err().kind(), ErrorKind::BadRequest);
}

#[test]
fn files_are_published_ones_where_they_have_as_many_keys() {
    let folder = TempDir::new().unwrap();
    let options = OpenOptions { data_dir: Some(folder.path().to_owned()), ..OpenOptions::default() };
    // Its keys are holes of the file, and are not read here.
    let put = |name: &str, keys: u64, width: u64| {
        let file = fs::File::create(folder.path().join(name)).unwrap();
        (&file).write_all(&keys.to_le_bytes()).unwrap();
        file.set_len(8 + keys * width).unwrap();
    };
    let of = |spec: &str| {
        let stream = spec.parse::<Spec>().unwrap().stream(&options).unwrap();
        (stream.source().as_str(), stream.notes().join("; "))
    };
    put("fb_200M_uint64", 200_000_000, 8);
    assert_eq!(of("fb:1M"), ("published (unverified)", String::new()));
    put("fb_200M_uint64", 199_999_999, 8);
    let (source, notes) = of("fb:1M");
    assert_eq!(source, "file");
    assert!(notes.ends_with("fb_200M_uint64 has 199999999 keys, the published one 200000000"), "{notes}");
    put("books_200M_uint32", 200_000_000, 4);
    assert_eq!(of("books"), ("published (unverified)", "books: the published books_200M_uint32".to_owned()));
}

#[test]
fn a_failed_write_leaves_nothing_and_an_existing_file_stays() {
    let folder = TempDir::new().unwrap();
    let path = put(&folder, "k_uint32", b"precious");
    assert!(matches!(SosdWriter::create(&path, false), Err(DatasetError::Exists { .. })));
    let mut writer = SosdWriter::create(&path, true).unwrap();
    writer.push(&[1, 2]).unwrap();
    let error = writer.push(&[u64::from(u32::MAX) + 1]).unwrap_err();
    assert!(matches!(error, DatasetError::TooWide { offset: 16, .. }), "{error}");
    drop(writer);
    let mut writer = SosdWriter::create(&path, true).unwrap();
    writer.push(&[9]).unwrap();
    assert!(matches!(writer.push(&[8]), Err(DatasetError::Unsorted { offset: 12, .. })));
    drop(writer);
    assert!(matches!(SosdWriter::create(&path, true).unwrap().finish(), Err(DatasetError::Empty { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // A name taken while writing is not overwritten.
    let path = folder.path().join("n_uint64");
    let mut writer = SosdWriter::create(&path, false).unwrap();
    writer.push(&[1]).unwrap();
    fs::write(&path, b"other").unwrap();
    assert!(matches!(writer.finish(), Err(DatasetError::Exists { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"other");
}

#[test]
fn verify_hashes_the_decompressed_content() {
    let folder = TempDir::new().unwrap();
    let bytes = encode(3, &[1, 2, 3], 8);
    let plain = verify(&put(&folder, "v_uint64", &bytes), None).unwrap();
    let compressed = verify(&put(&folder, "v_uint64.zst", &zst(&bytes)), None).unwrap();
    assert_eq!(plain.md5, "5581168cabf34722b39dfd781e8a3adf");
    assert_eq!((plain.md5, plain.keys, plain.published), (compressed.md5, 3, None));
    let named = verify(&put(&folder, "fb_200M_uint64", &bytes), None).unwrap();
    assert_eq!(named.matches(), Some(false));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_read_or_refused_without_a_panic(
        count in prop_oneof![0u64..20, any::<u64>()],
        content in prop::collection::vec(any::<u8>(), 0..120),
        wide in any::<bool>(),
        compressed in any::<bool>(),
    ) {
        let folder = TempDir::new().unwrap();
        let bytes = [&count.to_le_bytes()[..], &content].concat();
        let name = format!("p_uint{}{}", if wide { 64 } else { 32 }, if compressed { ".zst" } else { "" });
        let path = put(&folder, &name, &if compressed { zst(&bytes) } else { bytes.clone() });
        let width = if wide { 8 } else { 4 };
        let keys: Vec<u64> = content
            .chunks(width)
            .map(|key| key.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
            .collect();
        let good = count > 0
            && count.checked_mul(width as u64) == Some(content.len() as u64)
            && keys.is_sorted();
        let mut read = Vec::new();
        let outcome = SosdReader::open(&path).and_then(|mut reader| {
            while reader.fill(&mut read, 5)? > 0 {}
            Ok(())
        });
        prop_assert_eq!(outcome.is_ok(), good);
        if good {
            prop_assert_eq!(read, keys);
        }
    }
}

/// Ended by a signal, a process left a hidden file behind.
#[test]
fn a_file_that_is_not_complete_has_no_name() {
    let folder = TempDir::new().unwrap();
    let names = || fs::read_dir(folder.path()).unwrap().count();
    let path = |name: &str| folder.path().join(name);
    let other = OutputFile::create(&path("other")).unwrap();
    let needs_names = names() > 0;
    drop(other);
    let mut keys = SosdWriter::create(&path("keys_uint64"), false).unwrap();
    keys.push(&[1, 2, 3]).unwrap();
    let mut lines = LinesWriter::create(&path("lines"), false).unwrap();
    lines.push(b"a").unwrap();
    assert!(needs_names || names() == 0);
    keys.finish().unwrap();
    lines.finish().unwrap();
    assert_eq!(names(), 2);
}

#[test]
fn a_missing_file_of_any_name_is_told_to_be_missing() {
    let folder = TempDir::new().unwrap();
    for name in ["keys_uint64", "keys", "keys.bin.zst"] {
        let path = folder.path().join(name);
        let error = open(&path, None, &OpenOptions::default()).unwrap_err();
        assert!(matches!(&error, DatasetError::Missing { path: told } if *told == path), "{name}: {error}");
    }
}
