//! The memory of a simulated memory node: what it has stored, and what of that can be seen.
//!
//! A store takes effect at once in the *private* image, which the memory node's own loads see, and
//! joins a queue in program order. The scheduler moves stores one by one from the queue to the
//! *visible* image, which READs see. So readers meet every state between two stores although the
//! memory node's code runs in one go.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpcache_fabric::{AccessError, MemoryError, NodeMemory, OutOfBounds, SharedMemory};

use crate::random::Random;

/// How far ahead of the oldest store a younger one may become visible.
const REORDER_WINDOW: usize = 32;

/// Something a memory node did that others can see.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A relaxed store.
    Store { memory: u8, offset: u64, value: u64 },
    /// A store after everything before it.
    Release { memory: u8, offset: u64, value: u64 },
    /// Everything after it is after everything before it.
    Fence,
    /// A reply, which is after everything before it.
    Reply(Reply),
}

/// A reply on its way out.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) connection: usize,
    pub(crate) call: u64,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
struct Queued {
    /// Place in program order.
    number: u64,
    entry: Entry,
}

/// All stores of one memory node, whichever memory they go to.
#[derive(Debug)]
pub(crate) struct Stores {
    /// Which life of the memory node may store; handles of earlier ones are without effect.
    pub(crate) life: u64,
    pub(crate) visible: Vec<Arc<SharedMemory>>,
    /// Replies that have passed the queue.
    pub(crate) replies: Vec<Reply>,
    queue: VecDeque<Queued>,
    /// Entries ever queued.
    issued: u64,
    /// One past the youngest entry that took effect.
    reached: u64,
    /// Stores that became visible, over all lives.
    pub(crate) applied: u64,
    /// Mixed from what became visible; part of the trace.
    pub(crate) hash: u64,
    /// Whether something became visible past the scheduler.
    pub(crate) flushed: bool,
}

/// What became visible: a store or a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Applied {
    Store,
    /// A release, a fence or a reply: a point in the protocol.
    Point,
}

impl Stores {
    pub(crate) fn new(visible: Vec<Arc<SharedMemory>>) -> Self {
        let (queue, replies) = (VecDeque::new(), Vec::new());
        Self { life: 0, visible, replies, queue, issued: 0, reached: 0, applied: 0, hash: 0, flushed: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        let number = self.issued;
        self.issued += 1;
        self.queue.push_back(Queued { number, entry });
    }

    /// Makes one entry take effect: the oldest, or with `reorder` any that nothing orders after an
    /// older one.
    pub(crate) fn apply_one(&mut self, reorder: Option<&mut Random>) -> Option<Applied> {
        let index = match reorder {
            None => 0,
            Some(random) => self.pick(random),
        };
        let queued = self.queue.remove(index)?;
        Some(self.take_effect(queued))
    }

    /// Chooses an entry that may go next.
    fn pick(&self, random: &mut Random) -> usize {
        if !matches!(self.queue.front().map(|queued| &queued.entry), Some(Entry::Store { .. })) {
            return 0;
        }
        // Half the time the oldest, so that no store stays after for ever.
        let steps = if random.below(2) == 0 { 0 } else { random.below(REORDER_WINDOW as u64) as usize };
        let mut chosen = 0;
        for (index, queued) in self.queue.iter().enumerate().take(steps + 1).skip(1) {
            match queued.entry {
                Entry::Fence => break,
                Entry::Release { .. } | Entry::Reply(_) => {}
                Entry::Store { memory, offset, .. } => {
                    let same_word = |older: &Queued| match older.entry {
                        Entry::Store { memory: m, offset: o, .. }
                        | Entry::Release { memory: m, offset: o, .. } => (m, o) == (memory, offset),
                        Entry::Fence | Entry::Reply(_) => false,
                    };
                    if !self.queue.iter().take(index).any(same_word) {
                        chosen = index;
                    }
                }
            }
        }
        chosen
    }

    fn take_effect(&mut self, queued: Queued) -> Applied {
        self.reached = self.reached.max(queued.number + 1);
        let (memory, offset, value, applied) = match queued.entry {
            Entry::Store { memory, offset, value } => (memory, offset, value, Applied::Store),
            Entry::Release { memory, offset, value } => (memory, offset, value, Applied::Point),
            Entry::Fence => return Applied::Point,
            Entry::Reply(reply) => {
                self.replies.push(reply);
                return Applied::Point;
            }
        };
        if let Some(visible) = self.visible.get(usize::from(memory)) {
            // Cannot fail: the private image is as long, and the store was checked there.
            let _ = visible.store_release(offset, value);
        }
        self.applied += 1;
        self.hash = crate::trace::mix(self.hash, offset ^ value.rotate_left(17));
        applied
    }

    /// Makes everything stored so far visible, in order.
    fn flush(&mut self) {
        self.flushed = true;
        while let Some(queued) = self.queue.pop_front() {
            self.take_effect(queued);
        }
    }

    /// The memory node dies. What it leaves is a beginning of its stores in program order, whatever
    /// the order was in which they became visible: a processor finishes what a dead process began.
    /// `further` more entries belong to it.
    pub(crate) fn die(&mut self, further: u64) {
        let end = self.reached.saturating_add(further);
        while self.queue.front().is_some_and(|queued| queued.number < end)
            && let Some(queued) = self.queue.pop_front()
        {
            self.take_effect(queued);
        }
        self.queue.clear();
        self.replies.clear();
        self.reached = self.issued;
        self.life += 1;
    }
}

/// One memory of a simulated memory node, as that memory node sees it in one of its lives.
pub struct SimMemory {
    private: Arc<SharedMemory>,
    stores: Arc<Mutex<Stores>>,
    index: u8,
    life: u64,
}

impl fmt::Debug for SimMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, life, .. } = self;
        f.debug_struct("SimMemory")
            .field("len", &self.len())
            .field("index", index)
            .field("life", life)
            .finish()
    }
}

