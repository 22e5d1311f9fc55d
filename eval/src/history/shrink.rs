//! Reduction of a key's history without an order to the few operations that show why.

use super::linearize::{Verdict, linearize_until};
use super::operation::NEVER;
use super::steps::Step;

/// Steps looked at before shrinking ends with what it has: about a second.
const MOST_WORK: usize = 30_000_000;

/// Operations that have no order, whatever the others did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Core {
    /// Numbers of the operations, in the order of invocation.
    pub operations: Vec<u32>,
    /// The one that cannot have happened by the time it returned.
    pub failing: u32,
    /// Whether none of them can be spared.
    pub minimal: bool,
}

/// Shrinks `steps`, which are known to have no order when `failing` returns.
///
/// What follows that instant is left out: it cannot make what came before possible. Of the rest,
/// reads are left out and writes are made *optional within their intervals* as long as there is
/// still no order: first all but the last few steps, then ever smaller pieces (Zeller and
/// Hildebrandt, "Simplifying and isolating failure-inducing input", TSE 28(2), 2002, §3). Leaving a
/// write out altogether would prove nothing: what it wrote may be what makes the history right.
pub(super) fn shrink(initial: Option<u64>, steps: &[Step], failing: u32) -> Core {
    let end = steps.iter().find(|step| step.operation == failing).map_or(NEVER, |step| step.returned);
    let mut shrinking = Shrinking::new(initial, steps, end, failing);
    shrinking.keep_the_last();
    shrinking.drop_pieces();
    let kept = shrinking.steps.iter().zip(&shrinking.kept);
    Core {
        operations: kept.filter(|(_, kept)| **kept).map(|(step, _)| step.operation).collect(),
        failing: shrinking.failing,
        minimal: shrinking.work < MOST_WORK,
    }
}

struct Shrinking {
    initial: Option<u64>,
    /// What returns at this instant or later need not have happened.
    end: u64,
    steps: Vec<Step>,
    kept: Vec<bool>,
    failing: u32,
    work: usize,
}

impl Shrinking {
    /// The history up to `end`.
    fn new(initial: Option<u64>, steps: &[Step], end: u64, failing: u32) -> Self {
        let steps: Vec<Step> = steps.iter().filter(|step| step.invoked <= end).copied().collect();
        Self { initial, end: end.saturating_add(1), kept: vec![true; steps.len()], steps, failing, work: 0 }
    }

    /// Leaves the steps of `without` out if there is no order without them either.
    fn try_without(&mut self, without: std::ops::Range<usize>) -> bool {
        if !self.kept[without.clone()].contains(&true) || self.work >= MOST_WORK {
            return false;
        }
        self.work += self.steps.len();
        let out = |at: usize| !self.kept[at] || without.contains(&at);
        let weaker = self.steps.iter().enumerate().filter_map(|(at, step)| match out(at) {
            false => Some(*step),
            true if step.is_read() => None,
            true => Some(Step { optional: true, ..*step }),
        });
        let Verdict::Disordered { failing } = linearize_until(self.end, self.initial, weaker) else {
            return false;
        };
        self.failing = failing;
        self.kept[without].fill(false);
        true
    }

    fn keep_the_last(&mut self) {
        let len = self.steps.len();
        let mut last = 8;
        while last < len && !self.try_without(0..len - last) {
            last *= 4;
        }
    }

    fn drop_pieces(&mut self) {
        let mut piece = self.steps.len().next_power_of_two() / 2;
        while piece > 0 {
            let mut dropped = false;
            // From the end: what comes last is most often what fails, and the rest is there to
            // explain it.
            for first in (0..self.steps.len()).step_by(piece) {
                let last = (first + piece).min(self.steps.len());
                dropped |= self.try_without(first..last);
            }
            // Steps that could not be spared one by one may become so once others are gone.
            if piece > 1 || !dropped {
                piece /= 2;
            }
        }
    }
}
