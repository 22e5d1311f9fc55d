//! The constants of cards and networks, each with its source.
//!
//! "Fitted" marks a constant that no source states and that was chosen so that a published figure
//! comes out; the figure is named, and `docs/nic-model.md` shows the model beside figures it was
//! not fitted to. "Assumed" marks one that no source here states and that nothing was fitted to:
//! rows that it binds say no more than it does.

use super::Picos;

/// A card, the network between two of them, and what a thread pays to use it.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct NicSpec {
    /// What options and reports call it.
    pub name: &'static str,
    /// Bits per second of the link, each way, headers included.
    pub link_bits: f64,
    /// Bits of payload per second that cross the bus behind the card, each way.
    pub payload_bits: f64,
    /// Payload bytes of a packet.
    pub mtu: u32,
    /// Bytes of a packet besides its payload.
    pub packet_overhead: u32,
    /// Requests per second that a card serves as a target.
    pub served_per_second: f64,
    /// Requests per second that a card issues.
    pub issued_per_second: f64,
    /// WRITEs per second that a card serves as a target; it serves requests one after another, of
    /// whatever kind.
    pub writes_per_second: f64,
    /// Atomics per second that a card executes on its node's memory.
    pub atomics_per_second: f64,
    /// Atomics per second that a card executes on its own memory.
    pub atomics_on_chip_per_second: f64,
    /// From one card's port to the other's, switch and bus included, without the time of bytes.
    pub one_way: Picos,
    /// A thread's time for a doorbell.
    pub doorbell: Picos,
    /// A thread's time for each request of a doorbell batch.
    pub request: Picos,
    /// A thread's time to take a completion.
    pub completion: Picos,
}

/// Ethernet preamble, header, checksum and gap (38), IPv4 (20), UDP (8), InfiniBand base header
/// (12), its extension (4) and checksum (4): RoCEv2, as IEEE 802.3 and the InfiniBand
/// specification's annex A17 have them.
const ROCE_OVERHEAD: u32 = 86;

/// Ethernet (38), IPv4 (20), TCP with timestamps (32).
const TCP_OVERHEAD: u32 = 90;

impl NicSpec {
    /// ConnectX-6 at 100 Gb/s: the cards of the FPCache and CHIME papers.
    pub const CX6_100G: Self = Self {
        name: "cx6-100g",
        link_bits: 100e9,
        // Assumed. ROLEX's 11.3 Mops/s of about 900 B in the DMTree artifact's workload C are 82
        // Gb/s, but three READs each, which the link with headers binds before; Sherman's row there
        // is 91 Gb/s.
        payload_bits: 82e9,
        mtu: 1024,
        packet_overhead: ROCE_OVERHEAD,
        // Fitted: SMART, one READ of 34 B per lookup, at 51.2 (zipf) and 48.3 (uniform) Mops/s in
        // the same table.
        served_per_second: 50e6,
        // Assumed: cards issue about as many as they serve from this generation on.
        issued_per_second: 50e6,
        // Fitted: DMTree, a READ and a WRITE of the memory node per update, at 31.8 Mops/s
        // (uniform) in the same artifact's row of updates.
        writes_per_second: 88e6,
        // Fitted: SMART, with an atomic besides, at 21.9 Mops/s there. CHIME's 18.5 (1.11 READs,
        // two WRITEs, an atomic) are 16.9 by these.
        atomics_per_second: 70e6,
        // Assumed: faster than what crosses the bus. Sherman's locks alone lie there, and its rows
        // are bound by bytes and waiting.
        atomics_on_chip_per_second: 110e6,
        // Assumed, as are a thread's times: a READ of a few bytes takes about 2 µs end to end
        // between idle cards of this generation.
        one_way: 850_000,
        doorbell: 100_000,
        request: 30_000,
        completion: 50_000,
    };

    /// ConnectX-5 at 100 Gb/s: the cards of the ROLEX paper.
    pub const CX5_100G: Self = Self {
        name: "cx5-100g",
        // Assumed: the message rates of the generation are lower, all by as much; the rest is as
        // above.
        served_per_second: 35e6,
        issued_per_second: 35e6,
        writes_per_second: 62e6,
        atomics_per_second: 49e6,
        atomics_on_chip_per_second: 77e6,
        one_way: 900_000,
        ..Self::CX6_100G
    };

    /// ConnectX-3 at 40 Gb/s: the cards of the RF-RPC paper.
    pub const CX3_40G: Self = Self {
        name: "cx3-40g",
        link_bits: 40e9,
        // Assumed: PCIe 3.0 x8 is not what binds at 40 Gb/s.
        payload_bits: 40e9,
        // RF-RPC: 11.26 Mops/s in-bound, 2.11 Mops/s out-bound, flat up to 256 B.
        served_per_second: 11.26e6,
        issued_per_second: 2.11e6,
        // Assumed.
        writes_per_second: 11.26e6,
        atomics_per_second: 2.5e6,
        atomics_on_chip_per_second: 2.5e6,
        // RF-RPC: a WRITE of 8 B takes 1.12 µs.
        one_way: 400_000,
        ..Self::CX6_100G
    };

    /// Kernel TCP over 25 Gb/s Ethernet: requests are system calls and wake a thread of the memory
    /// node.
    pub const TCP_25G: Self = Self {
        name: "tcp-25g",
        link_bits: 25e9,
        payload_bits: 25e9,
        mtu: 1448,
        packet_overhead: TCP_OVERHEAD,
        // Assumed, with all below: about a microsecond of a core for a small request and its reply,
        // with a handful of threads serving.
        served_per_second: 2e6,
        issued_per_second: 2e6,
        writes_per_second: 2e6,
        atomics_per_second: 2e6,
        atomics_on_chip_per_second: 2e6,
        // A small request and its reply take some 25 µs between idle machines of one rack.
        one_way: 10_000_000,
        doorbell: 1_500_000,
        request: 50_000,
        completion: 1_500_000,
    };

    /// All of them.
    pub const ALL: [Self; 4] = [Self::CX6_100G, Self::CX5_100G, Self::CX3_40G, Self::TCP_25G];

    /// The preset of a name.
    ///
    /// # Errors
    /// [`UnknownNic`], which lists them.
    pub fn named(name: &str) -> Result<Self, UnknownNic> {
        Self::ALL.into_iter().find(|spec| spec.name == name).ok_or_else(|| UnknownNic(name.to_owned()))
    }

    /// Time that a message of `payload` bytes takes on the link, or to cross the bus where that
    /// takes longer.
    pub fn bytes(&self, payload: u32) -> Picos {
        let packets = payload.div_ceil(self.mtu).max(1);
        let wire = f64::from(payload) + f64::from(packets) * f64::from(self.packet_overhead);
        let seconds = (wire * 8.0 / self.link_bits).max(f64::from(payload) * 8.0 / self.payload_bits);
        (seconds * 1e12) as Picos
    }

    /// Time from the doorbell of one READ of `payload` bytes to its completion, with nothing else
    /// on the way.
    pub fn unloaded_read(&self, payload: u32) -> Picos {
        let cpu = self.doorbell + self.request + self.completion;
        let cards = super::period(self.issued_per_second) + super::period(self.served_per_second);
        // The request, without payload, and the reply each take their time at both ends.
        cpu + cards + 2 * self.one_way + 2 * self.bytes(0) + 2 * self.bytes(payload)
    }
}

/// A name that is no preset's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown card `{0}`: use one of {list}", list = NicSpec::ALL.map(|spec| spec.name).join(", "))]
pub struct UnknownNic(String);
