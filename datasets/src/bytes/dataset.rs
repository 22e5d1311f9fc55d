//! A data set of byte strings in memory.

use super::arena::KeyArena;
use super::key::MAX_KEY_BYTES;
use super::keys::ByteKeys;
use super::lines;
use crate::error::DatasetError;
use crate::generate::ycsb::{self, YcsbKeys};
use crate::generate::{binary, domains, paths, prefixes};
use crate::options::{Duplicates, OpenOptions};
use crate::shipped;
use crate::spec::{KeyKind, Spec, SpecKind};
use crate::stream::{SYNTHETIC_KEYS, Sample, Source};
use crate::values::Values;

/// A data set of byte strings in memory: distinct ascending keys and the value of each.
#[derive(Clone, Debug)]
pub struct ByteDataset {
    name: String,
    source: Source,
    notes: Vec<String>,
    keys: ByteKeys,
    values: Values,
    /// What `values` are of equal keys.
    policy: Duplicates,
    /// Number of keys, duplicates counted.
    positions: u64,
}

/// Ascending keys, before a sample is taken of them.
struct Origin {
    source: Source,
    keys: Keys,
    notes: Vec<String>,
}

enum Keys {
    /// All there are; of equal ones, each.
    Whole(KeyArena),
    /// As many as were asked for, each once.
    Exact(ByteKeys),
}

impl Spec {
    /// Reads or generates the data set of byte strings.
    ///
    /// `lines:PATH` reads a file with one key per line, plain, gzip or zstd: by its suffix `.gz` or
    /// `.zst`, else by its first bytes. A key is all bytes between two newlines, whatever they are:
    /// invalid UTF-8 is as good as any, and a carriage return in front of the newline belongs to
    /// the key, which a note tells. The last newline may be missing. Empty lines and lines of more
    /// than [`MAX_KEY_BYTES`] bytes are errors that name the line. Lines out of order are sorted or
    /// refused, by `options.unsorted`; equal lines are what `options.duplicates` says, refused
    /// without it. A key's value is its position in the order of the keys, duplicates counted.
    ///
    /// A count smaller than a file's or than that of what is shipped gives a uniform sample without
    /// replacement.
    ///
    /// Costs the keys' bytes and 4 or 8 for each in memory, twice that while they are sorted or
    /// sampled, and, for keys that are not in order, 16 bytes each while they are sorted. `ycsb`
    /// costs 8 bytes per key whatever their length.
    ///
    /// # Errors
    /// [`DatasetError`] of any kind; [`DatasetError::WrongKind`] for `u64` keys, which
    /// [`open`](Self::open) gives.
    pub fn open_bytes(&self, options: &OpenOptions<'_>) -> Result<ByteDataset, DatasetError> {
        let policy = options.duplicates.unwrap_or(Duplicates::Refuse);
        if let Some(asked) = options.key_bytes.filter(|bytes| !(1..=MAX_KEY_BYTES).contains(bytes)) {
            return Err(self.no_such_length(asked, format!("a key has 1 to {MAX_KEY_BYTES}")));
        }
        let Origin { source, keys, mut notes } = self.origin(policy, options)?;
        let (keys, values, positions) = match keys {
            Keys::Exact(keys) => {
                let positions = keys.len() as u64;
                (keys, Values::Index, positions)
            }
            Keys::Whole(arena) => {
                let arena = self.sampled(arena, options.seed)?;
                let positions = arena.len() as u64;
                let (arena, values) = settle_duplicates(arena, policy).ok_or_else(|| self.no_memory())?;
                let keys = ByteKeys::new(arena).expect("sorted, of checked lengths, each once");
                (keys, values, positions)
            }
        };
        if keys.len() as u64 != positions {
            let distinct = keys.len();
            notes.push(format!("{self}: --duplicates {policy}: {distinct} of {positions} keys are distinct"));
        }
        match options.key_bytes {
            Some(asked) if keys.every_length() != Some(asked) => {
                let (shortest, longest) = (keys.shortest(), keys.longest());
                let cause = format!("its keys have {shortest} to {longest}; leave the length out");
                Err(self.no_such_length(asked, cause))
            }
            _ => Ok(ByteDataset { name: self.to_string(), source, notes, keys, values, policy, positions }),
        }
    }

