//! Counters of a memory node and of its sockets.

use std::ops::BitXor;

use super::header::{MessageError, end};
use crate::cursor::Cursor;

/// Makes the counters and their encoding from one list: a word each, in this order. Those of two
/// memory nodes together are sums, unless it says otherwise.
macro_rules! counters {
    (@together) => { u64::wrapping_add };
    (@together $together:expr) => { $together };
    ($(#[$about:meta])* $counters:ident: $($(#[$doc:meta])* $name:ident $(by $together:expr)?,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $counters {
            /// The counters with their names, in this order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Those of two memory nodes together.
            #[must_use]
            pub fn together(&self, other: &Self) -> Self {
                Self { $($name: counters!(@together $($together)?)(self.$name, other.$name),)* }
            }

            /// The counters' bytes: one word each, in the order of the fields.
            pub fn encode(&self, out: &mut Vec<u8>) {
                $(out.extend(self.$name.to_le_bytes());)*
            }

            /// Reads what [`encode`](Self::encode) wrote.
            pub fn decode(body: &[u8]) -> Result<Self, MessageError> {
                let mut words = Cursor::new(body);
                let stats = Self { $($name: words.u64()?,)* };
                end(words)?;
                Ok(stats)
            }
        }
    };
}

/// Of counters that do not add up.
fn first(one: u64, _: u64) -> u64 {
    one
}

counters! {
    /// Counters of a memory node.
    NodeStats:
    /// Differs between any two starts of the node.
    incarnation by u64::bitxor,
    /// Bytes of the region.
    region_bytes by u64::saturating_add,
    /// Bytes of it in use.
    used_bytes,
    /// Live records.
    keys,
    /// Segments.
    segments,
    /// Connected clients.
    clients by u64::max,
    /// Requests handled since the start.
    requests,
    /// Milliseconds since the start.
    uptime_ms by u64::min,
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
    rebuild_ns_max by u64::max,
    /// Nanoseconds that 99 of 100 rebuilds did not exceed, to an eighth.
    rebuild_ns_p99 by u64::max,
    /// Bytes that wait to be used again.
    quarantined_bytes,
    /// Records the change log has ever had.
    log_head by first,
    /// Sequence of the newest checkpoint of the directory.
    checkpoint by first,
    /// Effects written to the write-ahead log, 0 without one.
    logged,
    /// Of those, the ones that would survive the machine's crash.
    synced,
    /// External values.
    external_values,
    /// Bytes of these.
    external_bytes,
    /// Writes refused because a record in their segment is damaged.
    damaged_writes,
    /// Damaged records that a snapshot met, which was given up or is without them.
    damaged_copies,
    /// Times that a segment with a damaged record was left as it is by work in the background.
    damaged_passed_by,
    /// Lookups by the memory node's processor that were refused because the record is damaged.
    damaged_lookups,
    /// Attempts to write or sync the write-ahead log that failed.
    log_errors,
    /// 1 while the write-ahead log takes nothing, so that writes are refused; else 0.
    log_fails by u64::max,
    /// The memory node's release: the major number in the upper half, and below it minor and patch
    /// number in two bytes each.
    release by u64::min,
}

impl NodeStats {
    /// A release as [`release`](Self::release) has it.
    pub const fn encode_release(major: u32, minor: u16, patch: u16) -> u64 {
        (major as u64) << 32 | (minor as u64) << 16 | patch as u64
    }

    /// The release in words.
    pub fn release_text(&self) -> String {
        format!("{}.{}.{}", self.release >> 32, self.release >> 16 & 0xffff, self.release & 0xffff)
    }
}

counters! {
    /// Counters of a memory node's sockets; all zero without any. Those who were hung up on, or not
    /// let in, are counted by the reason.
    SocketStats:
    /// Threads that serve sockets.
    io_threads,
    /// Nanoseconds that such a thread looks for more before it sleeps, while that pays off.
    spin_ns,
    /// Waits that ended while the thread still looked.
    waits_spun,
    /// Waits that ended in sleep.
    waits_slept,
    /// Nanoseconds spent looking, of all threads.
    spun_ns,
    /// Connections that were let in and are there now.
    connections,
    /// Hung up on: what it sent is no frame, or asks for what it may not have.
    bad_frame,
    /// It did not greet in time.
    no_greeting,
    /// It did not send the rest of a frame in time.
    slow_frame,
    /// It did not read its replies in time.
    unread_replies,
    /// It did nothing for long.
    idle,
    /// It speaks another protocol or version, or TLS with it has failed.
    other_protocol,
    /// It has no token or right where one is needed.
    no_right,
    /// There were too many connections.
    too_many,
    /// It asked for a table, or to join a client, that there is not.
    no_region,
    /// The operating system had nothing left for it.
    no_resources,
}

impl SocketStats {
    /// How many were hung up on, or not let in, by the reason.
    pub fn hang_ups(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.named().skip_while(|(name, _)| *name != "bad_frame")
    }
}
