//! Looking keys up: any number of keys in the same doorbell batches.

use fpcache_fabric::Batch;

use super::outcome::Outcome;
use super::outside::Wanted;
use super::planner::Rule;
use super::round::{Doubt, Round, Trip};
use super::scratch::LookupScratch;
use super::target::Target;
use super::{MAX_ATTEMPTS, Operation, Plan, ReadError, Step};
use crate::key_space::KeySpace;
use crate::layout::Corrupt;
use crate::table::Table;

/// Looks up a group of keys together.
///
/// Every round posts what all unfinished keys need as one doorbell batch: a group costs as many dependent round trips
/// as its slowest key, two with two-stage reads. Values outside slots share theirs, up to 64 MiB of them.
#[derive(Debug)]
pub struct Lookup<'a, K: KeySpace> {
    table: &'a Table<K>,
    rule: Rule,
    wanted: Wanted,
    scratch: &'a mut LookupScratch<K>,
    rounds: u32,
    doubt: Doubt,
    /// What comes after a check of the reuse sequence.
    behind_check: Option<Then>,
}

/// What an operation does once it knows that what it read may be believed.
#[derive(Debug)]
enum Then {
    Post,
    End,
    Fail(Corrupt),
}

impl<'a, K: KeySpace> Lookup<'a, K> {
    /// A lookup of `keys`, with the cheapest plan for each or the one that was fixed.
    #[inline]
    pub fn new<'k>(
        table: &'a Table<K>,
        scratch: &'a mut LookupScratch<K>,
        keys: impl IntoIterator<Item = &'k K::Key>,
    ) -> Self {
        let group = &mut scratch.group;
        group.keys.clear();
        group.arena.clear();
        group.targets.clear();
        group.waiting.clear();
        group.answers.clear();
        let models = table.snapshot().models();
        for key in keys {
            let target = Target::of(table.snapshot(), key).unwrap_or_else(|| {
                let page = models.paged().map_or(0, |models| models.page_of(key));
                group.waiting.push((page, group.targets.len()));
                Target::UNKNOWN
            });
            group.keys.push(K::keep(key, &mut group.arena));
            group.targets.push(target);
        }
        group.waiting.sort_unstable();
        group.answers.outcomes.resize(group.targets.len(), Outcome::begun(Plan::TwoStage));
        let rule = table.planner().group(group.targets.len());
        let (wanted, doubt) = (Wanted::Value, Doubt::default());
        Self { table, rule, wanted, scratch, rounds: 0, doubt, behind_check: None }
    }

    /// The same lookup for keys that the hot cache was asked for before, by one plan.
    pub(super) fn go_on_by(self, plan: Plan) -> Self {
        Self { rule: self.rule.go_on_by(plan), ..self }
    }

    /// The same lookup, of no more than this.
    pub(super) fn of(self, wanted: Wanted) -> Self {
        Self { wanted, ..self }
    }
}

impl<K: KeySpace> Lookup<'_, K> {
    /// Has the reuse sequence looked at before going on.
    #[inline]
    fn check_first(&mut self, then: Then) -> Step {
        self.doubt = Doubt::default();
        self.behind_check = Some(then);
        Step::Check(self.table.snapshot().holds_until())
    }

    /// Posts what reads something again.
    fn post_again(&mut self) -> Result<Step, ReadError> {
        if self.rounds >= MAX_ATTEMPTS {
            return Err(ReadError::Contended { attempts: self.rounds });
        }
        Ok(self.post())
    }

    #[inline]
    fn post(&mut self) -> Step {
        self.rounds += 1;
        Step::Post
    }
}

impl<K: KeySpace> Operation for Lookup<'_, K> {
    #[inline]
    fn step(&mut self) -> Result<Step, ReadError> {
        match self.behind_check.take() {
            None => {}
            Some(Then::Post) => return self.post_again(),
            Some(Then::End) => return Ok(Step::Done),
            Some(Then::Fail(corrupt)) => return Err(corrupt.into()),
        }
        let LookupScratch { single, group, visitor } = &mut *self.scratch;
        let [even, odd] = &mut group.trips;
        let (landed, next) = if self.rounds.is_multiple_of(2) { (&*odd, even) } else { (&*even, odd) };
        next.clear();
        let arrived = match landed.pages.is_empty() || self.rounds == 0 {
            true => &[][..],
            false => match take_pages(
                self.table,
                landed,
                &group.waiting,
                (&group.keys, &group.arena),
                &mut group.targets,
            ) {
                Ok(arrived) => arrived,
                // Damaged, or no page of this directory any more.
                Err(corrupt) => return Ok(self.check_first(Then::Fail(corrupt))),
            },
        };
        let mut round = Round {
            table: self.table,
            rule: &self.rule,
            wanted: self.wanted,
            matcher: &single.matcher,
            visitor,
            keys: &group.keys,
            arena: &group.arena,
            targets: &group.targets,
            outcomes: &mut group.answers.outcomes,
            values: &mut group.answers.values,
            slots: &mut group.slots,
            landed,
            next,
            doubt: &mut self.doubt,
        };
        if self.rounds == 0 {
            match group.waiting.is_empty() {
                true => (0..round.targets.len()).for_each(|index| round.begin(index)),
                false => round.begin_known(&group.waiting),
            }
        } else {
            round.take()?;
            arrived.iter().for_each(|(_, index)| round.begin(*index));
        }
        match round.next.batch.is_empty() {
            true if self.doubt.absent => Ok(self.check_first(Then::End)),
            true => Ok(Step::Done),
            false if self.doubt.unsettled => Ok(self.check_first(Then::Post)),
            false => Ok(self.post()),
        }
    }

    #[inline]
    fn batch(&mut self) -> &mut Batch {
        // A step that posts has counted its round.
        &mut self.scratch.group.trips[usize::from(self.rounds.is_multiple_of(2))].batch
    }
}

/// Takes the pages of the directory that were asked for: the targets that waited for them are known now, and returned.
#[cold]
fn take_pages<'w, K: KeySpace>(
    table: &Table<K>,
    landed: &Trip,
    waiting: &'w [(u32, usize)],
    (keys, arena): (&[K::Kept], &[u8]),
    targets: &mut [Target],
) -> Result<&'w [(u32, usize)], Corrupt> {
    let Some(models) = table.snapshot().models().paged() else { return Ok(&[]) };
    for (number, landing) in &landed.pages {
        let page = models.keep(*number, landed.batch.bytes(*landing))?;
        let first = waiting.partition_point(|(other, _)| other < number);
        for (_, index) in waiting[first..].iter().take_while(|(other, _)| other == number) {
            let key = K::kept(&keys[*index], arena);
            targets[*index] = Target::in_page(&page, key, table.snapshot().coders());
        }
    }
    Ok(waiting)
}