impl SimMemory {
    /// The memory for a new life, holding what is visible.
    pub(crate) fn inherit(stores: &Arc<Mutex<Stores>>, index: u8) -> Result<Self, MemoryError> {
        let held = lock(stores);
        let visible = &held.visible[usize::from(index)];
        let private = SharedMemory::anonymous(visible.len())?;
        let mut page = [0u64; 512];
        for offset in (0..visible.len()).step_by(size_of_val(&page)) {
            let words = ((visible.len() - offset) / 8).min(page.len());
            let page = &mut page[..words];
            // In bounds by the loop's; pages of zeros stay untouched.
            if visible.read_words(offset as u64, page).is_ok() && page.iter().any(|&word| word != 0) {
                let _ = private.write_words(offset as u64, page);
            }
        }
        Ok(Self { private: Arc::new(private), stores: Arc::clone(stores), index, life: held.life })
    }

    pub(crate) fn private(&self) -> &Arc<SharedMemory> {
        &self.private
    }

    /// Makes everything this memory node has stored visible at once, in all its memories.
    ///
    /// For what is outside simulated memory and must not overtake it: a disk calls this before each
    /// of its writes, else a crash could keep a disk's write and lose a store that came before it.
    /// Readers then never meet the states in between.
    pub fn flush(&self) {
        let mut stores = lock(&self.stores);
        if stores.life == self.life {
            stores.flush();
        }
    }

    /// Stores and fences this memory node has issued so far, over all lives: a place in program
    /// order.
    #[must_use]
    pub fn issued(&self) -> u64 {
        lock(&self.stores).issued
    }

    fn word_at(&self, offset: u64) -> Result<u64, AccessError> {
        self.private.load_relaxed(offset)
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), AccessError> {
        let memory_len = self.len();
        if offset > memory_len || len > memory_len - offset {
            return Err(OutOfBounds { offset, len, memory_len }.into());
        }
        Ok(())
    }

    /// Stores one word, unless it holds the value already: there would be no difference.
    fn store(&self, stores: &mut Stores, offset: u64, value: u64) -> Result<(), AccessError> {
        if self.word_at(offset)? != value {
            self.private.store_relaxed(offset, value)?;
            stores.push(Entry::Store { memory: self.index, offset, value });
        }
        Ok(())
    }

    /// The queue, if this life is not over.
    fn living(&self) -> Option<MutexGuard<'_, Stores>> {
        Some(lock(&self.stores)).filter(|stores| stores.life == self.life)
    }
}

impl NodeMemory for SimMemory {
    fn len(&self) -> u64 {
        self.private.len() as u64
    }

    fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), AccessError> {
        Ok(self.private.read_bytes(offset, out)?)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.check(offset, bytes.len() as u64)?;
        let Some(mut stores) = self.living() else { return Ok(()) };
        let mut rest = bytes;
        let mut at = offset;
        while !rest.is_empty() {
            let skip = (at % 8) as usize;
            let taken = rest.len().min(8 - skip);
            let word_offset = at - skip as u64;
            let mut word = self.word_at(word_offset)?.to_le_bytes();
            word[skip..skip + taken].copy_from_slice(&rest[..taken]);
            self.store(&mut stores, word_offset, u64::from_le_bytes(word))?;
            rest = &rest[taken..];
            at += taken as u64;
        }
        Ok(())
    }

    fn fill_words(&self, offset: u64, count: usize, value: u64) -> Result<(), AccessError> {
        if !offset.is_multiple_of(8) {
            return Err(AccessError::Misaligned { offset });
        }
        self.check(offset, (count as u64).saturating_mul(8))?;
        let Some(mut stores) = self.living() else { return Ok(()) };
        (0..count as u64).try_for_each(|index| self.store(&mut stores, offset + index * 8, value))
    }

    fn load_relaxed(&self, offset: u64) -> Result<u64, AccessError> {
        self.private.load_relaxed(offset)
    }

    fn load_acquire(&self, offset: u64) -> Result<u64, AccessError> {
        self.private.load_acquire(offset)
    }

    fn store_relaxed(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.word_at(offset)?;
        let Some(mut stores) = self.living() else { return Ok(()) };
        self.store(&mut stores, offset, value)
    }

    fn store_release(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.word_at(offset)?;
        let Some(mut stores) = self.living() else { return Ok(()) };
        self.private.store_relaxed(offset, value)?;
        stores.push(Entry::Release { memory: self.index, offset, value });
        Ok(())
    }

    fn flush(&self) {
        Self::flush(self);
    }

    fn release(&self) {
        if let Some(mut stores) = self.living() {
            stores.push(Entry::Fence);
        }
    }
}

/// Nothing that panics runs under this lock, so a poisoned one holds whole data.
pub(crate) fn lock(stores: &Mutex<Stores>) -> MutexGuard<'_, Stores> {
    stores.lock().unwrap_or_else(PoisonError::into_inner)
}
