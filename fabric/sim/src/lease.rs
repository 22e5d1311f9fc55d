//! The leased word of a simulated memory node, as endpoints know it.

use std::time::{Duration, Instant};

use fpcache_fabric::RemoteAddr;
use fpcache_fabric::backend::LeasedWord;

use crate::state::State;

impl State {
    fn instant(&self) -> Instant {
        self.time.base + Duration::from_nanos(self.now())
    }

    /// The lease of an endpoint on a connection, with the word's offset; those inside the memory
    /// node have none.
    pub(crate) fn lease_of(&self, connection: usize) -> Option<(u64, LeasedWord)> {
        let link = &self.links[connection];
        let (at, length) = self.nodes[link.node].options.lease.filter(|_| !link.is_local)?;
        Some((at, LeasedWord::new(length)))
    }

    /// Has the leased word READ with what is posted now, if what is known of it will soon be too
    /// old. It is fetched at this very instant: a card may fetch it last of all, but it may fetch
    /// it first.
    pub(crate) fn renew_lease(&mut self, endpoint: usize) {
        let now = self.instant();
        let pair = &mut self.pairs[endpoint];
        let areas = &self.links[pair.connection].areas;
        if let Some((at, lease)) = pair.lease.as_mut().filter(|(_, lease)| lease.is_due(now))
            && let Some(Ok(word)) = areas.first().map(|area| area.visible.load_acquire(*at))
        {
            lease.learn(word, now);
            pair.meter().record_reads(0, 1, 8);
        }
    }

    /// The word at `at`, if an endpoint has a lease of it that judges READs which have completed by
    /// now.
    pub(crate) fn leased_word(&mut self, endpoint: usize, at: RemoteAddr) -> Option<u64> {
        let now = self.instant();
        let (offset, lease) = self.pairs[endpoint].lease.as_ref()?;
        let word = lease.value(now).filter(|_| at == RemoteAddr::region(*offset))?;
        self.leased += 1;
        Some(word)
    }
}
