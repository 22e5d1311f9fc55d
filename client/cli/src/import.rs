//! The `import` command: records of a file.

use std::borrow::Borrow;
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use bytesize::ByteSize;
use clap::Args;
use fpcache_client::{ByteKeys, KeyKind, RecordShape, U64Keys};
use fpcache_datasets::Bar;

use crate::fill::Filling;
use crate::keys::{KeyFormat, KeyLengths, Keys, SAMPLE};
use crate::new_keys::NewKeys;
use crate::numbers::size;
use crate::output::{Outcome, Output, counted};
use crate::parameters::Parameters;
use crate::record_buffer::{RecordBuffer, Repeated, SameKeyLines};
use crate::record_lines::{Entry, Form, Lines, Reading};
use crate::records::{FILE, RecordSet, RecordSource, Take, check_room};
use crate::separator::Separator;
use crate::table_arguments::TableArguments;
use crate::table_location::TableLocation;
use crate::value::Format;

/// Lines between two reports of progress.
const STEP: usize = 1 << 16;

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// File with one record per line, plain or compressed by gzip or zstd, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Form of the lines
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    from: Form,

    /// What stands between key and value: the value is all that follows the first one in the line
    /// [default: a tab]
    #[arg(long, value_name = "TEXT")]
    separator: Option<Separator>,

    /// Which record counts if several have the same key
    #[arg(long, value_enum, value_name = "WHICH", default_value = "refuse")]
    duplicates: Repeated,

    /// Memory for sorting. Records that take more must be in key order in the file
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    sort_memory: ByteSize,

    #[command(flatten)]
    keys: NewKeys,

    #[command(flatten)]
    filling: Filling,

    #[command(flatten)]
    format: Format,

    #[command(flatten)]
    key_format: KeyFormat,
}

/// The file of an import.
struct OfFile<'i> {
    import: &'i Import,
    /// Whether the table is created for it.
    is_new: bool,
}

impl Import {
    pub(crate) fn run(&self, place: &TableArguments, output: &mut Output) -> anyhow::Result<Outcome> {
        let there = match self.filling.nodes(place)? {
            Some(nodes) => nodes.find(&place.table)?,
            None => TableLocation::of(place)?.kind(&place.table, self.keys.kind())?,
        };
        let source = OfFile { import: self, is_new: there.is_none() };
        match self.keys.kind().or(there).unwrap_or(KeyKind::U64) {
            KeyKind::U64 => self.filling.fill::<U64Keys, _>(&source, place, output),
            KeyKind::Bytes => self.filling.fill::<ByteKeys, _>(&source, place, output),
        }
    }

    fn reading<K: Keys>(&self, shape: &RecordShape, is_new: bool) -> Reading {
        let remedy = match (KeyKind::U64.is::<K>() && self.keys.kind().is_none(), is_new) {
            (false, _) => "",
            (true, true) => "; for a table of byte strings give --keys bytes",
            (true, false) => {
                "; this table has integers for keys: for byte strings create another, with --table NAME --keys bytes"
            }
        };
        Reading {
            form: self.from,
            separator: self.separator.clone().unwrap_or_default(),
            key_format: self.key_format,
            format: self.format.of(shape.value_bytes.map(|bytes| bytes as usize)),
            shape: *shape,
            remedy,
        }
    }

    /// Reads as many records as the memory is for.
    fn read<K: Keys>(&self, lines: &mut Lines, bar: &Bar) -> anyhow::Result<(RecordBuffer<K>, bool)> {
        let (phase, mut held) = (bar.phase("reading", 0), RecordBuffer::<K>::new());
        while held.bytes() <= self.sort_memory.as_u64() {
            let Some(entry) = lines.next::<K>()? else { return Ok((held, true)) };
            held.push(&entry);
            if held.len().is_multiple_of(STEP) {
                phase.advance(held.len() as u64);
            }
        }
        match held.descent() {
            None => Ok((held, false)),
            Some(line) => bail!(
                "{}: the records take more than the memory for sorting, {}, and the key of line {line} is below the one before: \
                 allow more with --sort-memory, sort the file by its keys first (`sort -n` for integers, `LC_ALL=C sort` for \
                 byte strings), or import it in parts",
                lines.name(),
                self.sort_memory
            ),
        }
    }
}

