//! The log of a memory node's process on its standard error.

mod queue;

use std::backtrace::Backtrace;
use std::fmt;
use std::io::{self, Write};
use std::panic;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter, fmt};
use tracing_subscriber::registry::LookupSpan;

use queue::{Lines, LogQueue};

/// How long an end waits for lines to be written.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a thread that panics waits for that.
const BEFORE_UNWINDING: Duration = Duration::from_millis(100);

/// Has the events of this level and above written to the standard error from here on, a line each,
/// by a thread of its own: a memory node does not wait for its log to be read. Lines that do not
/// fit 256 KiB until they can be written are lost, and a line says how many; one that is longer than
/// a quarter of that is cut. Dropping the answer waits until those that there are have been written,
/// for a second at most.
///
/// A line that cannot be written, as on a full disk, is lost: it must not end a memory node. Does
/// nothing in a process that has a subscriber of its own already: that one is wanted.
pub fn log_to_stderr(level: LevelFilter) -> StderrLog {
    let queue = Arc::new(LogQueue::default());
    let (lines, for_thread) = (Lines(Arc::clone(&queue)), Arc::clone(&queue));
    let write = move || for_thread.write_all_to(&mut io::stderr());
    match thread::Builder::new().name("fpcache-stderr".into()).spawn(write) {
        Ok(_) => {
            let log = StderrLog(Some(lines.clone()));
            subscribe(level, move || lines.clone());
            log
        }
        // Lines that come late are better than none.
        Err(_) => {
            subscribe(level, io::stderr);
            StderrLog(None)
        }
    }
}

fn subscribe(level: LevelFilter, to: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let log = fmt().with_max_level(level).with_writer(to).with_ansi(false).log_internal_errors(false);
    let _ = tracing::subscriber::set_global_default(log.event_format(Line).finish());
}

/// The lines of [`log_to_stderr`] that are still to be written. To be dropped last: lines that come
/// later may be lost.
#[must_use = "dropping it writes the lines that there are, and later ones may be lost"]
#[derive(Debug)]
pub struct StderrLog(Option<Lines>);

impl StderrLog {
    /// Adds a line of a program's own, as it is and whatever the level.
    pub fn line(&self, line: impl fmt::Display) {
        let line = format!("{line}\n");
        // Written to the standard error directly, it could wait for a reader for ever.
        let _ = match self.0.clone() {
            Some(mut lines) => lines.write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
    }

    /// Has this process tell of panics among these lines. The standard library's way waits for a
    /// reader of the standard error before the thread unwinds, with all that it holds.
    pub fn take_panics(&self) {
        let log = Self(self.0.clone());
        panic::set_hook(Box::new(move |panic| {
            let thread = thread::current();
            let (name, trace) = (thread.name().unwrap_or("<unnamed>"), Backtrace::capture());
            log.line(format_args!("thread '{name}' {panic}\n{trace}"));
            // A panic while one unwinds ends the process at once.
            if let Some(lines) = &log.0 {
                lines.0.wait_until_written(BEFORE_UNWINDING);
            }
        }));
    }
}

impl Drop for StderrLog {
    fn drop(&mut self) {
        if let Some(lines) = &self.0 {
            lines.0.wait_until_written(PATIENCE);
        }
    }
}

/// `fpcache-memserver: `, the level unless it is that of what goes as it should, message and
/// fields.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            Level::INFO => "",
            Level::DEBUG | Level::TRACE => "debug: ",
        };
        write!(to, "fpcache-memserver: {level}")?;
        context.format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}
