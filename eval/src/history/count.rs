//! What a count of a range implies: at least the keys that existed throughout the call, and at most
//! those that may have existed at some instant of it, each at its own.

use std::ops::RangeInclusive;

use super::steps::{Condition, Effect, Step};

/// Between how many keys a count that took this interval can have found, given the steps of each
/// key of its range.
pub(super) fn bounds<S: Iterator<Item = Step> + Clone>(
    (invoked, returned): (u64, u64),
    keys: impl Iterator<Item = (bool, S)>,
) -> RangeInclusive<u64> {
    let (mut least, mut most) = (0, 0);
    for (is_there_at_first, steps) in keys {
        let throughout = |there: bool| {
            let known = latest(steps.clone(), there, invoked);
            let since = known.or((is_there_at_first == there).then_some(0));
            let ends = |step: &Step| ends(step, there);
            since.is_some_and(|since| {
                let mut ended = steps.clone().filter(ends);
                ended.all(|step| step.returned < since || step.invoked > returned)
            })
        };
        least += u64::from(throughout(true));
        most += u64::from(!throughout(false));
    }
    least..=most
}

/// The latest beginning of a step that was over before an instant, and that proves that the key was
/// there, or was not, at an instant of its own. Whatever came before that beginning is of no
/// account any more.
fn latest(steps: impl Iterator<Item = Step>, there: bool, before: u64) -> Option<u64> {
    let proves = |step: &Step| {
        let is_there = match (step.effect, step.condition) {
            (Effect::Write(_), _) => true,
            (Effect::Remove, _) => false,
            (Effect::Nothing, Condition::Absent) => false,
            (Effect::Nothing, Condition::Any) => return false,
            (Effect::Nothing, _) => true,
        };
        !step.optional && is_there == there && step.returned < before
    };
    steps.filter(proves).map(|step| step.invoked).max()
}

/// Whether a step may have made the key appear, or disappear.
fn ends(step: &Step, there: bool) -> bool {
    match step.effect {
        Effect::Nothing => false,
        Effect::Remove => there,
        Effect::Write(_) => !there && matches!(step.condition, Condition::Absent | Condition::Any),
    }
}
