//! The training of a [`KeyEncoder`] on keys.
//!
//! # What is counted
//!
//! A line serves some tens to thousands of keys. How the keys of a much larger part of the table
//! divide does not matter to it, nor how those within ε of each other do. So bytes are counted
//! where they divide groups of about that size: at the nodes of the keys' trie that stand for 16 to
//! 8,192 keys of the table. English words then take 7 % fewer segments than if all bytes up to the
//! one that distinguishes them were counted, keys with random digits a third as many.
//!
//! # Which contexts there are
//!
//! Contexts are the last one or two bytes. Each is worth the bits it saves over the context one
//! byte shorter, less [`BITS_PER_SHARE`] for each share it has to state; the best are taken while
//! the table has room. A context is only taken with the two that are one byte shorter: without its
//! beginning the automaton would not know where it is. (Rissanen, "A universal data compression
//! system", IEEE Transactions on Information Theory 29(5), 1983, chooses contexts by what they
//! save, too.)

use std::collections::BTreeMap;

use super::key_encoder::{Cell, Classes, KeyEncoder, MAX_CELLS, MAX_ORDER, WHOLE};
use super::prefix::common_prefix;

/// How an encoder is trained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Training {
    /// Keys of the table the sample stands for; 0 if the sample is all there is.
    pub table_keys: u64,
    /// Most bytes of the encoder's table, in 4 to 256 KiB. With 64 KiB English words take 2 % fewer
    /// segments than with 16.
    pub max_bytes: usize,
    /// Most bytes of a context, at most 2.
    pub order: usize,
}

impl Default for Training {
    /// The sample is all there is; 16 KiB; contexts of two bytes.
    fn default() -> Self {
        Self { table_keys: 0, max_bytes: 16 << 10, order: MAX_ORDER }
    }
}

/// Sizes of the groups of keys whose division is counted, in keys of the table.
const GROUP: (usize, usize) = (16, 8192);
/// Bytes counted of those that a whole group has in common: they are predictable, and enough of
/// that is enough.
const COUNTED_IN_COMMON: usize = 2;
/// Most keys of a sample; of more, only keys at even distances are used.
const MAX_SAMPLE: usize = 1 << 17;
/// Most bytes counted, so that memory stays within 64 MiB whatever the sample.
const MAX_EVENTS: usize = 8 << 20;
/// Least bytes counted in a context.
const LEAST_EVENTS: usize = 32;
/// The bits that a share must save to be stated.
const BITS_PER_SHARE: f64 = 8.0;
/// Weight of the shorter context's shares in a longer one's, in bytes counted.
const SMOOTHING: f64 = 4.0;
/// Weight of a class of bytes never seen, where that of a seen one is 1.
const UNSEEN: f64 = 0.05;

impl KeyEncoder {
    /// The encoder that knows nothing of the keys: base-256 numbers, the end of a string a digit
    /// below all others.
    pub fn plain() -> Self {
        let seen = [true; 256];
        let classes = Classes::new(&seen);
        let mut cells = Vec::with_capacity(classes.width());
        push_row(&mut cells, &equal_shares(&classes, &seen));
        Self::from_table(classes, cells)
    }

    /// An encoder for keys like those of the sample.
    ///
    /// A sample of 50,000 keys drawn evenly does; order does not matter. An empty one gives
    /// [`Self::plain`]. 0.3 to 1 µs per key of the sample, and a few hundred bytes of memory for
    /// the time.
    pub fn train<'a>(sample: impl IntoIterator<Item = &'a [u8]>, training: &Training) -> Self {
        train(sample.into_iter().collect(), training)
    }
}

/// Which bytes are in the sample.
fn seen<'a>(sample: impl IntoIterator<Item = &'a [u8]>) -> [bool; 256] {
    let mut seen = [false; 256];
    sample.into_iter().flatten().for_each(|byte| seen[usize::from(*byte)] = true);
    seen
}

