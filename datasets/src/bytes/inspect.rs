//! Statistics of byte strings: lengths, shared prefixes, alphabet, and how well eight bytes
//! distinguish keys.

use fpcache_index::count_segments;

use super::key::{number, shared};
use super::keys::ByteKeys;
use crate::error::DatasetError;
use crate::options::{Duplicates, OpenOptions};
use crate::progress::during;
use crate::spec::Spec;

/// Keys looked at between two reports of progress.
const STEP: u64 = 1 << 18;

/// What [`inspect_bytes`] found.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "cli", derive(serde::Serialize))]
pub struct ByteInspection {
    /// Keys, duplicates counted.
    pub keys: u64,
    /// Distinct keys. What follows is of these.
    pub distinct: u64,
    /// Most occurrences of one key.
    pub most_equal: u64,
    /// As [`Source::as_str`](crate::Source::as_str).
    pub source: String,
    /// Bytes of the shortest key.
    pub shortest: usize,
    /// Bytes of the longest key.
    pub longest: usize,
    /// Bytes of a key on average.
    pub mean_length: f64,
    /// Bytes at their beginning in which all keys agree.
    pub shared_by_all: usize,
    /// Bytes at their beginning in which neighbouring keys agree, on average.
    pub mean_shared: f64,
    /// Bytes at their beginning in which neighbouring keys agree, at most.
    pub most_shared: usize,
    /// Number of different bytes.
    pub alphabet: usize,
    /// Number of different big-endian numbers made of the eight bytes after those that all keys
    /// share.
    pub numbers: u64,
    /// For each ε asked for, the least number of lines that give the rank of every such number
    /// among the distinct numbers within ε. Keys of equal numbers count once, so that this is a
    /// lower bound of what such numbers cost.
    #[cfg_attr(feature = "cli", serde(serialize_with = "crate::inspect::by_epsilon"))]
    pub segments: Vec<(u32, u64)>,
    /// Bytes of memory that the keys take.
    pub memory_bytes: u64,
    /// Things to announce.
    pub notes: Vec<String>,
}

/// Opens the data set and looks at each key once. 8 bytes per key besides the data set.
///
/// # Errors
/// [`DatasetError`] of any kind but `Duplicates`: those are counted.
pub fn inspect_bytes(
    spec: &Spec,
    epsilons: &[u32],
    options: &OpenOptions<'_>,
) -> Result<ByteInspection, DatasetError> {
    let dataset = spec.open_bytes(&OpenOptions { duplicates: Some(Duplicates::First), ..options.clone() })?;
    let keys = dataset.keys();
    let last = keys.len().saturating_sub(1);
    let shared_by_all = shared(keys.get(0, &mut Vec::new()), keys.get(last, &mut Vec::new()));
    let tally =
        during(options.progress, "inspecting", keys.len() as u64, || Tally::of(keys, shared_by_all, options));
    let end = |i: usize| if i == last { dataset.positions() } else { dataset.value(i + 1) };
    let most_equal = (0..keys.len()).map(|i| end(i) - dataset.value(i)).max().unwrap_or(0);
    let count = |epsilon| {
        let numbers = tally.numbers.iter().copied();
        count_segments(numbers, epsilon)
            .expect("the numbers of ascending keys ascend, and each is there once")
    };
    Ok(ByteInspection {
        keys: dataset.positions(),
        distinct: keys.len() as u64,
        most_equal,
        source: dataset.source().to_owned(),
        shortest: keys.shortest(),
        longest: keys.longest(),
        mean_length: keys.text_bytes() as f64 / keys.len() as f64,
        shared_by_all,
        mean_shared: tally.shared as f64 / last.max(1) as f64,
        most_shared: tally.most_shared,
        alphabet: tally.seen.iter().filter(|&&seen| seen).count(),
        numbers: tally.numbers.len() as u64,
        segments: epsilons.iter().map(|&epsilon| (epsilon, count(epsilon))).collect(),
        memory_bytes: keys.memory_bytes(),
        notes: dataset.notes().to_vec(),
    })
}

/// What one pass over the keys adds up.
struct Tally {
    seen: [bool; 256],
    /// Of neighbours, in all.
    shared: u64,
    most_shared: usize,
    numbers: Vec<u64>,
}

impl Tally {
    fn of(keys: &ByteKeys, skip: usize, options: &OpenOptions<'_>) -> Self {
        let mut tally = Self { seen: [false; 256], shared: 0, most_shared: 0, numbers: Vec::new() };
        let (mut previous, mut done) = (Vec::new(), 0u64);
        let mut cursor = keys.cursor();
        while let Some(key) = cursor.next_key() {
            let common = shared(&previous, key);
            tally.shared += common as u64;
            tally.most_shared = tally.most_shared.max(common);
            // The bytes shared with the key before were seen there.
            key[common..].iter().for_each(|&byte| tally.seen[usize::from(byte)] = true);
            let number = number(key.get(skip..).unwrap_or_default());
            if tally.numbers.last() != Some(&number) {
                tally.numbers.push(number);
            }
            previous.truncate(common);
            previous.extend_from_slice(&key[common..]);
            done += 1;
            if let Some(progress) = options.progress.filter(|_| done.is_multiple_of(STEP)) {
                progress.advance(done);
            }
        }
        tally
    }
}
