//! How segments are rebuilt: which records go together, and which slot a record gets. Pure: keys and slots only.
//!
//! | module | holds |
//! |---|---|
//! | [`choose`] | the free slot an insert takes, and when a window is nearly full |
//! | [`plan`] | new segments for the records of old ones |
//! | `runs` | ordered inserts among the records |
//! | `reserve` | slots kept ahead of them |

pub mod choose;
pub mod plan;
mod reserve;
mod runs;
