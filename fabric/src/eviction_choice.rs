//! The choice of a silent new connection to close when there are too many.

use std::time::Duration;

/// Connections that may wait for a greeting. When one more comes, one of the party that has most of
/// them is closed.
pub(crate) const MAX_GREETING: usize = 64;
/// How long one is left alone though others want its place.
pub(crate) const GRACE: Duration = Duration::from_millis(50);

/// Which of these, in the order in which they came, is closed for another: the first one of the
/// party that has most of them. So one party's idle connections keep no other party out. Those
/// without a party stay.
pub(crate) fn first_of_most<P: PartialEq>(parties: impl Iterator<Item = Option<P>> + Clone) -> Option<usize> {
    let count = |party: &P| parties.clone().flatten().filter(|other| other == party).count();
    let most = parties.clone().flatten().map(|party| count(&party)).max()?;
    parties.clone().position(|party| party.is_some_and(|party| count(&party) == most))
}
