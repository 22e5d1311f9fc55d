//! Options of the model of network cards, which mean nothing elsewhere.

use anyhow::ensure;
use clap::{Args, ValueEnum};

use crate::counts::positive_count;

const HEADING: &str = "Model of network cards (--transport nic:…)";

/// How systems are measured there.
#[derive(Args, Clone, Debug, Default)]
pub struct ModelArgs {
    /// With nic:…: operations that fill caches before those that are measured [default: as many]
    #[arg(long, value_name = "OPERATIONS", value_parser = positive_count, help_heading = HEADING)]
    pub warm_up: Option<u64>,

    /// With nic:…: parameters of all systems, fpcache among them [default: fpcache's as the other
    /// options say, the others' as their authors publish them]
    #[arg(long, value_enum, value_name = "WHICH", help_heading = HEADING)]
    pub parameters: Option<Chosen>,

    /// With nic:…: measure with this many seeds, from --seed on, and report the median run and the
    /// least and the greatest throughput [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = HEADING)]
    pub seeds: Option<u32>,

    /// With nic:…: cores of each memory node, which make fpcache's changes, each those of a range
    /// of the keys, as several memory nodes on one machine do [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64), help_heading = HEADING)]
    pub cores: Option<u16>,
}

/// Which parameters all systems have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Chosen {
    /// Those that their authors publish
    Published,
    /// The fastest of some, published ones among them, over a quarter of the operations
    Best,
}

impl ModelArgs {
    /// Refuses them where no card is modelled.
    ///
    /// # Errors
    /// Names the option, and what to add.
    pub fn refuse(&self) -> anyhow::Result<()> {
        for (option, is_given) in [
            ("--warm-up", self.warm_up.is_some()),
            ("--parameters", self.parameters.is_some()),
            ("--seeds", self.seeds.is_some()),
            ("--cores", self.cores.is_some()),
        ] {
            ensure!(
                !is_given,
                "{option} is of modelled network cards: omit it, or add --transport nic:cx6-100g"
            );
        }
        Ok(())
    }
}