    fn origin(&self, policy: Duplicates, options: &OpenOptions<'_>) -> Result<Origin, DatasetError> {
        let asked = self.count().unwrap_or(SYNTHETIC_KEYS);
        let count = usize::try_from(asked).map_err(|_| self.no_memory())?;
        let (seed, progress) = (options.seed, options.progress);
        let made = |arena: Option<KeyArena>| {
            let keys = arena.ok_or_else(|| self.no_memory())?;
            let keys = ByteKeys::new(keys).expect("generators give good keys, ascending, each once");
            Ok(Origin { source: Source::Generated, keys: Keys::Exact(keys), notes: Vec::new() })
        };
        match self.kind() {
            SpecKind::Lines(path) => {
                let (keys, notes) = lines::read(path, policy, options)?;
                Ok(Origin { source: Source::File, keys: Keys::Whole(keys), notes })
            }
            SpecKind::Words => {
                Ok(Origin { source: Source::Shipped, keys: Keys::Whole(shipped::words()), notes: Vec::new() })
            }
            SpecKind::Domains => made(domains::domains(count, seed, progress)),
            SpecKind::Paths => made(paths::paths(count, seed, progress)),
            SpecKind::Prefixes => made(prefixes::prefixes(count, seed, progress)),
            SpecKind::Binary => {
                if let Some(bytes) = options.key_bytes.filter(|&bytes| asked > binary::most_keys(bytes)) {
                    let most = binary::most_keys(bytes);
                    let cause = format!("so short, there are {most} at most; ask for longer or fewer keys");
                    return Err(self.no_such_length(bytes, cause));
                }
                made(binary::binary(count, options.key_bytes, seed, progress))
            }
            SpecKind::Ycsb => {
                if let Some(bytes) = options.key_bytes.filter(|&bytes| bytes < ycsb::LEAST_PADDED) {
                    let cause = format!("`user` and 19 digits need {}", ycsb::LEAST_PADDED);
                    return Err(self.no_such_length(bytes, cause));
                }
                let keys =
                    YcsbKeys::new(count, options.key_bytes, progress).ok_or_else(|| self.no_memory())?;
                let keys = Keys::Exact(ByteKeys::of_ycsb(keys));
                Ok(Origin { source: Source::Generated, keys, notes: Vec::new() })
            }
            _ => {
                let (name, is) = (self.to_string(), self.key_kind());
                Err(DatasetError::WrongKind { name, is, asked: KeyKind::Bytes })
            }
        }
    }

    /// As many keys as were asked for.
    fn sampled(&self, keys: KeyArena, seed: u64) -> Result<KeyArena, DatasetError> {
        let available = keys.len() as u64;
        match self.count() {
            Some(asked) if asked > available => {
                Err(DatasetError::TooMany { name: self.to_string(), available, asked })
            }
            Some(asked) if asked < available => {
                let mut sample = Sample::new(asked, available, seed);
                let picked = (0..keys.len()).filter(|_| sample.takes_next());
                keys.gather(picked).ok_or_else(|| self.no_memory())
            }
            _ => Ok(keys),
        }
    }

    fn no_memory(&self) -> DatasetError {
        let keys = self.count().unwrap_or(SYNTHETIC_KEYS);
        // The least that a key costs.
        DatasetError::OutOfMemory { name: self.to_string(), keys, bytes: keys.saturating_mul(8) }
    }

    fn no_such_length(&self, asked: usize, cause: String) -> DatasetError {
        DatasetError::KeyBytes { name: self.to_string(), asked, cause }
    }
}

/// Leaves each key once and gives what its duplicates are worth; `None` without memory.
fn settle_duplicates(keys: KeyArena, policy: Duplicates) -> Option<(KeyArena, Values)> {
    let starts_run = |i: usize| i == 0 || keys.get(i) != keys.get(i - 1);
    let distinct = (0..keys.len()).filter(|&i| starts_run(i)).count();
    if distinct == keys.len() {
        return Some((keys, Values::Index));
    }
    let mut values = Values::of_runs(policy, keys.len(), distinct)?;
    let mut first = 0;
    for end in 1..=keys.len() {
        if end == keys.len() || starts_run(end) {
            values.push_run(policy, first, end as u64);
            first = end as u64;
        }
    }
    Some((keys.gather((0..keys.len()).filter(|&i| starts_run(i)))?, values))
}

impl ByteDataset {
    /// The distinct keys, ascending.
    pub fn keys(&self) -> &ByteKeys {
        &self.keys
    }

    /// The value of the key at index `i`: its position in the data set, duplicates counted; the
    /// first, last or sum of positions where it occurs more than once.
    ///
    /// # Panics
    /// If `i` is not below [`len`](Self::len), as indexing does.
    #[inline]
    pub fn value(&self, i: usize) -> u64 {
        assert!(i < self.keys.len(), "index {i} of {} keys", self.keys.len());
        self.values.get(i)
    }

    /// The indices, ascending, of the keys that occur more than `limit` times in the data set.
    ///
    /// Costs one pass over the values, nothing where there are no duplicates.
    pub fn crowded(&self, limit: u64) -> Vec<u64> {
        self.values.crowded(limit, self.policy, self.keys.len(), self.positions)
    }

    /// As it was asked for: `words:100K`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the keys come from: `shipped`, `file` or `generated`.
    pub fn source(&self) -> &str {
        self.source.as_str()
    }

    /// Things to announce: lines that were sorted, duplicates.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Number of distinct keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none; no spec gives such a data set.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Number of keys, duplicates counted.
    pub fn positions(&self) -> u64 {
        self.positions
    }

    /// The keys alone, without a copy.
    pub fn into_keys(self) -> ByteKeys {
        self.keys
    }
}
