//! The command line.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{Arg, CommandFactory, FromArgMatches, Id, Parser, Subcommand};
use fpcache_client::GroupChoice;
use fpcache_datasets::arguments::{refuse_apart, without_empty_variables};

use crate::density::{self, DensityArgs};
use crate::explain::{self, ExplainArgs};
use crate::fabric::{self, FabricArgs};
use crate::growth::options::{self as growth_options, GrowthArgs};
use crate::node::MemoryNodeArgs;
use crate::peers::{self, PeersArgs};
use crate::quickstart::options::QuickstartArgs;
use crate::report::{self, ReportArgs};
use crate::run::options::{self, RunArgs};
use crate::scale::{self, ScaleArgs};
use crate::sweep::options::{self as sweep_options, SweepArgs};
use crate::systems::jakiro::JakiroNodeArgs;
use crate::waits::{self, WaitsArgs};
use crate::ycsb::options::{self as ycsb_options, YcsbArgs};

/// FPCache measured: keys in a memory node, looked up through models and fingerprints.
///
/// Without a command it runs the quickstart: a memory node in a second process, three data sets,
/// every answer checked, beside the maps it is compared with.
#[derive(Debug, Parser)]
#[command(name = "fpcache-eval", version = env!("FPCACHE_VERSION"), after_help = EXAMPLES)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// Parses a command line, whose first word is the program's name.
    ///
    /// # Errors
    /// What is wrong with it; help and version count as errors.
    pub fn of(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let (mut command, words) = (Self::command(), Vec::from_iter(words.into_iter().map(Into::into)));
        let is_form = |word: &str| word.parse::<GroupChoice>().is_ok();
        refuse_apart(&mut command, &words, "--groups", is_form)?;
        let matches = without_empty_variables(command).try_get_matches_from(words)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        match (&mut cli.command, matches.subcommand()) {
            (Some(Command::Sweep(arguments)), Some((_, matches))) => arguments.note_given(matches),
            (Some(Command::Ycsb(arguments)), Some((_, matches))) => arguments.note_given(matches),
            _ => {}
        }
        Ok(cli)
    }
}

const EXAMPLES: &str = "Examples:
  fpcache-eval                                 the quickstart, about half a minute
  fpcache-eval quickstart --size small         the same within a few seconds
  fpcache-eval run --dataset ipv4
  fpcache-eval run --dataset fb:16M --system fpcache,hashmap --batch 32 --dist zipf:0.99 --json -
  fpcache-eval run --dataset fb:16M --system fpcache --dist zipf:0.99 --cache 8MiB
  fpcache-eval run --dataset words --value-bytes vary
  fpcache-eval ycsb --workload B,C --dataset fb:16M --threads 2
  fpcache-eval growth --dataset fb:16M --order random,append
  fpcache-eval scale --dataset uniform --keys 1M,4M,16M
  fpcache-eval waits --load idle,full,commit
  fpcache-eval peers --keys 1M
  fpcache-eval density --dataset fb:16M
  fpcache-eval fabric --transport shm,tcp
  fpcache-eval sweep --over cache --values 4MiB,8MiB,16MiB --dataset fb:16M --dist zipf:0.99 --variants fd,full
  fpcache-eval report results

A table that is wider than the terminal, or than the variable COLUMNS says, is printed as several, each with the names of its \
rows; --json has every figure.

