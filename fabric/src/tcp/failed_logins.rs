//! Failed attempts to come in, by address, so that trying again and again takes time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::socket::{Origin, Party};
use crate::lock::lock;

/// How long a refusal is held back from an address that has failed too often.
pub(super) const HOLD: Duration = Duration::from_secs(1);
/// Failures of an address that are told at once.
const AT_ONCE: u32 = 5;
/// An address that has not failed for so long begins anew.
const FORGET: Duration = Duration::from_secs(60);
/// Addresses that are remembered; of more, the one that failed longest ago is forgotten.
const MAX_ADDRESSES: usize = 1024;

/// Failures by address. A client that knows a token is let in at once whatever others at its
/// address do.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    failures: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

impl Attempts {
    /// Counts a failure, and says whether its refusal is held back.
    pub(super) fn failed(&self, origin: &Origin, now: Instant) -> bool {
        let Party::Network(address) = origin.party() else { return false };
        let mut failures = lock(&self.failures);
        if failures.len() >= MAX_ADDRESSES && !failures.contains_key(&address) {
            let oldest = failures.iter().min_by_key(|(_, (_, at))| *at).map(|(address, _)| *address);
            oldest.and_then(|oldest| failures.remove(&oldest));
        }
        let (count, at) = failures.entry(address).or_insert((0, now));
        if now.saturating_duration_since(*at) >= FORGET {
            *count = 0;
        }
        (*count, *at) = (count.saturating_add(1), now);
        *count > AT_ONCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn an_address_that_fails_again_and_again_waits_and_others_do_not() {
        let (attempts, begin) = (Attempts::default(), Instant::now());
        let at = |ip: &str| Origin::Internet(SocketAddr::new(ip.parse().unwrap(), 9));
        for i in 0..9 {
            assert_eq!(attempts.failed(&at("192.0.2.1"), begin), i >= 5, "{i}");
        }
        assert!(!attempts.failed(&at("192.0.2.2"), begin));
        for i in 0..9 {
            assert_eq!(attempts.failed(&at(&format!("2001:db8::{i}")), begin), i >= 5, "{i}");
        }
        assert!(!attempts.failed(&at("2001:db8:0:1::"), begin));
        // Where a node listens at [::], IPv4 addresses come as parts of one IPv6 network.
        assert!(attempts.failed(&at("::ffff:192.0.2.1"), begin));
        assert!(!attempts.failed(&at("::ffff:192.0.2.3"), begin));
        assert!(!attempts.failed(&Origin::User(7), begin));
        assert!(attempts.failed(&at("192.0.2.1"), begin + Duration::from_secs(59)));
        assert!(!attempts.failed(&at("192.0.2.1"), begin + Duration::from_secs(200)));
        // The map stays small.
        for i in 0..3000u32 {
            attempts.failed(&Origin::Internet(SocketAddr::from((i.to_be_bytes(), 9))), begin);
        }
        assert!(attempts.failures.lock().unwrap().len() <= MAX_ADDRESSES);
    }
}
