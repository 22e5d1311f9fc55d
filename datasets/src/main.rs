//! `fpcache-datasets`: lists, generates, inspects and verifies key sets.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cli::run(&cli::Cli::parse())
}
