//! Reads of one kind that are made together, and who waits for their answers.

use std::borrow::Borrow;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::layout::{RecordShape, RecordToken};
use fpcache::read::{
    LookupScratch, NearestScratch, Neighbour, Outcome, ReadError, Side, Wanted, drive_while, find_nearest,
    look_up_all, look_up_more,
};
use fpcache::table::Table;
use fpcache_fabric::{Endpoint, FabricError};
use tokio::sync::oneshot;

use super::unanswered::{OTHERS, REPLY};
use crate::client::Record;
use crate::core::{Section, SectionRead};
use crate::error::ClientError;
use crate::session::Buffers;

/// Round trips of a search or a scan that a task makes in place. Few take one more than a part has
/// records for; over long runs of segments that deletes have emptied there is no end to them, and
/// others are to have their turns.
const TRIPS_IN_PLACE: u32 = 256;

/// Bytes of answers that room is kept for from one group to the next: of long values there may be
/// gigabytes.
pub(super) const MOST_KEPT_BYTES: usize = 1 << 20;

/// Bytes of the answers to a group after which a task leaves it to a thread, and keys of values of
/// any length between two looks at that.
const MOST_IN_PLACE: (usize, usize) = (4 << 20, 16);

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
                drop(to.send(Ok(values.map(|(_, value)| value.map(<[u8]>::to_vec)).collect())));
            }
            ReplyTo::Words(to) => drop(to.send(words(shape, values.map(|(_, value)| value)))),
            ReplyTo::IsThere(to) => drop(to.send(Ok(values.next().is_some_and(is_there)))),
            ReplyTo::AreThere(to) => drop(to.send(Ok(values.map(is_there).collect()))),
            // Queues keep kinds apart.
            other => Self { answer: other, ..self }.fail(not_of_its_kind()),
        }
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

fn records<K: BuildKeys>(found: &NearestScratch<K>) -> impl Iterator<Item = Option<Record<K>>> {
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

    /// The same, by the answers to their keys, of which some have none.
    pub(super) fn searched_some_of(&mut self, found: Vec<Option<Option<Record<K>>>>) {
        let answered: Vec<bool> = found.iter().map(Option::is_some).collect();
        let records = found.into_iter().map(Option::flatten);
        self.answer_some(answered.into_iter(), records, |asked, found| asked.searched(found));
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

    /// Reads and answers over memory that can be looked at in place. An error, which has answered
    /// nothing, also where that takes longer than a task may.
    pub(super) fn read_in_place<E: Endpoint>(
        &mut self,
        buffers: &mut Buffers<K, E>,
        table: &Table<K>,
    ) -> Result<(), ReadError> {
        let Buffers { endpoint, lookup, scan, nearest, .. } = buffers;
        let in_place = |round_trips| round_trips < TRIPS_IN_PLACE;
        match self.kind {
            Kind::Value | Kind::Presence => {
                let ended = look_up_in_place(endpoint, table, lookup, (self.keys(), self.wanted()));
                if ended.is_ok() {
                    self.looked_up(&table.view().geometry().shape, lookup.outcomes());
                }
                lookup.keep_at_most(MOST_KEPT_BYTES);
                ended?;
            }
            Kind::Nearest(side) => {
                let ended = find_nearest(endpoint, table.view(), nearest, (side, self.keys()), in_place);
                if ended.is_ok() {
                    self.searched(nearest);
                }
                nearest.clear();
                ended?;
            }
            Kind::Scan => {
                let Some(section) = self.section() else { return Ok(()) };
                let mut operation = section.scan(table, scan, (section.limit, Wanted::Value));
                drive_while(endpoint, &mut operation, in_place)?;
                let part = section.part(&operation, Ok(()))?;
                // What failed is let go of by who called.
                scan.clear();
                self.scanned(part);
            }
        }
        Ok(())
    }
}

/// Looks up keys, unless their values are too long for a task to copy them.
fn look_up_in_place<'k, K: BuildKeys, E: Endpoint>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    (keys, wanted): (impl Iterator<Item = &'k K::Key>, Wanted),
) -> Result<(), ReadError> {
    let may_be_long = wanted == Wanted::Value && table.view().geometry().shape.value_bytes.is_none();
    if !may_be_long {
        return look_up_all(endpoint, table, scratch, keys, wanted);
    }
    scratch.clear_outcomes();
    let mut keys = keys.peekable();
    while keys.peek().is_some() {
        look_up_more(endpoint, table, scratch, keys.by_ref().take(MOST_IN_PLACE.1), wanted)?;
        if scratch.kept_bytes() > MOST_IN_PLACE.0 && keys.peek().is_some() {
            return Err(ReadError::Unfinished { round_trips: 0 });
        }
    }
    Ok(())
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use fpcache::layout::TableParameters;

    use super::*;
    use crate::asynchronous::AsyncClient;
    use crate::client::{Client, Transport};
    use crate::one_node::SharedCore;

    /// The task's thread kept the values of the last group.
    #[tokio::test]
    async fn reads_in_place_keep_little_of_long_values() {
        let client = Client::embedded(64 << 20).expect("memory");
        let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 64 };
        client.create(TableParameters { shape, ..TableParameters::default() }).expect("an empty table");
        (0..4).for_each(|key| client.put(key, &vec![7; 2 << 20]).expect("room"));
        let Transport::One(SharedCore::Mapped(core)) = client.transport.clone() else {
            panic!("it is mapped")
        };
        let values = AsyncClient::of(client).multi_get(&[0, 1, 2, 3]).await.expect("answers");
        assert!(values.iter().all(|value| value.as_ref().is_some_and(|value| value.len() == 2 << 20)));
        let kept = core.here(|held| held.as_ref().map(|context| context.buffers.lookup.kept_bytes()));
        assert!(kept.is_some_and(|kept| kept <= MOST_KEPT_BYTES), "{kept:?}");
    }
}
