//! Outcomes of commands.

use std::error::Error;

/// What a command has to say, and whether all was well.
pub(super) struct Outcome {
    pub(super) text: String,
    pub(super) success: bool,
}

impl From<String> for Outcome {
    fn from(text: String) -> Self {
        Self { text, success: true }
    }
}

pub(super) type Failure = Box<dyn Error>;

/// Says what a data set has to announce, beside the command's outcome.
pub(super) fn announce(notes: &[String]) {
    notes.iter().for_each(|note| eprintln!("note: {note}"));
}
