//! Counters of a memory node.

use super::{MessageError, malformed};

/// Makes the counters and their encoding from one list: a word each, in this order.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a memory node.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct NodeStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl NodeStats {
            /// The counters' bytes: one word each, in the order of the fields.
            pub fn encode(&self, out: &mut Vec<u8>) {
                $(out.extend(self.$name.to_le_bytes());)*
            }

            /// Reads what [`encode`](Self::encode) wrote.
            pub fn decode(body: &[u8]) -> Result<Self, MessageError> {
                let (words, rest) = body.as_chunks::<8>();
                let mut words = words.iter();
                let mut next = || words.next().map(|word| u64::from_le_bytes(*word));
                let stats = Self { $($name: next().ok_or_else(|| malformed("stats are short"))?,)* };
                match (words.next(), rest) {
                    (None, []) => Ok(stats),
                    _ => Err(malformed("stats are longer than these counters")),
                }
            }
        }
    };
}

counters! {
    /// Differs between any two starts of the node.
    incarnation,
    /// Bytes of the region.
    region_bytes,
    /// Bytes of it in use.
    used_bytes,
    /// Live records.
    keys,
    /// Segments.
    segments,
    /// Connected clients.
    clients,
    /// Requests handled since the start.
    requests,
    /// Milliseconds since the start.
    uptime_ms,
    /// Operations that changed a record.
    writes,
    /// Operations that made a record.
    inserts,
    /// Changes of the directory: segments replaced by segments.
    rebuilds,
    /// Of those, the ones an insert had to wait for because its window was full.
    window_full_waits,
    /// Records copied by rebuilds.
    copies,
    /// Nanoseconds spent on rebuilds.
    rebuild_ns,
    /// Nanoseconds of the longest rebuild.
    rebuild_ns_max,
    /// Nanoseconds that 99 of 100 rebuilds did not exceed, to an eighth.
    rebuild_ns_p99,
    /// Bytes that wait to be used again.
    quarantined_bytes,
    /// Records the change log has ever had.
    log_head,
    /// Sequence of the newest checkpoint of the directory.
    checkpoint,
    /// Effects written to the write-ahead log, 0 without one.
    logged,
    /// Of those, the ones that would survive the machine's crash.
    synced,
    /// External values.
    external_values,
    /// Bytes of these.
    external_bytes,
}
