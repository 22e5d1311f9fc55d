//! The command line.

mod generate;
mod inspect;
mod list;
mod progress;
mod verify;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use fpcache_datasets::OpenOptions;

use progress::Bar;

/// Key sets for FPCache: what there is, and making, looking at and checking it.
///
/// A data set is written NAME or NAME:COUNT, with decimal K, M and G: fb:16M, wiki, osm, books, ipv4, uniform:1M,
/// normal:1M, lognormal:1M, sequential:1M, sosd:PATH. fb, wiki, osm and books are the published files where
/// $FPCACHE_DATA holds them (plain or .zst), else calibrated stand-ins.
#[derive(Parser)]
#[command(name = "fpcache-datasets", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  fpcache-datasets list
  fpcache-datasets generate fb:16M -o fb_16M_uint64
  fpcache-datasets inspect wiki:10M --epsilon 8,64,256
  fpcache-datasets inspect books_200M_uint32.zst --json
  fpcache-datasets verify $FPCACHE_DATA/*_uint64";

#[derive(Subcommand)]
enum Command {
    /// Show the data sets, and a command to download and check each published file.
    #[command(after_help = "Examples:\n  fpcache-datasets list\n  fpcache-datasets list --json")]
    List(list::List),
    /// Write a data set as a SOSD file.
    #[command(after_help = "Examples:
  fpcache-datasets generate fb:16M -o fb_16M_uint64
  fpcache-datasets generate ipv4 -o ipv4_uint32
  fpcache-datasets generate sosd:fb_200M_uint64.zst:1M --seed 7 -o fb_1M_uint64 --force")]
    Generate(generate::Generate),
    /// Count keys, duplicates and segments.
    #[command(after_help = "Examples:
  fpcache-datasets inspect ipv4
  fpcache-datasets inspect fb:16M --epsilon 8,64,256 --json
  fpcache-datasets inspect path/to/books_200M_uint32.zst")]
    Inspect(inspect::Inspect),
    /// Check SOSD files: format, and for published names the checksum.
    #[command(after_help = "Examples:\n  fpcache-datasets verify fb_200M_uint64 wiki_ts_200M_uint64.zst")]
    Verify(verify::Verify),
}

/// What every command that reads data sets takes.
#[derive(Args)]
struct SourceArgs {
    /// Seeds generators and samples.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// The folder with published files.
    #[arg(long, env = "FPCACHE_DATA", value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
}

impl SourceArgs {
    fn options<'a>(&self, bar: &'a Bar) -> OpenOptions<'a> {
        OpenOptions {
            seed: self.seed,
            duplicates: None,
            data_dir: self.data_dir.clone(),
            progress: Some(bar),
        }
    }
}

/// What a command has to say, and whether all was well.
struct Outcome {
    text: String,
    success: bool,
}

impl From<String> for Outcome {
    fn from(text: String) -> Self {
        Self { text, success: true }
    }
}

type Failure = Box<dyn Error>;

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
            _ if outcome.success => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        },
        Err(error) => report(error.as_ref()),
    }
}

fn report(error: &dyn Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

fn announce(notes: &[String]) {
    notes.iter().for_each(|note| eprintln!("note: {note}"));
}
