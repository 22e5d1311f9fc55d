//! Lookups in doorbell batches.

use std::time::Duration;

use fpcache_fabric::{Batch, FabricError, Landing, REGION, RemoteAddr, Words};

use super::question::{Answers, put_question};
use crate::key_space::KeySpace;
use crate::layout::Corrupt;
use crate::matching::Matcher;
use crate::plan::PlanOptions;
use crate::read::engine::{Engine, Probe, Requested, Source, Unconfirmed};
use crate::read::external::{clear, is_full};
use crate::read::outcome::Outcome;
use crate::read::scratch::{GroupScratch, LookupScratch};
use crate::read::{MAX_ATTEMPTS, Operation, ReadError, Step, Wanted};
use crate::table::Table;

/// Looks up a group of keys in doorbell batches: as a state machine, for fabrics with real latency.
///
/// Every round posts what all unfinished keys need as one batch.
/// [`look_up_all`](super::look_up_all) drives it where memory cannot be looked at in place.
#[derive(Debug)]
pub struct Lookup<'a, K: KeySpace> {
    table: &'a Table<K>,
    wanted: Wanted,
    scratch: &'a mut LookupScratch<K>,
    rounds: u32,
    /// Rounds after which something has to be read again because it was being written, and how many
    /// there may be.
    torn: u32,
    most_torn: u32,
    unconfirmed: Unconfirmed,
    /// Whether some key lies in a segment that was replaced.
    is_stale: bool,
    /// The step after a check of the reuse sequence.
    after_check: Option<Then>,
    /// The time of a round trip, if it was measured.
    round_trip: Option<Duration>,
    /// Whether the memory node is to be asked first.
    asks: bool,
    /// Where its reply lands.
    asked: Option<Landing>,
}

/// The next step of an operation once it knows that what it read may be believed.
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
        scratch.clear_outcomes();
        Self::more(table, scratch, keys)
    }

    /// The same, with the answers after those that are there.
    #[inline]
    pub fn more<'k>(
        table: &'a Table<K>,
        scratch: &'a mut LookupScratch<K>,
        keys: impl IntoIterator<Item = &'k K::Key>,
    ) -> Self {
        scratch.group.begin(keys.into_iter());
        scratch.lists.clear();
        let (wanted, unconfirmed) = (Wanted::Value, Unconfirmed::default());
        Self {
            table,
            wanted,
            scratch,
            rounds: 0,
            torn: 0,
            most_torn: MAX_ATTEMPTS,
            unconfirmed,
            is_stale: false,
            after_check: None,
            round_trip: None,
            asks: false,
            asked: None,
        }
    }

    /// The same lookup, by the cheapest of these [ways](Table::ways): also by the memory node, if
    /// it answers and that is the plan.
    #[must_use]
    pub fn by(self, ways: PlanOptions) -> Self {
        let GroupScratch { keys, asking, .. } = &mut self.scratch.group;
        let asks = self.table.planner().asks_node(keys.len(), &ways) && asking.may_ask();
        Self { asks, round_trip: ways.round_trip, ..self }
    }

    /// Asks the memory node, and says whether there is something to ask.
    fn ask(&mut self) -> bool {
        let GroupScratch { keys, arena, trips, question, .. } = &mut self.scratch.group;
        let [first, _] = trips;
        let all = keys.iter().map(|key| K::kept(key, arena));
        let view = self.table.view();
        let (geometry, epsilon) = (view.geometry(), view.record().parameters.epsilon);
        let Some(words) = put_question::<K>(geometry, epsilon, self.wanted, all, question) else {
            return false;
        };
        self.asked = Some(first.ask(question, words));
        true
    }

    /// The same lookup, of no more than this.
    #[must_use]
    pub fn of(self, wanted: Wanted) -> Self {
        Self { wanted, ..self }
    }

    /// The same lookup, which gives up after `rounds` rounds in which a record was being written:
    /// [`LookupScratch::answered`] says of which keys there are answers all the same.
    #[must_use]
    pub fn trying(self, rounds: u32) -> Self {
        Self { most_torn: rounds, ..self }
    }

    /// Has the reuse sequence looked at before going on.
    fn check_first(&mut self, then: Then) -> Step {
        self.unconfirmed = Unconfirmed::default();
        self.after_check = Some(then);
        Step::Check(self.table.view().holds_until())
    }

    fn post(&mut self) -> Step {
        self.rounds += 1;
        Step::Post
    }

    fn end(&self) -> Result<Step, ReadError> {
        if self.is_stale { Err(ReadError::Stale) } else { Ok(Step::Done) }
    }
}

