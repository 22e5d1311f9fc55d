//! The level and the format of the messages that the daemon writes to standard error.

use clap::ValueEnum;
use fpcache_memserver::daemon::LogFormat;
use tracing::level_filters::LevelFilter;

/// The lowest level of messages that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// No messages
    Off,
    /// Failures
    Error,
    /// Also what may need attention
    Warn,
    /// Also operator requests and recoveries
    Info,
    /// Also clients that connect and leave
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

/// The format of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// Text without the time, which a service manager's journal adds
    Plain,
    /// Text after the time in UTC, as in RFC 3339
    Text,
    /// An object of JSON with the time
    Json,
}

impl From<LogForm> for LogFormat {
    fn from(form: LogForm) -> Self {
        match form {
            LogForm::Plain => Self::Plain,
            LogForm::Text => Self::Text,
            LogForm::Json => Self::Json,
        }
    }
}
