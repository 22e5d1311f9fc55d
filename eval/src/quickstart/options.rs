//! Options of the quickstart.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::counts::positive_count;

/// What the quickstart takes.
#[derive(Args, Debug, Default)]
pub struct QuickstartArgs {
    /// Amount of work
    #[arg(long, value_enum, default_value = "normal")]
    pub size: Size,
    /// Keys of the generated data sets, such as 16M [default: according to --size]
    #[arg(long, value_parser = positive_count)]
    pub keys: Option<u64>,
    /// Lookups of every pass, such as 500K [default: according to --size]
    #[arg(long, value_parser = positive_count)]
    pub lookups: Option<u64>,
    /// Folder for the page, its figures, and the plot of the cache sweep [default: only the page,
    /// below target/]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// How much work the quickstart does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// 200 K keys and 100 K lookups: a few seconds
    Small,
    /// 2 M keys and 300 K lookups: about half a minute
    #[default]
    Normal,
}
