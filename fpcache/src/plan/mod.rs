//! Plans: the ways in which a key can be read, and the choice of the cheapest.

mod costs;
mod planner;
mod sums;

pub use costs::FabricCosts;
pub use planner::{Expected, PlanOptions, Planner, Rule};
pub(crate) use sums::Sums;

/// Most keys that memory nodes look up for one question.
pub const MOST_KEYS: usize = 64;

/// How a key is read from a memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Plan {
    /// READ the window's fingerprints, then the slots of those that match: two round trips, one if
    /// none matches (FPCache, §3.2).
    TwoStage,
    /// READ the window's slots: one round trip, more bytes (as ROLEX reads; the paper's fallback).
    Range,
    /// READ the slot the hot cache names: one round trip and one record (FPCache, §3.3).
    Cached,
    /// READ the predicted slot in the same doorbell as the window's fingerprints: one round trip if
    /// the key is there.
    Speculative,
    /// READ the slots of the key's group, which its segment's table of groups names: one round
    /// trip, whether the key is there or absent, for nearly all keys whose segment's table is here.
    Groups,
    /// Have the memory node's threads that serve sockets look it up, which hold the table's models
    /// for it: one round trip and the value, without the thread that writes. For single keys and
    /// small groups; those that are not answered are READ.
    AtNode,
    /// Have the memory node's processor look it up: one request. Never chosen; the last resort of a
    /// compute node whose directory is out of date again and again.
    ServerSide,
}

impl Plan {
    /// The plan's name, as options and reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TwoStage => "two-stage",
            Self::Range => "range",
            Self::Cached => "cached",
            Self::Speculative => "speculative",
            Self::Groups => "groups",
            Self::AtNode => "at-node",
            Self::ServerSide => "server-side",
        }
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Which plan lookups use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlanChoice {
    /// The cheapest plan for each key or group of keys, by the costs of the fabric.
    #[default]
    Auto,
    /// Always this one.
    Fixed(Plan),
}

impl PlanChoice {
    /// The choice's name, as options and reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fixed(plan) => plan.name(),
        }
    }
}

impl std::fmt::Display for PlanChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no plan's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown plan `{0}`: use auto, two-stage, range, speculative, groups or at-node")]
pub struct UnknownPlan(String);

impl std::str::FromStr for PlanChoice {
    type Err = UnknownPlan;

    fn from_str(s: &str) -> Result<Self, UnknownPlan> {
        [Plan::TwoStage, Plan::Range, Plan::Speculative, Plan::Groups, Plan::AtNode]
            .into_iter()
            .map(Self::Fixed)
            .chain([Self::Auto])
            .find(|choice| choice.name() == s)
            .ok_or_else(|| UnknownPlan(s.into()))
    }
}
