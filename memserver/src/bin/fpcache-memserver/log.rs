//! The level and the form of what the daemon writes to its standard error.

use clap::ValueEnum;
use fpcache_memserver::daemon::LogFormat;
use tracing::level_filters::LevelFilter;

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

/// How it is written.
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
