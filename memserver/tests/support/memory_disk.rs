//! Files in memory that lose, tear and refuse writes as disks do, from a seed.
#![allow(dead_code, reason = "each test uses its share")]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpcache_memserver::durability::{Disk, DiskError};

const SECTOR: usize = 512;

/// A folder of files in memory.
///
/// Handles are cloned freely and see the same files. A [`crash`](Self::crash) or
/// [`restart`](Self::restart) ends all of them, as it ends the process that holds them, and gives a
/// new one.
#[derive(Clone, Debug)]
pub struct MemoryDisk {
    shared: Arc<Mutex<State>>,
    life: u64,
}

#[derive(Clone, Debug, Default)]
struct State {
    life: u64,
    random: u64,
    next_inode: u64,
    inodes: BTreeMap<u64, Inode>,
    /// Names as the running system sees them, and as a crash would leave them at worst.
    names: BTreeMap<String, u64>,
    stable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<NameChange>,
    room: Option<u64>,
    /// Syncs that succeed before those that fail.
    good_syncs: u32,
    failing_syncs: u32,
    /// What those say.
    sync_failure: Option<io::ErrorKind>,
    failing_appends: u32,
    /// Changes that failed so, or for lack of room.
    failures: u64,
    /// A file whose reads fail.
    unreadable: Option<String>,
    /// Reads that succeed before those that fail.
    good_reads: u32,
    failing_reads: u32,
    /// Whether those end early instead, as if the file did.
    are_short: bool,
    syncs: u64,
    bytes_read: u64,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    /// What a reader sees.
    data: Vec<u8>,
    /// What the medium holds.
    stable: Vec<u8>,
    /// `data` and `stable` agree below this.
    clean: usize,
}

#[derive(Clone, Debug)]
enum NameChange {
    Create(String, u64),
    Remove(String),
    Rename(String, String),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }
}

impl State {
    /// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
    /// 2014, figure 14).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number from 0 to `most`.
    fn up_to(&mut self, most: usize) -> usize {
        (self.random() % (most as u64 + 1)) as usize
    }

    /// How the next sync fails, if it does.
    fn failing_sync(&mut self) -> Option<io::Error> {
        if self.failing_syncs == 0 {
            return None;
        }
        if self.good_syncs > 0 {
            self.good_syncs -= 1;
            return None;
        }
        self.failing_syncs -= 1;
        self.failures += 1;
        Some(self.sync_failure.map_or_else(|| io::Error::other("injected failure"), io::Error::from))
    }

    /// Whether the next read fails.
    fn fails_read(&mut self) -> bool {
        let fails = self.good_reads == 0 && self.failing_reads > 0;
        if fails {
            self.failing_reads -= 1;
            self.failures += 1;
        }
        self.good_reads = self.good_reads.saturating_sub(1);
        fails
    }

    fn inode(&mut self, doing: &'static str, name: &str) -> Result<&mut Inode, DiskError> {
        let inode = self.names.get(name).and_then(|id| self.inodes.get_mut(id));
        inode.ok_or_else(|| DiskError::new(doing, name, io::ErrorKind::NotFound.into()))
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    /// A file that is removed, or replaced, gives its room back.
    fn give_back(&mut self, name: &str) {
        let bytes =
            self.names.get(name).and_then(|id| self.inodes.get(id)).map_or(0, |inode| inode.data.len());
        self.room = self.room.map(|room| room + bytes as u64);
    }

    /// What a machine crash leaves of a file: its synced bytes, and of the others a beginning,
    /// whose last sector may be garbled and some of whose sectors may never have been written.
    fn crashed(&mut self, inode: Inode) -> Inode {
        let Inode { data, stable, clean } = inode;
        if data.len() == clean && stable.len() > clean && self.up_to(1) == 0 {
            // A cut that did not get to the medium.
            return Inode { data: stable.clone(), clean: stable.len(), stable };
        }
        let end = clean + self.up_to(data.len() - clean);
        let mut left = stable;
        left.truncate(clean);
        left.extend_from_slice(&data[clean..end]);
        if end > clean {
            if self.up_to(1) == 0 {
                let last_sector = ((end - 1) / SECTOR * SECTOR).max(clean);
                let from = last_sector + self.up_to(end - 1 - last_sector);
                for byte in &mut left[from..end] {
                    *byte = self.random() as u8;
                }
            }
            if self.up_to(2) == 0 {
                for sector in clean / SECTOR..=(end - 1) / SECTOR {
                    if self.up_to(3) == 0 {
                        let from = (sector * SECTOR).max(clean);
                        left[from..((sector + 1) * SECTOR).min(end)].fill(0);
                    }
                }
            }
        }
        Inode { clean: left.len(), stable: left.clone(), data: left }
    }
}

impl MemoryDisk {
    /// An empty folder; `seed` decides what crashes leave.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State { random: seed, ..State::default() };
        Self { shared: Arc::new(Mutex::new(state)), life: 0 }
    }

