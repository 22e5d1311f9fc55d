//! Lookups by the threads that serve sockets, which read a table as a client with a mapped region
//! does.
//!
//! Each table has a view of its own for this, with models and parameters read from its region. One
//! thread for all tables, the *follower*, applies the change log to the views. The answering
//! threads only read a view. If it is out of date they decline, notify the follower, and the client
//! does the lookup itself. So no lookup waits for the thread that writes, and none takes longer
//! than its keys need.

mod follower;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use fpcache::Refresh;
use fpcache::key_space::{BuildKeys, KeySpace};
use fpcache::matching::Matcher;
use fpcache::plan::{Plan, PlanChoice};
use fpcache::read::{LookupScratch, Replied, answer};
use fpcache::table::{Table, TableOptions};
use fpcache::table_view::{OpenError, TableView};
use fpcache_fabric::{Another, Answered, Answers, Export, FabricError, RegionReader, ThreadMemory};

pub use follower::{Follower, Following};
use follower::{FollowerTask, Follows, MODEL_BYTES, ModelBytes, no_room};

/// How soon a table is looked at again that could not be opened or brought up to date.
const REST: Duration = Duration::from_millis(100);

/// A table's view of itself, by endpoints of this kind.
struct View<K: KeySpace, E: Another> {
    weak_self: Weak<Self>,
    open: Opens<E>,
    options: TableOptions,
    follower: Follower,
    /// No thread keeps it from one question to the next. What is outdated is freed by the follower,
    /// which replaces it, or which is given it by the last one who was answering with it.
    known: RwLock<Option<Arc<AnsweringTable<K, E>>>>,
    /// Whether the follower has been told and has not begun.
    is_notified: AtomicBool,
    following: Mutex<FollowedView<E>>,
}

/// Gives endpoints that read a region.
type Opens<E> = Box<dyn Fn() -> Result<RegionReader<E>, FabricError> + Send + Sync>;

/// The table to answer with, and its reader.
#[derive(Debug)]
struct AnsweringTable<K: KeySpace, E> {
    table: Table<K>,
    /// That of others is made.
    reader: RegionReader<E>,
}

/// What the follower has for a table.
#[derive(Debug)]
struct FollowedView<E> {
    endpoint: Option<RegionReader<E>>,
    charge: ModelBytes,
    rests_until: Option<Instant>,
}

impl<K: KeySpace, E: Another> fmt::Debug for View<K, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The same region, about which questions are answered.
pub(crate) fn answering<K: BuildKeys>(export: Export, follower: &Follower) -> Export {
    // Of the region; without answers, which this is.
    let region = export.clone();
    export.with_answers(answers::<K, _>(move || region.reader(), follower))
}

/// What answers questions for the keys of a region's table, of which `open` gives readers. It has
/// them brought up to date by `follower`, and looks at the region and the follower's clock alone.
pub fn answers<K: BuildKeys, E: Another>(
    open: impl Fn() -> Result<RegionReader<E>, FabricError> + Send + Sync + 'static,
    follower: &Follower,
) -> Arc<dyn Answers> {
    View::<K, E>::of(Box::new(open), follower, options())
}

/// The same, broken if this is the break.
#[cfg(feature = "sabotage")]
pub fn sabotaged_answers<K: BuildKeys, E: Another>(
    open: impl Fn() -> Result<RegionReader<E>, FabricError> + Send + Sync + 'static,
    follower: &Follower,
    sabotage: Option<fpcache::sabotage::Sabotage>,
) -> Arc<dyn Answers> {
    use fpcache::sabotage::Sabotage::{AnswersUnproven, NoReuseCheck};
    let sabotage = sabotage.filter(|it| *it == AnswersUnproven).map(|_| NoReuseCheck);
    View::<K, E>::of(Box::new(open), follower, TableOptions { sabotage, ..options() })
}

