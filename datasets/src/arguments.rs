//! Command lines.

use std::ffi::OsStr;

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

#[cfg(test)]
mod tests {
    use super::*;

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
