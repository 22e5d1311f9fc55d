//! The log of a memory node's process on its standard error.

mod format;
mod queue;

use std::backtrace::Backtrace;
use std::fmt;
use std::io::{self, Write};
use std::panic;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::{MakeWriter, fmt};

use queue::{Lines, LogQueue};

pub use format::LogFormat;

/// How long an end waits for lines to be written.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a thread that panics waits for that.
const BEFORE_UNWINDING: Duration = Duration::from_millis(100);

/// Has the events of this level and above written to the standard error from here on, a line each,
/// by a thread of its own: a memory node does not wait for its log to be read. Lines that do not
/// fit 256 KiB until they can be written are lost, and a line says how many; one that is longer
/// than a quarter of that is cut. Dropping the answer waits until those that there are have been
/// written, for a second at most.
///
/// A line that cannot be written, as on a full disk, is lost: it must not end a memory node. Does
/// nothing in a process that has a subscriber of its own already: that one is wanted.
pub fn log_to_stderr(level: LevelFilter) -> StderrLog {
    log_to_stderr_as(level, LogFormat::default())
}

/// As [`log_to_stderr`], with lines of this form.
pub fn log_to_stderr_as(level: LevelFilter, format: LogFormat) -> StderrLog {
    let queue = Arc::new(LogQueue::of(format));
    let (lines, for_thread) = (Lines(Arc::clone(&queue)), Arc::clone(&queue));
    let write = move || for_thread.write_all_to(&mut io::stderr());
    match thread::Builder::new().name("fpcache-stderr".into()).spawn(write) {
        Ok(_) => {
            let log = StderrLog { format, lines: Some(lines.clone()) };
            subscribe(level, format, move || lines.clone());
            log
        }
        // Lines that come late are better than none.
        Err(_) => {
            subscribe(level, format, io::stderr);
            StderrLog { format, lines: None }
        }
    }
}

fn subscribe(level: LevelFilter, format: LogFormat, to: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let log = fmt().with_max_level(level).with_writer(to).with_ansi(false).log_internal_errors(false);
    let _ = tracing::subscriber::set_global_default(log.event_format(format).finish());
}

/// The lines of [`log_to_stderr`] that are still to be written. To be dropped last: lines that come
/// later may be lost.
#[must_use = "dropping it writes the lines that there are, and later ones may be lost"]
#[derive(Debug)]
pub struct StderrLog {
    format: LogFormat,
    lines: Option<Lines>,
}

impl StderrLog {
    /// Adds a line of a program's own about what has failed, whatever the level.
    pub fn line(&self, line: impl fmt::Display) {
        let line = self.format.line(Level::ERROR, line);
        // Written to the standard error directly, it could wait for a reader for ever.
        let _ = match self.lines.clone() {
            Some(mut lines) => lines.write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
    }

    /// Has this process tell of panics among these lines. The standard library's way waits for a
    /// reader of the standard error before the thread unwinds, with all that it holds.
    pub fn take_panics(&self) {
        let log = Self { format: self.format, lines: self.lines.clone() };
        panic::set_hook(Box::new(move |panic| {
            let thread = thread::current();
            let (name, trace) = (thread.name().unwrap_or("<unnamed>"), Backtrace::capture());
            log.line(format_args!("thread '{name}' {panic}\n{trace}"));
            // A panic while one unwinds ends the process at once.
            if let Some(lines) = &log.lines {
                lines.0.wait_until_written(BEFORE_UNWINDING);
            }
        }));
    }
}

impl Drop for StderrLog {
    fn drop(&mut self) {
        if let Some(lines) = &self.lines {
            lines.0.wait_until_written(PATIENCE);
        }
    }
}
