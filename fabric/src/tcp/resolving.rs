//! Host name resolution, which may take any time: one is under way for each name, however many
//! callers want its answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::address::error::TcpAddressError;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::lock::lock;

type ResolvedName = Result<Vec<SocketAddr>, TcpAddressError>;

/// A name as one process asks for it: a child that was forked meanwhile has none of its parent's
/// threads.
type NameInProcess = (u32, String);

type Questions = Mutex<BTreeMap<NameInProcess, Arc<Question>>>;

/// Those under way, by the process that asks them: a forked child finds the lock held for ever that
/// a thread of its parent held meanwhile, and is likely to have another.
static UNDER_WAY: [Questions; 64] = [const { Mutex::new(BTreeMap::new()) }; 64];
/// How long a caller sleeps who finds it held.
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// A question to the resolver, which a thread of its own waits for: a resolver cannot be told to
/// stop.
#[derive(Debug, Default)]
struct Question {
    answer: Mutex<Option<ResolvedName>>,
    is_answered: Condvar,
}

/// Ends a question when it is dropped, also by a panic.
struct ResolveGuard {
    asked: NameInProcess,
    question: Arc<Question>,
    answer: Option<ResolvedName>,
}

/// The answer of `resolver` for a name, or that of another call's which was under way already,
/// within the time given.
pub(super) fn resolve(
    name: String,
    resolver: impl FnOnce() -> ResolvedName + Send + 'static,
    patience: Duration,
) -> Result<ResolvedName, FabricError> {
    let deadline = Deadline::after(patience);
    let asked = (std::process::id(), name);
    let question = question_of(under_way_in(asked.0), asked, resolver, deadline)?;
    let mut answer = lock(&question.answer);
    loop {
        if let Some(answer) = &*answer {
            return Ok(answer.clone());
        }
        // An hour is as good as for ever: it looks again.
        let left = deadline.remaining(Instant::now()).unwrap_or(Duration::from_secs(3600));
        if left.is_zero() {
            return Err(too_late());
        }
        answer = question.is_answered.wait_timeout(answer, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn too_late() -> FabricError {
    FabricError::DeadlinePassed { waiting_for: "the resolver of the memory node's name" }
}

fn under_way_in(process: u32) -> &'static Questions {
    &UNDER_WAY[process as usize % UNDER_WAY.len()]
}

/// The question that is under way, or a new one.
fn question_of(
    all: &Questions,
    asked: NameInProcess,
    resolver: impl FnOnce() -> ResolvedName + Send + 'static,
    deadline: Deadline,
) -> Result<Arc<Question>, FabricError> {
    let mut under_way = loop {
        match all.try_lock() {
            Ok(under_way) => break under_way,
            Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if deadline.has_passed(Instant::now()) => return Err(too_late()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN_TRIES),
        }
    };
    if let Some(question) = under_way.get(&asked) {
        return Ok(Arc::clone(question));
    }
    let question = Arc::<Question>::default();
    let asking = ResolveGuard { asked: asked.clone(), question: Arc::clone(&question), answer: None };
    under_way.insert(asked, Arc::clone(&question));
    // A thread that cannot be started drops what it was to do, which takes the lock.
    drop(under_way);
    std::thread::Builder::new()
        .name("fpcache-resolve".to_owned())
        .spawn(move || asking.ask(resolver))
        .map_err(|source| FabricError::os("starting a thread to resolve a name", source))?;
    Ok(question)
}

impl ResolveGuard {
    fn ask(mut self, resolver: impl FnOnce() -> ResolvedName) {
        self.answer = Some(resolver());
    }
}

impl Drop for ResolveGuard {
    fn drop(&mut self) {
        lock(under_way_in(self.asked.0)).remove(&self.asked);
        let why = || TcpAddressError::UnknownHost {
            address: self.asked.1.clone(),
            why: "the resolver could not be asked".to_owned(),
        };
        *lock(&self.question.answer) = Some(self.answer.take().unwrap_or_else(|| Err(why())));
        self.question.is_answered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    /// Each call had a thread and a socket of its own, which outlived it.
    #[test]
    fn calls_that_end_while_the_resolver_is_silent_leave_one_thread_behind() {
        let name = || "tcp://one-thread.example:1".to_owned();
        let begun = Arc::new(AtomicUsize::new(0));
        let (speak, silent) = mpsc::channel::<()>();
        let silent = Arc::new(Mutex::new(silent));
        let here = SocketAddr::from(([127, 0, 0, 1], 1));
        let ask = |patience| {
            let (begun, silent) = (Arc::clone(&begun), Arc::clone(&silent));
            let resolver = move || {
                begun.fetch_add(1, Ordering::Relaxed);
                let _ = lock(&silent).recv();
                Ok(vec![here])
            };
            resolve(name(), resolver, patience)
        };
        for _ in 0..10 {
            let error = ask(SOON).unwrap_err();
            assert!(matches!(error, FabricError::DeadlinePassed { .. }), "{error}");
            assert!(error.to_string().contains("resolver"), "{error}");
        }
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ask(LONG));
            drop(speak);
            assert_eq!(waiting.join().unwrap().unwrap(), Ok(vec![here]));
        });
        assert!(begun.load(Ordering::Relaxed) <= 2, "one, and another if the last call came after its end");
    }

    #[test]
    fn a_resolver_that_panics_is_an_answer_and_the_next_call_asks_anew() {
        let name = || "tcp://panics.example:1".to_owned();
        assert!(resolve(name(), || panic!("no answer"), LONG).unwrap().is_err());
        let here = vec![SocketAddr::from(([127, 0, 0, 1], 1))];
        let told = here.clone();
        assert_eq!(resolve(name(), || Ok(told), LONG).unwrap(), Ok(here));
    }

    /// It waited for a lock without end that a thread of the process's parent had held when it was
    /// forked.
    #[test]
    fn a_lock_that_nobody_gives_back_costs_the_deadline_and_no_more() {
        let all = Questions::default();
        let _held = lock(&all);
        let deadline = Deadline::after(SOON);
        let asked = (1, "tcp://held.example:1".to_owned());
        let error = question_of(&all, asked, || panic!("not asked"), deadline).unwrap_err();
        assert!(matches!(error, FabricError::DeadlinePassed { .. }), "{error}");
    }
}
