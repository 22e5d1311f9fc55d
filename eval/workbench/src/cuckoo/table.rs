//! Buckets of four fingerprints, packed.

use crate::scatter;

/// Places of a bucket.
const BUCKET: usize = 4;
/// How often a fingerprint makes another give way before there is said to be no place.
const KICKS: u64 = 500;

/// Fingerprints, each in one of its two buckets.
#[derive(Clone, Debug)]
pub(super) struct Table {
    words: Vec<u64>,
    buckets: u64,
    /// Bits of a fingerprint; 0 is a free place.
    bits: u32,
}

/// A fingerprint, and one of its buckets.
type Stored = (u64, u64);

impl Table {
    /// An empty table with at least `places` places.
    pub fn new(places: usize, bits: u32) -> Self {
        let buckets = places.div_ceil(BUCKET).max(1) as u64;
        let words = (buckets * BUCKET as u64 * u64::from(bits)).div_ceil(64) as usize;
        Self { words: vec![0; words], buckets, bits }
    }

    pub fn places(&self) -> usize {
        self.buckets as usize * BUCKET
    }

    pub fn bytes(&self) -> u64 {
        8 * self.words.len() as u64
    }

    /// What is stored of an item, and the first of its buckets.
    fn of(&self, item: u64) -> Stored {
        let fingerprint = 1 + (item & 0xffff_ffff) % ((1 << self.bits) - 1);
        (fingerprint, ((item >> 32) * self.buckets) >> 32)
    }

    /// The other bucket of a fingerprint, whose other bucket is this one, however many buckets
    /// there are.
    fn other(&self, (fingerprint, bucket): Stored) -> Stored {
        let sum = scatter(fingerprint) % self.buckets;
        (fingerprint, (sum + self.buckets - bucket) % self.buckets)
    }

    /// The word and the bit where a place begins.
    fn begin(&self, bucket: u64, place: usize) -> (usize, u32) {
        let bit = (bucket * BUCKET as u64 + place as u64) * u64::from(self.bits);
        ((bit / 64) as usize, (bit % 64) as u32)
    }

    fn get(&self, bucket: u64, place: usize) -> u64 {
        let (word, bit) = self.begin(bucket, place);
        let low = self.words[word] >> bit;
        let high = if bit + self.bits > 64 { self.words[word + 1] << (64 - bit) } else { 0 };
        (low | high) & ((1 << self.bits) - 1)
    }

    fn set(&mut self, bucket: u64, place: usize, fingerprint: u64) {
        let (word, bit) = self.begin(bucket, place);
        let mask = (1u64 << self.bits) - 1;
        self.words[word] = self.words[word] & !(mask << bit) | fingerprint << bit;
        if bit + self.bits > 64 {
            let shift = 64 - bit;
            self.words[word + 1] = self.words[word + 1] & !(mask >> shift) | fingerprint >> shift;
        }
    }

    fn has(&self, (fingerprint, bucket): Stored) -> bool {
        (0..BUCKET).any(|place| self.get(bucket, place) == fingerprint)
    }

    pub fn contains(&self, item: u64) -> bool {
        let stored = self.of(item);
        self.has(stored) || self.has(self.other(stored))
    }

    /// Takes a free place of this bucket, if it has one.
    fn place(&mut self, (fingerprint, bucket): Stored) -> bool {
        let free = (0..BUCKET).find(|place| self.get(bucket, *place) == 0);
        free.inspect(|place| self.set(bucket, *place, fingerprint)).is_some()
    }

    /// Adds an item; if there is no place for it nothing has changed.
    pub fn add(&mut self, item: u64) -> bool {
        let first = self.of(item);
        if self.place(first) || self.place(self.other(first)) {
            return true;
        }
        let (mut homeless, mut random, mut path) = (first, item, Vec::new());
        for kick in 0..KICKS {
            random = scatter(random ^ kick);
            let ((fingerprint, bucket), place) = (homeless, (random % BUCKET as u64) as usize);
            let evicted = self.get(bucket, place);
            self.set(bucket, place, fingerprint);
            path.push((bucket, place, evicted));
            homeless = self.other((evicted, bucket));
            if self.place(homeless) {
                return true;
            }
        }
        for (bucket, place, evicted) in path.into_iter().rev() {
            self.set(bucket, place, evicted);
        }
        false
    }
}
