//! A world: memory nodes, processes, and running them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fpcache_fabric::{Deadline, FabricError, MemoryError, Service, SharedMemory};

use crate::baton::{Dead, Shared};
use crate::clock::SimClock;
use crate::connection::SimConnection;
use crate::event::Event;
use crate::memory::lock;
use crate::names::{NodeId, ProcessId};
use crate::node::{Node, NodeDeath};
use crate::options::{NodeOptions, SimOptions};
use crate::panics::message;
use crate::parker::Parker;
use crate::process_state::{OUTSIDE, ProcessSlot, Status, Stop, Waiter};
use crate::random::Random;
use crate::report::{FailureKind, RunFailure, RunReport};
use crate::start::{self, NodeStart};
use crate::state::State;
use crate::time::{Time, nanos};
use crate::trace::TraceKind;

/// How far ahead of the machine's clock virtual time begins unless the options say otherwise.
const AHEAD: Duration = Duration::from_secs(3600);

/// A handle on a world, for connecting to its memory nodes. Clones are the same world.
///
/// A world is used by its processes while it runs. Before and after, any holder of a handle may use
/// it, one at a time; the world then runs within each call, and a world that stops panics with its
/// report.
#[derive(Clone, Debug)]
pub struct Sim {
    pub(crate) shared: Arc<Shared>,
}

impl Sim {
    /// The world's clock.
    #[must_use]
    pub fn clock(&self) -> SimClock {
        SimClock { shared: Arc::clone(&self.shared) }
    }

    /// Connects to a memory node; one that is down is waited for. About 3 µs of virtual time.
    ///
    /// # Errors
    /// [`NoMemoryNode`](FabricError::NoMemoryNode) if it was not up by the deadline.
    pub fn connect(&self, node: NodeId, deadline: Deadline) -> Result<SimConnection, FabricError> {
        Ok(SimConnection::new(self.shared.connect(node.0, deadline)?))
    }

    /// A generator of its own, drawn from the world's: for a process that needs numbers other than
    /// those of the rest.
    #[must_use]
    pub fn random(&self) -> Random {
        self.shared.lock().random.split()
    }

    /// The memory node dies now: the stores that are not visible yet are lost, and it starts again
    /// by and by.
    pub fn kill_node(&self, node: NodeId) {
        self.shared.lock().kill_node(node.0);
    }

    /// Whether the memory node is between two lives.
    #[must_use]
    pub fn is_down(&self, node: NodeId) -> bool {
        !self.shared.lock().nodes[node.0].is_up()
    }
}

/// A process's handle to the world.
#[derive(Debug)]
pub struct Process {
    /// The world.
    pub sim: Sim,
    /// Its own random numbers, the same for the same seed whatever other processes draw.
    pub random: Random,
    id: ProcessId,
}

impl Process {
    /// Its name in the world.
    #[must_use]
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Lets virtual time pass.
    pub fn sleep(&self, duration: Duration) {
        self.sim.shared.sleep(nanos(duration));
    }
}

type Body = Box<dyn FnOnce(Process) + Send>;

