//! An endpoint whose call's time is over after some batches.
#![allow(dead_code, reason = "each test uses its share")]

use fpcache_fabric::{
    AreaId, AreaInfo, Batch, Completion, Endpoint, FabricError, Meter, NotMapped, Rejected, RemoteAddr,
    Ticket,
};

/// A call's use of an endpoint, which has time for `left` more batches.
pub struct Impatient<'e, E> {
    pub inner: &'e mut E,
    pub left: usize,
}

impl<E: Endpoint> Endpoint for Impatient<'_, E> {
    type InPlace<'a>
        = NotMapped
    where
        Self: 'a;

    fn run(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        let over = FabricError::DeadlinePassed { waiting_for: "a test" };
        self.left = self.left.checked_sub(1).ok_or(over)?;
        self.inner.run(batch)
    }

    fn load_after_reads(&mut self, at: RemoteAddr) -> Result<u64, FabricError> {
        self.inner.load_after_reads(at)
    }

    fn post(&mut self, batch: Batch) -> Result<Ticket, Rejected> {
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
