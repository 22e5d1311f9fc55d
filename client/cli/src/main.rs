//! `fpcache-cli`: loads, reads, changes and checks a memory node from the command line.
//!
//! Exit codes: 0 success; 1 a key is absent, exists already or has changed, an answer is wrong, or
//! a table is closed (`ping --ready`); 2 usage error or failure.
#![forbid(unsafe_code)]

#[cfg(test)]
mod any_lines;
mod arguments;
mod change;
mod count;
mod create;
mod data;
mod devices;
mod export;
mod exposition;
mod figures;
mod fill;
mod get;
mod hex;
mod http;
mod import;
mod keys;
mod load;
mod long_keys;
mod metrics;
mod nearest;
mod new_keys;
mod numbers;
mod output;
mod over_nodes;
mod parameters;
mod ping;
mod record_buffer;
mod record_lines;
mod records;
mod scan;
mod scrape;
mod separator;
mod stats;
mod summary;
mod table_arguments;
mod table_location;
mod tables;
mod token;
mod tuning;
mod value;
mod verify;
mod walk;
mod write_group;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Error, anyhow};
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};
use clap_complete::Shell;
use fpcache_client::{
    ByteKeys, ClientError, KeyKind, RefusalCode, TableClient, Token, U64Keys, wait_for_node_with,
};
use fpcache_datasets::arguments::{refuse_apart, without_empty_variables};
use fpcache_datasets::causes;

use arguments::{Arguments, Command};
use keys::Keys;
use nearest::Side;
use output::{Outcome, Output};
use parameters::is_form_of_groups;
use table_arguments::TableArguments;
use table_location::TableLocation;

fn main() -> ExitCode {
    let (mut command, words) = (Arguments::command(), Vec::from_iter(std::env::args_os()));
    refuse_apart(&mut command, &words, "--groups", is_form_of_groups).unwrap_or_else(|error| error.exit());
    let matches = without_empty_variables(command).get_matches_from(words);
    // The environment names a table for all commands, of which `tables` is about all tables.
    let is_given = |option| {
        let command = matches.subcommand();
        command.is_some_and(|(_, matches)| matches.value_source(option) == Some(ValueSource::CommandLine))
    };
    let given = GivenOptions { url: is_given("url"), table: is_given("table") };
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(&arguments, given) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Wrong) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {}{}", causes::in_one_line(error.chain()), option_for(&error));
            ExitCode::from(2)
        }
    }
}

/// What was given on the command line, and not in the environment.
#[derive(Clone, Copy)]
struct GivenOptions {
    url: bool,
    table: bool,
}

/// What the command line calls the remedy that an error of the library names.
fn option_for(error: &Error) -> String {
    match error.downcast_ref() {
        Some(ClientError::RecordSize { needs, .. }) => format!(" (fpcache-cli create --slot-bytes {needs})"),
        _ => String::new(),
    }
}

fn run(arguments: &Arguments, given: GivenOptions) -> anyhow::Result<Outcome> {
    let mut output = Output::new(arguments.json || arguments.json_strings, arguments.json_strings);
    let ended = run_any(arguments, given, &mut output);
    // What a command that has failed has told is whole all the same.
    let finished = output.end_begun_array().and_then(|()| output.finish());
    let outcome = ended?;
    finished?;
    Ok(outcome)
}

fn run_any(arguments: &Arguments, given: GivenOptions, output: &mut Output) -> anyhow::Result<Outcome> {
    let Arguments { url, table, deadline, token_file, .. } = arguments;
    // These ask no memory node.
    match &arguments.command {
        Command::Token(command) => return command.run(output),
        Command::Completions { shell } => return print_completions(*shell, output),
        _ => {}
    }
    let token = token_file.as_deref().map(Token::from_file).transpose()?;
    let (url, is_url_explicit) = (url.clone(), given.url);
    let place = TableArguments { url, is_url_explicit, table: *table, deadline: *deadline, token };
    if let Some(wait) = arguments.wait {
        let began = Instant::now();
        wait_for_node_with(&place.url, place.config().with_wait(wait)).map_err(|error| {
            match began.elapsed() {
                waited if waited < wait => Error::from(error),
                _ => Error::from(error).context(format!("after waiting for {wait:?}")),
            }
        })?;
    }
    carry_out_any(&place, &arguments.command, given.table, output)
}

fn print_completions(shell: Shell, output: &mut Output) -> anyhow::Result<Outcome> {
    let (mut command, mut script) = (Arguments::command(), Vec::new());
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    output.bytes(&script)?;
    Ok(Outcome::Done)
}

