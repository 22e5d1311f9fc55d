//! Data sets and lookups of keys of either kind, behind one trait.

use std::borrow::Cow;
use std::fmt::Debug;

use anyhow::ensure;
use fpcache_client::{AsKey, BuildKeys, ByteKeys, U64Keys};
use fpcache_datasets::requests::{ByteRequests, RequestOptions, Requests, generate_bytes, generate_for};
use fpcache_datasets::{ByteDataset, Dataset, KeySet, OpenOptions, Spec};

/// Keys that experiments can be made with.
pub trait DataKeys: BuildKeys {
    /// A data set of such keys in memory.
    type Set: DataSet<Self> + Debug;
    /// Lookups that were drawn, and what they look for.
    type Drawn: Debug;

    /// Reads or generates a data set.
    ///
    /// # Errors
    /// If it cannot be had, or has keys of the other kind.
    fn open(spec: &Spec, options: &OpenOptions<'_>) -> anyhow::Result<Self::Set>;

    /// Draws lookups over a data set.
    fn draw(set: &Self::Set, options: &RequestOptions) -> Self::Drawn;

    /// The lookups as passes take them. 16 bytes for each where keys are byte strings.
    fn stream(drawn: &Self::Drawn) -> Stream<'_, Self>;

    /// Notes on them.
    fn notes(drawn: &Self::Drawn) -> &[String];

    /// Keys as clients take them.
    fn as_keys<'k>(keys: &'k [Self::View<'_>]) -> &'k [impl AsKey<Self>];

    /// Hands the keys of these [numbers](DataSet::numbers) to `act`. Where keys are byte strings,
    /// `bytes` gets theirs, and the list of them is allocated.
    fn with_named<R>(
        set: &Self::Set,
        numbers: &[u64],
        bytes: &mut Vec<u8>,
        act: impl FnOnce(&[Self::View<'_>]) -> R,
    ) -> R;
}

/// A data set whose keys can be named by numbers.
pub trait DataSet<K: DataKeys>: KeySet {
    /// The `i`-th key, which is written into `buffer` if it does not lie in memory.
    fn key<'a>(&'a self, i: usize, buffer: &'a mut Vec<u8>) -> K::View<'a>;

    /// Lengths of the keys.
    fn lengths(&self) -> KeyLengths;

    /// A number for each key, ascending as these do: the key itself, or its index.
    fn numbers(&self) -> Cow<'_, [u64]>;

    /// The key with this number.
    fn named<'a>(&'a self, number: u64, buffer: &'a mut Vec<u8>) -> K::View<'a>;

    /// The number of a key of the set, `None` if it is none. It is found faster if the key is not
    /// far after that of the number `after`.
    fn number(&self, key: K::View<'_>, after: u64, buffer: &mut Vec<u8>) -> Option<u64>;
}

/// A stream of lookups.
#[derive(Clone, Debug)]
pub struct Stream<'a, K: DataKeys> {
    /// The key of each lookup.
    pub keys: Cow<'a, [K::View<'a>]>,
    /// As [`Requests::expected`].
    pub expected: &'a [u64],
}

/// Lengths of keys in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyLengths {
    /// The shortest.
    pub least: usize,
    /// The longest.
    pub most: usize,
    /// The mean.
    pub mean: f64,
}

impl KeyLengths {
    /// All the same.
    pub const fn every(bytes: usize) -> Self {
        Self { least: bytes, most: bytes, mean: bytes as f64 }
    }

    /// The length of all keys, if it is the same.
    pub fn fixed(&self) -> Option<usize> {
        (self.least == self.most).then_some(self.most)
    }
}

/// Prints what a data set or a stream of lookups has to say.
pub fn announce(notes: &[String]) {
    notes.iter().for_each(|note| eprintln!("note: {note}"));
}

impl DataKeys for U64Keys {
    type Set = Dataset;
    type Drawn = Requests;

    fn open(spec: &Spec, options: &OpenOptions<'_>) -> anyhow::Result<Dataset> {
        ensure!(
            options.key_bytes.is_none(),
            "--key-bytes: the keys of {spec} are integers of 8 bytes: omit it, or take a data set of byte strings, \
             such as ycsb:1M or binary:1M"
        );
        Ok(spec.open(options)?)
    }

    fn draw(set: &Dataset, options: &RequestOptions) -> Requests {
        generate_for(set, options)
    }

    fn stream(drawn: &Requests) -> Stream<'_, Self> {
        Stream { keys: Cow::Borrowed(&drawn.keys), expected: &drawn.expected }
    }

    fn notes(drawn: &Requests) -> &[String] {
        &drawn.notes
    }

    #[inline]
    fn as_keys<'k>(keys: &'k [Self::View<'_>]) -> &'k [impl AsKey<Self>] {
        keys
    }

    #[inline]
    fn with_named<R>(_: &Dataset, numbers: &[u64], _: &mut Vec<u8>, act: impl FnOnce(&[u64]) -> R) -> R {
        act(numbers)
    }
}

impl DataSet<U64Keys> for Dataset {
    #[inline]
    fn key<'a>(&'a self, i: usize, _: &'a mut Vec<u8>) -> u64 {
        self.keys()[i]
    }

    fn lengths(&self) -> KeyLengths {
        KeyLengths::every(size_of::<u64>())
    }

    fn numbers(&self) -> Cow<'_, [u64]> {
        Cow::Borrowed(self.keys())
    }

