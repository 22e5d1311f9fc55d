//! Options of `waits`.

use std::path::PathBuf;

use clap::Args;

use super::loads::LoadName;
use crate::counts::positive_count;

/// Ends the help of `waits`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval waits
  fpcache-eval waits --load idle,full,churn --keys 1M --json waits.json
  fpcache-eval waits --load idle-synced,one-key --store-dir /var/tmp

Each load has a memory node of its own, in a process of its own, with two tables: one that the load goes to, and one that gets \
a put every 100 µs, whose latencies are reported while the load is under way. Puts that were due while one waited count as \
having waited, too. What the machine itself does to such a put is the row `idle`, and `idle-synced` where each put waits for \
the disk. The columns `own` leave out for how long the thread of the puts or that of the memory node could run and had no \
processor, which on a busy machine is most of the rest.

Exit code: 0 if the loads ran, 2 if one failed.";

/// The options of `waits`.
#[derive(Args, Clone, Debug)]
pub struct WaitsArgs {
    /// Loads on the other table, separated by commas [default: all]
    #[arg(long = "load", value_enum, value_delimiter = ',')]
    pub loads: Vec<LoadName>,

    /// Keys of the table that is loaded, dropped or full, such as 4M
    #[arg(long, default_value = "4M", value_parser = positive_count)]
    pub keys: u64,

    /// Approximate seconds of each load
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,

    /// Microseconds between two puts
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub every_us: u64,

    /// Folder for loads that use the disk, in a new folder within that is removed at the end
    /// [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub store_dir: Option<PathBuf>,

    /// Write the results to this file, `-` for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "write seconds from 0.01 to 3600, such as 3".to_owned())
}

#[cfg(test)]
mod tests {
    use crate::cli::Command;
    use crate::cli::testing::{assert_refused, command};

    #[test]
    fn loads_are_named_and_counted() {
        let Ok(Command::Waits(arguments)) = command("waits", "--load idle,one-key --keys 1M --seconds 0.5")
        else {
            panic!("good options")
        };
        assert_eq!((arguments.loads.len(), arguments.keys), (2, 1_000_000));
        let cases = [("--load busy", "one-key"), ("--keys 0", "2M"), ("--seconds 0", "0.01")];
        assert_refused(|options| command("waits", options), &cases);
    }
}
