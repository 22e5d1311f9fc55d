//! Options of a world: faults, limits, memory nodes.

use std::time::{Duration, Instant};

use fpcache_fabric::Access;

use crate::random::Random;

/// How a READ falls apart into pieces that are fetched at different instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tear {
    /// A READ shows one instant.
    Never,
    /// At 64-byte lines of the area, as a network card tears.
    Lines,
    /// At 8-byte words, as mapped memory may.
    Words,
}

/// The faults that may occur. Rates are chances in a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// How READs tear.
    pub tear: Tear,
    /// Stores that no release orders become visible in any order.
    pub reorder_stores: bool,
    /// Half of the endpoints look at memory in place, as if it were mapped.
    pub in_place: bool,
    /// The memory node may go on before its stores are visible, as a processor does.
    pub run_ahead: bool,
    /// READs of a dead memory node's memory succeed until its end is noticed, as on one machine.
    pub linger: bool,
    /// Per message and batch: it takes up to a hundred times as long.
    pub delay: u32,
    /// Per request and per reply of a call that has a deadline: it is lost.
    pub drop: u32,
    /// Per request: it is delivered twice.
    pub duplicate: u32,
    /// Per request: the memory node has no room for it for a while, nor for those after it.
    pub no_room: u32,
    /// Per call: the connection breaks while both sides live.
    pub cut: u32,
    /// Per fabric call of a process: its compute node dies before or after it.
    pub crash_client: u32,
    /// Per burst of stores and per turn of a memory node: it dies.
    pub crash_node: u32,
}

impl Faults {
    /// Nothing goes wrong: READs show one instant, stores keep their order.
    pub const NONE: Self = Self {
        tear: Tear::Never,
        reorder_stores: false,
        in_place: false,
        run_ahead: false,
        linger: false,
        delay: 0,
        drop: 0,
        duplicate: 0,
        no_room: 0,
        cut: 0,
        crash_client: 0,
        crash_node: 0,
    };

    /// What memory and network may do without any failure: tear, reorder, delay.
    pub const WEATHER: Self = Self {
        tear: Tear::Lines,
        reorder_stores: true,
        in_place: true,
        run_ahead: true,
        delay: 10_000,
        no_room: 10_000,
        ..Self::NONE
    };

    /// Everything, at rates that leave a few hundred operations between crashes.
    pub const STORM: Self = Self {
        linger: true,
        drop: 10_000,
        duplicate: 10_000,
        cut: 2_000,
        crash_client: 300,
        crash_node: 1_000,
        ..Self::WEATHER
    };

    /// These faults with each one left out by chance: worlds with few kinds of faults reach states
    /// that worlds with all of them do not (Groce et al., "Swarm testing", ISSTA 2012).
    #[must_use]
    pub fn swarm(self, random: &mut Random) -> Self {
        let mut leave_out = || random.below(4) == 0;
        let mut rate = |rate: u32| if leave_out() { 0 } else { rate };
        let (delay, drop, duplicate) = (rate(self.delay), rate(self.drop), rate(self.duplicate));
        let (cut, crash_client, crash_node) =
            (rate(self.cut), rate(self.crash_client), rate(self.crash_node));
        let tear = match (self.tear, random.below(8)) {
            (Tear::Never, _) | (_, 0) => Tear::Never,
            (_, 1) => Tear::Words,
            (tear, _) => tear,
        };
        Self {
            tear,
            reorder_stores: self.reorder_stores && random.below(4) > 0,
            in_place: self.in_place,
            run_ahead: self.run_ahead && random.below(2) > 0,
            linger: self.linger && random.below(2) > 0,
            delay,
            drop,
            duplicate,
            cut,
            crash_client,
            crash_node,
            no_room: if random.below(4) == 0 { 0 } else { self.no_room },
        }
    }
}

/// How a world behaves. Two worlds with equal options and equal processes do the same, event by
/// event.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Where every choice comes from.
    pub seed: u64,
    /// The faults that may occur.
    pub faults: Faults,
    /// Whether the seed leaves some of the faults out ([`Faults::swarm`]).
    pub swarm: bool,
    /// After this many events the world counts as going round in circles.
    pub max_events: u64,
    /// How many of the last events are kept for reports.
    pub trace: usize,
    /// How long a process may compute, in real time, before the world counts it as blocked on
    /// something that is not simulated, for example a mutex that another process holds.
    pub patience: Duration,
    /// The instant at which virtual time begins. By default an hour from now, so that a deadline
    /// taken from the machine's clock by mistake has passed at once instead of making runs differ.
    pub base: Option<Instant>,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            faults: Faults::WEATHER,
            swarm: true,
            max_events: 5_000_000,
            trace: 200,
            patience: Duration::from_secs(60),
            base: None,
        }
    }
}

impl SimOptions {
    /// The default world without any fault.
    #[must_use]
    pub fn without_faults() -> Self {
        Self { faults: Faults::NONE, swarm: false, ..Self::default() }
    }

    /// The same with another seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        Self { seed, ..self.clone() }
    }
}

/// One memory of a memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Length in bytes, rounded up to a multiple of eight.
    pub bytes: usize,
    /// Whether its contents survive the memory node's death. Otherwise the next life finds zeros in
    /// new memory.
    pub survives: bool,
    /// The access of compute nodes to it; `None`: it is not registered. Its area is its place among
    /// the memories.
    pub offered: Option<Access>,
}

impl MemoryOptions {
    /// A region that compute nodes READ and that dies with its memory node.
    #[must_use]
    pub const fn region(bytes: usize) -> Self {
        Self { bytes, survives: false, offered: Some(Access::ReadOnly) }
    }

    /// Memory of the memory node alone, which dies with it.
    #[must_use]
    pub const fn private(bytes: usize) -> Self {
        Self { bytes, survives: false, offered: None }
    }

    /// The same as a file that is mapped: it survives.
    #[must_use]
    pub const fn surviving(self) -> Self {
        Self { survives: true, ..self }
    }
}

/// One memory node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its name in errors and traces.
    pub name: String,
    /// Its memories; the first is the region, [`REGION`](fpcache_fabric::REGION). At most 256.
    pub memories: Vec<MemoryOptions>,
    /// The word of its region that it leases to those who READ, and for how long
    /// ([`Export::with_lease`](fpcache_fabric::Export::with_lease)).
    pub lease: Option<(u64, Duration)>,
    /// The longest it stays down after a death.
    pub down_time: Duration,
}

impl NodeOptions {
    /// A memory node with these memories, and at most 200 µs between two lives.
    #[must_use]
    pub fn new(memories: Vec<MemoryOptions>) -> Self {
        Self { name: "sim".to_owned(), memories, lease: None, down_time: Duration::from_micros(200) }
    }
}

/// How fast things go in one world, drawn from its seed. Times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// One way of a batch or message.
    pub(crate) way: (u64, u64),
    /// How far the pieces of a batch lie apart at most.
    pub(crate) spread: u64,
    /// Between two bursts of stores at most.
    pub(crate) gap: u64,
    /// Stores of a burst at most.
    pub(crate) burst: u64,
}

impl Pace {
    pub(crate) fn draw(random: &mut Random) -> Self {
        // READs of about 2 µs and calls of about 5; stores of a request take from much less to much
        // longer than a READ.
        let way = (400, 400 + [400, 1_000, 2_000][random.below(3) as usize]);
        let spread = [200, 1_000, 4_000, 12_000][random.below(4) as usize];
        let gap = [20, 200, 1_000, 3_000][random.below(4) as usize];
        let burst = [1, 2, 4, 16][random.below(4) as usize];
        Self { way, spread, gap, burst }
    }
}
