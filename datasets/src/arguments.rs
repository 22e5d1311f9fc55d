//! Command lines.

use std::ffi::OsStr;

use clap::error::ErrorKind;
use clap::{Arg, Command};

/// The same command, for which a variable of the environment that is empty counts as one that is
/// not set: service files and containers that have no value for one leave it empty.
pub fn without_empty_variables(command: Command) -> Command {
    without(command, &|name| std::env::var_os(name).is_some_and(|value| value.is_empty()))
}

fn without(command: Command, is_empty: &dyn Fn(&OsStr) -> bool) -> Command {
    let unless_empty = |arg: Arg| match arg.get_env().is_some_and(is_empty) {
        true => arg.env(None::<&'static str>),
        false => arg,
    };
    command.mut_args(unless_empty).mut_subcommands(|command| without(command, is_empty))
}

/// Refuses a value that stands apart from its option where only `--option=value` is one, because
/// the option may go without: it would be taken for something else, such as a name.
///
/// # Errors
/// Shows how it is written.
pub fn refuse_apart(
    command: &mut Command,
    words: &[impl AsRef<OsStr>],
    option: &str,
    is_value: impl Fn(&str) -> bool,
) -> Result<(), clap::Error> {
    let words = words.iter().map(|word| word.as_ref().to_str().unwrap_or_default());
    let words: Vec<&str> = words.take_while(|word| *word != "--").collect();
    let apart = words.windows(2).find(|pair| pair[0] == option && is_value(pair[1]));
    match apart {
        None => Ok(()),
        Some(pair) => {
            let why = format!(
                "`{option} {value}` would not be read as one: write {option}={value}, or {option} after the other word",
                value = pair[1]
            );
            Err(command.error(ErrorKind::InvalidValue, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `create --groups plain` made a table of that name.
    #[test]
    fn values_apart_from_an_option_that_may_go_without_are_refused() {
        let refused = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let checked = refuse_apart(&mut Command::new("all"), &words, "--groups", |word| word == "plain");
            checked.err().map(|error| error.to_string())
        };
        assert!(refused("create --groups plain").is_some_and(|why| why.contains("--groups=plain")));
        for line in [
            "create --groups=plain",
            "create --groups words",
            "create plain --groups",
            "put -- --groups plain",
        ] {
            assert_eq!(refused(line), None, "{line}");
        }
    }

    #[test]
    fn variables_that_are_empty_are_left_out_also_of_subcommands() {
        // Any variable that is set, and one that this takes for empty.
        let both = || [Arg::new("set").long("set").env("PATH"), Arg::new("empty").long("empty").env("HOME")];
        let command = Command::new("all").args(both()).subcommand(Command::new("sub").args(both()));
        let command = without(command, &|name| name == "HOME");
        for words in [&["all"][..], &["all", "sub"]] {
            let matches = command.clone().try_get_matches_from(words).expect("nothing is required");
            let matches = matches.subcommand().map_or(&matches, |(_, matches)| matches);
            assert!(matches.contains_id("set") && !matches.contains_id("empty"), "{words:?}");
        }
    }
}
