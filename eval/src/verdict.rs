//! The outcome of a command.

/// Whether every answer was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every one, or none was asked for.
    AllRight,
    /// At least one was not.
    WrongAnswers,
}

impl Verdict {
    /// That of a number of wrong answers.
    pub fn of(mismatches: u64) -> Self {
        if mismatches == 0 { Self::AllRight } else { Self::WrongAnswers }
    }
}
