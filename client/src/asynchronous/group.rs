//! Reads of one kind that are made together, and who waits for their answers.

use std::borrow::Borrow;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordShape, RecordToken};
use fpcache::read::{LookupScratch, NearestScratch, Neighbour, Outcome, Side, Wanted};
use fpcache_fabric::FabricError;
use tokio::sync::oneshot;

use super::unanswered::{OTHERS, REPLY};
use crate::client::Record;
use crate::core::{Section, SectionRead};
use crate::error::ClientError;

/// Bytes of answers that room is kept for from one group to the next: of long values there may be
/// gigabytes.
pub(super) const MOST_KEPT_BYTES: usize = 1 << 20;

/// What is read of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Value,
    Presence,
    Nearest(Side),
    Scan,
}

/// The keys of one call.
pub(super) enum Keys<Key> {
    One(Key),
    Many(Vec<Key>),
}

impl<Key> Keys<Key> {
    pub(super) fn as_slice(&self) -> &[Key] {
        match self {
            Self::One(key) => std::slice::from_ref(key),
            Self::Many(keys) => keys,
        }
    }
}

/// The call that waits for an answer.
pub(super) type Replier<R> = oneshot::Sender<Result<R, ClientError>>;

/// What is to be answered, and to whom.
pub(super) enum ReplyTo<K: BuildKeys> {
    Value(Replier<Option<Vec<u8>>>),
    Versioned(Replier<Option<(Vec<u8>, RecordToken)>>),
    Values(Replier<Vec<Option<Vec<u8>>>>),
    /// Values of eight bytes.
    Words(Replier<Vec<Option<u64>>>),
    IsThere(Replier<bool>),
    AreThere(Replier<Vec<bool>>),
    AllNearest(Replier<Vec<Option<Record<K>>>>),
    Scanned(Section<K>, Replier<SectionRead<K>>),
}

/// A call.
pub(super) struct QueuedRead<K: BuildKeys> {
    pub(super) keys: Keys<K::Owned>,
    pub(super) answer: ReplyTo<K>,
    pub(super) until: Instant,
}

impl<K: BuildKeys> QueuedRead<K> {
    /// Whether the call was given up.
    pub(super) fn is_forgotten(&self) -> bool {
        match &self.answer {
            ReplyTo::Value(to) => to.is_closed(),
            ReplyTo::Versioned(to) => to.is_closed(),
            ReplyTo::Values(to) => to.is_closed(),
            ReplyTo::Words(to) => to.is_closed(),
            ReplyTo::IsThere(to) => to.is_closed(),
            ReplyTo::AreThere(to) => to.is_closed(),
            ReplyTo::AllNearest(to) => to.is_closed(),
            ReplyTo::Scanned(_, to) => to.is_closed(),
        }
    }

    pub(super) fn fail(self, error: ClientError) {
        // A call that was given up need not be told.
        match self.answer {
            ReplyTo::Value(to) => drop(to.send(Err(error))),
            ReplyTo::Versioned(to) => drop(to.send(Err(error))),
            ReplyTo::Values(to) => drop(to.send(Err(error))),
            ReplyTo::Words(to) => drop(to.send(Err(error))),
            ReplyTo::IsThere(to) => drop(to.send(Err(error))),
            ReplyTo::AreThere(to) => drop(to.send(Err(error))),
            ReplyTo::AllNearest(to) => drop(to.send(Err(error))),
            ReplyTo::Scanned(_, to) => drop(to.send(Err(error))),
        }
    }

    /// Answers a lookup from the results for its keys.
    fn looked_up<'o>(
        self,
        shape: &RecordShape,
        mut found: impl Iterator<Item = (&'o Outcome, Option<&'o [u8]>)>,
    ) {
        let count = self.keys.as_slice().len();
        let mut values = found.by_ref().take(count);
        let is_there = |(outcome, _): (&Outcome, _)| outcome.version.is_some();
        match self.answer {
            ReplyTo::Value(to) => {
                let value = values.next().and_then(|(_, value)| value.map(<[u8]>::to_vec));
                drop(to.send(Ok(value)));
            }
            ReplyTo::Versioned(to) => {
                let versioned = values.next().and_then(|(outcome, value)| {
                    let (version, value) = outcome.version.zip(value)?;
                    let key = self.keys.as_slice().first()?.borrow();
                    Some((value.to_vec(), RecordToken::of(version, &shape.identity::<K>(key, value))))
                });
                drop(to.send(Ok(versioned)));
            }
            ReplyTo::Values(to) => {
                drop(to.send(Ok(values.by_ref().map(|(_, value)| value.map(<[u8]>::to_vec)).collect())));
            }
            ReplyTo::Words(to) => drop(to.send(words(shape, values.by_ref().map(|(_, value)| value)))),
            ReplyTo::IsThere(to) => drop(to.send(Ok(values.next().is_some_and(is_there)))),
            ReplyTo::AreThere(to) => drop(to.send(Ok(values.by_ref().map(is_there).collect()))),
            // Queues keep kinds apart.
            other => Self { answer: other, ..self }.fail(not_of_its_kind()),
        }
        // Those of the next call follow, whatever this one took of its own.
        values.for_each(drop);
    }

    /// Answers a search from the results for its keys.
    fn searched(self, mut found: impl Iterator<Item = Option<Record<K>>>) {
        let count = self.keys.as_slice().len();
        match self.answer {
            ReplyTo::AllNearest(to) => {
                // All keys have answers.
                let mut nearest: Vec<_> = found.by_ref().take(count).collect();
                nearest.resize_with(count, || None);
                drop(to.send(Ok(nearest)));
            }
            other => Self { answer: other, ..self }.fail(not_of_its_kind()),
        }
    }
}

