//! The choice of a table's form of groups, and how options spell it.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::group_form::GroupForm;
use super::groups::Grouping;

/// Which form of groups a table is to have, as options spell it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub enum GroupChoice {
    /// Plain groups where slots are so short that several of them are a READ, and pilots where they
    /// are longer.
    #[default]
    Auto,
    /// This one.
    Fixed(GroupForm),
    /// Pilots, in blocks of this many slots: of shorter ones scans READ less, and compute nodes
    /// keep more.
    Pilots(u8),
}

impl GroupChoice {
    /// Slots that blocks with pilots can be told to have. Shorter ones would have but one pilot.
    const SLOTS_OF_A_BLOCK: RangeInclusive<u8> = 8..=64;

    /// The groups for slots of `slot_bytes` bytes; `None` if these are too long for the form.
    #[must_use]
    pub const fn grouping(self, slot_bytes: usize) -> Option<Grouping> {
        match self {
            Self::Pilots(slots) => Some(Grouping::by_pilots(slots)),
            _ => Grouping::for_slots(self.of(slot_bytes), slot_bytes),
        }
    }

    /// The form for slots of `slot_bytes` bytes.
    #[must_use]
    pub const fn of(self, slot_bytes: usize) -> GroupForm {
        match (self, Grouping::for_slots(GroupForm::Plain, slot_bytes)) {
            (Self::Fixed(form), _) => form,
            (Self::Pilots(_), _) => GroupForm::Pilots,
            (Self::Auto, Some(_)) => GroupForm::Plain,
            (Self::Auto, None) => GroupForm::Pilots,
        }
    }
}

/// The choice that makes such groups.
impl From<Grouping> for GroupChoice {
    fn from(groups: Grouping) -> Self {
        match groups.name() {
            GroupForm::Pilots if groups.block() != u16::from(Grouping::PILOT_SLOTS) => {
                Self::Pilots(groups.per_block)
            }
            form => Self::Fixed(form),
        }
    }
}

impl Display for GroupChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(form) => form.fmt(f),
            Self::Pilots(slots) => write!(f, "{}:{slots}", GroupForm::Pilots),
        }
    }
}

/// A name that no form of groups has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "unknown form of groups `{0}`: use auto, plain, seeded, pilots, or pilots:SLOTS with {least} to {most} slots to a block",
    least = GroupChoice::SLOTS_OF_A_BLOCK.start(), most = GroupChoice::SLOTS_OF_A_BLOCK.end()
)]
pub struct UnknownGroupForm(String);

impl FromStr for GroupChoice {
    type Err = UnknownGroupForm;

    fn from_str(text: &str) -> Result<Self, UnknownGroupForm> {
        if let Some((name, slots)) = text.split_once(':')
            && name == GroupForm::Pilots.name()
            && let Ok(slots) = slots.parse()
            && Self::SLOTS_OF_A_BLOCK.contains(&slots)
        {
            return Ok(Self::Pilots(slots));
        }
        let mut forms = GroupForm::ALL.into_iter();
        match forms.find(|form| form.name() == text) {
            Some(form) => Ok(Self::Fixed(form)),
            None if text == "auto" => Ok(Self::Auto),
            None => Err(UnknownGroupForm(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_named_and_others_are_refused() {
        let all = GroupForm::ALL
            .map(GroupChoice::Fixed)
            .into_iter()
            .chain([GroupChoice::Auto, GroupChoice::Pilots(16)]);
        for choice in all {
            assert_eq!(choice.to_string().parse(), Ok(choice));
            let made = choice.grouping(24).map(GroupChoice::from);
            assert_eq!(
                made,
                Some(if choice == GroupChoice::Auto { GroupChoice::Fixed(GroupForm::Plain) } else { choice })
            );
        }
        let error = "line".parse::<GroupChoice>().expect_err("no form").to_string();
        assert!(error.contains("auto, plain, seeded, pilots, or pilots:SLOTS with 8 to 64"), "{error}");
        for text in ["pilots:7", "pilots:65", "pilots:", "seeded:16"] {
            assert!(text.parse::<GroupChoice>().is_err(), "{text}");
        }
    }

    #[test]
    fn long_slots_are_found_by_pilots_unless_told_otherwise() {
        use GroupForm::{Pilots, Plain, Seeded};
        assert_eq!(
            [24, 64, 72, 1 << 16].map(|bytes| GroupChoice::Auto.of(bytes)),
            [Plain, Plain, Pilots, Pilots]
        );
        assert_eq!(GroupChoice::Fixed(Seeded).of(72), Seeded);
        assert_eq!(GroupChoice::Fixed(Seeded).grouping(72), None);
    }

    #[test]
    fn blocks_with_pilots_have_as_many_slots_as_they_are_told_to_and_as_many_pilots_for_each() {
        let of = |slots| GroupChoice::Pilots(slots).grouping(24);
        let expected = [(8, 2), (16, 4), (32, 7), (64, 14)];
        assert_eq!(expected.map(|(slots, _)| of(slots)), expected.map(|(a, b)| Some(Grouping::pilots(a, b))));
        assert!((8..=64).all(|slots| of(slots).is_some_and(Grouping::is_valid)));
        assert_eq!(of(32), GroupChoice::Fixed(GroupForm::Pilots).grouping(264));
    }
}
