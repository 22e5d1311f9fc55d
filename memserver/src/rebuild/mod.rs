//! Planning of rebuilt segments: which records share one, and which slot each record gets. Pure:
//! keys and slots only.
//!
//! | module | holds |
//! |---|---|
//! | [`choose`] | the free slot an insert takes, and when a window is nearly full |
//! | [`plan`] | new segments for the records of old ones |
//! | `gather` | the records of a rebuild, and whose they are |
//! | `options` | how full and how long segments become |
//! | `runs` | detection of ordered inserts |
//! | `reserve` | slots reserved ahead of them |

pub mod choose;
pub(crate) mod gather;
mod options;
pub mod plan;
mod reserve;
mod runs;