    /// Ends every handle as a machine crash does: synced bytes and names stay, of the others what
    /// the seed decides.
    #[must_use]
    pub fn crash(&self) -> Self {
        let mut state = self.state();
        let kept = state.unsynced_names.len();
        let kept = state.up_to(kept);
        let changes = std::mem::take(&mut state.unsynced_names);
        let mut names = std::mem::take(&mut state.stable_names);
        for change in &changes[..kept] {
            change.apply(&mut names);
        }
        let mut inodes = std::mem::take(&mut state.inodes);
        for id in names.values() {
            if let Some(inode) = inodes.remove(id) {
                let left = state.crashed(inode);
                state.inodes.insert(*id, left);
            }
        }
        state.stable_names = names.clone();
        state.names = names;
        drop(state);
        self.restart()
    }

    /// Ends every handle as the end of a process does: what was written stays, synced or not.
    #[must_use]
    pub fn restart(&self) -> Self {
        let mut state = self.state();
        state.life += 1;
        Self { shared: Arc::clone(&self.shared), life: state.life }
    }

    /// The same files on a disk of their own.
    #[must_use]
    pub fn deep_clone(&self) -> Self {
        Self { shared: Arc::new(Mutex::new(self.state().clone())), life: self.life }
    }

    /// Lets `bytes` more be appended; then the disk is full. `u64::MAX` makes room again.
    pub fn fill_up_after(&self, bytes: u64) {
        self.state().room = Some(bytes).filter(|bytes| *bytes != u64::MAX);
    }

    /// Lets the next `count` syncs fail, of files or of the folder. What a failed sync of a file
    /// was to write is lost for the medium, and later syncs do not know of it.
    pub fn fail_syncs(&self, count: u32) {
        self.fail_syncs_after(0, count);
    }

    /// The same, after `good` more.
    pub fn fail_syncs_after(&self, good: u32, count: u32) {
        let mut state = self.state();
        (state.good_syncs, state.failing_syncs, state.sync_failure) = (good, count, None);
    }

    /// The same, as those fail that find no room: file systems may look for it only then.
    pub fn fill_up_at_sync(&self, good: u32, count: u32) {
        self.fail_syncs_after(good, count);
        self.state().sync_failure = Some(io::ErrorKind::StorageFull);
    }

    /// Lets the next `count` appends fail, half done.
    pub fn fail_appends(&self, count: u32) {
        self.state().failing_appends = count;
    }

    /// Lets all reads of this file fail.
    pub fn fail_reads_of(&self, name: &str) {
        self.state().unreadable = Some(name.to_owned());
    }

    /// Lets `count` reads of files fail, after `good` more.
    pub fn fail_reads_after(&self, good: u32, count: u32) {
        let mut state = self.state();
        (state.good_reads, state.failing_reads, state.are_short) = (good, count, false);
    }

    /// The same, but they give a part of the bytes, as if the file ended there.
    pub fn cut_reads_after(&self, good: u32, count: u32) {
        self.fail_reads_after(good, count);
        self.state().are_short = true;
    }

    /// Syncs and appends that failed as they were told to, or for lack of room.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.state().failures
    }

    /// Syncs of files that succeeded.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Bytes of files that were read.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.state().bytes_read
    }

    /// Changes one byte of a file where it lies, as a failing medium does.
    ///
    /// # Errors
    /// If there is no such file or it is shorter.
    pub fn flip(&self, name: &str, offset: usize, mask: u8) -> Result<(), DiskError> {
        let mut state = self.state();
        let inode = state.inode("flipping a byte of", name)?;
        let error = || DiskError::new("flipping a byte of", name, io::ErrorKind::UnexpectedEof.into());
        *inode.data.get_mut(offset).ok_or_else(error)? ^= mask;
        // What was never synced is not on the medium yet.
        inode.stable.get_mut(offset).into_iter().for_each(|byte| *byte ^= mask);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked has failed already; what it left is still files.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self, doing: &'static str, name: &str) -> Result<MutexGuard<'_, State>, DiskError> {
        let state = self.state();
        if state.life == self.life {
            return Ok(state);
        }
        Err(DiskError::new(doing, name, io::Error::other("the process of this handle has ended")))
    }
}

