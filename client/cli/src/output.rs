//! Standard output, as text or as one JSON document.

use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde_json::Value;

/// Where a command writes what it found.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    json: bool,
    /// Elements of the JSON array that is being written.
    elements: u64,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { out: BufWriter::new(io::stdout().lock()), json, elements: 0 }
    }

    /// Whether JSON is wanted.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Writes a line of text.
    pub(crate) fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Writes a name and what belongs to it, in columns.
    pub(crate) fn row(&mut self, name: &str, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{name:<12}{text}")
    }

    /// Writes a whole JSON document.
    pub(crate) fn document(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{value}")
    }

    /// Writes the next element of a JSON array, on a line of its own.
    pub(crate) fn element(&mut self, value: &Value) -> io::Result<()> {
        let before = if self.elements == 0 { "[\n" } else { ",\n" };
        self.elements += 1;
        write!(self.out, "{before}{value}")
    }

    /// Ends the JSON array.
    pub(crate) fn end_array(&mut self) -> io::Result<()> {
        self.out.write_all(if self.elements == 0 { b"[]\n" } else { b"\n]\n" })
    }

    /// Hands everything to the operating system.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
