//! Drawing distinct byte strings.

use crate::bytes::arena::KeyArena;
use crate::bytes::sort::{merge, order};
use crate::progress::{Progress, during};

/// Keys drawn between two reports of progress.
const STEP: usize = 1 << 18;

/// `count` distinct ascending strings that `draw` writes into the empty buffer it is given;
/// duplicates are replaced by further draws. `None` without memory for them.
///
/// Costs one sort of the strings, and another of those drawn again.
pub(super) fn distinct(
    count: usize,
    progress: Option<&dyn Progress>,
    mut draw: impl FnMut(&mut Vec<u8>),
) -> Option<KeyArena> {
    let mut keys = KeyArena::new();
    let mut key = Vec::new();
    during(progress, "generating", count as u64, || {
        while keys.len() < count {
            let mut drawn = KeyArena::new();
            for i in 0..count - keys.len() {
                key.clear();
                draw(&mut key);
                drawn.try_push(&key).ok()?;
                if let Some(progress) = progress.filter(|_| i.is_multiple_of(STEP)) {
                    progress.advance((keys.len() + i) as u64);
                }
            }
            let drawn = sorted_once(&drawn)?;
            keys = if keys.is_empty() { drawn } else { merge(&keys, &drawn)? };
        }
        Some(())
    })?;
    keys.shrink();
    Some(keys)
}

/// The different strings, ascending.
fn sorted_once(keys: &KeyArena) -> Option<KeyArena> {
    let order = order(keys)?;
    let key = |i: usize| keys.get(order[i] as usize);
    let first = |&i: &usize| i == 0 || key(i) != key(i - 1);
    keys.gather((0..order.len()).filter(first).map(|i| order[i] as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn duplicates_are_replaced_until_the_count_is_exact() {
        let mut random = Random::new(9, 9);
        let keys = distinct(900, None, |key| key.extend(random.below(1_000).to_string().bytes())).unwrap();
        assert_eq!(keys.len(), 900);
        assert!(keys.iter().zip(keys.iter().skip(1)).all(|(key, next)| key < next));
    }
}