impl Disk for MemoryDisk {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.alive("listing", "the folder")?.names.keys().cloned().collect())
    }

    fn len(&self, name: &str) -> Result<u64, DiskError> {
        Ok(self.alive("examining", name)?.inode("examining", name)?.data.len() as u64)
    }

    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<usize, DiskError> {
        let mut state = self.alive("reading", name)?;
        let fails = state.fails_read();
        if fails && !state.are_short || state.unreadable.as_deref() == Some(name) {
            return Err(DiskError::new("reading", name, io::Error::other("injected failure")));
        }
        let most = if fails { state.up_to(out.len()) } else { out.len() };
        let data = &state.inode("reading", name)?.data;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
        let len = most.min(data.len() - start);
        out[..len].copy_from_slice(&data[start..start + len]);
        state.bytes_read += len as u64;
        Ok(len)
    }

    fn create(&mut self, name: &str) -> Result<(), DiskError> {
        let mut state = self.alive("creating", name)?;
        if state.names.contains_key(name) {
            return Err(DiskError::new("creating", name, io::ErrorKind::AlreadyExists.into()));
        }
        let id = state.next_inode;
        state.next_inode += 1;
        state.inodes.insert(id, Inode::default());
        state.change_names(NameChange::Create(name.to_owned(), id));
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        let doing = "appending to";
        let mut state = self.alive(doing, name)?;
        let room = state.room.map_or(usize::MAX, |room| usize::try_from(room).unwrap_or(usize::MAX));
        let fails = state.failing_appends > 0;
        let written = if fails { bytes.len() / 2 } else { bytes.len() }.min(room);
        state.inode(doing, name)?.data.extend_from_slice(&bytes[..written]);
        if let Some(room) = &mut state.room {
            *room -= written as u64;
        }
        state.failures += u64::from(written < bytes.len());
        if fails {
            state.failing_appends -= 1;
            return Err(DiskError::new(doing, name, io::Error::other("injected failure")));
        }
        if written < bytes.len() {
            return Err(DiskError::new(doing, name, io::ErrorKind::StorageFull.into()));
        }
        Ok(())
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        let mut state = self.alive("syncing", name)?;
        state.inode("syncing", name)?;
        let failure = state.failing_sync();
        let inode = state.inode("syncing", name)?;
        inode.stable.truncate(inode.clean);
        if failure.is_some() {
            inode.stable.resize(inode.data.len(), 0);
        } else {
            inode.stable.extend_from_slice(&inode.data[inode.clean..]);
        }
        inode.clean = inode.data.len();
        if let Some(failure) = failure {
            // What a crash finds is the medium's, although a reader still sees what was written.
            return Err(DiskError::new("syncing", name, failure));
        }
        state.syncs += 1;
        Ok(())
    }

    fn sync_dir(&mut self) -> Result<(), DiskError> {
        let mut state = self.alive("syncing", "the folder")?;
        if let Some(failure) = state.failing_sync() {
            return Err(DiskError::new("syncing", "the folder", failure));
        }
        state.unsynced_names.clear();
        state.stable_names = state.names.clone();
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        let mut state = self.alive("removing", name)?;
        state.inode("removing", name)?;
        state.give_back(name);
        state.change_names(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut state = self.alive("renaming", from)?;
        state.inode("renaming", from)?;
        state.give_back(to);
        state.change_names(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn truncate(&mut self, name: &str, len: u64) -> Result<(), DiskError> {
        let mut state = self.alive("cutting", name)?;
        let inode = state.inode("cutting", name)?;
        inode.data.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        inode.clean = inode.clean.min(inode.data.len());
        Ok(())
    }

    fn room(&self) -> Result<Option<u64>, DiskError> {
        Ok(self.alive("examining", "the folder")?.room)
    }
}
