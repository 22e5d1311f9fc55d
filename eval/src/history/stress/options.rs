//! Options of a stress run: its calls and its processes.

/// What a stress run does.
#[derive(Clone, Debug, PartialEq)]
pub struct StressOptions {
    /// The keys that are written and read, at least one. Few make for collisions.
    pub keys: Vec<u64>,
    /// Batches; each is checked before the next one begins.
    pub batches: usize,
    /// Calls of each process per batch; a group of keys or a scan is one.
    pub calls: usize,
    /// How often which call comes.
    pub mix: Mix,
    /// The most records a scan asks for.
    pub scan_limit: u32,
    /// The most keys of a group.
    pub group: usize,
    /// Keys that are queues.
    pub queue: Queue,
    /// Whether an order is looked for of all calls on all keys at once, too, as neighbours on one
    /// memory node have it: for a few processes. See [`check_whole`](crate::history::check_whole).
    pub as_a_whole: bool,
    /// Attempts to read a key between two batches before the run gives up.
    pub attempts: usize,
}

/// Weights of calls. In every other batch inserts and deletes change places, so that segments fill,
/// get rebuilt, empty and get merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Single keys.
    pub get: f64,
    /// Groups of keys.
    pub multi_get: f64,
    /// Single keys with tokens, which compare-and-sets use later.
    pub get_versioned: f64,
    /// Scans.
    pub scan: f64,
    /// Scans that go down.
    pub scan_back: f64,
    /// Counts.
    pub count: f64,
    /// Floors and ceilings, one in three of a group, and first and last records.
    pub nearest: f64,
    /// Inserts.
    pub insert: f64,
    /// Puts.
    pub put: f64,
    /// Updates.
    pub update: f64,
    /// Deletes.
    pub delete: f64,
    /// Compare-and-sets with the token last seen, which may be old.
    pub compare_and_set: f64,
    /// Steps of a process's queue, if there are keys for it.
    pub queue: f64,
}

/// Keys that are inserted in ascending order while the oldest are deleted. Each process has every
/// so-many-th of them for itself, so that all queues move through the keys together, and begins
/// again at the first after the last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    /// In ascending order; none of them one of [`StressOptions::keys`].
    pub keys: Vec<u64>,
    /// How many of them a process has there at most. Whatever they are, half of a process's are
    /// deleted when an insert finds no room.
    pub live: usize,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            get: 30.0,
            multi_get: 3.0,
            get_versioned: 8.0,
            scan: 3.0,
            scan_back: 2.0,
            count: 1.0,
            nearest: 3.0,
            insert: 20.0,
            put: 8.0,
            update: 8.0,
            delete: 8.0,
            compare_and_set: 8.0,
            queue: 0.0,
        }
    }
}

impl Default for StressOptions {
    fn default() -> Self {
        Self {
            keys: (0..2_000).map(|key| key * 64).collect(),
            batches: 4,
            calls: 20_000,
            mix: Mix::default(),
            scan_limit: 32,
            group: 8,
            queue: Queue::default(),
            as_a_whole: false,
            attempts: 100,
        }
    }
}

/// A process of a stress run.
#[derive(Debug)]
pub struct StressProcess<S, R> {
    /// What reports call it: its plan and cache, for example.
    pub name: String,
    /// Its handle.
    pub store: S,
    /// Its source of random numbers.
    pub random: R,
}
