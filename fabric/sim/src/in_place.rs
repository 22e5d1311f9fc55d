//! An area of a simulated memory node that seems to be mapped.
//!
//! Whatever is looked at is fetched at that moment, at the instants and in the pieces a READ has:
//! so what is looked at in place tears, and other stores become visible between two looks. As
//! mapped memory does, it outlives the memory node: what is looked at then is what the dead left,
//! until a process asks whether it lives.

use fpcache_fabric::{AreaId, Endpoint, FabricError, InPlace, RemoteAddr, Words};

use crate::endpoint::SimEndpoint;

/// One area of a simulated memory node.
#[derive(Debug)]
pub struct SimInPlace<'a> {
    pub(crate) endpoint: &'a mut SimEndpoint,
    pub(crate) area: AreaId,
    pub(crate) seen: Vec<u64>,
}

impl SimInPlace<'_> {
    fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { area: self.area, offset }
    }
}

impl InPlace for SimInPlace<'_> {
    fn prefetch(&self, _: u64, _: usize) {}

    fn words(&mut self, offset: u64, bytes: usize) -> Result<Words<'_>, FabricError> {
        if !(offset | bytes as u64).is_multiple_of(8) {
            return Err(FabricError::Misaligned { area: self.area, offset });
        }
        self.seen.resize(bytes / 8, 0);
        let from = self.at(offset);
        let seen = self.endpoint.read_words(from, &mut self.seen);
        self.endpoint.or_after_death(seen, from, &mut self.seen)?;
        Ok(self.seen[..].into())
    }

    fn record(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError> {
        let (from, stride) = (self.at(offset), out.len());
        let seen = self.endpoint.read_records(from, out, stride);
        self.endpoint.or_after_death(seen, from, out)
    }

    fn copy(&mut self, offset: u64, out: &mut [u64]) -> Result<(), FabricError> {
        let from = self.at(offset);
        let seen = self.endpoint.read_words(from, out);
        self.endpoint.or_after_death(seen, from, out)
    }

    fn load_after_reads(&mut self, offset: u64) -> Result<u64, FabricError> {
        let at = self.at(offset);
        let mut word = [0];
        let seen = self.endpoint.load_after_reads(at).map(|seen| word = [seen]);
        self.endpoint.or_after_death(seen, at, &mut word)?;
        Ok(word[0])
    }

    /// Does nothing: looks are counted when they fetch.
    fn count(&mut self, _: u32, _: u32, _: u64) -> Result<(), FabricError> {
        self.check_alive()
    }

    fn check_alive(&mut self) -> Result<(), FabricError> {
        self.endpoint.check_alive()
    }
}