/// The encoder for keys like the sample's.
fn train(mut sample: Vec<&[u8]>, training: &Training) -> KeyEncoder {
    if sample.len() > MAX_SAMPLE {
        let step = sample.len().div_ceil(MAX_SAMPLE);
        sample = sample.into_iter().step_by(step).collect();
    }
    sample.sort_unstable();
    sample.dedup();
    if sample.is_empty() {
        return KeyEncoder::plain();
    }
    let seen = seen(sample.iter().copied());
    let classes = Classes::new(&seen);
    let mut events = count(&sample, &classes, training);
    events.sort_unstable();

    let width = classes.width();
    let root = shares(&events, width, &equal_shares(&classes, &seen));
    let mut candidates = Vec::new();
    let order = training.order.min(MAX_ORDER);
    weigh(&events, (1, order), 1, &root, &mut candidates);
    candidates.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.context.cmp(&b.context)));
    let room = (training.max_bytes.clamp(4 << 10, 256 << 10) / size_of::<Cell>()).min(MAX_CELLS) / width;
    let rows = choose(candidates, root, room.max(1));
    build(classes, &seen, &rows)
}

/// The bytes before a position, the last one lowest, with a one above them: 1 is no byte.
type Context = u32;

const fn longer(context: Context, byte: u8) -> Context {
    context << 8 | byte as u32
}

/// A byte that was counted: the byte before in bits 40–48, the one before that in 28–36 (256 before
/// the string's start), and its column in 0–8: 0 for the end of a key, else its class and one.
type CountedByte = u64;

const COLUMN: CountedByte = 0x1ff;

fn event(key: &[u8], at: usize, classes: &Classes) -> CountedByte {
    let before = |distance: usize| at.checked_sub(distance).map_or(256, |at| u64::from(key[at]));
    let column = key.get(at).map_or(0, |byte| classes.of(*byte) as u64 + 1);
    before(1) << 40 | before(2) << 28 | column
}

/// Counts the bytes that divide groups of keys. Walks the trie of the sorted sample.
fn count(sample: &[&[u8]], classes: &Classes, training: &Training) -> Vec<CountedByte> {
    let table_keys = usize::try_from(training.table_keys).unwrap_or(usize::MAX);
    let rate = table_keys / sample.len();
    let least = (GROUP.0 / rate.max(1)).max(2);
    let most = (GROUP.1 / rate.max(1)).max(64);
    let mut events = Vec::new();
    // Groups that share their first bytes, and how many.
    let mut groups = vec![(0..sample.len(), 0)];
    while let Some((range, depth)) = groups.pop() {
        let group = &sample[range.clone()];
        if group.len() < least || events.len() + group.len() * (COUNTED_IN_COMMON + 1) > MAX_EVENTS {
            continue;
        }
        let shared = common_prefix(group[0], group[group.len() - 1]);
        if group.len() <= most {
            for at in (depth..shared).take(COUNTED_IN_COMMON).chain([shared]) {
                events.extend(group.iter().map(|key| event(key, at, classes)));
            }
        }
        let mut first = range.start;
        while first < range.end {
            let byte = sample[first].get(shared);
            let len = sample[first..range.end].partition_point(|key| key.get(shared) == byte);
            if byte.is_some() {
                groups.push((first..first + len, shared + 1));
            }
            first += len;
        }
    }
    events
}

