//! A memory node in this process: its writes, its room, and what it finds again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[macro_use]
mod common;

mod any_request;
mod background_takes_turns;
mod byte_strings;
mod cold_starts_under_pressure;
mod damaged_copies;
mod damaged_directory;
mod damaged_fingerprints;
mod damaged_groups;
mod damaged_logs;
mod damaged_notes;
mod damaged_records;
mod failing_disks;
mod first_rebuilds;
mod folders;
mod full_tables;
mod groups;
mod growth_copies;
mod hot_cache;
mod layout_version;
mod logs_with_gaps;
mod long_values;
#[path = "../support/memory_disk.rs"]
mod memory_disk;
mod order_within_windows;
mod paged_directory;
mod presence;
mod random_lives;
mod rebuild_plans;
mod recovery;
mod recovery_corners;
mod retraining;
mod room_is_given_back;
mod scans_by_groups;
mod snapshots;
mod snapshots_under_writes;
mod torn_slots;
mod tuned_lookups;
mod unreadable_logs;
#[path = "../support/watched_disk.rs"]
mod watched_disk;
mod without_fingerprints;
mod writes_match_a_btreemap;
