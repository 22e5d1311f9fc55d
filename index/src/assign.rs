//! Which key of a segment gets which slot.
//!
//! Inside a window order does not matter, because fingerprints do the searching. That freedom is spent on putting keys
//! *home*: into the very slot their prediction names, where a reader that tries the predicted slot first finds them.
//! Keeping the keys in order instead would let every displaced key displace its successors, as in linear probing. At
//! ε 32 and fill 0.85, 49 % of uniformly random keys are home and 60 % at most one slot off; of keys as uneven as SOSD's
//! fb, whose stretches of high density leave no choice, 18 % and 21 %.

use crate::SegmentModel;

/// Marks a key without a slot; no segment has so many slots that it were one.
const NONE: u16 = u16::MAX;

/// Turns ascending predictions into distinct slots within their windows.
///
/// One sweep over the slots. A slot goes to a key whose home it is, unless a key that is past its home would then run
/// out of slots; else to the earliest key past its home; else it stays free, unless the keys ahead need it. A second
/// key with the same home takes the slot before if that stayed free.
///
/// Keys past their homes wait in a queue, earliest deadline first. Whatever a slot is given to, the keys ahead find as
/// many slots as before, so only the queue's own deadlines and, where nobody waits, the keys ahead can force the
/// choice: every placement that exists is completed. `None` if there is none. Linear in keys and slots.
pub(crate) fn assign_slots(predictions: &[u16], model: &SegmentModel) -> Option<Vec<u16>> {
    let latest = latest_slots(predictions, model)?;
    let keys = predictions.len();
    let mut slots = vec![NONE; keys];
    let mut queue = Queue::default();
    let mut next = 0;
    let mut free_before = false;
    for slot in 0..model.cap {
        let home = next;
        while next < keys && predictions[next] == slot {
            let second = next > home;
            if second && free_before && model.epsilon > 0 {
                slots[next] = slot - 1;
                free_before = false;
            } else if second {
                queue.push(next, slot + model.epsilon);
            }
            next += 1;
        }
        let key = if next > home && queue.can_wait(slot) {
            home
        } else {
            if next > home {
                queue.push(home, slot + model.epsilon);
            }
            match queue.pop() {
                Some(key) => key,
                None if next < keys && latest[next] == slot => {
                    next += 1;
                    next - 1
                }
                None => {
                    free_before = true;
                    continue;
                }
            }
        };
        slots[key] = slot;
        free_before = false;
    }
    slots.iter().all(|slot| *slot != NONE).then_some(slots)
}

/// Turns ascending predictions into distinct ascending slots within their windows, spread as evenly as the windows
/// allow: each key as near as may be to where it would lie if all gaps between keys were equal.
///
/// Windows over crowded predictions keep free slots for later keys, which homes would leave elsewhere. `None` if there
/// is no placement. Linear in keys.
pub(crate) fn spread_slots(predictions: &[u16], model: &SegmentModel) -> Option<Vec<u16>> {
    let mut slots = latest_slots(predictions, model)?;
    let (keys, cap) = (slots.len() as u64, u64::from(model.cap));
    let mut next = 0;
    for ((rank, slot), &prediction) in (0..).zip(&mut slots).zip(predictions) {
        // Half a gap before the first key and behind the last. Below `cap`.
        let even = ((2 * rank + 1) * cap / (2 * keys)) as u16;
        // The earliest slot is none after the latest one: the key before took one before its own latest.
        *slot = even.max(prediction.saturating_sub(model.epsilon)).max(next).min(*slot);
        next = *slot + 1;
    }
    Some(slots)
}

/// Keys past their homes, earliest deadline first.
#[derive(Default)]
struct Queue {
    keys: Vec<usize>,
    head: usize,
    /// The least of deadline less place in `keys`, since the queue was last empty.
    tightest: i64,
}

impl Queue {
    /// Adds a key whose last slot is `deadline`, no earlier than those before.
    fn push(&mut self, key: usize, deadline: u16) {
        let room = i64::from(deadline) - self.keys.len() as i64;
        self.tightest = if self.head == self.keys.len() { room } else { self.tightest.min(room) };
        self.keys.push(key);
    }

    fn pop(&mut self) -> Option<usize> {
        let key = *self.keys.get(self.head)?;
        self.head += 1;
        Some(key)
    }

    /// Whether all keys meet their deadlines if the first of them gets the slot behind `slot`.
    fn can_wait(&self, slot: u16) -> bool {
        self.head == self.keys.len() || self.tightest + self.head as i64 > i64::from(slot)
    }
}