/// Shares before training: the same for the end and every byte seen.
fn equal_shares(classes: &Classes, seen: &[bool; 256]) -> Vec<f64> {
    let mut weights = vec![UNSEEN; classes.width()];
    weights[0] = 1.0;
    for byte in (0..=255u8).filter(|byte| seen[usize::from(*byte)]) {
        weights[classes.of(byte) + 1] = 1.0;
    }
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// The shares of columns in a context, given those in the context one byte shorter.
fn shares(events: &[CountedByte], width: usize, shorter: &[f64]) -> Vec<f64> {
    let counts = level(&histogram(events, width));
    let total = events.len() as f64 + SMOOTHING;
    counts.iter().zip(shorter).map(|(count, share)| (count + SMOOTHING * share) / total).collect()
}

fn histogram(events: &[CountedByte], width: usize) -> Vec<f64> {
    let mut counts = vec![0.0; width];
    events.iter().for_each(|event| counts[(event & COLUMN) as usize] += 1.0);
    counts
}

/// Gives counts that differ by no more than chance would have it their mean. Digits that are
/// equally frequent stay so, and chance does not bend the line through their keys.
fn level(counts: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..counts.len()).filter(|i| counts[*i] > 0.0).collect();
    order.sort_by(|a, b| counts[*b].total_cmp(&counts[*a]).then(a.cmp(b)));
    let mut levelled = counts.to_vec();
    let mut rest = &order[..];
    while !rest.is_empty() {
        let (mut sum, mut len) = (0.0, 0);
        for i in rest {
            let mean = sum / f64::from(len.max(1));
            // Three standard deviations of a count.
            if len > 0 && counts[*i] < mean - 3.0 * mean.sqrt() {
                break;
            }
            sum += counts[*i];
            len += 1;
        }
        let (group, after) = rest.split_at(len as usize);
        group.iter().for_each(|i| levelled[*i] = sum / f64::from(len));
        rest = after;
    }
    levelled
}

/// A context that may get a row.
struct Candidate {
    context: Context,
    order: usize,
    shares: Vec<f64>,
    gain: f64,
}

/// Collects the contexts of `order.0` to `order.1` bytes among the sorted events, which share the
/// bytes of `context`.
fn weigh(
    events: &[CountedByte],
    order: (usize, usize),
    context: Context,
    shorter: &[f64],
    out: &mut Vec<Candidate>,
) {
    if order.0 > order.1 {
        return;
    }
    let shift = 52 - 12 * order.0 as u32;
    for same in events.chunk_by(|a, b| a >> shift == b >> shift) {
        let Ok(byte) = u8::try_from(same[0] >> shift & 0xfff) else { continue };
        if same.len() < LEAST_EVENTS {
            continue;
        }
        let context = with_earlier(context, byte, order.0 - 1);
        let shares = shares(same, shorter.len(), shorter);
        let gain = histogram(same, shorter.len())
            .iter()
            .zip(shares.iter().zip(shorter))
            .filter(|(count, _)| **count > 0.0)
            .map(|(count, (share, old))| count * log2(share / old) - BITS_PER_SHARE)
            .sum();
        weigh(same, (order.0 + 1, order.1), context, &shares, out);
        if gain > 0.0 {
            out.push(Candidate { context, order: order.0, shares, gain });
        }
    }
}

/// A context of `order` bytes with one more before them.
const fn with_earlier(context: Context, byte: u8, order: usize) -> Context {
    let bits = 8 * order as u32;
    context & ((1 << bits) - 1) | (byte as u32) << bits | 1 << (bits + 8)
}

/// The binary logarithm of a positive number to within 0.01, the same on every machine: training
/// has to be.
fn log2(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as f64 - 1023.0;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // The parabola through log2 at 1, sqrt(2) and 2.
    exponent + (mantissa - 1.0) * (1.0 + 0.343_1 * (2.0 - mantissa))
}

/// Takes the best candidates, none without the two one byte shorter.
fn choose(candidates: Vec<Candidate>, root: Vec<f64>, room: usize) -> BTreeMap<Context, Vec<f64>> {
    let mut rows = BTreeMap::from([(1, root)]);
    let mut left = candidates;
    // In each round those whose shorter ones came later in the round before are taken.
    for _ in 0..MAX_ORDER {
        let mut later = Vec::new();
        for candidate in left {
            let context = candidate.context;
            let (beginning, end) = (context >> 8, shorten(context, candidate.order - 1));
            if rows.len() < room && rows.contains_key(&beginning) && rows.contains_key(&end) {
                rows.insert(context, candidate.shares);
            } else {
                later.push(candidate);
            }
        }
        left = later;
    }
    rows
}

/// The last `order` bytes of a context.
const fn shorten(context: Context, order: usize) -> Context {
    let bits = 8 * order as u32;
    1 << bits | context & ((1 << bits) - 1)
}

