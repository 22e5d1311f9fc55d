//! The start of a memory node from what the life before it left, in memory and on its disk.

use std::sync::Arc;

use fpcache_eval::history::keys::NumberedKeys;
use fpcache_fabric::{Clock, FileIdentity, NodeMemory};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::store::{
    Background, Memories, PreviousLog, Startup, restore, resume, sync_previous_log, why_unusable,
};
use fpcache_memserver::{Origin, RecoverError, Recovery};
use fpcache_sim::NodeStart;

use super::{Durability, Kept, Node, PastMemory, RING_BYTES, Stage, region_bytes};
use crate::disk::{Changes, SimDisk, Trouble};

/// A memory node, and what it was recovered from.
type Begun<K> = (Node<K>, Recovery);

impl<K: NumberedKeys> Stage<K> {
    /// A life after others, or the first of a table that outlives it.
    pub(super) fn go_on(&self, start: &NodeStart, durability: Durability) -> Node<K> {
        let mut kept = self.kept();
        let past = kept.memories.replace(PastMemory::of(&start.memories));
        if let Some(past) = past.filter(|_| std::mem::take(&mut kept.goes_back)) {
            past.bring_back(&start.memories);
            kept.went_back += 1;
        }
        let (node, recovery) = self.begin_again(start, durability, &mut kept);
        let node = node.with_clock(Arc::new(start.clock.clone()));
        match recovery.origin {
            Origin::Nothing => {
                assert_eq!(start.life, 1, "the loaded table is gone");
                drop(kept);
                return self.load(node);
            }
            Origin::Memory { redone, finished_change } => {
                kept.resumed += 1;
                kept.redone += redone;
                kept.finished_changes += u64::from(finished_change);
            }
            _ => kept.restored += 1,
        }
        node
    }

    /// As an operator has it begin: where the disk is in trouble and the start fails, once more when
    /// that is over.
    fn begin_again(&self, start: &NodeStart, durability: Durability, kept: &mut Kept<K>) -> Begun<K> {
        let trouble = kept.troubles.now();
        let error = match self.try_to_begin(start, durability, kept) {
            Ok(begun) => return begun,
            Err(error) => error,
        };
        let life = start.life;
        assert_ne!(trouble, Trouble::Nothing, "life {life} does not begin: {error}");
        let may_wait = trouble.is_full() && durability.sync != SyncPolicy::Always;
        assert!(!may_wait, "life {life} does not begin on a full disk: {error}");
        kept.refused_starts += 1;
        kept.troubles.mend(&kept.disk);
        kept.disk = kept.disk.restart();
        let begun = self.try_to_begin(start, durability, kept);
        begun.unwrap_or_else(|second| {
            panic!("life {life} does not begin: {second}; during {trouble:?}: {error}")
        })
    }

    fn try_to_begin(
        &self,
        start: &NodeStart,
        durability: Durability,
        kept: &mut Kept<K>,
    ) -> Result<Begun<K>, RecoverError> {
        let [region, recovery_area] = &start.memories[..] else { panic!("a region and a recovery area") };
        let is_lost = kept.memory_of != kept.boots;
        let is_away = kept.region_is_away;
        let mut boot = [0; 16];
        boot[..8].copy_from_slice(&kept.boots.to_le_bytes());
        let startup = Startup {
            sync: durability.sync,
            ring_bytes: RING_BYTES,
            boot,
            incarnation: start.life,
            lineage: kept.random.bits(),
            node: 0,
            now: start.clock.now(),
        };
        let changes = Changes { memory: Arc::clone(region), troubles: kept.troubles.clone() };
        let disk = SimDisk { disk: kept.disk.clone(), before: changes };
        let memories = || {
            let limit = region_bytes::<K>(self.shape.region_bytes) as u64;
            let memories = Memories::new(Arc::clone(region), Arc::clone(recovery_area)).limited(limit);
            memories.with_lease(self.lease(start))
        };
        let why = match is_lost || is_away {
            true => None,
            false => match why_unusable(&memories(), &disk, &startup)? {
                None => return resume(memories(), disk, &startup, Background::Inline),
                why => why,
            },
        };
        let left = match is_lost && !is_away {
            true => PreviousLog::default(),
            false => sync_previous_log(recovery_area, FileIdentity::default(), &disk, &startup)?,
        };
        // From here on the region is as good as gone, also for a start after one that fails.
        kept.memory_of = kept.boots;
        kept.region_is_away = true;
        kept.flipped.keys.clear();
        for memory in [region, recovery_area].into_iter().filter(|_| start.life > 1) {
            memory.fill_words(0, memory.len() as usize / 8, 0).expect("all of it");
        }
        left.note(recovery_area).expect("memory");
        let begun = restore(memories(), disk, &startup, Background::Inline, why)?;
        kept.region_is_away = false;
        Ok(begun)
    }
}
