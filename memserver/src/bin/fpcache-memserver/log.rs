//! What the daemon writes to its standard error.

use std::fmt;
use std::io;

use clap::ValueEnum;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, fmt};
use tracing_subscriber::registry::LookupSpan;

/// The least of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Nothing
    Off,
    /// What has failed
    Error,
    /// What may need somebody's attention, too
    Warn,
    /// What an operator has asked for and what is well again, too
    Info,
    /// Clients that come and go, too
    Debug,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
        }
    }
}

/// Has events of this level and above written, a line each. A line that nobody can take, as on a full disk, is lost: it must not
/// end a memory node.
pub(crate) fn begin(level: LogLevel) {
    let log =
        fmt().with_max_level(LevelFilter::from(level)).with_writer(io::stderr).log_internal_errors(false);
    // Somebody who has begun another log before wants that one.
    let _ = tracing::subscriber::set_global_default(log.event_format(Line).finish());
}

/// `fpcache-memserver: `, the level unless it is that of what goes as it should, message and fields.
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
