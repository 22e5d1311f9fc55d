//! A hot set: a stretch of ranks that takes a share of the requests.

use crate::random::Random;

/// Draws ranks: from the hot stretch with a probability, else from outside of it, uniformly in
/// either.
#[derive(Clone, Copy, Debug)]
pub(super) struct HotSet {
    start: u64,
    hot: u64,
    cold: u64,
    probability: f64,
}

impl HotSet {
    /// `share` of `n` ranks, rounded, but at least one of them.
    pub(super) fn new(n: u64, share: f64, probability: f64, random: &mut Random) -> Self {
        let hot = (libm::round(share * n as f64) as u64).min(n).max(1);
        let cold = n.saturating_sub(hot);
        Self { start: random.below(cold + 1), hot, cold, probability }
    }

    /// Whether there is anything outside.
    pub(super) fn can_move(&self) -> bool {
        self.cold > 0
    }

    /// To another place, apart from the one before wherever that leaves room.
    pub(super) fn shift(&mut self, random: &mut Random) {
        // Starts 0..=cold; those below `before` end ahead of the old stretch, those of the last
        // `after` follow it.
        let before = (self.start + 1).saturating_sub(self.hot);
        let after = (self.cold + 1).saturating_sub(self.start + self.hot);
        self.start = if before + after > 0 {
            let place = random.below(before + after);
            if place < before { place } else { self.cold + 1 - (before + after - place) }
        } else {
            let place = random.below(self.cold);
            place + u64::from(place >= self.start && self.cold > 0)
        };
    }

    #[inline]
    pub(super) fn rank(&self, random: &mut Random) -> u64 {
        if self.cold == 0 || random.open_fraction() < self.probability {
            self.start + random.below(self.hot)
        } else {
            let rank = random.below(self.cold);
            if rank < self.start { rank } else { rank + self.hot }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn moving_keeps_the_size_stays_inside_and_leaves_the_place(
            n in 1u64..200, share in 0.0..=1.0f64, seed in any::<u64>()
        ) {
            let mut random = Random::new(seed, 1);
            let mut set = HotSet::new(n, share, 1.0, &mut random);
            prop_assert_eq!(set.hot + set.cold, n);
            for _ in 0..20 {
                let old = set;
                set.shift(&mut random);
                prop_assert!(set.hot == old.hot && set.start <= set.cold);
                let apart = set.start + set.hot <= old.start || old.start + old.hot <= set.start;
                let room = old.start >= old.hot || old.start + 2 * old.hot <= n;
                prop_assert!(apart || !room, "{old:?} to {set:?}");
                prop_assert_eq!(set.start != old.start, set.can_move());
            }
        }
    }

    #[test]
    fn hot_and_cold_ranks_are_all_drawn_and_none_of_the_other_kind() {
        for seed in 0..20 {
            for probability in [0.0, 1.0] {
                let mut random = Random::new(seed, 1);
                let set = HotSet::new(12, 0.25, probability, &mut random);
                let drawn: std::collections::BTreeSet<u64> =
                    (0..1_000).map(|_| set.rank(&mut random)).collect();
                let hot = |rank: &u64| (set.start..set.start + set.hot).contains(rank);
                assert!((0..12).filter(|rank| hot(rank) == (probability > 0.5)).eq(drawn), "{set:?}");
            }
        }
    }

    #[test]
    fn every_place_is_reached() {
        let mut random = Random::new(1, 1);
        let mut set = HotSet::new(20, 0.15, 1.0, &mut random);
        let mut seen = [false; 18];
        for _ in 0..2_000 {
            set.shift(&mut random);
            seen[set.start as usize] = true;
        }
        assert!(seen.iter().all(|&seen| seen), "{seen:?}");
    }
}
