//! Standard output, as text or as one JSON document.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde_json::Value;

/// The outcome of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Success.
    Done,
    /// A key is absent, exists already or has changed, an answer is wrong, or a table is closed.
    Wrong,
}

/// Where a command writes its results.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    json: bool,
    /// Whether keys and values that are numbers are strings in JSON.
    strings: bool,
    /// Elements of the JSON array that is being written.
    elements: u64,
    /// Whether its reader, such as `head`, has seen enough: what is written then goes nowhere, and
    /// is no failure.
    is_closed: bool,
}

impl Output {
    pub(crate) fn new(json: bool, strings: bool) -> Self {
        Self { out: BufWriter::new(io::stdout().lock()), json, strings, elements: 0, is_closed: false }
    }

    /// Whether to write JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether its reader has gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        match write(&mut self.out) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            written => written.map_err(|error| {
                io::Error::new(error.kind(), format!("writing the standard output: {error}"))
            }),
        }
    }

    /// Writes a line of text.
    pub(crate) fn line(&mut self, text: impl Display) -> io::Result<()> {
        self.write(|out| writeln!(out, "{text}"))
    }

    /// Whether it is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Writes raw bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(|out| out.write_all(bytes))
    }

    /// Writes a name and a value, in columns.
    pub(crate) fn row(&mut self, name: &str, text: impl Display) -> io::Result<()> {
        self.write(|out| writeln!(out, "{name:<12}{text}"))
    }

    /// Writes a name and several lines, in columns.
    pub(crate) fn rows(&mut self, name: &str, text: impl Display) -> io::Result<()> {
        let text = text.to_string();
        let names = std::iter::once(name).chain(std::iter::repeat(""));
        text.lines().zip(names).try_for_each(|(line, name)| self.row(name, line))
    }

    /// Writes a whole JSON document.
    pub(crate) fn document(&mut self, value: &Value) -> io::Result<()> {
        let value = self.as_asked(value);
        self.write(|out| writeln!(out, "{value}"))
    }

    /// The object, with keys and values as strings if `--json-strings` was given.
    pub(crate) fn as_asked(&self, value: &Value) -> Value {
        let mut value = value.clone();
        if self.strings {
            for field in ["key", "value", "asked"] {
                if let Some(number) = value.get_mut(field).filter(|field| field.is_u64()) {
                    *number = number.to_string().into();
                }
            }
        }
        value
    }

    /// Writes the next element of a JSON array, on a line of its own.
    pub(crate) fn element(&mut self, value: &Value) -> io::Result<()> {
        let before = if self.elements == 0 { "[\n" } else { ",\n" };
        self.elements += 1;
        let value = self.as_asked(value);
        self.write(|out| write!(out, "{before}{value}"))
    }

    /// Ends the array, if this is JSON.
    pub(crate) fn end_array(&mut self) -> io::Result<()> {
        if !self.json {
            return Ok(());
        }
        let is_empty = std::mem::take(&mut self.elements) == 0;
        self.write(|out| out.write_all(if is_empty { b"[]\n" } else { b"\n]\n" }))
    }

    /// Ends the JSON array that a command which has failed has begun, if it has.
    pub(crate) fn end_begun_array(&mut self) -> io::Result<()> {
        if self.elements > 0 { self.end_array() } else { Ok(()) }
    }

    /// Flushes the output.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.write(Write::flush)
    }
}

/// A number of things: `1 key`, `2 keys`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
