//! The forms of the log's lines.

use std::fmt::{self, Write};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;

/// Bytes of a line, at most.
pub(super) const LONGEST: usize = 64 << 10;
/// Of these, bytes for what comes before and after the message.
const AROUND: usize = 256;

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// As text without the time, which a service manager's journal adds.
    #[default]
    Plain,
    /// The same after the time in UTC, as RFC 3339 has it.
    Text,
    /// As objects of JSON: `timestamp`, `level` and `message`.
    Json,
}

impl LogFormat {
    pub(super) fn line(self, level: Level, text: impl fmt::Display) -> String {
        let text = text.to_string();
        match self {
            Self::Plain => format!("{}\n", written(&text, String::push)),
            Self::Text => format!("{} {}\n", now(), written(&text, String::push)),
            Self::Json => {
                let (now, message) = (now(), written(text.trim_end(), push_escaped));
                format!("{{\"timestamp\":\"{now}\",\"level\":\"{level}\",\"message\":\"{message}\"}}\n")
            }
        }
    }
}

fn now() -> String {
    let mut now = String::new();
    // Writing into a text does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    now
}

/// A message as it is written; of one that is too long the beginning, and how much is missing.
fn written(text: &str, push: impl Fn(&mut String, char)) -> String {
    let mut written = String::with_capacity(text.len().min(LONGEST));
    for (at, c) in text.char_indices() {
        if written.len() > LONGEST - AROUND {
            let _ = write!(written, " [cut: {} bytes are missing here]", text.len() - at);
            break;
        }
        push(&mut written, c);
    }
    written
}

/// As in a string of JSON.
fn push_escaped(escaped: &mut String, c: char) {
    // Writing into a text does not fail.
    let _ = match c {
        '"' | '\\' => write!(escaped, "\\{c}"),
        '\0'..' ' => write!(escaped, "\\u{:04x}", u32::from(c)),
        c => escaped.write_char(c),
    };
}

/// Text has `fpcache-memserver: ` and the level, unless it is that of what goes as it should,
/// before message and fields.
impl<S, N> FormatEvent<S, N> for LogFormat
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
        let level = *event.metadata().level();
        let shown = match level {
            _ if *self == Self::Json => "",
            Level::ERROR => "fpcache-memserver: error: ",
            Level::WARN => "fpcache-memserver: warning: ",
            Level::INFO => "fpcache-memserver: ",
            Level::DEBUG | Level::TRACE => "fpcache-memserver: debug: ",
        };
        let mut text = shown.to_owned();
        context.format_fields(Writer::new(&mut text), event)?;
        to.write_str(&self.line(level, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_string_of_json_is_escaped() {
        let line = LogFormat::Json.line(Level::WARN, "a \"b\" \\ c\td\ne é\n");
        let message = line.split_once("\"message\":").expect("a message").1;
        assert_eq!(message, "\"a \\\"b\\\" \\\\ c\\u0009d\\u000ae é\"}\n");
    }

    /// It ended in the middle of its string.
    #[test]
    fn a_line_that_is_cut_is_an_object_of_json() {
        for part in ["x", "\"", "\u{1}", "é"] {
            let text = part.repeat(8 * LONGEST);
            let line = LogFormat::Json.line(Level::INFO, &text);
            let message = line.split_once("\"message\":\"").expect("a message").1;
            let message = message.strip_suffix("\"}\n").expect("an end");
            let (kept, rest) = message.split_once(" [cut: ").expect("a cut");
            let missing: usize = rest.split_once(' ').expect("a number").0.parse().expect("a number");
            let mut whole = String::new();
            text[..text.len() - missing].chars().for_each(|c| push_escaped(&mut whole, c));
            assert!(kept == whole && line.len() <= LONGEST, "{part:?}: {} bytes", line.len());
        }
    }
}