/// Memory nodes and processes in one virtual time, deterministic from [`SimOptions::seed`].
///
/// Each process is a thread of the operating system, of which one runs at any time: every call of
/// the fabric hands over to the next. A process must not wait for another but through the fabric or
/// the world's clock: no mutex may be held across a fabric call that another process wants (a run
/// that blocks on one is reported as [`Stuck`](FailureKind::Stuck)), and nothing may depend on real
/// time, addresses or a hash map's order.
///
/// A process that dies unwinds from the fabric call it is in, or about to begin; its destructors
/// run, the world takes no notice of what they do except that connections break.
pub struct World {
    sim: Sim,
    options: SimOptions,
    bodies: Vec<(usize, Body)>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("options", &self.options).finish_non_exhaustive()
    }
}

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(options: SimOptions) -> Self {
        let base = options.base.unwrap_or_else(|| Instant::now() + AHEAD);
        let state = State::new(&options, Arc::new(Time::new(base)));
        Self { sim: Sim { shared: Arc::new(Shared::new(state)) }, options, bodies: Vec::new() }
    }

    /// A handle on it.
    #[must_use]
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// Adds a memory node and starts it; `start` makes the service of each of its lives, over
    /// memory that holds what survived the one before. Neither `start` nor the service may use the
    /// world's connections or wait for anything; the service may look at the clock. Its
    /// [`Waker`](fpcache_fabric::Waker) is not listened to.
    ///
    /// # Errors
    /// If there is no memory.
    ///
    /// # Panics
    /// If there are more than 256 memories or none.
    pub fn add_node(
        &mut self,
        options: NodeOptions,
        start: impl FnMut(NodeStart) -> Box<dyn Service> + Send + 'static,
    ) -> Result<NodeId, MemoryError> {
        assert!((1..=256).contains(&options.memories.len()), "a memory node has 1 to 256 memories");
        let node = Node::new(options, start::in_world(Arc::downgrade(&self.sim.shared), start))?;
        let mut state = self.sim.shared.lock();
        let index = state.nodes.len();
        state.nodes.push(node);
        state.start_node(index);
        Ok(NodeId(index))
    }

    /// Has `hook` told of each death of a memory node, when its service has been dropped: to crash
    /// its disk.
    pub fn on_death(&mut self, node: NodeId, hook: impl FnMut(NodeDeath) + Send + 'static) {
        self.sim.shared.lock().nodes[node.0].on_death = Some(Box::new(hook));
    }

    /// Has a memory node die when `stores` of its stores have become visible, over all its lives:
    /// exactly there if stores are not reordered.
    pub fn kill_node_after(&mut self, node: NodeId, stores: u64) {
        self.sim.shared.lock().nodes[node.0].dies_at = Some(stores);
    }

    /// Has a process die at its `step`-th fabric call, counted from 1.
    pub fn kill_process_at(&mut self, process: ProcessId, step: u64) {
        self.sim.shared.lock().slots[process.0].dies_at = Some(step);
    }

    /// A memory as compute nodes see it at present.
    ///
    /// # Panics
    /// If the memory node has no such memory.
    #[must_use]
    pub fn visible(&self, node: NodeId, memory: usize) -> Arc<SharedMemory> {
        let state = self.sim.shared.lock();
        let stores = lock(&state.nodes[node.0].stores);
        Arc::clone(&stores.visible[memory])
    }

    /// Stores of a memory node that have become visible, over all its lives.
    #[must_use]
    pub fn stores(&self, node: NodeId) -> u64 {
        lock(&self.sim.shared.lock().nodes[node.0].stores).applied
    }

    /// Adds a process on a compute node of its own. It begins with [`run`](Self::run).
    pub fn spawn(&mut self, name: &str, body: impl FnOnce(Process) + Send + 'static) -> ProcessId {
        self.spawn_slot(name, None, Box::new(body))
    }

    /// Adds a process on the compute node of another: they die together.
    pub fn spawn_beside(
        &mut self,
        other: ProcessId,
        name: &str,
        body: impl FnOnce(Process) + Send + 'static,
    ) -> ProcessId {
        self.spawn_slot(name, Some(other), Box::new(body))
    }

    fn spawn_slot(&mut self, name: &str, beside: Option<ProcessId>, body: Body) -> ProcessId {
        let mut state = self.sim.shared.lock();
        let index = state.slots.len();
        let compute_node = beside.map_or(index, |other| state.slots[other.0].compute_node);
        state.slots.push(ProcessSlot::new(name, compute_node));
        self.bodies.push((index, body));
        ProcessId(index)
    }

    /// Runs all processes to their ends. Can be called again for processes that were added since.
    ///
    /// A thread is started per process (about 30 µs); a hand-over between two costs a few
    /// microseconds of real time, an event less than one.
    ///
    /// # Errors
    /// If the world stops before: [`FailureKind`]. All processes have died then, except one that is
    /// [`Stuck`](FailureKind::Stuck), whose thread is left to itself.
    ///
    /// # Panics
    /// If the operating system gives no thread.
    pub fn run(&mut self) -> Result<RunReport, RunFailure> {
        let shared = Arc::clone(&self.sim.shared);
        let mine = Arc::new(Parker::default());
        mine.belongs_to(std::thread::current());
        *shared.conductor.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::clone(&mine);
        let mut threads = Vec::new();
        for (index, body) in std::mem::take(&mut self.bodies) {
            threads.push((index, Some(self.start_thread(index, body))));
        }
        loop {
            let mut state = shared.lock();
            let ended = state.slots[state.running].status == Status::Ended;
            let running = state.running;
            drop(state);
            if ended {
                // To its very end, thread-local destructors included: they may close connections.
                if let Some((_, thread)) = threads.iter_mut().find(|(index, _)| *index == running) {
                    thread.take().map(JoinHandle::join);
                }
            }
            state = shared.lock();
            if threads.iter().all(|(_, thread)| thread.is_none()) {
                state.running = OUTSIDE;
                break;
            }
            let Some(next) = state.advance().or_else(|| state.next_to_die()) else {
                break;
            };
            let parker = Arc::clone(&state.slots[next].parker);
            drop(state);
            parker.wake();
            if !self.await_turn(&mine) {
                break;
            }
        }
        self.outcome()
    }

    fn start_thread(&self, index: usize, body: Body) -> JoinHandle<()> {
        let sim = self.sim.clone();
        // Of the seed and the process alone.
        let random = Random::new(self.options.seed ^ (index as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let process = Process { sim: sim.clone(), random, id: ProcessId(index) };
        let mut state = sim.shared.lock();
        let name = state.slots[index].name.to_string();
        let parker = Arc::clone(&state.slots[index].parker);
        let main = move || run_process(index, process, body);
        let thread = std::thread::Builder::new().name(name).spawn(main);
        let thread = thread.expect("the operating system gives a thread for a simulated process");
        parker.belongs_to(thread.thread().clone());
        let waiter = Waiter { slot: index, epoch: 0 };
        let after = state.random.below(5_000);
        state.schedule(after, Event::Wake(waiter));
        thread
    }

    /// Waits until a process has ended or the world has stopped; false if a process is stuck.
    fn await_turn(&self, mine: &Parker) -> bool {
        let shared = &self.sim.shared;
        let mut before = None;
        loop {
            if mine.park_for(self.options.patience) {
                return true;
            }
            let Some(mut state) = shared.try_lock() else {
                // The running process holds the lock for longer than patience: a memory node's code
                // that does not return.
                if before == Some(None) {
                    return false;
                }
                before = Some(None);
                continue;
            };
            let events = Some(state.events);
            if before == Some(events) {
                state.stop = Some(Stop::Stuck(state.running));
                state.remember_stop();
                return false;
            }
            before = Some(events);
        }
    }

    fn outcome(&self) -> Result<RunReport, RunFailure> {
        let seed = self.options.seed;
        let Some(state) = self.sim.shared.try_lock() else {
            let text = "a memory node's code does not return".to_owned();
            return Err(RunFailure { kind: FailureKind::Stuck, seed, text, trace: String::new() });
        };
        let kind = match &state.stop {
            None => return Ok(state.report(seed)),
            Some(Stop::Deadlock) => FailureKind::Deadlock,
            Some(Stop::Circles) => FailureKind::Circles,
            Some(Stop::Stuck(_)) => FailureKind::Stuck,
            Some(Stop::Panicked(..)) => FailureKind::Panicked,
            Some(Stop::NodePanicked(..)) => FailureKind::NodePanicked,
        };
        let now = || (state.describe_stop(), state.trace.to_string());
        let (text, trace) = state.last_words.clone().unwrap_or_else(now);
        Err(RunFailure { kind, seed, text, trace })
    }

    /// How things stand.
    #[must_use]
    pub fn report(&self) -> RunReport {
        self.sim.shared.lock().report(self.options.seed)
    }

    /// The last events, one to a line.
    #[must_use]
    pub fn trace(&self) -> String {
        self.sim.shared.lock().trace.to_string()
    }

    /// Runs on until every memory node is up, has done what it was asked, and all its stores are
    /// visible; at most `events` events. Says whether it came to that.
    pub fn settle(&mut self, events: u64) -> bool {
        let mut state = self.sim.shared.lock();
        for _ in 0..events {
            if state.nodes.iter().all(Node::is_settled) {
                return true;
            }
            if state.stop.is_some() || !state.happen() {
                break;
            }
        }
        state.nodes.iter().all(Node::is_settled)
    }
}

impl State {
    /// When the world has stopped: the next process to unwind, if one is left.
    fn next_to_die(&mut self) -> Option<usize> {
        let alive = |slot: &ProcessSlot| slot.status != Status::Ended;
        let next = self.slots.iter().skip(1).position(alive)? + 1;
        self.slots[next].killed = true;
        self.slots[next].status = Status::Running;
        self.running = next;
        Some(next)
    }
}

/// The body of a process's thread.
fn run_process(index: usize, process: Process, body: Body) {
    let shared = Arc::clone(&process.sim.shared);
    let parker = Arc::clone(&shared.lock().slots[index].parker);
    parker.park();
    let is_dead = shared.lock().is_dead();
    let outcome = if is_dead {
        drop((process, body));
        Ok(())
    } else {
        catch_unwind(AssertUnwindSafe(move || body(process)))
    };
    let mut state = shared.lock();
    if let Err(payload) = outcome
        && !payload.is::<Dead>()
        && state.stop.is_none()
    {
        state.stop = Some(Stop::Panicked(index, message(&*payload)));
    }
    state.note(TraceKind::Ended, index, 0, 0);
    state.slots[index].status = Status::Ended;
    let conductor = shared.conductor();
    drop(state);
    conductor.wake();
}
