//! Options of what a compute node keeps, and counters of what it has kept.

use std::str::FromStr;

/// The policy by which entries stay when a bucket is full.
///
/// Requests answered, in per cent, by the `fd` variant in the bytes of `n` entries, everything
/// included, over 20 M keys in segments of 190; after 45 requests per entry (11 at `n` = 4 M), in
/// the 15 that follow (4). Beside them the best fixed set of `n` keys, and exact LRU over `n` keys.
/// `fpcache/tests/reads/hot_cache_rates.rs` prints them.
///
/// | requests | n | best set | exact LRU | heat | frequency | lru |
/// |---|---|---|---|---|---|---|
/// | zipf 0.99, scattered | 100 k | 68.1 | 59.4 | 64.2 | 64.7 | 59.0 |
/// | | 1 M | 81.7 | 75.4 | 78.7 | 78.9 | 75.1 |
/// | | 4 M | 90.1 | 86.1 | 86.8 | 86.9 | 85.7 |
/// | zipf 0.8, scattered | 1 M | 53.6 | 40.8 | 48.3 | 48.5 | 40.4 |
/// | zipf 0.99, neighbours alike | 1 M | 81.7 | 75.4 | 78.8 | 78.9 | 75.1 |
/// | 1 % of keys, neighbours, 90 % of requests | 100 k | 45.0 | 39.3 | 43.8 | 42.3 | 38.8 |
/// | uniform | 1 M | 5.0 | 5.0 | 4.9 | 5.0 | 5.0 |
/// | a loop over 1.5 n keys | 1 M | 66.7 | 0.0 | 54.3 | 55.3 | 5.1 |
///
/// When the zipf 0.99 of 1 M entries is scattered anew after 20 M requests, where `heat` answered
/// 77.5, it answers 68.3 in the next 5 M requests, 72.8 in the 5 M after that and 75.1 in the
/// fourth 5 M; `frequency` the same, `lru` 71.8 and from then on 75.1 again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Decayed access count of the entry's segment times the bytes a miss there costs, and the
    /// entry's own hits (FPCache, §3.3): the former decides who enters, the latter are added,
    /// because a segment's count cannot tell its hot keys from its cold ones. Its counters take at
    /// most a 64th of the bytes.
    #[default]
    Heat,
    /// The entry's own decayed count of hits. A sketch of the keys that are not cached (TinyLFU,
    /// ACM TOS 13(4), 2017) is left out: eight counters of four bits for each entry would double
    /// its bytes.
    Frequency,
    /// Time since the entry's last hit.
    Lru,
}

/// The content of an entry (FPCache, §4.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Variant {
    /// Fingerprint and offset from the predicted slot: 4 bytes.
    #[default]
    Fd,
    /// Fingerprint and full address: 8 bytes.
    F,
    /// Full key and offset: 10 2/3 bytes for 8-byte keys.
    D,
    /// Full key and full address: 16 bytes for 8-byte keys.
    Full,
}

/// How a lookup goes on when a cached entry led to another key's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnConflict {
    /// With the plan that would have been chosen without the entry.
    #[default]
    Cheapest,
    /// With a range read of the window (FPCache, §3.3).
    Range,
}

/// Names of an option's values, and how a text becomes one.
macro_rules! named {
    ($kind:ident, $error:ident, $what:literal, $($variant:ident = $name:literal),+) => {
        impl $kind {
            /// All of them, the default first.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// As options and reports spell it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        #[doc = concat!("A text that names no ", $what, ".")]
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        #[error("unknown {} `{}`: use one of {}", $what, .0, [$($name),+].join(", "))]
        pub struct $error(String);

        impl FromStr for $kind {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                Self::ALL.iter().copied().find(|one| one.name() == text).ok_or_else(|| $error(text.to_owned()))
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

named!(Policy, UnknownPolicy, "cache policy", Heat = "heat", Frequency = "frequency", Lru = "lru");
named!(Variant, UnknownVariant, "cache variant", Fd = "fd", F = "f", D = "d", Full = "full");
named!(
    OnConflict,
    UnknownOnConflict,
    "way to go on after a conflict",
    Cheapest = "cheapest",
    Range = "range"
);

/// Limits and options of what a compute node keeps of a table.
///
/// ```
/// # use fpcache::cache::{CacheConfig, Policy};
/// let config = CacheConfig::of(64 << 20).with_policy(Policy::Lru);
/// assert_eq!((config.budget, config.policy), (64 << 20, Policy::Lru));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheConfig {
    /// Bytes for everything that is kept: models, directory, entries and the containers around
    /// them. Only what the table's keys can fill is taken, so that [`u64::MAX`] is as good as no
    /// limit.
    pub budget: u64,
    /// The policy by which entries stay.
    pub policy: Policy,
    /// The content of an entry.
    pub variant: Variant,
    /// How a lookup goes on after an entry that was wrong.
    pub on_conflict: OnConflict,
}

impl CacheConfig {
    /// A budget in bytes, and otherwise the defaults.
    #[must_use]
    pub fn of(budget: u64) -> Self {
        Self {
            budget,
            policy: Policy::default(),
            variant: Variant::default(),
            on_conflict: OnConflict::default(),
        }
    }

    /// The same with another budget.
    #[must_use]
    pub fn with_budget(self, budget: u64) -> Self {
        Self { budget, ..self }
    }

    /// The same with another policy.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The same with other entries.
    #[must_use]
    pub fn with_variant(self, variant: Variant) -> Self {
        Self { variant, ..self }
    }

    /// The same, but lookups go on like this after an entry that was wrong.
    #[must_use]
    pub fn with_on_conflict(self, on_conflict: OnConflict) -> Self {
        Self { on_conflict, ..self }
    }
}

/// Statistics of what a compute node keeps of a table, and how far it helped. Counts are since the
/// table was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// The budget.
    pub budget: u64,
    /// Bytes used of it, exactly: models, hot cache, and the table's parameters, which neither of
    /// the next two counts. Never more than the budget, and less where the table has too few keys
    /// for it.
    pub used: u64,
    /// Bytes of models and directory, or of the part of them that is kept.
    pub model_bytes: u64,
    /// Bytes of the tables of groups, and of the room for those of segments to come. None without
    /// groups, or if the budget has no room for a sixteenth of them.
    pub group_bytes: u64,
    /// Bytes of the hot cache: entries, free room for entries, and what decides which stay.
    pub hot_bytes: u64,
    /// Whether descriptor pages are fetched on demand because the models exceed the budget.
    pub paged: bool,
    /// Entries there is room for.
    pub capacity: u64,
    /// Entries held.
    pub entries: u64,
    /// Lookups answered with one READ of the slot an entry named.
    pub hits: u64,
    /// Lookups of present keys that no entry answered, though the hot cache was asked.
    pub misses: u64,
    /// Entries that led to another key's slot.
    pub conflicts: u64,
}