impl<K: Keys> RecordSource<K> for OfFile<'_> {
    type Records = Imported<K>;

    fn completed(&self, given: Parameters) -> Parameters {
        given.of_any_values(self.import.format.is_int())
    }

    fn lengths(&self) -> KeyLengths {
        self.import.keys.lengths::<K>()
    }

    fn open(&self, shape: &RecordShape, bar: &Bar) -> anyhow::Result<Imported<K>> {
        let import = self.import;
        let mut lines = Lines::open(&import.file, import.reading::<K>(shape, self.is_new))?;
        let (mut held, is_all) = import.read::<K>(&mut lines, bar)?;
        let (name, descents) = (lines.name(), held.descents());
        let dropped = held.order(import.duplicates).map_err(|twins| repeated(&name, twins))?;
        if descents > 0 {
            eprintln!("note: {name}: {} out of key order; sorted in memory", counted(descents, "line"));
        }
        if is_all {
            lines.notes().iter().for_each(|note| eprintln!("note: {note}"));
        }
        let lengths = import.keys.lengths::<K>();
        let longest = held.longest_key() as u32;
        Ok(Imported {
            name,
            lengths: match lengths.every.is_some() || held.len() == 0 {
                true => lengths,
                false => KeyLengths { longest, usual: longest, ..lengths },
            },
            value_bytes: shape.value_bytes,
            held,
            rest: if is_all { None } else { Some(lines) },
            repeated: import.duplicates,
            dropped,
        })
    }
}

/// The records of a file: all in memory; or, of a file in key order, the first of them.
struct Imported<K: Keys> {
    name: String,
    lengths: KeyLengths,
    value_bytes: Option<u32>,
    held: RecordBuffer<K>,
    rest: Option<Lines>,
    repeated: Repeated,
    /// Records that do not count because others have their keys.
    dropped: u64,
}

impl<K: Keys> RecordSet<K> for Imported<K> {
    fn name(&self) -> &str {
        &self.name
    }

    fn source(&self) -> &str {
        FILE
    }

    fn known(&self) -> usize {
        self.held.len()
    }

    fn are_all_known(&self) -> bool {
        self.rest.is_none()
    }

    fn key(&self, i: usize) -> K::Owned {
        self.held.key(i).to_owned()
    }

    fn place(&self, i: usize) -> String {
        format!("line {}", self.held.line(i))
    }

    fn sample(&self) -> Vec<K::Owned> {
        let step = (self.held.len() / SAMPLE).max(1);
        (0..self.held.len()).step_by(step).map(|i| self.key(i)).collect()
    }

    fn lengths(&self) -> KeyLengths {
        self.lengths
    }

    fn value_bytes(&self) -> Option<u32> {
        self.value_bytes
    }

    fn check(&mut self, shape: &RecordShape) -> anyhow::Result<()> {
        if let Some((line, key, value)) = self.held.misfit(|key, value| shape.fits(key, value)) {
            check_room(key, value, shape).map_err(|error| anyhow!("{}: line {line}: {error}", self.name))?;
        }
        if let Some(lines) = &mut self.rest {
            lines.check_room_in(*shape);
        }
        Ok(())
    }

    fn each(&mut self, take: &mut Take<'_, K>) -> anyhow::Result<()> {
        // With what follows the last one is compared.
        let ahead = usize::from(self.rest.is_some());
        for i in 0..self.held.len().saturating_sub(ahead) {
            take(self.held.key(i), self.held.value(i))?;
        }
        if let (Some(lines), Some(last)) = (&mut self.rest, self.held.last()) {
            self.held = RecordBuffer::new();
            self.dropped += stream(&self.name, lines, last, self.repeated, take)?;
            lines.notes().iter().for_each(|note| eprintln!("note: {note}"));
        }
        if self.dropped > 0 {
            let (dropped, which) = (counted(self.dropped, "record"), self.repeated.kept());
            eprintln!("note: {}: {dropped} left out, of keys that occur again; {which} counts", self.name);
        }
        Ok(())
    }
}

/// Passes on a record and those that follow it in the file, which must be in key order; returns how
/// many were left out.
fn stream<K: Keys>(
    name: &str,
    lines: &mut Lines,
    mut current: Entry<K>,
    which: Repeated,
    take: &mut Take<'_, K>,
) -> anyhow::Result<u64> {
    let mut dropped = 0;
    while let Some(next) = lines.next::<K>()? {
        if next.key < current.key {
            bail!(
                "{name}: line {}: its key is below the one before, and more records came before than the memory for sorting \
                 holds: allow more with --sort-memory, or sort the file by its keys first",
                next.line
            );
        }
        if next.key > current.key {
            take(current.key.borrow(), &current.value)?;
            current = next;
            continue;
        }
        dropped += 1;
        match which {
            Repeated::Refuse => {
                return Err(repeated(name, SameKeyLines { first: current.line, second: next.line }));
            }
            Repeated::First => {}
            Repeated::Last => current = next,
        }
    }
    take(current.key.borrow(), &current.value)?;
    Ok(dropped)
}

fn repeated(name: &str, SameKeyLines { first, second }: SameKeyLines) -> anyhow::Error {
    anyhow!(
        "{name}: lines {first} and {second} have the same key: say which one counts with --duplicates first or last"
    )
}

impl Repeated {
    /// Which one counts, in words.
    fn kept(self) -> &'static str {
        if self == Self::Last { "the last" } else { "the first" }
    }
}
