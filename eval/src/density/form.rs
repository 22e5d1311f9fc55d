//! The forms of tables that are measured.

use clap::ValueEnum;
use fpcache_client::{GroupForm, TableParameters};
use fpcache_index::groups::BlockForm;

/// A form of tables, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormName {
    /// No table: slots about the prediction
    #[value(alias = "none")]
    Line,
    /// Plain groups as they are cut from the keys, without a memory node
    Cut,
    /// Groups of neighbours, each with a separator, as a memory node has them
    #[value(alias = "groups")]
    Plain,
    /// Groups that hashes choose within a block, as a memory node has them
    Seeded,
    /// The very slot, by pilots, as a memory node has them
    Pilots,
}

impl FormName {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Line, Self::Cut, Self::Plain, Self::Seeded, Self::Pilots];

    /// Of the table, if there is one.
    pub fn form(self) -> Option<BlockForm> {
        match self {
            Self::Line => None,
            Self::Cut | Self::Plain => Some(BlockForm::PLAIN),
            Self::Seeded => Some(BlockForm::SEEDED),
            Self::Pilots => Some(BlockForm::PILOTS),
        }
    }

    /// That of memory nodes, if they have it and it is measured there.
    pub fn built(self) -> Option<GroupForm> {
        match self {
            Self::Plain => Some(GroupForm::Plain),
            Self::Seeded => Some(GroupForm::Seeded),
            Self::Pilots => Some(GroupForm::Pilots),
            Self::Line | Self::Cut => None,
        }
    }

    /// Share of slots that hold keys, unless told.
    pub fn default_fill(self) -> f64 {
        self.built().map_or(TableParameters::default().fill, |_| TableParameters::FILL_OF_GROUPS)
    }

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Cut => "cut",
            Self::Plain => "plain",
            Self::Seeded => "seeded",
            Self::Pilots => "pilots",
        }
    }
}
