//! Counters of a memory node.

use super::{MessageError, malformed};

/// Counters of a memory node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Differs between any two starts of the node.
    pub incarnation: u64,
    /// Bytes of the region.
    pub region_bytes: u64,
    /// Bytes of it in use.
    pub used_bytes: u64,
    /// Live records.
    pub keys: u64,
    /// Segments.
    pub segments: u64,
    /// Connected clients.
    pub clients: u64,
    /// Requests handled since the start.
    pub requests: u64,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// Operations that changed a record.
    pub writes: u64,
    /// Operations that made a record.
    pub inserts: u64,
    /// Changes of the directory: segments replaced by segments.
    pub rebuilds: u64,
    /// Of those, the ones an insert had to wait for because its window was full.
    pub window_full_waits: u64,
    /// Records copied by rebuilds.
    pub copies: u64,
    /// Nanoseconds spent on rebuilds.
    pub rebuild_ns: u64,
    /// Nanoseconds of the longest rebuild.
    pub rebuild_ns_max: u64,
    /// Nanoseconds that 99 of 100 rebuilds did not exceed, to an eighth.
    pub rebuild_ns_p99: u64,
    /// Bytes that wait to be used again.
    pub quarantined_bytes: u64,
    /// Records the change log has ever had.
    pub log_head: u64,
    /// Sequence of the newest checkpoint of the directory.
    pub checkpoint: u64,
    /// Effects written to the write-ahead log, 0 without one.
    pub logged: u64,
    /// Of those, the ones that would survive the machine's crash.
    pub synced: u64,
}

impl NodeStats {
    const WORDS: usize = 21;

    fn words(&self) -> [u64; Self::WORDS] {
        [
            self.incarnation,
            self.region_bytes,
            self.used_bytes,
            self.keys,
            self.segments,
            self.clients,
            self.requests,
            self.uptime_ms,
            self.writes,
            self.inserts,
            self.rebuilds,
            self.window_full_waits,
            self.copies,
            self.rebuild_ns,
            self.rebuild_ns_max,
            self.rebuild_ns_p99,
            self.quarantined_bytes,
            self.log_head,
            self.checkpoint,
            self.logged,
            self.synced,
        ]
    }

    /// The counters' bytes: one word each, in the order above.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.words().into_iter().flat_map(u64::to_le_bytes));
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(body: &[u8]) -> Result<Self, MessageError> {
        let (words, _) = body.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|w| u64::from_le_bytes(*w)).collect();
        let words = words.get(..Self::WORDS).and_then(|w| w.try_into().ok());
        let [
            incarnation,
            region_bytes,
            used_bytes,
            keys,
            segments,
            clients,
            requests,
            uptime_ms,
            writes,
            inserts,
            rebuilds,
            window_full_waits,
            copies,
            rebuild_ns,
            rebuild_ns_max,
            rebuild_ns_p99,
            quarantined_bytes,
            log_head,
            checkpoint,
            logged,
            synced,
        ]: [u64; Self::WORDS] = words.ok_or_else(|| malformed("stats are short"))?;
        Ok(Self {
            incarnation,
            region_bytes,
            used_bytes,
            keys,
            segments,
            clients,
            requests,
            uptime_ms,
            writes,
            inserts,
            rebuilds,
            window_full_waits,
            copies,
            rebuild_ns,
            rebuild_ns_max,
            rebuild_ns_p99,
            quarantined_bytes,
            log_head,
            checkpoint,
            logged,
            synced,
        })
    }
}
