//! The division of a rebuild's keys where one skip does not tell them apart.

use std::ops::Range;

use super::KeyEncoder;
use super::prefix::{common_prefix, separator};
use super::skip_runs::{Accept, Finder, Keys};

/// Keys of a rebuild that segments with one skip serve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkipPart {
    /// The keys, by their place among all.
    pub keys: Range<usize>,
    /// First string of the part's range, which ends where the next part's begins.
    pub start: Box<[u8]>,
    /// Bytes of `start` that all its keys share and its segments skip.
    pub skip: u16,
}

/// Divides the ascending `keys` of a range that begins with `start` into few parts, in each of
/// which no more than ε keys have the same coordinate (one if ε is 0): of the 2ε + 1 that a window
/// holds, lines then have room for other differences.
///
/// Parts are consecutive and hold all keys; there is at least one, and the first one's range begins
/// with `start`. It is an empty one if the keys share more bytes than `start` has, and either many
/// more or without them too few would be told apart. Segments made of a part have its skip,
/// coordinates `encoder.code(key, skip)`, and, from the second on,
/// `separator(previous, first, skip)` as the start of their ranges.
///
/// Every key is coded once where one part does, and about twice more where not
/// (`benches/strings.rs`).
pub fn partition(keys: &[&[u8]], start: &[u8], encoder: &KeyEncoder, epsilon: u32) -> Vec<SkipPart> {
    let Some(first) = keys.first() else {
        return vec![SkipPart { keys: 0..0, start: start.into(), skip: 0 }];
    };
    // Fewer bytes than are shared do no harm.
    let brief = |len: usize| len.min(usize::from(u16::MAX)) as u16;
    let common = common_prefix(start, first);
    let shared: Vec<u16> = std::iter::once(brief(common))
        .chain(keys.windows(2).map(|pair| brief(common_prefix(pair[0], pair[1]))))
        .collect();
    let keys = Keys { keys, shared: &shared };
    let mut ties = EqualLimit { most: epsilon.max(1), equal: 0 };
    let mut finder = Finder::new(keys.keys.len(), epsilon);
    let (mut parts, mut end) = (Vec::with_capacity(1), 0);
    while end < keys.keys.len() {
        let from = end;
        let (part_start, run) = if from == 0 {
            let (run, front) = finder.first(keys, usize::from(brief(common)), encoder, &mut ties);
            if front {
                parts.push(SkipPart { keys: 0..0, start: start.into(), skip: 0 });
                (separator(start, first, run.skip), run)
            } else {
                (start, run)
            }
        } else {
            let run = finder.longest(keys.from(from), usize::MAX, encoder, &mut ties);
            (separator(keys.keys[from - 1], keys.keys[from], run.skip), run)
        };
        end += run.xs.len();
        parts.push(SkipPart { keys: from..end, start: part_start.into(), skip: brief(run.skip) });
    }
    parts
}

/// Takes coordinates as long as few of them are equal.
struct EqualLimit {
    most: u32,
    equal: u32,
}

impl Accept for EqualLimit {
    type Found = ();

    fn restart(&mut self) {
        self.equal = 0;
    }

    fn accept(&mut self, _: u64, equals: bool) -> bool {
        self.equal = if equals { self.equal + 1 } else { 1 };
        self.equal <= self.most
    }

    fn found(&mut self) {}
}