/// The values of a table of words; an error if it is none.
fn words<'o>(
    shape: &RecordShape,
    values: impl Iterator<Item = Option<&'o [u8]>>,
) -> Result<Vec<Option<u64>>, ClientError> {
    if shape.value_bytes != Some(8) {
        return Err(ClientError::NotWords { value_bytes: shape.value_bytes });
    }
    let word = |value: &[u8]| match value.try_into() {
        Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
        Err(_) => Err(ClientError::NotWords { value_bytes: u32::try_from(value.len()).ok() }),
    };
    values.map(|value| value.map(word).transpose()).collect()
}

pub(super) fn records<K: BuildKeys>(found: &NearestScratch<K>) -> impl Iterator<Item = Option<Record<K>>> {
    let record = |found: Neighbour<'_, K>| (found.key.to_owned(), found.value.to_vec());
    found.answers().map(move |(neighbour, _)| neighbour.map(record))
}

fn not_of_its_kind() -> ClientError {
    FabricError::NotPosted.into()
}

/// Calls of one kind.
pub(super) struct Group<K: BuildKeys> {
    pub(super) kind: Kind,
    pub(super) asked: Vec<QueuedRead<K>>,
    /// What its calls wait for.
    waiting_for: &'static str,
}

impl<K: BuildKeys> Default for Group<K> {
    fn default() -> Self {
        Self::with(Kind::Value, Vec::new())
    }
}

impl<K: BuildKeys> Group<K> {
    pub(super) fn of(kind: Kind, asked: QueuedRead<K>) -> Self {
        Self::with(kind, vec![asked])
    }

    pub(super) fn with(kind: Kind, asked: Vec<QueuedRead<K>>) -> Self {
        Self { kind, asked, waiting_for: OTHERS }
    }

    /// Notes that a memory node has been asked.
    pub(super) fn has_begun(&mut self) {
        self.waiting_for = REPLY;
    }

    /// The keys of all calls.
    pub(super) fn keys(&self) -> impl Iterator<Item = &K::Key> + Clone {
        self.asked.iter().flat_map(|asked| asked.keys.as_slice()).map(Borrow::borrow)
    }

    /// By when the last of them must be answered.
    pub(super) fn until(&self) -> Instant {
        self.asked.iter().map(|asked| asked.until).max().unwrap_or_else(Instant::now)
    }

    /// What is wanted of the keys that are looked up.
    pub(super) fn wanted(&self) -> Wanted {
        if self.kind == Kind::Presence { Wanted::Presence } else { Wanted::Value }
    }

    /// What a scan is to read.
    pub(super) fn section(&self) -> Option<&Section<K>> {
        match self.asked.first()?.answer {
            ReplyTo::Scanned(ref section, _) => Some(section),
            _ => None,
        }
    }

    /// Drops the calls that were given up, and fails those whose time is over.
    pub(super) fn drop_expired(&mut self) {
        let now = Instant::now();
        for asked in self.asked.extract_if(.., |asked| asked.is_forgotten() || asked.until <= now) {
            asked.fail(FabricError::DeadlinePassed { waiting_for: self.waiting_for }.into());
        }
    }

    /// Leaves out calls that came too late or were given up; whether any still waits. To be asked
    /// on a thread: it may have come long after it was asked for.
    pub(super) fn is_wanted_still(&mut self) -> bool {
        self.drop_expired();
        !self.asked.is_empty()
    }

    pub(super) fn fail(&mut self, error: &ClientError) {
        self.asked.drain(..).for_each(|asked| asked.fail(error.clone()));
    }

    /// Answers lookups.
    pub(super) fn looked_up<'o>(
        &mut self,
        shape: &RecordShape,
        mut found: impl Iterator<Item = (&'o Outcome, Option<&'o [u8]>)>,
    ) {
        self.asked.drain(..).for_each(|asked| asked.looked_up(shape, found.by_ref()));
    }

    /// Answers searches.
    pub(super) fn searched(&mut self, found: &NearestScratch<K>) {
        self.searched_by(records(found));
    }

    /// Answers searches by the records that were found for their keys.
    pub(super) fn searched_by(&mut self, mut records: impl Iterator<Item = Option<Record<K>>>) {
        self.asked.drain(..).for_each(|asked| asked.searched(records.by_ref()));
    }

    /// Answers the lookups all of whose keys have their answers, and keeps the others.
    pub(super) fn looked_up_some(&mut self, shape: &RecordShape, found: &LookupScratch<K>) {
        self.answer_some(found.answered(), found.outcomes(), |asked, found| asked.looked_up(shape, found));
    }

    /// Answers the searches all of whose keys have their answers, and keeps the others.
    pub(super) fn searched_some(&mut self, found: &NearestScratch<K>) {
        self.answer_some(found.answered(), records(found), |asked, found| asked.searched(found));
    }

    fn answer_some<A>(
        &mut self,
        mut answered: impl Iterator<Item = bool>,
        mut found: impl Iterator<Item = A>,
        answer: impl Fn(QueuedRead<K>, &mut dyn Iterator<Item = A>),
    ) {
        for asked in std::mem::take(&mut self.asked) {
            let count = asked.keys.as_slice().len();
            let mut own = found.by_ref().take(count);
            // Looks at all of them: those of the next call follow.
            if answered.by_ref().take(count).filter(|answered| !answered).count() == 0 {
                answer(asked, &mut own);
            } else {
                own.for_each(drop);
                self.asked.push(asked);
            }
        }
    }

    /// Answers a scan.
    pub(super) fn scanned(&mut self, part: SectionRead<K>) {
        match self.asked.pop() {
            Some(QueuedRead { answer: ReplyTo::Scanned(_, to), .. }) => drop(to.send(Ok(part))),
            Some(other) => other.fail(not_of_its_kind()),
            None => {}
        }
    }
}
