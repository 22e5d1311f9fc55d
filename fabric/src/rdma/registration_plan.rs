//! The pieces by which memory is registered that grows and shrinks at its end.
//!
//! Memory is divided into stretches of one length, and no piece reaches over the bounds of one:
//! what fills its stretch stays as it is while the memory grows, and a shrink costs no more than a
//! stretch. In the last stretch there are smaller ones, each at least twice as long as the next:
//! what grows is registered with those before it that are shorter than that.

use std::ops::Range;

/// Stretches that memory has at most.
const MOST: u64 = 1024;
/// How long they are, unless there would be too many.
const LENGTHS: (u64, u64) = (2 << 20, 256 << 20);

/// The length of a stretch, in memory of that length.
pub(super) fn stretch_of(len: u64) -> u64 {
    let usual = (len / 64).next_power_of_two().clamp(LENGTHS.0, LENGTHS.1);
    usual.max((len / MOST).next_power_of_two())
}

/// The next step of registering.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RegistrationStep {
    pub(super) range: Range<u64>,
    /// How many of the present pieces stay; this one replaces the rest.
    pub(super) keeps: usize,
}

/// The next step towards having all before `end` registered, where these are already, one after
/// another from the begin.
pub(super) fn next_step(have: &[Range<u64>], end: u64, stretch: u64) -> Option<RegistrationStep> {
    let RegistrationStep { range, mut keeps } = next_step_beside(have, end, stretch)?;
    let (mut start, begin) = (range.start, range.start / stretch * stretch);
    let is_full = range.end - begin == stretch;
    for before in have.iter().rev() {
        let is_short = is_full || before.end - before.start < 2 * (range.end - start);
        if before.start < begin || !is_short {
            break;
        }
        (start, keeps) = (before.start, keeps - 1);
    }
    Some(RegistrationStep { range: start..range.end, keeps })
}

/// The same, which takes the place of none.
pub(super) fn next_step_beside(have: &[Range<u64>], end: u64, stretch: u64) -> Option<RegistrationStep> {
    let from = have.last().map_or(0, |last| last.end);
    let to = end.min((from / stretch * stretch).saturating_add(stretch));
    (from < to).then_some(RegistrationStep { range: from..to, keeps: have.len() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STRETCH: u64 = 1 << 16;

    /// Has all before `end`, and how many bytes were registered for that.
    fn grow(have: &mut Vec<Range<u64>>, end: u64) -> u64 {
        let mut bytes = 0;
        while let Some(RegistrationStep { range, keeps }) = next_step(have, end, STRETCH) {
            let whole = have.iter().filter(|piece| piece.end - piece.start == STRETCH).count();
            assert!(keeps >= whole, "what fills its stretch stays");
            let ends_at = have.last().map_or(0, |last| last.end);
            assert_eq!(range.start, have.get(keeps).map_or(ends_at, |first| first.start));
            have.truncate(keeps);
            bytes += range.end - range.start;
            have.push(range);
        }
        bytes
    }

    /// All before `end` is registered, in few pieces.
    fn check(have: &[Range<u64>], end: u64) {
        assert_eq!(have.first().map_or(0, |first| first.start), 0);
        assert!(have.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(have.last().map_or(0, |last| last.end), end);
        assert!(have.iter().all(|piece| piece.start / STRETCH == (piece.end - 1) / STRETCH));
        let last = have.iter().filter(|piece| piece.start >= end / STRETCH * STRETCH);
        let lens: Vec<u64> = last.map(|piece| piece.end - piece.start).collect();
        assert!(lens.windows(2).all(|pair| pair[0] >= 2 * pair[1]), "{lens:?}");
        assert!(have.len() as u64 <= end / STRETCH + 17, "{} pieces", have.len());
    }

    proptest! {
        #[test]
        fn growing_registers_a_byte_a_few_times_and_what_is_whole_once(
            steps in proptest::collection::vec(1u64..40_000, 1..400),
        ) {
            let (mut have, mut end, mut bytes) = (Vec::new(), 0, 0);
            for step in &steps {
                end += step;
                bytes += grow(&mut have, end);
                check(&have, end);
            }
            // A piece that is registered with a longer stretch grows by half at least, and once
            // more when its stretch is full.
            let least = steps.iter().min().copied().unwrap_or(1) as f64;
            let times = 3.0 + (STRETCH as f64 / least).max(1.0).log(1.5);
            prop_assert!(bytes as f64 <= times * end as f64, "{bytes} bytes for {end}");
        }

        #[test]
        fn shrinking_costs_no_more_than_a_stretch(
            steps in proptest::collection::vec((any::<bool>(), 1u64..200_000), 1..200),
        ) {
            let (mut have, mut end) = (Vec::new(), 0u64);
            for (grows, by) in steps {
                if grows {
                    end += by;
                } else {
                    end = end.saturating_sub(by);
                    have.retain(|piece: &Range<u64>| piece.end <= end);
                    prop_assert!(end - have.last().map_or(0, |last| last.end) < STRETCH);
                }
                grow(&mut have, end);
                check(&have, end);
            }
        }

        #[test]
        fn what_stands_beside_takes_the_place_of_nothing(cut in 0u64..5 * STRETCH, end in 0u64..9 * STRETCH) {
            let mut have = Vec::new();
            grow(&mut have, cut);
            while let Some(RegistrationStep { range, keeps }) = next_step_beside(&have, end, STRETCH) {
                prop_assert_eq!(keeps, have.len());
                prop_assert_eq!(range.start, have.last().map_or(0, |last| last.end));
                prop_assert!(range.start < range.end && range.start / STRETCH == (range.end - 1) / STRETCH);
                have.push(range);
            }
            prop_assert_eq!(have.last().map_or(0, |last| last.end), end.max(cut));
        }

        #[test]
        fn stretches_are_few_and_no_longer_than_that_asks(len in 1u64..1 << 46) {
            let stretch = stretch_of(len);
            prop_assert!(stretch.is_power_of_two() && len.div_ceil(stretch) <= MOST + 1);
            prop_assert!(stretch <= LENGTHS.1 || len / stretch >= MOST / 2);
        }
    }

    #[test]
    fn doublings() {
        let sizes =
            |have: &[Range<u64>]| have.iter().map(|piece| piece.end - piece.start).collect::<Vec<_>>();
        let mut have = Vec::new();
        for (end, expected) in
            [(1, &[1][..]), (2, &[2]), (3, &[2, 1]), (4, &[4]), (100, &[100]), (101, &[100, 1])]
        {
            grow(&mut have, end);
            assert_eq!(sizes(&have), expected);
        }
        grow(&mut have, STRETCH + 5);
        assert_eq!(sizes(&have), [STRETCH, 5]);
    }
}
