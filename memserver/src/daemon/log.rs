//! The log of a memory node's process on its standard error.

use std::fmt;
use std::io;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, fmt};
use tracing_subscriber::registry::LookupSpan;

/// Has the events of this level and above written to the standard error from here on, a line each.
///
/// A line that cannot be written, as on a full disk, is lost: it must not end a memory node. Does
/// nothing in a process that has a subscriber of its own already: that one is wanted.
pub fn log_to_stderr(level: LevelFilter) {
    let log = fmt().with_max_level(level).with_writer(io::stderr).with_ansi(false).log_internal_errors(false);
    let _ = tracing::subscriber::set_global_default(log.event_format(Line).finish());
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
