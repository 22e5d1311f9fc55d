//! Quickstart and experiments of FPCache.
//!
//! Without arguments, `fpcache-eval` demonstrates FPCache: a memory node in a second process, real
//! keys, every answer checked, compared with in-process maps. `fpcache-eval run` is one experiment
//! with results as JSON; `fpcache-eval sweep` repeats it over one setting and draws the results.
//!
//! | module | holds |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`quickstart`] | the tour |
//! | [`run`] | one experiment: its options, its passes, its report |
//! | [`ycsb`] | workloads that also change records |
//! | [`growth`] | a store that grows by inserts, compared with one loaded with the same keys |
//! | [`scale`] | lookups over the number of keys, compared with the memory's latency |
//! | [`waits`] | how long a put to one table waits for the work of another |
//! | `paper` | figures of a paper in a model of network cards (feature `workbench`) |
//! | [`fabric`] | the fabric by itself, without keys |
//! | [`peers`] | FPCache beside Redis, Valkey, memcached and maps |
//! | [`sweep`] | an experiment along one setting: points, results that survive an interrupt, the plot |
//! | [`report`] | a page with the figures of a folder |
//! | [`plot`] | line plots |
//! | [`fields`] | JSON objects in the order of their fields |
//! | [`counts`] | counts as options take them |
//! | [`data`] | data sets and lookups of keys of either kind |
//! | [`systems`] | what is measured, behind one trait |
//! | [`table`] | tables that fit a terminal |
//! | [`node`] | a memory node as a second process of this program |
//! | [`leftovers`] | what goes when a signal ends this program |
//! | [`latency`] | latencies as rows of figures have them |
//! | [`machine`] | what it ran on, and how fast that was during the run |
//! | [`made`] | what made a row of figures: command, date, machine, build |
//! | [`verdict`] | whether every answer was right |
#![forbid(unsafe_code)]

mod cli;
mod counts;
mod data;
mod density;
mod explain;
mod fabric;
mod fields;
mod growth;
mod latency;
mod leftovers;
mod machine;
mod made;
#[cfg(feature = "workbench")]
mod modelled;
mod node;
mod pages;
#[cfg(feature = "workbench")]
mod paper;
mod peers;
mod plot;
mod quickstart;
mod report;
mod run;
mod scale;
mod sweep;
mod systems;
mod table;
mod verdict;
mod waits;
mod ycsb;

use std::alloc::System;
use std::process::ExitCode;

use fpcache_memserver::daemon::log_to_stderr;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tracing::level_filters::LevelFilter;

use cli::{Cli, Command};
use verdict::Verdict;

/// Counts what is allocated: the only way to say how much memory a `BTreeMap` takes, and to show
/// that measured loops allocate nothing. Costs a few atomic additions per allocation.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The exit code for answers that were wrong; usage errors and failures give 2.
const WRONG_ANSWERS: u8 = 1;
const FAILURE: u8 = 2;

fn main() -> ExitCode {
    let command =
        Cli::of(std::env::args_os()).unwrap_or_else(|error| error.exit()).command.unwrap_or_default();
    // A memory node, in this process or as this process, says what has failed.
    let log = log_to_stderr(LevelFilter::INFO);
    let result = removing_at_signals(&command).and_then(|()| carry_out(command));
    drop(log);
    match result {
        Ok(Verdict::AllRight) => ExitCode::SUCCESS,
        Ok(Verdict::WrongAnswers) => ExitCode::from(WRONG_ANSWERS),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(FAILURE)
        }
    }
}

/// Has signals end and remove what a command would leave; nodes see to that themselves.
fn removing_at_signals(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::MemoryNode(_) | Command::JakiroNode(_) => Ok(()),
        _ => leftovers::remove_at_signals(),
    }
}

fn carry_out(command: Command) -> anyhow::Result<Verdict> {
    match command {
        Command::Quickstart(arguments) => quickstart::quickstart(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Ycsb(arguments) => ycsb::ycsb(&arguments),
        Command::Growth(arguments) => growth::growth(&arguments),
        Command::Scale(arguments) => scale::scale(&arguments),
        Command::Sweep(arguments) => sweep::sweep(&arguments),
        Command::Waits(arguments) => waits::waits(&arguments),
        Command::Density(arguments) => density::density(&arguments),
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Fabric(arguments) => fabric::fabric(&arguments),
        Command::Peers(arguments) => peers::peers(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        #[cfg(feature = "workbench")]
        Command::Paper(arguments) => paper::paper(&arguments),
        Command::MemoryNode(arguments) => node::serve(&arguments).map(|()| Verdict::AllRight),
        Command::JakiroNode(arguments) => systems::jakiro::serve(&arguments).map(|()| Verdict::AllRight),
    }
}
