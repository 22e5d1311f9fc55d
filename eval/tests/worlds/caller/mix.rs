//! The mix of calls of a client process.

use std::time::Duration;

use fpcache_client::ClientConfig;

/// How often which call comes, out of their sum.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub get: u64,
    pub multi_get: u64,
    pub get_versioned: u64,
    pub scan: u64,
    pub insert: u64,
    pub put: u64,
    pub update: u64,
    pub delete: u64,
    pub compare_and_set: u64,
    /// Several changes in one request.
    pub batch: u64,
    /// A step of the process's queue, if it has one.
    pub queue: u64,
    /// Floors and ceilings, one in three of a group, and the first and the last record.
    pub nearest: u64,
    /// Scans that go down.
    pub scan_back: u64,
    pub count: u64,
}

impl Mix {
    /// A little of everything.
    pub const ALL: Self = Self {
        get: 24,
        multi_get: 4,
        get_versioned: 8,
        scan: 5,
        insert: 16,
        put: 8,
        update: 8,
        delete: 12,
        compare_and_set: 8,
        batch: 4,
        queue: 0,
        nearest: 6,
        scan_back: 3,
        count: 3,
    };
    /// Reads alone.
    pub const READS: Self = Self {
        get: 10,
        multi_get: 1,
        get_versioned: 0,
        scan: 2,
        insert: 0,
        put: 0,
        update: 0,
        delete: 0,
        compare_and_set: 0,
        batch: 0,
        queue: 0,
        nearest: 0,
        scan_back: 1,
        count: 1,
    };
    /// Reads that look no key up: they ask for what lies around keys.
    pub const AROUND: Self = Self { scan: 4, scan_back: 2, count: 2, nearest: 4, ..Self::NOTHING };
    /// Inserts and deletes, so that segments fill and are rebuilt.
    pub const CHURN: Self = Self { insert: 12, delete: 10, put: 2, batch: 2, ..Self::NOTHING };
    /// A queue, and reads beside it.
    pub const QUEUE: Self = Self { queue: 12, get: 3, scan: 1, update: 1, ..Self::NOTHING };
    /// Nothing.
    pub const NOTHING: Self = Self { get: 0, multi_get: 0, scan: 0, scan_back: 0, count: 0, ..Self::READS };

    pub(super) const fn weights(self) -> [u64; 14] {
        let Self { get, multi_get, get_versioned, scan, insert, put, update, delete, .. } = self;
        let Self { compare_and_set, batch, queue, nearest, scan_back, count, .. } = self;
        let reads = [get, multi_get, get_versioned, scan];
        let [a, b, c, d] = reads;
        let changes = [insert, put, update, delete, compare_and_set, batch, queue];
        let [e, f, g, h, i, j, k] = changes;
        [a, b, c, d, e, f, g, h, i, j, k, nearest, scan_back, count]
    }
}

/// Keys that are inserted in ascending order while the oldest of them are deleted.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// In ascending order; after the last one the first is next.
    pub keys: Vec<u64>,
    /// How many of them are there at most. If it is as many as there are keys, they are inserted
    /// until there is no room, several with a request; then the older half is deleted.
    pub live: usize,
}

impl Queue {
    pub fn fills(&self) -> bool {
        self.live >= self.keys.len()
    }
}

/// What one client process does.
#[derive(Clone, Debug)]
pub struct Part {
    pub name: String,
    pub config: ClientConfig,
    pub mix: Mix,
    pub calls: usize,
    /// Writes it has in flight; 1: it waits for each.
    pub in_flight: usize,
    /// The keys it uses.
    pub keys: Vec<u64>,
    /// Keys that it alone inserts and deletes, as a queue.
    pub queue: Queue,
    /// The longest it rests before a call, and how often: one call in this many.
    pub rest: (Duration, u64),
}
