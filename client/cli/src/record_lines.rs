//! The lines of files with records: as text or as JSON, one record each.

use std::borrow::Borrow;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use clap::ValueEnum;
use fpcache_client::RecordShape;
use fpcache_datasets::{Content, DatasetError, MAX_KEY_BYTES};
use serde_json::Value;

use crate::keys::{KeyFormat, Keys};
use crate::output::counted;
use crate::records::{check_key, check_room};
use crate::separator::Separator;
use crate::value::{MAX_VALUE_BYTES, TableFormat};

/// Bytes of a line: enough for the longest value there may be, all of it escaped.
const MAX_LINE_BYTES: u64 = 128 << 20;

/// The byte order mark of UTF-8, with which some programs begin files of text.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The form of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Key, separator and value
    Text,
    /// JSON lines: an object with `key` and `value` on each, as scan --json writes them
    Jsonl,
}

/// How lines are read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) form: Form,
    pub(crate) separator: Separator,
    pub(crate) key_format: KeyFormat,
    pub(crate) format: TableFormat,
    pub(crate) shape: RecordShape,
    /// What may be done about a key that is none of the table.
    pub(crate) remedy: &'static str,
}

/// A record of a file.
#[derive(Debug)]
pub(crate) struct Entry<K: Keys> {
    pub(crate) key: K::Owned,
    pub(crate) value: Vec<u8>,
    /// The number of its line, from 1.
    pub(crate) line: u64,
}

/// The records of a file, in its order.
pub(crate) struct Lines {
    path: PathBuf,
    input: BufReader<Content>,
    line: Vec<u8>,
    number: u64,
    /// Lines that ended in a carriage return.
    returns: u64,
    /// Whether the file begins with a byte order mark.
    has_bom: bool,
    reading: Reading,
    /// The shape of the slots that records must fit, once it is known.
    slots: Option<RecordShape>,
}

impl Lines {
    pub(crate) fn open(path: &Path, reading: Reading) -> anyhow::Result<Self> {
        let content = Content::of_lines(path).map_err(|error| match error {
            DatasetError::Missing { path } => anyhow!("{}: no such file; check the path", path.display()),
            DatasetError::OtherCompression { path, program } => anyhow!(
                "{}: {program} files are not read: decompress it first, for example `{program} -dc FILE | fpcache-cli import -`, \
                 or compress it with gzip or zstd",
                path.display()
            ),
            error => error.into(),
        })?;
        let (path, input) = (path.to_owned(), BufReader::with_capacity(1 << 17, content));
        Ok(Self {
            path,
            input,
            line: Vec::new(),
            number: 0,
            returns: 0,
            has_bom: false,
            reading,
            slots: None,
        })
    }

    /// Refuses from here on records that slots of this shape have no room for.
    pub(crate) fn check_room_in(&mut self, slots: RecordShape) {
        self.slots = Some(slots);
    }

    /// The file, as messages name it.
    pub(crate) fn name(&self) -> String {
        if self.path.as_os_str() == "-" {
            "standard input".to_owned()
        } else {
            self.path.display().to_string()
        }
    }

    /// What is to be said once all is read.
    pub(crate) fn notes(&self) -> Vec<String> {
        let bom = self.has_bom.then(|| "the byte order mark at its start was left out".to_owned());
        let returns = (self.returns > 0).then(|| {
            format!(
                "{} ended in a carriage return, which was taken for a part of the line's end",
                counted(self.returns, "line")
            )
        });
        bom.into_iter().chain(returns).map(|note| format!("{}: {note}", self.name())).collect()
    }

    /// The next record, or `None` at the end. An error names the file, the line and the cause.
    pub(crate) fn next<K: Keys>(&mut self) -> anyhow::Result<Option<Entry<K>>> {
        while self.advance()? {
            match self.record::<K>() {
                Ok(None) => {}
                Ok(Some((key, value))) => return Ok(Some(Entry { key, value, line: self.number })),
                Err(error) => return Err(self.damaged_or(error)),
            }
        }
        Ok(None)
    }

