//! `fpcache-datasets`: lists, generates, inspects and verifies key sets.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use fpcache_datasets::arguments::without_empty_variables;

fn main() -> ExitCode {
    let matches = without_empty_variables(cli::Cli::command()).get_matches();
    cli::run(&cli::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
}
