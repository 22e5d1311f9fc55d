//! The costs of READs, by fabric.

/// The costs of a fabric, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FabricCosts {
    /// For a dependent round trip.
    pub round_trip: f64,
    /// For a byte read, its handling on the compute node included.
    pub byte: f64,
    /// For a request.
    pub request: f64,
    /// How many keys of a group wait for a round trip at once: each pays that part of it.
    pub overlap: f64,
    /// For asking the hot cache, on the compute node.
    pub probe: f64,
    /// For finding a key's group in the table of its segment, on the compute node: lines of memory
    /// that depend on one another.
    pub table: f64,
    /// For having the memory node look a key up, where it does: its thread's time, and what the way
    /// of questions takes longer than that of READs.
    pub node_lookup: f64,
}

impl FabricCosts {
    /// Memory of this machine, looked at in place. A second round trip hardly waits, because the
    /// slot that the prediction names is fetched with the window and that which matches is fetched
    /// while other keys are matched; what costs is looking at a place at all, and the bytes of it.
    /// Fitted to the times of 4 M keys of 8 bytes with values of 8 bytes under every plan: a
    /// two-stage read beats a range read of 21 slots by a quarter, and a speculative one, of which
    /// half are right, by a fifth. So windows of a few slots are read as ranges, and guesses pay
    /// where nearly all are right. Lookups by groups are made by the engine, not in the short way
    /// of words: of 16 M keys (fb) 740 ns beside 330 in two stages, which `table` has.
    pub const MAPPED_MEMORY: Self = Self {
        round_trip: 4.0,
        byte: 0.25,
        request: 22.0,
        overlap: 6.0,
        probe: 15.0,
        table: 500.0,
        node_lookup: 1000.0,
    };

    /// Another machine's memory over TCP, or this one's over its sockets: a round trip costs what
    /// dozens of windows do, and keys of a group share it. A request and its bytes are handled
    /// twice, and copied by both kernels. The memory node looks a key of a million up in 130 to 140
    /// ns (groups of 32 and 64, docs/performance.md), and in more where its caches hold less of the
    /// table.
    pub const TCP: Self = Self {
        round_trip: 15_000.0,
        byte: 0.6,
        request: 60.0,
        overlap: 64.0,
        probe: 15.0,
        table: Self::TABLE,
        node_lookup: 200.0,
    };

    /// Another machine's memory, READ by its network card: as cards of 100 Gb/s are described, not
    /// measured. Questions go over the socket.
    pub const RDMA: Self = Self {
        round_trip: 2_000.0,
        byte: 0.08,
        request: 30.0,
        overlap: 32.0,
        probe: 15.0,
        table: Self::TABLE,
        node_lookup: 13_200.0,
    };

    /// The cost of a lookup where `lookups` are under way at a time, of all compute nodes together,
    /// at a memory node: its turn comes after the bytes and requests of the others, and its round
    /// trips take no longer for that. So bytes become dear where many lookups share a network, and
    /// round trips where few do.
    #[must_use]
    pub fn at_concurrency(self, lookups: u32) -> Self {
        let others = f64::from(lookups.max(1));
        Self {
            byte: self.byte * others,
            request: self.request * others,
            node_lookup: self.node_lookup * others,
            ..self
        }
    }

    /// With 4 M keys, on one core: a lookup's way through directory and line takes 20 to 35 ns, and
    /// through the table as well 72 to 135 with plain groups, 49 to 86 with seeded ones.
    const TABLE: f64 = 60.0;
}
