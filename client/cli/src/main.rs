//! `fpcache-cli`: loads, reads and checks a memory node from the command line.
//!
//! Exit codes: 0 done, 1 a key is absent, there already or changed, or an answer wrong, 2 wrong usage or a failure.
#![forbid(unsafe_code)]

mod arguments;
mod change;
mod create;
mod data;
mod get;
mod hex;
mod keys;
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
use fpcache_client::{ByteClient, Client, ClientConfig, KeyKind};

use arguments::{Arguments, Command};
use keys::Keys;
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
    let command = &arguments.command;
    let kind = match command.key_kind() {
        None => client.key_kind()?,
        told => told,
    };
    let outcome = match kind {
        Some(KeyKind::Bytes) => {
            drop(client);
            carry_out(command, &ByteClient::open(&arguments.url, config)?, &mut output)?
        }
        // Without a table any client says so.
        Some(KeyKind::U64) | None => carry_out(command, &client, &mut output)?,
    };
    output.finish()?;
    Ok(outcome)
}

fn carry_out<K: Keys>(command: &Command, client: &Client<K>, output: &mut Output) -> anyhow::Result<Outcome> {
    match command {
        Command::Get(get) => get.run(client, output),
        Command::Scan(scan) => scan.run(client, output),
        Command::Put(record) => record.put(client, output),
        Command::Insert(record) => record.insert(client, output),
        Command::Update(update) => update.run(client, output),
        Command::Del(delete) => delete.run(client, output),
        Command::Create(create) => create.run(client, output),
        Command::Load(load) => load.run(client, output),
        Command::Stats => stats::run(client, output),
        Command::Verify(verify) => verify.run(client, output),
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}
