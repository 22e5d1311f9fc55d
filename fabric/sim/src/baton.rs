//! The baton: of all threads of a world its holder runs, the others are parked.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::event::Event;
use crate::parker::Parker;
use crate::process_state::{OUTSIDE, Outcome, Wait};
use crate::state::State;
use crate::time::Time;

/// The payload of a dead process's unwinding: no panic, and no panic hook sees it.
pub(crate) struct Dead;

/// The state that all handles of a world share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) time: Arc<Time>,
    /// The parker of the thread in [`run`](crate::World::run).
    pub(crate) conductor: Mutex<Arc<Parker>>,
}

impl Shared {
    pub(crate) fn new(state: State) -> Self {
        let time = Arc::clone(&state.time);
        Self { state: Mutex::new(state), time, conductor: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // What a service or a start panics with is caught inside; a panic of the scheduler itself
        // has no better reporter than the thread that looks next.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    pub(crate) fn conductor(&self) -> Arc<Parker> {
        Arc::clone(&self.conductor.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a fabric call: `None` if the caller is dead and only runs its destructors. A caller
    /// whose time has come does not return: it unwinds.
    pub(crate) fn begin(&self) -> Option<MutexGuard<'_, State>> {
        let mut state = self.lock();
        if state.is_dead() {
            return None;
        }
        state.step();
        if state.is_dead() {
            drop(state);
            std::panic::resume_unwind(Box::new(Dead));
        }
        Some(state)
    }

    /// Has the running slot wait, and runs the world meanwhile.
    ///
    /// # Panics
    /// If the world stops while it is used from outside.
    pub(crate) fn wait<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        wait: Wait,
        deadline: Option<u64>,
    ) -> (MutexGuard<'s, State>, Outcome) {
        let me = state.running;
        state.begin_wait(wait, deadline);
        let crash_client = state.faults.crash_client;
        if me != OUTSIDE && state.random.happens(crash_client) {
            // What it asked for is on its way already.
            state.kill(me);
        }
        let next = state.advance();
        if next != Some(me) {
            let mine = Arc::clone(&state.slots[me].parker);
            let next = match next {
                Some(next) => Arc::clone(&state.slots[next].parker),
                None if me == OUTSIDE => {
                    let report = state.describe_stop();
                    drop(state);
                    // Documented: from outside there is no other way to tell.
                    panic!("{report}");
                }
                None => self.conductor(),
            };
            drop(state);
            next.wake();
            mine.park();
            state = self.lock();
        }
        if state.is_dead() {
            drop(state);
            std::panic::resume_unwind(Box::new(Dead));
        }
        let outcome = state.slots[me].outcome;
        (state, outcome)
    }

    /// Lets time pass for the caller.
    pub(crate) fn sleep(&self, nanos: u64) {
        if self.time.in_service.load(Ordering::Relaxed) {
            // A memory node that sleeps keeps all processes waiting: its loop is one thread, and
            // the world stands still while its code runs.
            self.time.pass(nanos);
            return;
        }
        if let Some(state) = self.begin() {
            drop(self.sleep_in(state, nanos));
        }
    }

    pub(crate) fn sleep_in<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        nanos: u64,
    ) -> MutexGuard<'s, State> {
        let waiter = state.waiter();
        state.schedule(nanos, Event::Wake(waiter));
        self.wait(state, Wait::Sleep, None).0
    }
}
