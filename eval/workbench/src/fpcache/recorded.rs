//! The READs of opening a table and bringing it up to date, so that they can be posted in the
//! model.

use fpcache_fabric::{
    AreaId, AreaInfo, Batch, Completion, Endpoint, FabricError, MappedEndpoint, Meter, NotMapped, Rejected,
    RemoteAddr, Request as Posted, Ticket,
};

/// An endpoint that notes the bytes of each READ of each doorbell.
pub(super) struct Recorded<'a> {
    inner: &'a mut MappedEndpoint,
    /// A list for each round trip.
    pub(super) trips: Vec<Vec<u32>>,
}

impl<'a> Recorded<'a> {
    /// Over this endpoint, nothing READ yet.
    pub(super) fn new(inner: &'a mut MappedEndpoint) -> Self {
        Self { inner, trips: Vec::new() }
    }
}

impl Endpoint for Recorded<'_> {
    // Memory that is looked at in place would not be noted.
    type InPlace<'b>
        = NotMapped
    where
        Self: 'b;

    fn run(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        let bytes = |request| match request {
            Posted::Read { len, .. } => len as u32,
            // Tables are opened by READs alone.
            _ => 8,
        };
        self.trips.push(batch.requests().map(bytes).collect());
        self.inner.run(batch)
    }

    fn load_after_reads(&mut self, at: RemoteAddr) -> Result<u64, FabricError> {
        self.trips.push(vec![8]);
        self.inner.load_after_reads(at)
    }

    fn post(&mut self, batch: Batch) -> Result<Ticket, Rejected> {
        self.trips.push(batch.requests().map(|_| 8).collect());
        self.inner.post(batch)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.inner.poll()
    }

    fn area(&self, area: AreaId) -> Option<AreaInfo> {
        self.inner.area(area)
    }

    fn meter(&self) -> &Meter {
        self.inner.meter()
    }
}