impl<K: KeySpace> Lookup<'_, K> {
    fn next_step(&mut self) -> Result<Step, ReadError> {
        let after_check = self.after_check.take();
        // There has been a check, which held.
        self.scratch.group.doubts_absence &= after_check.is_none();
        match after_check {
            None => {}
            Some(Then::Post) if self.torn >= self.most_torn => {
                return Err(ReadError::Contended { attempts: self.torn });
            }
            Some(Then::Post) => return Ok(self.post()),
            Some(Then::End) => return self.end(),
            Some(Then::Fail(corrupt)) => return Err(corrupt.into()),
        }
        if self.rounds == 0 && std::mem::take(&mut self.asks) && self.ask() {
            return Ok(self.post());
        }
        let asked = self.asked.take();
        let LookupScratch { matcher, lists, handle, group, .. } = &mut *self.scratch;
        let GroupScratch { first, keys, arena, probes, answers, trips, asking, doubts_absence, .. } = group;
        let [even, odd] = trips;
        let (landed, next) = if self.rounds.is_multiple_of(2) { (&*odd, even) } else { (&*even, odd) };
        clear(next);
        let mut engine = Engine {
            table: self.table,
            rule: self.table.planner().group_over(keys.len(), self.round_trip),
            wanted: self.wanted,
            kernels: *matcher,
            source: Landed { landed, next, guards: self.table.view().guards_slots() },
            handle,
            lists,
            records: &mut answers.records,
            unconfirmed: self.unconfirmed,
            value_bytes: 0,
        };
        let all = keys.iter().zip(probes.iter_mut()).zip(&mut answers.outcomes[*first..]);
        engine.take_tables()?;
        let all = all.map(|((key, p), o)| (K::kept(key, arena), p, o));
        let taken = match asked {
            None => engine.take_all(all, &mut self.is_stale),
            Some(reply) => {
                let (answered, keys) = engine.take_answers(reply, all);
                asking.note_answers(answered, keys);
                Ok(())
            }
        };
        let is_idle = engine.source.next.is_empty();
        self.unconfirmed = engine.unconfirmed;
        *doubts_absence = self.unconfirmed.absent;
        match taken {
            Ok(()) => {}
            // Damaged, or no page of this directory any more.
            Err(ReadError::Corrupt(corrupt)) => return Ok(self.check_first(Then::Fail(corrupt))),
            Err(error) => return Err(error),
        }
        Ok(match is_idle {
            true if self.unconfirmed.absent => self.check_first(Then::End),
            true => return self.end(),
            false if self.unconfirmed.torn => {
                self.torn += 1;
                self.check_first(Then::Post)
            }
            false => self.post(),
        })
    }
}

impl<K: KeySpace> Operation for Lookup<'_, K> {
    fn step(&mut self) -> Result<Step, ReadError> {
        let step = self.next_step();
        if matches!(step, Ok(Step::Done) | Err(_)) {
            // The thread keeps neither the room for what a long group has read nor pages of the
            // directory, which no budget counts there.
            self.scratch.group.trips.iter_mut().for_each(clear);
            self.scratch.lists.give_pages_back();
        }
        step
    }

    #[inline]
    fn batch(&mut self) -> &mut Batch {
        // A step that posts has counted its round.
        &mut self.scratch.group.trips[usize::from(self.rounds.is_multiple_of(2))]
    }
}

/// The bytes that landed with the last doorbell batch, and the next batch.
#[derive(Debug)]
struct Landed<'a> {
    landed: &'a Batch,
    next: &'a mut Batch,
    guards: bool,
}

impl Source for Landed<'_> {
    fn ask(&mut self, offset: u64, bytes: usize) -> Requested {
        let landing = self.next.read(RemoteAddr { area: REGION, offset }, bytes);
        Requested { offset, bytes, landing }
    }

    fn ask_slots(&mut self, offset: u64, bytes: usize, slot_bytes: usize) -> Requested {
        if !self.guards {
            return self.ask(offset, bytes);
        }
        let landing = self.next.read_records(RemoteAddr { area: REGION, offset }, bytes, slot_bytes);
        Requested { offset, bytes, landing }
    }

    fn words(&mut self, asked: &Requested) -> Result<Words<'_>, FabricError> {
        Ok(self.landed.words(asked.landing).into())
    }

    fn slot(&mut self, asked: &Requested, at: usize, out: &mut [u64]) -> Result<(), FabricError> {
        // The window's slots that were asked for have landed whole, each under its guard.
        let words = self.landed.words(asked.landing).get(at / 8..).unwrap_or_default();
        let some = words.len().min(out.len());
        out[..some].copy_from_slice(&words[..some]);
        out[some..].fill(0);
        Ok(())
    }
}

impl<K: KeySpace> Engine<'_, K, Landed<'_>, Matcher> {
    /// Takes what one batch brought for all keys, and begins those for which nothing was asked yet,
    /// as many as may be under way at once. Keys whose segments were replaced end without an
    /// answer, and no other one with them.
    fn take_all<'k>(
        &mut self,
        all: impl Iterator<Item = (&'k K::Key, &'k mut Probe, &'k mut Outcome)>,
        is_stale: &mut bool,
    ) -> Result<(), ReadError> {
        let slot_bytes = self.table.view().geometry().slot_bytes as u64;
        // Of the slots that keys under way may ask for with the next doorbell.
        let mut to_come = 0;
        for (key, probe, outcome) in all {
            if probe.is_new() {
                match is_full(self.source.next, to_come) {
                    true => outcome.cost.round_trips += 1,
                    false => *probe = self.begin(key, outcome),
                }
            } else if let Err(error) = self.take(key, probe, outcome) {
                *probe = Probe::FAILED;
                match error {
                    ReadError::Stale => *is_stale = true,
                    error => return Err(error),
                }
            }
            if !probe.is_done() && !probe.is_new() {
                to_come += slot_bytes;
            }
        }
        Ok(())
    }

    /// Takes what the memory node has answered, begins the lookups of the other keys, and says how
    /// many answers there were to how many keys.
    fn take_answers<'k>(
        &mut self,
        reply: Landing,
        all: impl Iterator<Item = (&'k K::Key, &'k mut Probe, &'k mut Outcome)>,
    ) -> (usize, usize) {
        let (mut answered, mut keys) = (0, 0);
        let mut answers = Answers::of(self.source.landed.words(reply));
        for (key, probe, outcome) in all {
            keys += 1;
            match answers.next(self.records) {
                Some(answer) => {
                    answered += 1;
                    (*outcome, *probe) = (answer, Probe::DONE);
                }
                None => {
                    outcome.cost.round_trips += 1;
                    *probe = self.begin(key, outcome);
                }
            }
        }
        (answered, keys)
    }
}