/// The latest slot of each key that leaves a slot to all keys behind it: ascending. `None` if a key has none in its
/// window, which no set of predictions with a placement does.
fn latest_slots(predictions: &[u16], model: &SegmentModel) -> Option<Vec<u16>> {
    let epsilon = i32::from(model.epsilon);
    let mut bound = i32::from(model.cap);
    let mut latest = vec![0; predictions.len()];
    for (latest, &prediction) in latest.iter_mut().zip(predictions).rev() {
        let prediction = i32::from(prediction);
        bound = (prediction + epsilon).min(bound - 1);
        if bound < prediction - epsilon || bound < 0 {
            return None;
        }
        // Below `cap`.
        *latest = bound as u16;
    }
    Some(latest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Line;
    use proptest::prelude::*;

    fn assign(predictions: &[u16], cap: u16, epsilon: u16) -> Option<Vec<u16>> {
        assign_slots(predictions, &SegmentModel { origin: 0, line: Line::from_bits(0), cap, epsilon })
    }

    #[test]
    fn keys_with_a_home_of_their_own_are_home() {
        assert_eq!(assign(&[1, 3, 6], 8, 2), Some(vec![1, 3, 6]));
    }

    #[test]
    fn a_displaced_key_does_not_displace_others() {
        assert_eq!(assign(&[4, 4, 5, 6], 9, 3), Some(vec![4, 3, 5, 6]), "the slot before is free");
        assert_eq!(assign(&[3, 4, 4, 5, 6], 9, 3), Some(vec![3, 4, 7, 5, 6]), "the next free one behind");
    }

    #[test]
    fn keys_make_way_where_the_end_is_near() {
        assert_eq!(assign(&[4, 4, 4, 4], 5, 3), Some(vec![1, 2, 3, 4]));
        assert_eq!(assign(&[4, 4, 4, 4, 4], 5, 3), None, "only four slots are in reach");
    }

    #[test]
    fn without_freedom_every_key_is_where_it_must_be() {
        assert_eq!(assign(&[0, 1, 2], 3, 0), Some(vec![0, 1, 2]));
        assert_eq!(assign(&[0, 0, 0], 3, 2), Some(vec![0, 1, 2]));
    }

    /// Whether each key can have a slot of its window: augmenting paths (Kuhn, Naval Research Logistics Quarterly 2,
    /// 1955), which know nothing of order.
    fn has_matching(predictions: &[u16], model: &SegmentModel) -> bool {
        fn augment(
            key: usize,
            windows: &[crate::Window],
            owner: &mut [Option<usize>],
            seen: &mut [bool],
        ) -> bool {
            (windows[key].first..=windows[key].last).any(|slot| {
                let slot = slot as usize;
                !std::mem::replace(&mut seen[slot], true)
                    && owner[slot].is_none_or(|other| augment(other, windows, owner, seen))
                    && owner[slot].replace(key) != Some(key)
            })
        }
        let windows: Vec<_> = predictions.iter().map(|p| model.window_around(u32::from(*p))).collect();
        let mut owner = vec![None; usize::from(model.cap)];
        (0..windows.len())
            .all(|key| augment(key, &windows, &mut owner, &mut vec![false; usize::from(model.cap)]))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn a_placement_is_found_whenever_one_exists(
            cap in 1u16..14, epsilon in 0u16..6, picks in prop::collection::vec(any::<u16>(), 0..14),
        ) {
            let mut predictions: Vec<u16> = picks.iter().map(|pick| pick % cap).collect();
            predictions.sort_unstable();
            let model = SegmentModel { origin: 0, line: Line::from_bits(0), cap, epsilon };
            let exists = has_matching(&predictions, &model);
            for assigned in [assign_slots(&predictions, &model), spread_slots(&predictions, &model)] {
                prop_assert_eq!(assigned.is_some(), exists, "{:?}", predictions);
                let Some(slots) = assigned else { continue };
                let mut taken = vec![false; usize::from(cap)];
                for (slot, prediction) in slots.iter().zip(&predictions) {
                    prop_assert!(model.window_around(u32::from(*prediction)).contains(u32::from(*slot)));
                    prop_assert!(!std::mem::replace(&mut taken[usize::from(*slot)], true));
                }
            }
        }
    }

    #[test]
    fn spread_keys_leave_even_gaps() {
        let spread = |predictions: &[u16], cap, epsilon| {
            spread_slots(predictions, &SegmentModel { origin: 0, line: Line::from_bits(0), cap, epsilon })
        };
        assert_eq!(spread(&[0, 0, 0, 0], 8, 8), Some(vec![1, 3, 5, 7]));
        assert_eq!(spread(&[0, 0, 0, 0], 8, 4), Some(vec![1, 2, 3, 4]), "no farther than the windows");
        assert_eq!(spread(&[7, 7, 7], 9, 3), Some(vec![4, 5, 7]));
        assert_eq!(spread(&[4, 4, 4], 9, 0), None);
    }
}
