//! Planning of rebuilt segments: which records share one, and which slot each record gets. Pure:
//! keys and slots only.

pub mod choose;
pub(crate) mod gather;
mod options;
pub mod plan;
mod reserve;
mod runs;
