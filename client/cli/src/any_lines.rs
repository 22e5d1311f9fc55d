//! The lines of files with records, whatever the records and whatever the bytes.

use std::borrow::Borrow;
use std::fmt::Debug;
use std::io::Write;

use fpcache_client::{ByteKeys, KeyKind, RecordShape, U64Keys};
use proptest::prelude::*;
use tempfile::NamedTempFile;

use crate::export::Writing;
use crate::keys::{KeyFormat, Keys};
use crate::output::Output;
use crate::record_lines::{Entry, Form, Lines, Reading};
use crate::separator::Separator;
use crate::value::Format;

/// How lines are written and read.
#[derive(Clone, Debug)]
struct LineFormat {
    form: Form,
    separator: Separator,
    is_hex: bool,
    format: Format,
    /// Bytes of every value, unless they vary.
    len: Option<usize>,
    /// Whether numbers are strings in JSON.
    strings: bool,
}

impl LineFormat {
    fn any() -> impl Strategy<Value = Self> {
        let separators =
            ["\\t", ",", ";", " ", "::", "'", "\"", "ü", "-->", "{", "\\0", "\u{feff}", "\u{85}"];
        let separator = prop::sample::select(separators.to_vec());
        let form = prop::sample::select(&[Form::Text, Form::Jsonl][..]);
        let format = prop::sample::select(Format::all());
        let lengths = prop::option::of(prop_oneof![Just(8), 0..12usize]);
        (form, separator, any::<bool>(), format, lengths, any::<bool>()).prop_map(
            |(form, separator, is_hex, format, len, strings)| {
                let separator = separator.parse().expect("none of them is part of keys");
                Self { form, separator, is_hex, format, len, strings }
            },
        )
    }

    fn key_format(&self) -> KeyFormat {
        KeyFormat { is_hex: self.is_hex }
    }

    /// The lines of these records, and those of the records that have one.
    fn write<K: Keys>(&self, records: &[Record<K>]) -> (Vec<u8>, Vec<Record<K>>) {
        let writing = Writing {
            form: self.form,
            separator: self.separator.clone(),
            key_format: self.key_format(),
            format: self.format.of(self.len),
        };
        let output = Output::new(false, self.strings);
        let (mut lines, mut written) = (Vec::new(), Vec::new());
        for (key, value) in records {
            match writing.line::<K>(key.borrow(), value, &output) {
                Ok(line) => {
                    lines.extend(line.bytes());
                    written.push((key.clone(), value.clone()));
                }
                Err(error) => assert!(error.to_string().contains("use --"), "no remedy: {error}"),
            }
        }
        (lines, written)
    }

    fn read<K: Keys>(&self, content: &[u8]) -> (Vec<anyhow::Result<Entry<K>>>, Vec<String>) {
        let mut file = NamedTempFile::new().expect("a file");
        file.write_all(content).expect("it is written");
        let reading = Reading {
            form: self.form,
            separator: self.separator.clone(),
            key_format: self.key_format(),
            format: self.format.of(self.len),
            shape: RecordShape {
                key_bytes: KeyKind::U64.is::<K>().then_some(8),
                value_bytes: self.len.map(|len| len as u32),
                room: 64,
            },
            remedy: "",
        };
        let mut entries = Vec::new();
        let mut lines = match Lines::open(file.path(), reading) {
            Ok(lines) => lines,
            Err(error) => return (vec![Err(error)], Vec::new()),
        };
        // After an error the next line may be read; one of the file itself would come again.
        for _ in 0..=content.split(|byte| *byte == b'\n').count() {
            match lines.next::<K>() {
                Ok(None) => break,
                Ok(Some(entry)) => entries.push(Ok(entry)),
                Err(error) => entries.push(Err(error)),
            }
        }
        (entries, lines.notes())
    }

