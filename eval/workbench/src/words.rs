//! Simulated memory for the systems that are compared: nodes as words, requests with the bytes of
//! the published layout.
//!
//! A key and a value take a word each here, however long they are; a request says how many bytes
//! its layout would move. So the index code really runs and 60 M records fit a laptop, while cards
//! see published sizes.

mod memory;
mod over_words;

use std::ops::Range;

use crate::bench::{Answer, Operation};
use crate::local_locks::{Claim, LocalLocks};
use crate::nic::{Picos, Request, Target, Verb};
pub use memory::{Address, Memory};
pub use over_words::OverWords;

/// What a request does to words.
#[derive(Clone, Copy, Debug)]
enum Effect {
    Read,
    Write,
    /// Stores the last operand's bits under the mask if the bits under it are as expected.
    CompareSwap,
    /// Adds one.
    Add,
    /// Has a processor take the words, and brings back what it makes of them.
    Tell(Target),
}

#[derive(Clone, Copy, Debug)]
struct Part {
    /// The request it belongs to.
    request: usize,
    effect: Effect,
    at: Address,
    /// Where in the buffer its words are.
    first: usize,
    words: usize,
}

/// A doorbell batch over words.
#[derive(Clone, Debug, Default)]
pub struct Trip {
    requests: Vec<Request>,
    parts: Vec<Part>,
    /// Words that land, and operands; some lie beyond what is used.
    buffer: Vec<u64>,
    used: usize,
}

/// Where in a trip's buffer words have landed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Landed {
    first: usize,
    words: usize,
}

impl Landed {
    /// With what landed right after it.
    pub fn with(self, next: Self) -> Self {
        debug_assert_eq!(self.first + self.words, next.first);
        Self { first: self.first, words: self.words + next.words }
    }
}

impl Trip {
    fn clear(&mut self) {
        self.requests.clear();
        self.parts.clear();
        self.used = 0;
    }

    /// Room for `words` more words, in which earlier ones may stand.
    fn room(&mut self, words: usize) -> &mut [u64] {
        let first = self.used;
        self.used += words;
        if self.buffer.len() < self.used {
            self.buffer.resize(self.used, 0);
        }
        &mut self.buffer[first..self.used]
    }

    /// Sends words to a node's processor, which [receives](Index::receive) them when they arrive: a
    /// call, or a WRITE into a ring that it looks into. What it makes of them lands.
    pub fn tell(&mut self, to: Target, verb: Verb, words: &[u64], bytes: usize) -> Landed {
        self.requests.push(Request { to, verb, bytes: bytes as u32 });
        let landed = self.part(Effect::Tell(to), 0, words.len());
        self.room(words.len()).copy_from_slice(words);
        landed
    }

    fn request(&mut self, at: Address, verb: Verb, bytes: u32) {
        self.requests.push(Request { to: Memory::node_of(at), verb, bytes });
    }

    fn part(&mut self, effect: Effect, at: Address, words: usize) -> Landed {
        let (first, request) = (self.used, self.requests.len() - 1);
        self.parts.push(Part { request, effect, at, first, words });
        Landed { first, words }
    }

    /// READs `words` words, which are `bytes` bytes of the layout.
    pub fn read(&mut self, at: Address, words: usize, bytes: usize) -> Landed {
        self.request(at, Verb::Read, bytes as u32);
        self.and_read(at, words)
    }

    /// READs words with the last request: they are among its bytes.
    pub fn and_read(&mut self, at: Address, words: usize) -> Landed {
        let landed = self.part(Effect::Read, at, words);
        self.room(words);
        landed
    }

    /// WRITEs words, which are `bytes` bytes of the layout.
    pub fn write(&mut self, at: Address, words: &[u64], bytes: usize) {
        self.request(at, Verb::Write, bytes as u32);
        self.and_write(at, words);
    }

    /// WRITEs words with the last request: they are among its bytes.
    pub fn and_write(&mut self, at: Address, words: &[u64]) {
        self.part(Effect::Write, at, words.len());
        self.room(words.len()).copy_from_slice(words);
    }

    /// Adds one to a word; the old one lands.
    pub fn fetch_add(&mut self, at: Address) -> Landed {
        self.request(at, Verb::Atomic, 8);
        let landed = self.part(Effect::Add, at, 1);
        self.room(1);
        landed
    }

    /// Stores the bits of `new` under `mask` if the word's bits there are those of `expected`; the
    /// old word lands.
    pub fn compare_swap(&mut self, at: Address, (expected, new): (u64, u64), mask: u64) -> Landed {
        self.request(at, Verb::Atomic, 8);
        let landed = self.part(Effect::CompareSwap, at, 1);
        self.room(4).copy_from_slice(&[0, expected, new, mask]);
        landed
    }

    /// The same of a word in the memory of the node's card.
    pub fn compare_swap_on_chip(&mut self, at: Address, (expected, new): (u64, u64), mask: u64) -> Landed {
        let landed = self.compare_swap(at, (expected, new), mask);
        if let Some(request) = self.requests.last_mut() {
            request.verb = Verb::AtomicOnChip;
        }
        landed
    }

    /// Whether it WRITEs anything.
    fn writes(&self) -> bool {
        self.parts.iter().any(|part| matches!(part.effect, Effect::Write))
    }

