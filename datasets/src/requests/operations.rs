//! Streams of operations, generated before the clock starts.

use super::popular::Popular;
use super::{Distribution, OperationKind, Workload};
use crate::random::Random;

/// What to do with which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Look the key up: it is there.
    Read(u64),
    /// Replace the key's value: it is there.
    Update(u64),
    /// Make a record of the key: it is not there.
    Insert(u64),
    /// Read up to this many records from the key on, which is there.
    Scan(u64, u8),
    /// Look the key up, then replace its value: it is there.
    ReadModifyWrite(u64),
}

impl Operation {
    /// Its kind.
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::Read(_) => OperationKind::Read,
            Self::Update(_) => OperationKind::Update,
            Self::Insert(_) => OperationKind::Insert,
            Self::Scan(..) => OperationKind::Scan,
            Self::ReadModifyWrite(_) => OperationKind::ReadModifyWrite,
        }
    }

    /// Its key.
    pub fn key(&self) -> u64 {
        match *self {
            Self::Read(key)
            | Self::Update(key)
            | Self::Insert(key)
            | Self::Scan(key, _)
            | Self::ReadModifyWrite(key) => key,
        }
    }
}

/// One thread's stream of operations, 16 bytes each.
///
/// All threads of a seed find the same keys popular and draw by themselves. Keys that were inserted
/// count for [`Distribution::Latest`] alone, where the newest key is the last one that the thread
/// itself inserted, then those it inserted before, then the loaded keys from their upper end down:
/// so a thread asks for keys that are there whatever the others do. The other distributions stay
/// with the loaded keys.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    steps: Vec<Step>,
    loaded: u64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    /// The key; for a recent one, how many newer keys there are; nothing for an insert.
    key: u64,
    kind: OperationKind,
    length: u8,
    is_recent: bool,
}

/// Marks where a thread begins to draw; [`Popular`]'s own random numbers have the purpose before.
const PURPOSE_OPERATIONS: u64 = 0x0E0;
const PURPOSE_THREADS: u64 = 1 << 32;

impl Operations {
    /// `count` operations over the `loaded` keys, which ascend. `stream` tells apart the threads,
    /// and passes, that share the seed. Costs what [`generate`](super::generate) does.
    pub fn generate(loaded: &[u64], workload: &Workload, count: usize, seed: u64, stream: u32) -> Self {
        let n = loaded.len() as u64;
        let mut popularity = Random::new(seed, PURPOSE_OPERATIONS);
        // SOSD's rule draws from its seed alone, which therefore differs from stream to stream.
        let own_seed = seed.wrapping_add(u64::from(stream) << 32);
        let mut popular = Popular::new(n, workload.distribution, Vec::new(), own_seed, &mut popularity);
        let mut random = Random::new(seed, PURPOSE_THREADS + u64::from(stream));
        let is_latest = matches!(workload.distribution, Distribution::Latest { .. });
        let mut step = || {
            let mut kind = workload.mix.kind(random.open_fraction());
            if n == 0 {
                // Nothing is there that could be asked for.
                kind = OperationKind::Insert;
            }
            let mut step = Step { key: 0, kind, length: 0, is_recent: false };
            if kind == OperationKind::Insert {
                return step;
            }
            let index = popular.draw(&mut random);
            step.is_recent = is_latest;
            step.key = if is_latest { n - 1 - index } else { loaded[index as usize] };
            if kind == OperationKind::Scan {
                step.length = 1 + random.below(u64::from(workload.scan_up_to.max(1))) as u8;
            }
            step
        };
        Self { steps: (0..count).map(|_| step()).collect(), loaded: n }
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The operations from the first on, and again from the first after the last. `loaded` are the
    /// keys it was generated for. `inserts` are the keys this thread inserts, of which it has
    /// inserted the first `inserted`; the stream ends where an insert has no key left.
    pub fn play<'a>(&'a self, loaded: &'a [u64], inserts: &'a [u64], inserted: usize) -> Play<'a> {
        debug_assert_eq!(loaded.len() as u64, self.loaded);
        let inserted = inserted.min(inserts.len());
        Play { steps: &self.steps, at: 0, loaded, inserts, inserted, by_rank: false }
    }
}

/// Operations, one after the other; see [`Operations::play`]. Costs a few nanoseconds each.
#[derive(Clone, Debug)]
pub struct Play<'a> {
    steps: &'a [Step],
    at: usize,
    loaded: &'a [u64],
    inserts: &'a [u64],
    inserted: usize,
    by_rank: bool,
}

impl Play<'_> {
    /// The same with ranks instead of keys where [`Distribution::Latest`] says which: how many
    /// newer keys there are to be. For threads that share the stream, whose inserts may be under
    /// way still when another one asks.
    #[must_use]
    pub fn by_rank(self) -> Self {
        Self { by_rank: true, ..self }
    }

    /// How many of the thread's keys have been inserted so far.
    pub fn inserted(&self) -> usize {
        self.inserted
    }

    #[inline]
    fn recent(&self, newer: u64) -> u64 {
        let inserted = self.inserted as u64;
        if newer < inserted {
            return self.inserts[(inserted - 1 - newer) as usize];
        }
        // With inserts there are more keys than ranks: the least loaded ones are no longer asked
        // for.
        self.loaded[self.loaded.len() - 1 - (newer - inserted) as usize]
    }
}

impl Iterator for Play<'_> {
    type Item = Operation;

    #[inline]
    fn next(&mut self) -> Option<Operation> {
        if self.at == self.steps.len() {
            self.at = 0;
        }
        let step = *self.steps.get(self.at)?;
        self.at += 1;
        let key = if step.is_recent && !self.by_rank { self.recent(step.key) } else { step.key };
        Some(match step.kind {
            OperationKind::Read => Operation::Read(key),
            OperationKind::Update => Operation::Update(key),
            OperationKind::Scan => Operation::Scan(key, step.length),
            OperationKind::ReadModifyWrite => Operation::ReadModifyWrite(key),
            OperationKind::Insert => {
                let key = *self.inserts.get(self.inserted)?;
                self.inserted += 1;
                Operation::Insert(key)
            }
        })
    }
}
