//! `fpcache-cli`: loads, reads and checks a memory node from the command line.
//!
//! Exit codes: 0 done, 1 a key is absent, there already or changed, or an answer wrong, 2 wrong usage or a failure.
#![forbid(unsafe_code)]

mod arguments;
mod change;
mod create;
mod data;
mod get;
mod load;
mod output;
mod parameters;
mod progress;
mod scan;
mod stats;
mod value;
mod verify;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use fpcache_client::{Client, ClientConfig};

use arguments::{Arguments, Command};
use output::Output;

/// How a command that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All was well.
    Done,
    /// A key is absent, there already or changed, or an answer is not what it should be.
    Wrong,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Wrong) => ExitCode::from(1),
        // A reader such as `head` that has seen enough is no failure.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let config = ClientConfig { deadline: arguments.deadline, ..ClientConfig::default() };
    let client = Client::connect_with(&arguments.url, config)?;
    let mut output = Output::new(arguments.json);
    let outcome = match &arguments.command {
        Command::Get(get) => get.run(&client, &mut output),
        Command::Scan(scan) => scan.run(&client, &mut output),
        Command::Put(record) => record.put(&client, &mut output),
        Command::Insert(record) => record.insert(&client, &mut output),
        Command::Update(update) => update.run(&client, &mut output),
        Command::Del(delete) => delete.run(&client, &mut output),
        Command::Create(create) => create.run(&client, &mut output),
        Command::Load(load) => load.run(&client, &mut output),
        Command::Stats => stats::run(&client, &mut output),
        Command::Verify(verify) => verify.run(&client, &mut output),
    }?;
    output.finish()?;
    Ok(outcome)
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}
