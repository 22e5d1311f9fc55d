//! The services of memory nodes in these worlds.

use super::*;

/// Fills words 0, 1, 2, … of a surviving memory with their numbers and publishes none of them in
/// particular.
pub(super) struct Filler(pub(super) Arc<SimMemory>);

impl Service for Filler {
    fn handle(&mut self, _: ClientId, _: &[u8], reply: &mut Vec<u8>) -> Handled {
        for word in 0..20 {
            self.0.store_relaxed(word * 8, word + 1).unwrap();
        }
        reply.push(1);
        Handled::Now
    }
}

/// Replies with how many requests came before, and notes who is there.
#[derive(Default)]
pub(super) struct Counter {
    pub(super) requests: u64,
    pub(super) clients: Arc<AtomicU64>,
}

impl Service for Counter {
    fn handle(&mut self, _: ClientId, _: &[u8], reply: &mut Vec<u8>) -> Handled {
        reply.extend(self.requests.to_le_bytes());
        self.requests += 1;
        Handled::Now
    }

    fn connected(&mut self, _: ClientId, _: &[u8]) {
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    fn disconnected(&mut self, _: ClientId) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Never answers.
pub(super) struct Silent;

impl Service for Silent {
    fn handle(&mut self, _: ClientId, _: &[u8], _: &mut Vec<u8>) -> Handled {
        Handled::Later
    }
}

/// Counts sixteen words up, for ever.
pub(super) struct Lines(pub(super) Arc<SimMemory>, pub(super) u64);

impl Service for Lines {
    fn handle(&mut self, _: ClientId, _: &[u8], _: &mut Vec<u8>) -> Handled {
        Handled::Now
    }

    fn work(&mut self) -> Work {
        self.1 += 1;
        for word in 0..16 {
            self.0.store_relaxed(word * 8, self.1).unwrap();
        }
        Work::More
    }
}