/// The plan that keeps nothing beside the models.
fn options() -> TableOptions {
    TableOptions::plan(PlanChoice::Fixed(Plan::TwoStage))
}

impl<K: BuildKeys, E: Another> Answers for View<K, E> {
    fn answer(&self, memory: &mut ThreadMemory, question: &[u8], reply: &mut [u64]) -> Answered {
        let Some(known) = self.known() else { return Answered::default() };
        let scratch = memory.of(|| LookupScratch::<K>::new(Matcher::detect()));
        let replied = answer(&mut known.reader.another(), &known.table, scratch, question, reply);
        if let Some(last) = Arc::into_inner(known) {
            // It was replaced meanwhile.
            self.follower.tell(FollowerTask::Unused(Box::new(last)));
        }
        let Replied { words, bytes, is_outdated } = replied;
        if is_outdated {
            self.tell_follower();
        }
        Answered { words, cost: bytes }
    }
}

impl<K: BuildKeys, E: Another> View<K, E> {
    fn of(open: Opens<E>, follower: &Follower, options: TableOptions) -> Arc<Self> {
        let charge = ModelBytes::nothing(follower);
        Arc::new_cyclic(|weak_self| Self {
            weak_self: Weak::clone(weak_self),
            open,
            options,
            follower: follower.clone(),
            known: RwLock::default(),
            is_notified: AtomicBool::new(false),
            following: Mutex::new(FollowedView { endpoint: None, charge, rests_until: None }),
        })
    }

