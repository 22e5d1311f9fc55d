//! The repair of damage: everything damaged is written again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fpcache_client::{ClientConfig, ClientError, ErrorKind};
use fpcache_eval::history::keys::NumberedKeys;
use fpcache_sim::{Verdict, World};

use super::{APART, Shared, WRITERS, Writer, keys};
use crate::play::DEADLINE;

/// Keys between them, which are written at the end.
pub fn others() -> impl Iterator<Item = u64> {
    keys().flat_map(|key| (1..APART).map(move |beside| key + beside))
}

/// Writes what is damaged, and enough other keys for all segments to be replaced; then everything
/// is right.
pub fn mend<K: NumberedKeys>(world: &mut World, shared: &Shared<K>, is_durable: bool) -> Verdict {
    let is_done = Arc::new(AtomicBool::new(false));
    // A process may end in it.
    for number in 0..20 {
        if is_done.load(Ordering::Relaxed) {
            break;
        }
        let (mender, is_done) = (shared.clone(), Arc::clone(&is_done));
        world.spawn("mender", move |process| {
            let config = ClientConfig::default().with_deadline(DEADLINE);
            mender.writer(process, WRITERS + number, config).mend_all(is_durable);
            is_done.store(true, Ordering::Relaxed);
        });
        world.run()?;
    }
    assert!(is_done.load(Ordering::Relaxed), "processes do not end all the time");
    let last = shared.clone();
    world.spawn("reader of all", move |process| last.read_all(process, true));
    world.run()?;
    Ok(())
}

impl<K: NumberedKeys> Writer<K> {
    /// Writes what is damaged, and all other keys; and sees that a snapshot is taken then.
    fn mend_all(&mut self, is_durable: bool) {
        let mut damaged: Vec<u64> = self.shared.stage.flipped(true).keys.into_keys().collect();
        while !damaged.is_empty() {
            let before = damaged.len();
            // One whose record is gone already may have to wait for those beside it.
            damaged.retain(|key| {
                let kind = [1, 3][self.process.random.below(2) as usize];
                !self.is_done(*key, kind)
            });
            assert!(damaged.len() < before, "what is damaged is not written: {damaged:?}");
        }
        others().for_each(|key| self.write_until_done(key));
        if !is_durable {
            return;
        }
        let before = self.shared.stage.snapshots();
        let is_taken = (0..1000).any(|_| {
            self.shared.stage.want_snapshot();
            self.write_until_done(APART);
            self.process.sleep(Duration::from_micros(100));
            self.shared.stage.snapshots() != before
        });
        assert!(is_taken, "nothing is damaged, and no snapshot is written");
    }

    fn write_until_done(&mut self, key: u64) {
        assert!(self.is_done(key, 1), "nothing is damaged, and key {key} is refused");
    }

    /// Writes a key until it is known that this was done, or that something damaged is in the way.
    fn is_done(&mut self, key: u64, kind: u64) -> bool {
        for _ in 0..20 {
            match self.write(key, kind) {
                Ok(_) => return true,
                Err(ClientError::Damaged { .. }) => return false,
                Err(error) if matches!(error.kind(), ErrorKind::Retry | ErrorKind::Unknown) => {}
                Err(error) => panic!("key {key} is not written: {error}"),
            }
        }
        panic!("key {key} is never written");
    }
}
