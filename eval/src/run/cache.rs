//! Options of the compute node's budget.

use anyhow::ensure;
use bytesize::ByteSize;
use clap::Args;
use fpcache_client::{CacheConfig, OnConflict, Policy, Variant};

const HEADING: &str = "Cache of the compute node";

/// What this compute node may keep, and how.
#[derive(Args, Clone, Debug, Default)]
pub struct CacheArgs {
    /// Budget for everything kept on the compute node, including models, such as 8MiB, or none for
    /// all models and no hot cache [default: none; with nic:…, where it must be a size, 100 MB for
    /// 60M keys, and in proportion]
    #[arg(long = "cache", value_name = "SIZE", value_parser = parse_budget, help_heading = HEADING)]
    pub budget: Option<Budget>,

    /// Eviction policy: heat, frequency or lru [default: heat]
    #[arg(long, help_heading = HEADING)]
    pub policy: Option<Policy>,

    /// Content of an entry: fd (fingerprint and offset), f, d or full [default: fd]
    #[arg(long, help_heading = HEADING)]
    pub variant: Option<Variant>,

    /// Plan after a wrong entry: cheapest or range [default: cheapest]
    #[arg(long, help_heading = HEADING)]
    pub on_conflict: Option<OnConflict>,

    /// Begin every measured pass with an empty hot cache
    #[arg(long, help_heading = HEADING)]
    pub cold: bool,
}

/// A budget in bytes, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub Option<u64>);

impl CacheArgs {
    /// Checks that options of the cache are given only with `--cache`.
    ///
    /// # Errors
    /// Names the option that needs `--cache`.
    pub fn validate(&self) -> anyhow::Result<()> {
        let given = [
            ("--policy", self.policy.is_some()),
            ("--variant", self.variant.is_some()),
            ("--on-conflict", self.on_conflict.is_some()),
            ("--cold", self.cold),
        ];
        for (option, given) in given {
            ensure!(
                !given || self.budget().is_some(),
                "{option} is about the hot cache, and there is none: add --cache with a size, such as --cache 8MiB"
            );
        }
        Ok(())
    }

    /// The budget in bytes, if there is one.
    pub fn budget(&self) -> Option<u64> {
        self.budget.and_then(|Budget(bytes)| bytes)
    }

    /// The cache settings, if any.
    pub fn config(&self) -> Option<CacheConfig> {
        let budget = self.budget()?;
        let config = CacheConfig::of(budget).with_policy(self.policy.unwrap_or_default());
        let config = config.with_variant(self.variant.unwrap_or_default());
        Some(config.with_on_conflict(self.on_conflict.unwrap_or_default()))
    }
}

/// Reads a budget above 0, or `none`.
pub fn parse_budget(text: &str) -> Result<Budget, String> {
    if text == "none" {
        return Ok(Budget(None));
    }
    let bytes = text.parse::<ByteSize>().ok().map(|size| size.as_u64()).filter(|&bytes| bytes > 0);
    bytes
        .map(|bytes| Budget(Some(bytes)))
        .ok_or_else(|| "write none, or a size above 0 with a unit, such as 8MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_sizes_above_zero_or_none() {
        assert_eq!(parse_budget("none"), Ok(Budget(None)));
        assert_eq!(parse_budget("8MiB"), Ok(Budget(Some(8 << 20))));
        assert_eq!(parse_budget("1000"), Ok(Budget(Some(1000))));
        for bad in ["", "0", "0MiB", "-1", "much", "None", "8 lots"] {
            assert!(parse_budget(bad).unwrap_err().contains("8MiB"), "{bad}");
        }
    }

    #[test]
    fn a_cache_has_the_defaults_of_its_options() {
        assert_eq!(CacheArgs::default().config(), None);
        let arguments = CacheArgs { budget: Some(Budget(Some(9))), ..CacheArgs::default() };
        assert_eq!(arguments.config(), Some(CacheConfig::of(9)));
    }
}