fn carry_out_any(
    place: &TableArguments,
    command: &Command,
    is_named: bool,
    output: &mut Output,
) -> anyhow::Result<Outcome> {
    match command {
        Command::Devices => devices::list(output),
        Command::Tables => tables::list(place, is_named.then_some(&place.table), output),
        Command::Drop(drop) => drop.run(place, is_named.then_some(place.table), output),
        Command::Create(create) => create.run(place, is_named.then_some(place.table), output),
        Command::Load(load) => load.run(place, output),
        Command::Import(import) => import.run(place, output),
        Command::Ping(ping) => {
            let outcome = ping.run(place, output)?;
            if is_named {
                run_on_table(place, command, output)?;
            }
            Ok(outcome)
        }
        Command::Metrics(metrics) => metrics.run(place, output),
        command => run_on_table(place, command, output),
    }
}

/// Carries out a command about the records of a table. For a range alone it says why it fails where
/// the keys belong to another range.
fn run_on_table(place: &TableArguments, command: &Command, output: &mut Output) -> anyhow::Result<Outcome> {
    let ended = run_on_kind(place, command, output);
    let Some((table, _, number)) = place.table.as_range() else { return ended };
    ended.map_err(|error| match error.downcast_ref() {
        Some(ClientError::Refused(refusal)) if matches!(refusal.code, RefusalCode::WrongRange { .. }) => anyhow!(
            "`{}` is range {} of the table `{table}`, and the key belongs to another range: name the table with --table {table}",
            place.table,
            number + 1
        ),
        _ => error,
    })
}

/// Carries out a command about the records of a table, for the kind of keys that it has.
fn run_on_kind(place: &TableArguments, command: &Command, output: &mut Output) -> anyhow::Result<Outcome> {
    let kind = TableLocation::of(place)?.kind(&place.table, None)?;
    let kind = match (command, kind) {
        (Command::Verify(verify), Some(kind)) => Some(verify.checked(kind, &place.table)?),
        (_, kind) => kind,
    };
    match kind {
        Some(KeyKind::Bytes) => carry_out(command, &place.client::<ByteKeys>()?, place, output),
        // Of a table that is not there any client says so.
        Some(KeyKind::U64) | None => carry_out(command, &place.client::<U64Keys>()?, place, output),
    }
}

fn carry_out<K: Keys>(
    command: &Command,
    client: &TableClient<K>,
    place: &TableArguments,
    output: &mut Output,
) -> anyhow::Result<Outcome> {
    match command {
        Command::Get(get) => get.run(client, output),
        Command::Scan(scan) => scan.run(client, output),
        Command::Export(export) => export.run(client, place, output),
        Command::Floor(nearest) => nearest.run(Side::Floor, client, output),
        Command::Ceiling(nearest) => nearest.run(Side::Ceiling, client, output),
        Command::First(end) => end.run(Side::Ceiling, client, output),
        Command::Last(end) => end.run(Side::Floor, client, output),
        Command::Count(count) => count.run(client, output),
        Command::Put(record) => record.put(client, output),
        Command::Insert(record) => record.insert(client, output),
        Command::Update(update) => update.run(client, output),
        Command::Del(delete) => delete.run(client, output),
        Command::Stats => stats::run(client, output),
        Command::Verify(verify) => verify.run(client, &place.table, output),
        // Of a table that is named: it is open, and all memory nodes that have ranges of it answer.
        Command::Ping(_) => Ok(client.stats().map(|_| Outcome::Done)?),
        // About tables, not their records.
        Command::Create(_)
        | Command::Load(_)
        | Command::Import(_)
        | Command::Metrics(_)
        | Command::Tables
        | Command::Devices
        | Command::Completions { .. }
        | Command::Drop(_)
        | Command::Token(_) => Ok(Outcome::Done),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Error;
    use fpcache_client::{ClientError, FabricError};

    use super::causes;

    #[test]
    fn what_an_error_of_the_client_says_of_its_cause_is_said_once() {
        let refused = FabricError::os("opening a socket", io::Error::other("no more of them"));
        let away = ClientError::NodeAway { node: "tcp://node-1:7400".into(), error: refused };
        let line = causes::in_one_line(Error::from(away).chain());
        assert_eq!(line.matches("no more of them").count(), 1, "{line}");
        assert!(line.contains("tcp://node-1:7400") && line.contains("opening a socket"), "{line}");
    }
}
