//! Implications of a count of a range: at least the keys that must have been there at its instant
//! for them, and at most those that may have been, each at its own instant within the call.

use super::linearize::{Verdict, linearize};
use super::operation::Operation;
use super::steps::{Condition, Effect, Step};

/// Whether a key may have been there when a call counted it, and whether it may not, given its
/// value at first and its steps. A key whose steps have no order may have been either.
pub(super) fn may_be<S>(
    (operation, number): (&Operation, u32),
    initial: Option<u64>,
    steps: S,
) -> (bool, bool)
where
    S: Iterator<Item = Step> + Clone,
{
    let (invoked, returned) = (operation.invoked, operation.returned);
    let throughout = |there: bool| {
        let known = latest(steps.clone(), there, invoked);
        let since = known.or((initial.is_some() == there).then_some(0));
        let ends = |step: &Step| ends(step, there);
        since.is_some_and(|since| {
            let mut ended = steps.clone().filter(ends);
            ended.all(|step| step.returned < since || step.invoked > returned)
        })
    };
    // Most keys do not change meanwhile, which needs no search.
    match (throughout(true), throughout(false)) {
        (true, false) => (true, false),
        (false, true) => (false, true),
        _ => {
            let has_order = |condition| {
                let step = Step::read(operation, number, condition);
                let before = steps.clone().take_while(move |other| other.operation < number);
                let after = steps.clone().skip_while(move |other| other.operation < number);
                let with = before.chain(std::iter::once(step)).chain(after);
                !matches!(linearize(initial, with), Verdict::Disordered { .. })
            };
            match (has_order(Condition::Present), has_order(Condition::Absent)) {
                (false, false) => (true, true),
                found => found,
            }
        }
    }
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
