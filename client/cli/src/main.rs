//! `fpcache-cli`: loads, reads and checks a memory node from the command line.
//!
//! Exit codes: 0 done, 1 a key is absent, there already or changed, or an answer wrong, 2 wrong usage or a failure.
#![forbid(unsafe_code)]

mod arguments;
mod change;
mod count;
mod create;
mod data;
mod get;
mod hex;
mod keys;
mod load;
mod nearest;
mod output;
mod parameters;
mod progress;
mod scan;
mod stats;
mod tables;
mod value;
mod verify;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use fpcache_client::{ByteClient, Client, ClientConfig, KeyKind, Tables};

use arguments::{Arguments, Command};
use keys::Keys;
use nearest::Side;
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
    let mut output = Output::new(arguments.json);
    let tables = || Tables::connect_with(&arguments.url, arguments.deadline);
    let outcome = match &arguments.command {
        Command::Tables => tables::list(&tables()?, &mut output)?,
        Command::Drop(drop) => drop.run(&tables()?, &mut output)?,
        command => run_on_table(arguments, command, &mut output)?,
    };
    output.finish()?;
    Ok(outcome)
}

/// Carries out a command about a table, for the kind of keys that it has.
fn run_on_table(arguments: &Arguments, command: &Command, output: &mut Output) -> anyhow::Result<Outcome> {
    let Arguments { url, table, deadline, .. } = arguments;
    let config = ClientConfig { table: *table, deadline: *deadline, ..ClientConfig::default() };
    let tables = || Tables::connect_with(url, *deadline);
    let kind = match command {
        Command::Create(create) => Some(create.make(&tables()?, table)?),
        Command::Load(load) => Some(load.make(&tables()?, table)?),
        Command::Verify(verify) => Some(verify.key_kind()),
        _ => None,
    };
    let kind = match kind {
        None => Client::connect_with(url, config)?.key_kind()?,
        told => told,
    };
    match kind {
        Some(KeyKind::Bytes) => carry_out(command, &ByteClient::open(url, config)?, output),
        // Without records any client says so.
        Some(KeyKind::U64) | None => carry_out(command, &Client::connect_with(url, config)?, output),
    }
}

fn carry_out<K: Keys>(command: &Command, client: &Client<K>, output: &mut Output) -> anyhow::Result<Outcome> {
    match command {
        Command::Get(get) => get.run(client, output),
        Command::Scan(scan) => scan.run(client, output),
        Command::Floor(nearest) => nearest.run(Side::Floor, client, output),
        Command::Ceiling(nearest) => nearest.run(Side::Ceiling, client, output),
        Command::First(end) => end.run(Side::Ceiling, client, output),
        Command::Last(end) => end.run(Side::Floor, client, output),
        Command::Count(count) => count.run(client, output),
        Command::Put(record) => record.put(client, output),
        Command::Insert(record) => record.insert(client, output),
        Command::Update(update) => update.run(client, output),
        Command::Del(delete) => delete.run(client, output),
        Command::Create(create) => create.run(client, output),
        Command::Load(load) => load.run(client, output),
        Command::Stats => stats::run(client, output),
        Command::Verify(verify) => verify.run(client, output),
        // Not about a table's records.
        Command::Tables | Command::Drop(_) => Ok(Outcome::Done),
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}