Exit codes: 0 done, 1 an answer was wrong, 2 wrong usage or a failure.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Demonstrate FPCache on three data sets, compared with in-process maps.
    #[command(after_help = "Examples:
  fpcache-eval quickstart
  fpcache-eval quickstart --size small
  fpcache-eval quickstart --keys 16M --lookups 4M --out quickstart")]
    Quickstart(QuickstartArgs),
    /// Run one experiment and report its results.
    #[command(after_help = options::EXAMPLES)]
    Run(Box<RunArgs>),
    /// Run an experiment at several values of one setting: table, CSV, JSON and a plot.
    #[command(after_help = sweep_options::EXAMPLES, mut_arg("systems", |arg| arg.default_value("fpcache")))]
    Sweep(Box<SweepArgs>),
    /// Run workloads that read and change records, such as those of YCSB.
    #[command(
        after_help = ycsb_options::EXAMPLES,
        mut_arg("lookups", |arg| arg.long("ops").help("Operations of every pass, all threads together")),
        mut_arg("batch", |arg| arg.long("group").help("Operations per call: reads by a multi_get, changes together")),
        mut_arg("distribution", |arg| arg.help("Distribution of the operations over the keys [default: the workload's]")
            .hide_default_value(true)),
        mut_arg("rounds", |arg| arg.help("Throughput passes per workload, which take turns; the median counts")),
        mut_arg("systems", |arg| arg.default_value("fpcache").hide(true)),
        mut_arg("negative", |arg| arg.hide(true)),
        mut_arg("shift_every", |arg| arg.hide(true)),
        mut_arg("timeline", |arg| arg.hide(true)),
        mut_arg("cold", |arg| arg.hide(true)),
        mut_arg("url", |arg| arg.help(ycsb_options::URL_HELP)),
        mut_arg("epsilon", beside_url),
        mut_arg("fingerprint_bits", beside_url),
        mut_arg("fill", beside_url),
        mut_arg("groups", beside_url),
        mut_arg("value_bytes", beside_url),
    )]
    Ycsb(Box<YcsbArgs>),
    /// Insert as many keys as were loaded, or more, and measure the effect on the store.
    #[command(
        after_help = growth_options::EXAMPLES,
        mut_arg("systems", |arg| arg.default_value("fpcache").hide(true)),
        mut_arg("negative", |arg| arg.hide(true)),
        mut_arg("shift_every", |arg| arg.hide(true)),
        mut_arg("timeline", |arg| arg.hide(true)),
        mut_arg("cold", |arg| arg.hide(true)),
        mut_arg("url", |arg| arg.hide(true)),
    )]
    Growth(Box<GrowthArgs>),
    /// Measure lookups over the number of keys, compared with the memory's latency.
    #[command(
        after_help = scale::EXAMPLES,
        mut_arg("systems", |arg| arg.default_value("fpcache")),
        mut_arg("url", |arg| arg.hide(true)),
    )]
    Scale(Box<ScaleArgs>),
    /// Measure how long a put to one table waits while another table of the memory node is busy.
    #[command(after_help = waits::EXAMPLES)]
    Waits(Box<WaitsArgs>),
    /// Compare FPCache with alternatives: maps, Redis, Valkey, memcached.
    #[command(after_help = peers::EXAMPLES)]
    Peers(Box<PeersArgs>),
    /// Measure how few bytes of memory let one READ find a key
    #[command(after_help = density::EXAMPLES)]
    Density(Box<DensityArgs>),
    /// Say which form of tables suits a data set, a fabric and a budget, and what each costs
    #[command(after_help = explain::EXAMPLES)]
    Explain(Box<ExplainArgs>),
    /// Measure FPCache and the systems of its paper in a model of network cards, statement by
    /// statement
    #[cfg(feature = "workbench")]
    #[command(after_help = crate::paper::EXAMPLES)]
    Paper(Box<crate::paper::PaperArgs>),
    /// Measure READs, WRITEs, compare-and-swap and calls over each transport, without keys
    #[command(after_help = fabric::EXAMPLES)]
    Fabric(Box<FabricArgs>),
    /// Write a page with the figures of the JSON files in a folder
    #[command(after_help = report::EXAMPLES)]
    Report(ReportArgs),
    /// The memory node that the other commands start.
    #[command(hide = true)]
    MemoryNode(MemoryNodeArgs),
    /// The server of Jakiro that `run` starts.
    #[command(hide = true)]
    JakiroNode(JakiroNodeArgs),
}

/// An option of tables that goes with `--url`, where that names a memory node to be loaded.
fn beside_url(arg: Arg) -> Arg {
    arg.conflicts_with(Resettable::<Id>::Reset)
}

impl Default for Command {
    fn default() -> Self {
        Self::Quickstart(QuickstartArgs::default())
    }
}

/// What tests of options share.
#[cfg(test)]
pub mod testing {
    use std::fmt::Debug;

    use super::{Cli, Command};

    /// A command with these options.
    pub fn command(name: &str, options: &str) -> Result<Command, String> {
        let words = ["fpcache-eval", name].into_iter().chain(options.split_whitespace());
        Ok(Cli::of(words).map_err(|error| error.to_string())?.command.unwrap_or_default())
    }

    /// Each of these options is refused in words that name the remedy.
    pub fn assert_refused<T: Debug>(
        parse: impl Fn(&str) -> Result<T, String>,
        options_and_remedies: &[(&str, &str)],
    ) {
        for (options, remedy) in options_and_remedies {
            let error = parse(options).expect_err(options);
            assert!(error.contains(remedy), "{options}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quickstart::options::Size;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_means_the_quickstart_at_normal_size() {
        let cli = Cli::try_parse_from(["fpcache-eval"]).unwrap();
        let Command::Quickstart(arguments) = cli.command.unwrap_or_default() else { panic!("no quickstart") };
        assert_eq!((arguments.size, arguments.keys), (Size::Normal, None));
    }
}
