//! The command line.

mod generate;
mod inspect;
mod list;
mod outcome;
mod source;
mod verify;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Key sets for FPCache: what there is, and making, looking at and checking it.
///
/// A data set is written NAME or NAME:COUNT, with decimal K, M and G: fb:16M, wiki, osm, books,
/// ipv4, uniform:1M, normal:1M, lognormal:1M, sequential:1M, sosd:PATH. fb, wiki, osm and books are
/// the published files where $FPCACHE_DATASETS holds them (plain or .zst), else calibrated
/// stand-ins. Their keys are numbers; byte strings are in words, domains:1M, paths:1M, ycsb:60M,
/// binary:1M, prefixes:1M and lines:PATH, a file with one key per line, plain, .gz or .zst.
#[derive(Parser)]
#[command(name = "fpcache-datasets", version = env!("FPCACHE_VERSION"), after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  fpcache-datasets list
  fpcache-datasets generate fb:16M -o fb_16M_uint64
  fpcache-datasets inspect wiki:10M --epsilon 8,64,256
  fpcache-datasets inspect books_200M_uint32.zst --json
  fpcache-datasets inspect lines:urls.txt.gz
  fpcache-datasets verify $FPCACHE_DATASETS/*_uint64

Exit codes: 0 done, 1 a file that was verified is wrong, 2 wrong usage or a failure.";

#[derive(Subcommand)]
enum Command {
    /// Show the data sets, and a command to download and check each published file.
    #[command(after_help = "Examples:\n  fpcache-datasets list\n  fpcache-datasets list --json")]
    List(list::List),
    /// Write a data set as a SOSD file, byte strings as a file of lines.
    #[command(after_help = "Examples:
  fpcache-datasets generate fb:16M -o fb_16M_uint64
  fpcache-datasets generate ipv4 -o ipv4_uint32
  fpcache-datasets generate sosd:fb_200M_uint64.zst:1M --seed 7 -o fb_1M_uint64 --force
  fpcache-datasets generate ycsb:1M --key-bytes 64 -o ycsb.txt")]
    Generate(generate::Generate),
    /// Count keys, duplicates and segments; for byte strings also lengths and shared prefixes.
    #[command(after_help = "Examples:
  fpcache-datasets inspect ipv4
  fpcache-datasets inspect fb:16M --epsilon 8,64,256 --json
  fpcache-datasets inspect path/to/books_200M_uint32.zst
  fpcache-datasets inspect paths:1M
  fpcache-datasets inspect lines:urls.txt.gz --json")]
    Inspect(inspect::Inspect),
    /// Check SOSD files, with the checksum of published ones, or files of lines.
    #[command(after_help = "Examples:
  fpcache-datasets verify fb_200M_uint64 wiki_ts_200M_uint64.zst
  fpcache-datasets verify lines:urls.txt.gz

Exit code: 0 if every file is right, 1 if one is wrong, 2 wrong usage, or if one could not be checked. All are checked in any case.")]
    Verify(verify::Verify),
}

pub(crate) fn run(cli: &Cli) -> ExitCode {
    let outcome = match &cli.command {
        Command::List(list) => list.run(),
        Command::Generate(generate) => generate.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Verify(verify) => verify.run(),
    };
    match outcome {
        Ok(outcome) => match io::stdout().lock().write_all(outcome.text.as_bytes()) {
            // A reader such as `head` that has seen enough is no failure.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => report(&error),
            _ => ExitCode::from(outcome.end as u8),
        },
        Err(error) => report(error.as_ref()),
    }
}

fn report(error: &dyn Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}