    /// What has landed.
    pub fn words(&self, landed: Landed) -> &[u64] {
        debug_assert!(landed.first + landed.words <= self.used, "of another trip");
        &self.buffer[landed.first..landed.first + landed.words]
    }

    /// The first word that has.
    pub fn word(&self, landed: Landed) -> u64 {
        debug_assert!(landed.first < self.used, "of another trip");
        self.buffer[landed.first]
    }

    /// Has this machine fetch what they touch until they are served, which is many events later.
    fn prefetch(&self, memory: &Memory) {
        for part in &self.parts {
            if !matches!(part.effect, Effect::Tell(_)) {
                memory.prefetch(part.at, part.words);
            }
        }
    }

    /// Has these requests done.
    fn serve<I: Index>(&mut self, index: &mut I, memory: &mut Memory, requests: Range<usize>) {
        for part in self.parts.iter().filter(|part| requests.contains(&part.request)) {
            let buffer = &mut self.buffer[part.first..];
            if let Effect::Tell(to) = part.effect {
                index.receive(to, &mut buffer[..part.words], memory);
                continue;
            }
            let words = memory.words_mut(part.at, part.words);
            match part.effect {
                Effect::Read => buffer[..part.words].copy_from_slice(words),
                Effect::Write => words.copy_from_slice(&buffer[..part.words]),
                Effect::Add => {
                    buffer[0] = words[0];
                    words[0] += 1;
                }
                Effect::Tell(_) => {}
                Effect::CompareSwap => {
                    let [old, expected, new, mask] = &mut buffer[..4] else { continue };
                    *old = words[0];
                    if *old & *mask == *expected & *mask {
                        words[0] = *old & !*mask | *new & *mask;
                    }
                }
            }
        }
    }
}

/// What an operation of an [`Index`] wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The trip.
    Trip,
    /// The trip, if there is anything in it, and then its turn for the lock that it has
    /// [claimed](Turn::claim).
    Waits,
    /// Nothing: here is the answer.
    Done(Answer),
}

impl Next {
    /// The end of an operation whose key is not there.
    pub fn absent(operation: Operation) -> Self {
        Self::Done(match operation {
            Operation::Update { .. } => Answer::Absent,
            _ => Answer::Value(None),
        })
    }

    /// The end of a write; of an update, whether the key was there.
    pub fn written(is_there: bool) -> Self {
        Self::Done(match is_there {
            true => Answer::Written,
            false => Answer::Absent,
        })
    }
}

/// An operation's turn.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The compute node.
    pub compute: usize,
    /// What is wanted.
    pub operation: Operation,
    /// What its last trip has brought.
    pub landed: &'a Trip,
    /// Its next one, empty so far.
    pub trip: &'a mut Trip,
    /// The nodes: what indexes give out of it, and what they know of it without asking.
    pub memory: &'a mut Memory,
    client: usize,
    locks: &'a mut LocalLocks,
}

impl Turn<'_> {
    /// Wants a remote lock: whether to try it, to wait, or to go on as its holder. The same after a
    /// try in vain, and after waiting.
    pub fn claim(&mut self, lock: Address) -> Claim {
        self.locks.claim(self.client, self.compute, lock)
    }

    /// The lock that it holds ends with this trip, which WRITEs this word into it unless another
    /// client has it next.
    pub fn unlock(&mut self, lock: Address, word: u64, bytes: usize) {
        if !self.locks.end(self.client) {
            self.trip.write(lock, &[word], bytes);
        }
    }

    /// The same of a lock that the trip has WRITTEN among other words: of indexes that hand nothing
    /// over.
    pub fn has_unlocked(&mut self) {
        self.locks.end(self.client);
    }

    /// It wants the lock no longer, which it has not got.
    pub fn give_up(&mut self) {
        self.locks.give_up(self.client);
    }
}

/// An index over words.
pub trait Index {
    /// An operation under way.
    type Task: Default;

    /// Makes a task that of an operation which begins. One may keep its buffers.
    fn clear(task: &mut Self::Task) {
        *task = Self::Task::default();
    }

    /// Goes on: takes what has landed and fills the next trip.
    fn step(&mut self, task: &mut Self::Task, turn: &mut Turn<'_>) -> Next;

    /// A node's processor takes words that a client [tells](Trip::tell) it, and leaves its reply in
    /// their place.
    fn receive(&mut self, to: Target, words: &mut [u64], memory: &mut Memory) {
        let _ = (to, words, memory);
    }

    /// What a memory node's processor begins to do of itself: the node, and a core's time for it.
    fn next_background(&mut self) -> Option<(u16, Picos)> {
        None
    }

    /// It has ended.
    fn end_background(&mut self, memory: &mut Memory) {
        let _ = memory;
    }

    /// Bytes on the fullest compute node: what its budget is for, and what is left out of it, but
    /// the [table for delegation](crate::delegation::TABLE_BYTES), which is added.
    fn compute_bytes(&self) -> (u64, u64);

    /// Whether clients of a compute node that want one key at a time have one of them look it up,
    /// or write it, for all.
    fn shares_work(&self) -> bool {
        false
    }

    /// How many times in a row clients of a compute node hand a remote lock over.
    fn handovers(&self) -> u32 {
        0
    }
}