    /// Reads a line; `false` at the end.
    fn advance(&mut self) -> anyhow::Result<bool> {
        self.line.clear();
        // An error of reading names the file itself.
        let read = self.input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.line.pop_if(|last| *last == b'\n').is_none() && read as u64 == MAX_LINE_BYTES {
            return Err(
                self.damaged_or(anyhow!("the line is longer than any record: is it a file of records?"))
            );
        }
        self.returns += u64::from(self.line.pop_if(|last| *last == b'\r').is_some());
        if self.number == 1 && self.line.starts_with(MARK) {
            self.line.drain(..MARK.len());
            self.has_bom = true;
        }
        Ok(true)
    }

    /// What a line that makes no sense comes from: compressed content that is damaged may give such
    /// lines before its checksum is reached.
    fn damaged_or(&mut self, error: anyhow::Error) -> anyhow::Error {
        let damage = self.input.get_mut().damage().map(anyhow::Error::from);
        damage.unwrap_or_else(|| anyhow!("{}: line {}: {error:#}", self.name(), self.number))
    }

    /// Key and value of the line; `None` if it has none and may be skipped.
    fn record<K: Keys>(&self) -> anyhow::Result<Option<(K::Owned, Vec<u8>)>> {
        let record = match self.reading.form {
            Form::Text => Some(self.of_text::<K>()?),
            Form::Jsonl => self.of_json::<K>()?,
        };
        if let Some((key, value)) = &record {
            self.check(K::encoded_len(key.borrow()), value.len())?;
        }
        Ok(record)
    }

    /// Refuses a key or a value that no record of the table can have.
    fn check(&self, key_bytes: usize, value_bytes: usize) -> anyhow::Result<()> {
        ensure!(
            (1..=MAX_KEY_BYTES).contains(&key_bytes),
            "the key has {}, but keys have 1 to {MAX_KEY_BYTES}",
            counted(key_bytes as u64, "byte")
        );
        check_key(key_bytes, &self.reading.shape)?;
        ensure!(
            value_bytes <= MAX_VALUE_BYTES,
            "the value has {value_bytes} bytes, but values have at most {MAX_VALUE_BYTES}: split it into several records"
        );
        self.slots.map_or(Ok(()), |slots| check_room(key_bytes, value_bytes, &slots))
    }

    fn of_text<K: Keys>(&self) -> anyhow::Result<(K::Owned, Vec<u8>)> {
        let Reading { separator, format, .. } = &self.reading;
        let (key, value) = separator.split(&self.line).with_context(|| {
            let hint = if self.line.starts_with(b"{") { "; JSON lines need --from jsonl" } else { "" };
            format!(
                "there is no `{}` between a key and a value: name what stands there with --separator{hint}",
                separator.shown()
            )
        })?;
        let text = |bytes, what: &str, remedy: &str| {
            str::from_utf8(bytes).map_err(|_| anyhow!("the {what} is not UTF-8: {remedy}"))
        };
        let key = text(key, "key", "write other bytes as \\xNN, or keys in hexadecimal and give --hex")?;
        let value =
            text(value, "value", "convert the file, or write values in hexadecimal and give --format hex")?;
        Ok((self.key::<K>(key)?, format.parse(value)?))
    }

    /// Also of the lines of one array, as `scan --json` writes them.
    fn of_json<K: Keys>(&self) -> anyhow::Result<Option<(K::Owned, Vec<u8>)>> {
        let line = self.line.trim_ascii();
        let line = line.strip_suffix(b",").unwrap_or(line);
        if matches!(line, b"" | b"[" | b"]" | b"[]") {
            return Ok(None);
        }
        let record: Value = serde_json::from_slice(line).map_err(|error| {
            anyhow!("{error}; a line is written like {{\"key\":\"zebra\",\"value\":\"striped\"}}")
        })?;
        let field = |name| record.get(name).with_context(|| format!("there is no field \"{name}\""));
        let key = match field("key")? {
            Value::String(text) => self.key::<K>(text)?,
            // With --hex its digits would be read otherwise.
            Value::Number(number) => {
                K::parse(&number.to_string(), KeyFormat { is_hex: false }).map_err(|e| self.of_key(&e))?
            }
            _ => bail!("the key is neither a string nor a number"),
        };
        Ok(Some((key, self.reading.format.parse_json(field("value")?)?)))
    }

    fn key<K: Keys>(&self, text: &str) -> anyhow::Result<K::Owned> {
        K::parse(text, self.reading.key_format).map_err(|error| self.of_key(&error))
    }

    fn of_key(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow!("{error}{}", self.reading.remedy)
    }
}
