//! The forms of groups.

use std::fmt::{self, Display};

/// How a table's groups are told apart; with its number in table records.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub enum GroupForm {
    /// Each by a separator of its own.
    #[default]
    Plain = 1,
    /// Those of a block, which have one separator, by the keys' hashes and a seed: half of the
    /// bytes on the compute node, and of those keys that inserts put elsewhere somewhat more.
    Seeded = 2,
    /// Slots, each a group of one, of which a key's hash chooses by a pilot: for slots so long that
    /// a READ is to be of one.
    Pilots = 3,
}

impl GroupForm {
    /// All forms.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Seeded, Self::Pilots];

    /// As it is written on command lines and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Seeded => "seeded",
            Self::Pilots => "pilots",
        }
    }
}

impl Display for GroupForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
