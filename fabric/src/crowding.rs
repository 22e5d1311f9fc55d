//! Who has to go where many have connected and said nothing yet.

use std::time::Duration;

/// Where there are so many and one more comes, one of the party that has most of them goes.
pub(crate) const MAX_GREETING: usize = 64;
/// How long one is left alone though others wait for its place.
pub(crate) const GRACE: Duration = Duration::from_millis(50);

/// Which of these, in the order in which they came, goes for another: the first one of the party
/// that has most of them. So the idle connections of one keep nobody else out. Those without a
/// party stay.
pub(crate) fn first_of_most<P: PartialEq>(parties: impl Iterator<Item = Option<P>> + Clone) -> Option<usize> {
    let count = |party: &P| parties.clone().flatten().filter(|other| other == party).count();
    let most = parties.clone().flatten().map(|party| count(&party)).max()?;
    parties.clone().position(|party| party.is_some_and(|party| count(&party) == most))
}
