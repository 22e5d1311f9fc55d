//! A data set in memory: distinct ascending keys and the value of each.

use crate::error::DatasetError;
use crate::options::{Duplicates, OpenOptions};
use crate::progress::{Progress, during};
use crate::spec::{Spec, SpecKind};
use crate::stream::{KeyStream, Source};
use crate::values::Values;
use crate::width::HEADER_BYTES;

/// Keys handled between two reports of progress.
const STEP: usize = 1 << 18;

/// A data set in memory. 8 bytes per key; data sets with duplicates take 4 or 8 more for the
/// values.
#[derive(Clone, Debug)]
pub struct Dataset {
    name: String,
    source: Source,
    key_bytes: usize,
    notes: Vec<String>,
    keys: Vec<u64>,
    values: Values,
    /// What `values` are of equal keys.
    policy: Duplicates,
    /// Number of keys, duplicates counted.
    positions: u64,
}

impl Spec {
    /// Reads or generates the data set.
    ///
    /// A file of 200 M 64-bit keys is read into the one vector of the result, without a second
    /// copy. A count smaller than a file's gives a uniform sample without replacement, in order, in
    /// one pass over the file.
    ///
    /// # Errors
    /// [`DatasetError`] of any kind; [`DatasetError::WrongKind`] for byte strings, which
    /// [`open_bytes`](Self::open_bytes) gives.
    pub fn open(&self, options: &OpenOptions<'_>) -> Result<Dataset, DatasetError> {
        let policy = match (options.duplicates, self.kind()) {
            (Some(policy), _) => policy,
            (None, SpecKind::Wiki) => Duplicates::First,
            (None, _) => Duplicates::Refuse,
        };
        let mut stream = self.stream(&OpenOptions { duplicates: Some(policy), ..options.clone() })?;
        let total = stream.total();
        let mut keys = match stream.take_ready() {
            Some(keys) => keys,
            None => read(&mut stream, self, options.progress)?,
        };
        let mut notes = stream.notes().to_vec();
        let values = settle_duplicates(&mut keys, policy, self)?;
        let dropped = total - keys.len() as u64;
        if dropped > 0 || (options.duplicates.is_none() && policy != Duplicates::Refuse) {
            let implied = if options.duplicates.is_none() { " (implied)" } else { "" };
            notes.push(format!(
                "{self}: --duplicates {policy}{implied}: {} of {total} keys are distinct",
                keys.len()
            ));
        }
        let (source, key_bytes) = (stream.source(), stream.key_bytes());
        Ok(Dataset {
            name: self.to_string(),
            source,
            key_bytes,
            notes,
            keys,
            values,
            policy,
            positions: total,
        })
    }
}

/// All keys of a stream, in a vector of exactly their size.
fn read(
    stream: &mut KeyStream,
    spec: &Spec,
    progress: Option<&dyn Progress>,
) -> Result<Vec<u64>, DatasetError> {
    let total = stream.total();
    let bytes = total.saturating_mul(8);
    let no_memory = || DatasetError::OutOfMemory { name: spec.to_string(), keys: total, bytes };
    let mut keys = Vec::new();
    let capacity = usize::try_from(total).map_err(|_| no_memory())?;
    keys.try_reserve_exact(capacity).map_err(|_| no_memory())?;
    during(progress, stream.source().verb(), total, || {
        while stream.fill(&mut keys, STEP)? > 0 {
            if let Some(progress) = progress {
                progress.advance(keys.len() as u64);
            }
        }
        Ok(keys)
    })
}

/// Leaves each key once, in place, and gives what its duplicates are worth.
fn settle_duplicates(keys: &mut Vec<u64>, policy: Duplicates, spec: &Spec) -> Result<Values, DatasetError> {
    let distinct = 1 + keys.windows(2).filter(|pair| pair[0] != pair[1]).count();
    if distinct >= keys.len() {
        return Ok(Values::Index);
    }
    if policy == Duplicates::Refuse {
        // A file's duplicates were refused while it was read; these are a generator's.
        let at = 1 + keys.windows(2).position(|pair| pair[0] == pair[1]).unwrap_or(0);
        let offset = HEADER_BYTES + at as u64 * 8;
        return Err(DatasetError::Duplicates { name: spec.to_string(), key: keys[at], offset });
    }
    let mut values = Values::of_runs(policy, keys.len(), distinct).ok_or_else(|| {
        let (keys, bytes) = (distinct as u64, distinct as u64 * 8);
        DatasetError::OutOfMemory { name: spec.to_string(), keys, bytes }
    })?;
    let (mut read, mut written) = (0, 0);
    while read < keys.len() {
        let (key, first) = (keys[read], read);
        while read < keys.len() && keys[read] == key {
            read += 1;
        }
        values.push_run(policy, first as u64, read as u64);
        keys[written] = key;
        written += 1;
    }
    keys.truncate(written);
    keys.shrink_to_fit();
    Ok(values)
}

impl Dataset {
    /// The distinct keys, ascending.
    pub fn keys(&self) -> &[u64] {
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

    /// As it was asked for: `fb:16M`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the keys come from: `published (unverified)`, `stand-in`, `shipped`, `file` or
    /// `generated`.
    pub fn source(&self) -> &str {
        self.source.as_str()
    }

    /// Bytes of a key on disk, 4 or 8. In memory it is always 8.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Things to announce: a stand-in taken for a published file, a policy implied.
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

    /// The keys alone, without a copy.
    pub fn into_keys(self) -> Vec<u64> {
        self.keys
    }
}
