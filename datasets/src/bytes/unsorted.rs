//! Treatment of lines that are out of order.

use std::fmt;
use std::str::FromStr;

/// What to do with a file whose lines are not in the order of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unsorted {
    /// Sort the keys once they are read.
    #[default]
    Sort,
    /// They are an error.
    Refuse,
}

/// A text that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a policy for lines out of order; write sort or refuse")]
pub struct ParseUnsortedError(String);

impl FromStr for Unsorted {
    type Err = ParseUnsortedError;

    fn from_str(text: &str) -> Result<Self, ParseUnsortedError> {
        match text {
            "sort" => Ok(Self::Sort),
            "refuse" => Ok(Self::Refuse),
            _ => Err(ParseUnsortedError(text.to_owned())),
        }
    }
}

impl fmt::Display for Unsorted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sort => "sort",
            Self::Refuse => "refuse",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_read_and_show_the_same() {
        for policy in [Unsorted::Sort, Unsorted::Refuse] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert!("keep".parse::<Unsorted>().unwrap_err().to_string().contains("sort or refuse"));
    }
}