/// The table: rows in the order of their contexts, that without any first.
fn build(classes: Classes, seen: &[bool; 256], rows: &BTreeMap<Context, Vec<f64>>) -> KeyEncoder {
    let width = classes.width();
    let starts: BTreeMap<Context, usize> = rows.keys().copied().zip((0..).step_by(width)).collect();
    let mut cells = Vec::with_capacity(rows.len() * width);
    for (context, shares) in rows {
        let start = cells.len();
        push_row(&mut cells, shares);
        for byte in (0..=255u8).filter(|byte| seen[usize::from(*byte)]) {
            let all = longer(*context, byte);
            let longest = (0..=MAX_ORDER)
                .rev()
                .filter(|order| all >> (8 * order) != 0)
                .find_map(|order| starts.get(&shorten(all, order)))
                .expect("there is a row without context");
            // A table has at most 2^16 cells.
            cells[start + classes.of(byte)].next = *longest as u16;
        }
    }
    KeyEncoder::from_table(classes, cells)
}

/// Adds a row with the given shares, none of them empty. The first is that of the end; the cell of
/// a class says what is below it.
fn push_row(cells: &mut Vec<Cell>, shares: &[f64]) {
    let total: f64 = shares.iter().sum();
    let spare = f64::from(WHOLE) - shares.len() as f64;
    let mut sum = 0.0;
    for (i, share) in (1..).zip(shares) {
        sum += share;
        // Strictly rising, and at most `WHOLE`: the cast takes the whole part.
        let below = (sum / total * spare) as u32 + i;
        cells.push(Cell { below: below.min(u32::from(WHOLE)) as u16, next: 0 });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Codes of the same keys by the plain encoder, by one without context and by one with
    /// contexts.
    const KEYS: [(&[u8], usize); 12] = [
        (b"", 0),
        (b"\0", 0),
        (b"\0\0", 0),
        (b"a", 0),
        (b"a\0", 0),
        (b"ab", 0),
        (b"abracadabra", 0),
        (b"xabracadabra", 1),
        (b"abracadabrb", 8),
        (b"b", 0),
        (b"zz", 0),
        (&[255; 40], 0),
    ];

    /// A few keys in which `b` follows `a` and nothing else does.
    pub(in crate::strings) fn trained(order: usize) -> KeyEncoder {
        let keys: Vec<Vec<u8>> = (0..4096u32)
            .map(|i| {
                (0..6)
                    .flat_map(|bit| if i >> (2 * bit) & 3 == 0 { &b"ab"[..] } else { b"c" })
                    .copied()
                    .collect()
            })
            .collect();
        KeyEncoder::train(keys.iter().map(Vec::as_slice), &Training { order, ..Training::default() })
    }

    #[test]
    fn golden_vectors() {
        let vectors = [
            (
                KeyEncoder::plain(),
                [
                    0,
                    16_711_680,
                    16_776_705,
                    1_637_744_640,
                    1_637_809_665,
                    1_644_182_115,
                    1_644_211_307,
                    1_644_211_307,
                    1_661_959_243,
                    1_654_456_320,
                    2_063_534_715,
                    4_294_901_503,
                ],
                1068,
            ),
            (
                trained(0),
                [
                    0,
                    16_121_856,
                    16_121_891,
                    17_039_360,
                    23_052_092,
                    620_805_644,
                    1_021_008_489,
                    1_021_008_489,
                    2_691_928_818,
                    1_618_870_272,
                    4_294_119_527,
                    4_294_901_758,
                ],
                64,
            ),
            (
                trained(2),
                [
                    0,
                    16_121_856,
                    16_121_891,
                    17_039_360,
                    17_405_990,
                    52_602_470,
                    1_583_559_125,
                    1_583_559_125,
                    4_200_288_011,
                    1_618_870_272,
                    4_294_119_527,
                    4_294_901_758,
                ],
                136,
            ),
        ];
        for (encoder, codes, bytes) in vectors {
            let found = KEYS.map(|(key, skip)| encoder.code(key, skip));
            assert_eq!((found, encoder.encode().len()), (codes, bytes));
        }
    }
}