    /// Records that are written are read as they were.
    fn check<K: Keys<Owned: Debug + PartialEq>>(&self, records: &[Record<K>]) {
        let (lines, written) = self.write::<K>(records);
        let (read, notes) = self.read::<K>(&lines);
        let read: Vec<Record<K>> = read
            .into_iter()
            .map(|entry| entry.map(|Entry { key, value, .. }| (key, value)))
            .collect::<anyhow::Result<_>>()
            .unwrap_or_else(|error| panic!("{error:#} in {:?}", String::from_utf8_lossy(&lines)));
        assert_eq!(read, written, "{:?}", String::from_utf8_lossy(&lines));
        assert!(notes.is_empty(), "{:?}", String::from_utf8_lossy(&lines));
    }

    /// Of any bytes, what is read is written and read as the same record again.
    fn check_content<K: Keys<Owned: Debug + PartialEq>>(&self, content: &[u8]) {
        let (read, _) = self.read::<K>(content);
        let records: Vec<Record<K>> =
            read.into_iter().flatten().map(|Entry { key, value, .. }| (key, value)).collect();
        self.check::<K>(&records);
    }
}

type Record<K> = (<K as fpcache_client::KeySpace>::Owned, Vec<u8>);

/// Texts and other bytes, with those that lines have a meaning for among them.
fn bytes(pieces: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    let ends = ["\n", "\r", "\r\n", "\t"];
    let special = [
        "\\", "\\x", "\\x2", "\\n", ",", ":", "::", " ", "'", "\"", "{", "}", "[", "]", "0", "0x", "7", "ff",
        "-", "-->", "\0", "\u{feff}", "\u{85}", "\u{2028}", "ü", "BZh9", "\u{1f}",
    ];
    let piece = prop_oneof![
        prop::sample::select(ends.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        prop::sample::select(special.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 1..4),
        "[a-z0-9]{1,3}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(piece, pieces).prop_map(|pieces| pieces.concat())
}

/// Content of files: bytes, and what resembles lines.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let key = || prop_oneof![bytes(1..4), any::<u64>().prop_map(|key| key.to_string().into_bytes())];
    let text = (key(), key()).prop_map(|(key, value)| [&key[..], b"\t", &value, b"\n"].concat());
    let json = (key(), key()).prop_map(|(key, value)| {
        let [key, value] = [key, value].map(|part| String::from_utf8_lossy(&part).into_owned());
        format!("{}\n", serde_json::json!({ "key": key, "value": value })).into_bytes()
    });
    let numbers = (any::<u64>(), any::<i64>())
        .prop_map(|(key, value)| format!("{{\"key\":{key},\"value\":{value}}},\n").into_bytes());
    let compressed = prop::sample::select(vec![
        &b"\x1f\x8b\x08\0"[..],
        b"\x28\xb5\x2f\xfd",
        b"\xfd7zXZ\0",
        b"\xef\xbb\xbf",
    ])
    .prop_map(<[u8]>::to_vec);
    let line = prop_oneof![4 => text, 4 => json, 2 => numbers, 2 => bytes(0..8), 1 => compressed];
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn what_is_written_of_a_record_is_read_as_that_record(
        way in LineFormat::any(),
        records in prop::collection::vec((bytes(1..8), bytes(0..8), any::<u64>()), 0..8),
    ) {
        let of_len = |mut value: Vec<u8>| {
            value.resize(way.len.unwrap_or(value.len()), b'v');
            value
        };
        let (strings, numbers): (Vec<_>, Vec<_>) = records
            .into_iter()
            .map(|(key, value, number)| ((key, of_len(value.clone())), (number, of_len(value))))
            .unzip();
        way.check::<ByteKeys>(&strings);
        way.check::<U64Keys>(&numbers);
    }

    #[test]
    fn no_bytes_of_a_file_cause_a_panic(way in LineFormat::any(), content in content()) {
        way.check_content::<ByteKeys>(&content);
        way.check_content::<U64Keys>(&content);
    }
}
