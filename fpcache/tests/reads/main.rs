//! Lookups over segments in this process, the hot cache, and messages.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../common/built.rs"]
mod built;
#[path = "../common/decoders.rs"]
mod decoders;
#[path = "../common/impatient.rs"]
mod impatient;
#[macro_use]
#[path = "../common/keys.rs"]
mod keys;
#[path = "../common/node.rs"]
mod node;

mod any_bytes;
mod external_values;
mod groups;
mod hot_cache;
mod hot_cache_rates;
mod lines;
mod messages_longer_than_they_say;
mod nearest;
mod real_keys;
mod refresh;
mod scans_over_emptied;
mod slot_states;
mod tuned_budgets;