    /// The table to answer with, unless it is being replaced. Does not block; tells the follower if
    /// there is nothing.
    fn known(&self) -> Option<Arc<AnsweringTable<K, E>>> {
        let known = match self.known.try_read() {
            Ok(known) => known.clone(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if known.is_none() {
            self.tell_follower();
        }
        known
    }

    /// Has the follower look at this table, if it is not about to.
    #[cold]
    fn tell_follower(&self) {
        if !self.is_notified.swap(true, Ordering::AcqRel) {
            let weak_self: Weak<Self> = Weak::clone(&self.weak_self);
            self.follower.tell(FollowerTask::Outdated(weak_self));
        }
    }

    /// Replaces the table to answer with. The old one is freed by the caller, the follower, unless
    /// a thread is answering with it.
    fn put(&self, known: Option<AnsweringTable<K, E>>) {
        let mut place = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, known.map(Arc::new));
        drop(place);
        drop(old);
    }

    /// Brings the view up to date, or opens it.
    fn look(&self, pursuit: &mut FollowedView<E>) -> Result<(), OpenError> {
        let FollowedView { endpoint, charge, .. } = pursuit;
        let endpoint = match endpoint {
            Some(endpoint) => endpoint,
            none => none.insert((self.open)()?),
        };
        // Others answer with it meanwhile; only this thread replaces it.
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        let refreshed = known.map(|known| known.table.view().refresh(endpoint)).transpose()?;
        let view = match refreshed {
            Some(Refresh::Current) => return Ok(()),
            // It shares with the old one what has not changed.
            Some(Refresh::Newer(view)) => view,
            Some(Refresh::Lost) | None => {
                self.put(None);
                charge.resize(0)?;
                let others = self.follower.shared.model_bytes.load(Ordering::Relaxed);
                // While it is opened there is all of it twice.
                TableView::open_within(endpoint, MODEL_BYTES.saturating_sub(others) / 2)?
            }
        };
        let bytes = view.model_bytes() as u64;
        if view.models().paged().is_some() {
            return Err(no_room(bytes));
        }
        charge.resize(bytes)?;
        let reader = endpoint.another();
        self.put(Some(AnsweringTable { table: Table::over(view, &self.options)?, reader }));
        Ok(())
    }
}

impl<K: BuildKeys, E: Another> Follows for View<K, E> {
    fn follow(&self) {
        // Before the view is read: a thread that finds out more notifies again.
        self.is_notified.store(false, Ordering::Release);
        let clock = &*self.follower.shared.clock;
        let mut pursuit = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        if pursuit.rests_until.is_some_and(|until| clock.now() < until) {
            return;
        }
        pursuit.rests_until = match self.look(&mut pursuit) {
            Ok(()) | Err(OpenError::Moving { .. }) => None,
            Err(OpenError::Fabric(FabricError::OutOfBounds { .. })) => None,
            Err(_) => {
                self.put(None);
                let _ = pursuit.charge.resize(0);
                Some(clock.now() + REST)
            }
        };
    }
}

impl<K: KeySpace, E: Another> Drop for View<K, E> {
    /// The last one who has it may be a thread that has just answered: models that may take long to
    /// free are the follower's.
    fn drop(&mut self) {
        let known = self.known.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let pursuit = self.following.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known {
            let charge = std::mem::replace(&mut pursuit.charge, ModelBytes::nothing(&self.follower));
            self.follower.tell(FollowerTask::Unused(Box::new((known, charge))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache::fingerprint::FingerprintWidth;
    use fpcache::key_space::{KeySpace, U64Keys};
    use fpcache::layout::{RecordShape, TableParameters};
    use std::sync::mpsc::{Receiver, channel};

    use fpcache_fabric::{HugePages, MappedEndpoint, SharedMemory};

    use crate::node::MemoryNode;

    /// A memory node with a table of this many keys, and its region's export.
    fn node(keys: u32) -> (MemoryNode<U64Keys>, Export) {
        let (region, fd) = SharedMemory::create_memfd("test", 32 << 20, HugePages::No).unwrap();
        let mut node = MemoryNode::<U64Keys>::new(Arc::new(region), 1, 0, Instant::now()).unwrap();
        let parameters = TableParameters { shape: RecordShape::fixed(8, 8), ..TableParameters::default() };
        let value = |number: usize, out: &mut [u8]| out.copy_from_slice(&number.to_le_bytes());
        node.load(parameters, (0..keys).map(|key| u64::from(key) << 20), value).unwrap();
        let export = Export::new(node.region(), fd, 1).unwrap();
        (node, export)
    }

    type Mapped = View<U64Keys, MappedEndpoint>;

    fn view(export: Export, follower: &Follower) -> Arc<Mapped> {
        Mapped::of(Box::new(move || export.reader()), follower, options())
    }

    fn ask(view: &Mapped, memory: &mut ThreadMemory, key: u64) -> Option<u64> {
        let question = [&[1, 0, 0, 0, 1, 0, 0, 0][..], &key.to_le_bytes()].concat();
        let mut reply = [0; 2];
        let answered = view.answer(memory, &question, &mut reply);
        (answered.words == 2).then_some(reply[1])
    }

    fn ask_until_answered(view: &Mapped, memory: &mut ThreadMemory, key: u64) -> u64 {
        let began = Instant::now();
        loop {
            if let Some(value) = ask(view, memory, key) {
                return value;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "nothing is answered");
            std::thread::yield_now();
        }
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::yield_now();
        }
    }

    /// Keys of one window whose fingerprints are alike had all of its slots copied, for each of
    /// them, and kept.
    #[test]
    fn keys_whose_fingerprints_collide_have_no_megabytes_looked_at() {
        let width = FingerprintWidth::Bits8;
        let print = |key: &u64| width.of_hash(U64Keys::hash(key));
        let alike = |from: u64| (from..).find(|key| print(key) == 77).unwrap();
        // Not on a line: windows are dozens of slots wide.
        let keys: Vec<u64> = (0..3000).map(|i| alike((i * i) << 12)).collect();
        let other = (1..).find(|key| print(key) != 77).unwrap();
        let mut there = keys.clone();
        there.push(other);
        there.sort_unstable();
        let (region, fd) = SharedMemory::create_memfd("test", 32 << 20, HugePages::No).unwrap();
        let mut node = MemoryNode::<U64Keys>::new(Arc::new(region), 1, 0, Instant::now()).unwrap();
        let shape = RecordShape::fixed(8, 1000);
        let parameters = TableParameters { shape, width, epsilon: 4096, ..TableParameters::default() };
        node.load(parameters, there.iter().copied(), |_, out: &mut [u8]| out.fill(7)).unwrap();
        let export = Export::new(node.region(), fd, 1).unwrap();
        let view = view(export, &Follower::default());
        let ask = |memory: &mut ThreadMemory, keys: &[u64]| {
            let head = [1, 0, 0, 0, keys.len() as u8, 0, 0, 0];
            let question: Vec<u8> =
                head.into_iter().chain(keys.iter().flat_map(|key| key.to_le_bytes())).collect();
            let mut reply = [0; 4000];
            let Answered { words, cost } = view.answer(memory, &question, &mut reply);
            (reply[..words].to_vec(), cost)
        };
        for matcher in Matcher::available() {
            let mut memory = ThreadMemory::default();
            memory.of(|| LookupScratch::<U64Keys>::new(matcher));
            until("it is answered", || !ask(&mut memory, &[other]).0.is_empty());
            let (reply, cost) = ask(&mut memory, &keys[1500..1501]);
            assert!(reply.len() == 126 && cost > 25 << 10, "{cost} looked at");
            // As many as may be asked for, of which each would have as much looked at.
            let (mut reply, cost) = ask(&mut memory, &keys[1500..1526]);
            assert!(cost > 256 << 10 && cost <= 512 << 10, "{cost} looked at");
            let mut statuses = Vec::new();
            while let Some(head) = reply.first() {
                statuses.push(head & 0xff);
                reply.drain(..1 + (head >> 8 & 0xff_ffff).div_ceil(8) as usize);
            }
            let answered = statuses.iter().filter(|status| **status == 1).count();
            assert!(statuses.len() == 26 && (1..16).contains(&answered), "{statuses:?}");
            let scratch = memory.of(|| LookupScratch::<U64Keys>::new(matcher));
            assert!(scratch.kept_bytes() <= 256 << 10, "{} kept", scratch.kept_bytes());
        }
    }

    /// Threads that had answered kept the models they had answered with, which were not counted,
    /// and the seventeenth thread found the first one's place taken.
    #[test]
    fn threads_that_have_answered_keep_no_models() {
        let (_node, export) = node(1000);
        let follower = Follower::default();
        let view = view(export, &follower);
        let mut memories: Vec<ThreadMemory> = (0..40).map(|_| ThreadMemory::default()).collect();
        for memory in &mut memories {
            assert_eq!(ask_until_answered(&view, memory, 5 << 20), 5);
        }
        let held = || follower.shared.model_bytes.load(Ordering::Relaxed);
        assert!(held() > 0);
        view.put(None);
        view.is_notified.store(true, Ordering::Release);
        assert!(memories.iter_mut().all(|memory| ask(&view, memory, 5 << 20).is_none()));
        view.is_notified.store(false, Ordering::Release);
        drop(view);
        until("the models' bytes are given back", || held() == 0);
    }

    /// A table that is dropped while a thread answers about it had that thread free its models.
    #[test]
    fn models_are_freed_by_the_follower() {
        let (_node, export) = node(1000);
        let follower = Follower::default();
        let view = view(export, &follower);
        ask_until_answered(&view, &mut ThreadMemory::default(), 5 << 20);
        let held = || follower.shared.model_bytes.load(Ordering::Relaxed);
        // The follower is kept busy, so that what it is given waits.
        #[derive(Debug)]
        struct Held(Receiver<()>);
        impl Drop for Held {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        let (release, held_back) = channel();
        follower.tell(FollowerTask::Unused(Box::new(Held(held_back))));
        drop(view);
        assert!(held() > 0, "the last one who had it freed its models");
        release.send(()).unwrap();
        until("they are freed", || held() == 0);
    }
}
