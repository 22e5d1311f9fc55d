//! Which form of groups a table is to have, and how options spell it.

use std::fmt::{self, Display};
use std::str::FromStr;

use super::group_form::GroupForm;
use super::groups::Grouping;

/// Which form of groups a table is to have, as options spell it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub enum GroupChoice {
    /// Plain groups where slots are so short that several of them are a READ, and pilots where they are longer.
    #[default]
    Auto,
    /// This one.
    Fixed(GroupForm),
}

impl GroupChoice {
    /// The form for slots of so many bytes.
    #[must_use]
    pub const fn of(self, slot_bytes: usize) -> GroupForm {
        match (self, Grouping::for_slots(GroupForm::Plain, slot_bytes)) {
            (Self::Fixed(form), _) => form,
            (Self::Auto, Some(_)) => GroupForm::Plain,
            (Self::Auto, None) => GroupForm::Pilots,
        }
    }
}

impl Display for GroupChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(form) => form.fmt(f),
        }
    }
}

/// A name that no form of groups has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown form of groups `{0}`: use auto, plain, seeded or pilots")]
pub struct UnknownGroupForm(String);

impl FromStr for GroupChoice {
    type Err = UnknownGroupForm;

    fn from_str(text: &str) -> Result<Self, UnknownGroupForm> {
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
        let all = GroupForm::ALL.map(GroupChoice::Fixed).into_iter().chain([GroupChoice::Auto]);
        for choice in all {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let error = "line".parse::<GroupChoice>().expect_err("no form").to_string();
        assert!(error.contains("auto, plain, seeded or pilots"), "{error}");
    }

    #[test]
    fn long_slots_are_found_by_pilots_unless_told_otherwise() {
        use GroupForm::{Pilots, Plain, Seeded};
        assert_eq!(
            [24, 64, 72, 1 << 16].map(|bytes| GroupChoice::Auto.of(bytes)),
            [Plain, Plain, Pilots, Pilots]
        );
        assert_eq!(GroupChoice::Fixed(Seeded).of(72), Seeded);
    }
}
