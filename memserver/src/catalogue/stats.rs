//! Statistics of a memory node and its sockets.

use std::time::Duration;

use fpcache::message::{NodeStats, SocketStats};
use fpcache_fabric::tcp::{HangUp, SocketCounters};

use super::Catalogue;

impl Catalogue {
    /// Has clients that [ask](fpcache::message::Request::Sockets) told what these sockets count.
    pub fn count_sockets(&mut self, counters: SocketCounters) {
        self.sockets = Some(counters);
    }

    /// What its sockets count.
    pub(super) fn socket_stats(&self) -> SocketStats {
        let Some(counters) = &self.sockets else { return SocketStats::default() };
        let counted = counters.snapshot();
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        SocketStats {
            io_threads: counted.io_threads,
            spin_ns: ns(counted.spin),
            waits_spun: counted.waits_spun,
            waits_slept: counted.waits_slept,
            spun_ns: ns(counted.spun),
            connections: counted.connections,
            bad_frame: counted.hang_ups(HangUp::BadFrame),
            no_greeting: counted.hang_ups(HangUp::NoGreeting),
            slow_frame: counted.hang_ups(HangUp::SlowFrame),
            unread_replies: counted.hang_ups(HangUp::UnreadReplies),
            idle: counted.hang_ups(HangUp::Idle),
            other_protocol: counted.hang_ups(HangUp::OtherProtocol),
            no_right: counted.hang_ups(HangUp::NoRight),
            too_many: counted.hang_ups(HangUp::TooMany),
            no_region: counted.hang_ups(HangUp::NoRegion),
            no_resources: counted.hang_ups(HangUp::NoResources),
        }
    }

    /// Counters of the memory node as a whole.
    pub(super) fn stats(&self) -> NodeStats {
        let mut all = NodeStats {
            incarnation: self.incarnation,
            region_bytes: self.opening.budget.bytes(),
            used_bytes: self.opening.budget.granted(),
            clients: self.client_tables.len() as u64,
            requests: self.requests,
            uptime_ms: self.clock.now().saturating_duration_since(self.started).as_millis() as u64,
            ..NodeStats::default()
        };
        for stats in self.hosted().map(|table| table.node.stats()) {
            all.keys += stats.keys;
            all.segments += stats.segments;
            all.requests += stats.requests;
            all.writes += stats.writes;
            all.inserts += stats.inserts;
            all.rebuilds += stats.rebuilds;
            all.copies += stats.copies;
            all.quarantined_bytes += stats.quarantined_bytes;
        }
        all
    }
}
