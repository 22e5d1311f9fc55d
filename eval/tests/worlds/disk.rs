//! The disk of a simulated world, and how it fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, mem};

use fpcache_memserver::durability::DiskError;
use fpcache_sim::{Random, SimMemory};

use crate::memory_disk::MemoryDisk;
use crate::watched_disk::{BeforeChange, WatchedDisk};

/// A disk whose writes do not overtake the memory node's stores: each is a system call, after which
/// they are visible.
pub type SimDisk = WatchedDisk<Changes>;

/// What comes before each change of a disk.
#[derive(Clone, Debug)]
pub struct Changes {
    pub memory: Arc<SimMemory>,
    pub troubles: Troubles,
}

impl BeforeChange for Changes {
    fn before_change(&self, name: &str) -> Result<(), DiskError> {
        self.memory.flush();
        self.troubles.before_change(name)
    }
}

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    #[default]
    Nothing,
    /// It has room for a few bytes more: what goes beyond is cut.
    Full,
    /// There is no room, which it says when it is to sync.
    FullAtSync,
    /// Syncs fail, and what they were to write is lost for the medium.
    Syncs,
    /// Appends fail half-way.
    Appends,
    /// Any change may fail, and is not made then.
    Changes,
    /// Reads fail.
    Reads,
    /// Reads end before the file does.
    ShortReads,
}

impl Trouble {
    pub const ALL: [Self; 7] = [
        Self::Full,
        Self::FullAtSync,
        Self::Syncs,
        Self::Appends,
        Self::Changes,
        Self::Reads,
        Self::ShortReads,
    ];

    /// Whether it says that there is no room.
    pub fn is_full(self) -> bool {
        matches!(self, Self::Full | Self::FullAtSync)
    }
}

/// The troubles of a disk, one after another, over all lives of its memory node.
#[derive(Clone, Debug, Default)]
pub struct Troubles {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    now: Trouble,
    /// Chooses the changes that fail.
    random: Option<Random>,
    /// Changes that each made fail, and how many failures of the disk are counted there.
    failed: BTreeMap<Trouble, u64>,
    counted: u64,
    /// They do not change any more.
    is_over: bool,
}

impl Troubles {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Trouble {
        self.state().now
    }

    /// Changes that each made fail, until the disk was mended last.
    pub fn failed(&self) -> BTreeMap<Trouble, u64> {
        self.state().failed.clone()
    }

    /// Another trouble, or none, unless they do not change any more.
    pub fn change(&self, disk: &MemoryDisk, random: &mut Random) {
        if self.state().is_over {
            return;
        }
        let trouble = match random.below(2) {
            0 => Trouble::Nothing,
            _ => Trouble::ALL[random.below(Trouble::ALL.len() as u64) as usize],
        };
        self.begin(trouble, disk, random);
    }

    /// Reads fail from here on, in one way or the other, unless troubles do not change any more.
    pub fn fail_reads(&self, disk: &MemoryDisk, random: &mut Random) {
        if !self.state().is_over {
            self.begin([Trouble::Reads, Trouble::ShortReads][random.below(2) as usize], disk, random);
        }
    }

    /// This trouble from here on.
    pub fn begin(&self, trouble: Trouble, disk: &MemoryDisk, random: &mut Random) {
        self.mend(disk);
        let mut state = self.state();
        state.now = trouble;
        state.random = Some(random.split());
        let (good, bad) = (random.below(3) as u32, random.between(1, 6) as u32);
        match trouble {
            Trouble::Nothing | Trouble::Changes => {}
            Trouble::Full => disk.fill_up_after([0, random.below(400), random.below(8_000)][good as usize]),
            Trouble::FullAtSync => disk.fill_up_at_sync(good, bad),
            Trouble::Syncs => disk.fail_syncs_after(good, bad),
            Trouble::Appends => disk.fail_appends(bad),
            Trouble::Reads | Trouble::ShortReads => {
                // A start makes some ten, and what fails once may stay so.
                let (good, bad) = (random.below(12) as u32, [1, 2, 4, u32::MAX][random.below(4) as usize]);
                match trouble {
                    Trouble::Reads => disk.fail_reads_after(good, bad),
                    _ => disk.cut_reads_after(good, bad),
                }
            }
        }
    }

    /// The disk is as it should be.
    pub fn mend(&self, disk: &MemoryDisk) {
        let mut state = self.state();
        let trouble = mem::take(&mut state.now);
        let failures = disk.failures();
        *state.failed.entry(trouble).or_default() += failures - mem::replace(&mut state.counted, failures);
        drop(state);
        disk.fill_up_after(u64::MAX);
        disk.fail_syncs(0);
        disk.fail_appends(0);
        disk.fail_reads_after(0, 0);
    }

    /// They do not change any more by themselves.
    pub fn stay(&self) {
        self.state().is_over = true;
    }

    fn before_change(&self, name: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        let fails =
            state.now == Trouble::Changes && state.random.as_mut().is_some_and(|random| random.below(3) == 0);
        match fails {
            true => {
                *state.failed.entry(Trouble::Changes).or_default() += 1;
                Err(DiskError::new("changing", name, io::Error::other("injected failure")))
            }
            false => Ok(()),
        }
    }
}
