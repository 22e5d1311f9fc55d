//! Outcomes of commands.

use std::error::Error;
use std::fmt::Display;

/// What a command has to say, and how it ends.
pub(super) struct Outcome {
    pub(super) text: String,
    pub(super) end: End,
}

/// How a command ends, from well to worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Done = 0,
    /// A file is wrong.
    Wrong = 1,
    /// Something could not be done.
    Failed = 2,
}

impl Outcome {
    /// Tells of an error, after which the command ends so at best.
    pub(super) fn fail(&mut self, error: impl Display, end: End) {
        eprintln!("error: {error}");
        self.end = self.end.max(end);
    }
}

impl From<String> for Outcome {
    fn from(text: String) -> Self {
        Self { text, end: End::Done }
    }
}

pub(super) type Failure = Box<dyn Error>;

/// Says what a data set has to announce, beside the command's outcome.
pub(super) fn announce(notes: &[String]) {
    notes.iter().for_each(|note| eprintln!("note: {note}"));
}