    #[inline]
    fn named<'a>(&'a self, number: u64, _: &'a mut Vec<u8>) -> u64 {
        number
    }

    #[inline]
    fn number(&self, key: u64, _: u64, _: &mut Vec<u8>) -> Option<u64> {
        Some(key)
    }
}

impl DataKeys for ByteKeys {
    type Set = ByteDataset;
    type Drawn = ByteRequests;

    fn open(spec: &Spec, options: &OpenOptions<'_>) -> anyhow::Result<ByteDataset> {
        Ok(spec.open_bytes(options)?)
    }

    fn draw(set: &ByteDataset, options: &RequestOptions) -> ByteRequests {
        generate_bytes(set, options)
    }

    fn stream(drawn: &ByteRequests) -> Stream<'_, Self> {
        Stream { keys: drawn.keys.iter().collect(), expected: &drawn.expected }
    }

    fn notes(drawn: &ByteRequests) -> &[String] {
        &drawn.notes
    }

    #[inline]
    fn as_keys<'k>(keys: &'k [Self::View<'_>]) -> &'k [impl AsKey<Self>] {
        keys
    }

    fn with_named<R>(
        set: &ByteDataset,
        numbers: &[u64],
        bytes: &mut Vec<u8>,
        act: impl FnOnce(&[&[u8]]) -> R,
    ) -> R {
        let (mut written, mut lengths) = (Vec::new(), Vec::with_capacity(numbers.len()));
        bytes.clear();
        for &number in numbers {
            let key = set.named(number, &mut written);
            bytes.extend_from_slice(key);
            lengths.push(key.len());
        }
        let mut rest = &bytes[..];
        let keys: Vec<&[u8]> = lengths.into_iter().filter_map(|length| rest.split_off(..length)).collect();
        act(&keys)
    }
}

impl DataSet<ByteKeys> for ByteDataset {
    #[inline]
    fn key<'a>(&'a self, i: usize, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        self.keys().get(i, buffer)
    }

    fn lengths(&self) -> KeyLengths {
        let keys = self.keys();
        let mean = keys.text_bytes() as f64 / keys.len().max(1) as f64;
        KeyLengths { least: keys.shortest(), most: keys.longest(), mean }
    }

    fn numbers(&self) -> Cow<'_, [u64]> {
        (0..self.len() as u64).collect()
    }

    #[inline]
    fn named<'a>(&'a self, number: u64, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        self.keys().get(number as usize, buffer)
    }

    fn number(&self, key: &[u8], after: u64, buffer: &mut Vec<u8>) -> Option<u64> {
        /// Keys looked at one by one: scans come along most of them.
        const NEAR: usize = 16;
        let after = usize::try_from(after).ok()?;
        for i in (after..self.len()).take(NEAR) {
            if self.keys().get(i, buffer) == key {
                return Some(i as u64);
            }
        }
        self.keys().binary_search(key).ok().map(|i| i as u64)
    }
}
