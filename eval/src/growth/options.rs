//! Options of `growth`.

use anyhow::ensure;
use clap::Args;
use fpcache_datasets::requests::InsertOrder;

use crate::run::options::RunArgs;
use crate::ycsb::options::refuse_lookups_only;

/// Ends the help of `growth`.
pub const EXAMPLES: &str = "Examples:
  fpcache-eval growth --dataset fb:20M
  fpcache-eval growth --dataset wiki:4M --order random,append,descending,middle,hotspot-moves --json growth.json
  fpcache-eval growth --dataset uniform:4M --order random --factor 4
  fpcache-eval growth --dataset fb:20M --direct
  fpcache-eval growth --dataset fb:20M --direct --store-dir /var/tmp --fsync 10ms

Half of the keys (with --factor 2) are loaded and the others inserted. Lookups are measured before, and afterwards beside \
a memory node that was loaded with all the keys at once, in turns.

With --direct there is no client: requests made before are handed to a memory node in this process, in one thread, \
one after the other; with --store-dir it keeps a log, and its region is a file as that of a memory node in service.

Exit code: 0 if every answer was right, 1 if one was wrong, 2 if the experiment failed.";

/// The options of `growth`.
#[derive(Args, Clone, Debug)]
pub struct GrowthArgs {
    /// Orders of the inserts, separated by commas: random, append, descending, middle,
    /// hotspot-moves or fresh
    #[arg(long = "order", value_delimiter = ',', default_value = "random", help_heading = "Growth")]
    pub orders: Vec<InsertOrder>,

    /// Factor by which the number of keys grows
    #[arg(long, default_value_t = 2.0, help_heading = "Growth")]
    pub factor: f64,

    /// Inserts per call
    #[arg(long, default_value = "64", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Growth")]
    pub insert_batch: u32,

    /// Pass requests to a memory node in this process, without clients
    #[arg(long, help_heading = "Growth")]
    pub direct: bool,

    /// All other settings.
    #[command(flatten)]
    pub run: RunArgs,
}

impl GrowthArgs {
    /// Checks combinations of options, before any work is done.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.run.validate()?;
        refuse_lookups_only(&self.run)?;
        ensure!(
            self.factor > 1.0 && self.factor <= 1000.0,
            "--factor {}: a store grows by a factor above 1 and at most 1000, such as 2",
            self.factor
        );
        ensure!(self.run.url.is_none(), "--url: growth starts memory nodes of its own, omit it");
        Ok(())
    }

    /// The number of keys to insert, of this many; fresh keys are all loaded before.
    pub fn inserts(&self, keys: usize, order: InsertOrder) -> usize {
        let inserts = match order {
            InsertOrder::Fresh => keys as f64 * (self.factor - 1.0),
            _ => keys as f64 * (1.0 - 1.0 / self.factor),
        };
        inserts as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use crate::cli::testing::{assert_refused, command};

    fn parse(options: &str) -> Result<GrowthArgs, String> {
        let Command::Growth(arguments) = command("growth", options)? else { panic!("no `growth`") };
        arguments.validate().map(|()| *arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn half_of_the_keys_are_inserted_to_double_them() {
        let arguments = parse("--dataset ipv4 --order random,append,fresh").unwrap();
        assert_eq!(arguments.orders, [InsertOrder::Random, InsertOrder::Append, InsertOrder::Fresh]);
        let inserts = |order| arguments.inserts(1_000, order);
        assert_eq!((inserts(InsertOrder::Append), inserts(InsertOrder::Fresh)), (500, 1_000));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_does() {
        let cases = [
            ("", "--dataset"),
            ("--dataset ipv4 --order up", "descending"),
            ("--dataset ipv4 --factor 1", "above 1"),
            ("--dataset ipv4 --factor nan", "above 1"),
            ("--dataset ipv4 --insert-batch 0", "1..=1024"),
            ("--dataset ipv4 --url shm://fpcache", "omit it"),
            ("--dataset ipv4 --negative 0.1", "omit it"),
        ];
        assert_refused(parse, &cases);
    }
}
