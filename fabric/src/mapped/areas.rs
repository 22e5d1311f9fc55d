//! Mapped areas, and the execution of requests on them.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::link::Link;
use crate::error::FabricError;
use crate::memory::{Access, AccessError, PREFETCH_PER_READ, SharedMemory, read_ahead};
use crate::meter::Meter;
use crate::verbs::{AreaId, PostedVerb, Tally, Verb};

/// How a request ended. The error is boxed because moving a large one costs more than a READ, even
/// on success.
pub(super) type Outcome = Result<(), Box<FabricError>>;

/// A mapped area and an endpoint's rights to it.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    pub(crate) memory: Arc<SharedMemory>,
    pub(crate) access: Access,
}

impl Area {
    pub(crate) fn new(memory: Arc<SharedMemory>, granted: Access) -> Self {
        let access = if memory.access() == Access::ReadOnly { Access::ReadOnly } else { granted };
        Self { memory, access }
    }
}

/// The areas that an endpoint reaches while the memory node is there, and the cost so far.
#[derive(Debug)]
pub(super) struct Reach {
    pub(super) areas: Arc<[Area]>,
    pub(super) link: Arc<Link>,
    pub(super) meter: Arc<Meter>,
}

#[inline]
pub(super) fn area(areas: &[Area], id: AreaId) -> Result<&Area, Box<FabricError>> {
    areas.get(usize::from(id.0)).ok_or_else(|| no_such_area(id))
}

/// Maps the pages of a part of an area; out of bounds it is cut short, as befits a hint.
pub(crate) fn will_read(areas: &[Area], area: AreaId, offset: u64, len: u64) {
    if let Some(area) = areas.get(usize::from(area.0)) {
        area.memory.populate(offset, usize::try_from(len).unwrap_or(usize::MAX));
    }
}

#[cold]
pub(super) fn no_such_area(area: AreaId) -> Box<FabricError> {
    Box::new(FabricError::NoSuchArea { area })
}

#[inline(always)]
pub(super) fn read(areas: &[Area], request: &PostedVerb, buffer: &mut [u64]) -> Outcome {
    let area = area(areas, request.area)?;
    let (word, len) = (request.word as usize, request.len as usize);
    let landing = &mut buffer[word..word + len.div_ceil(8)];
    let outcome = area.memory.read_landing(request.offset, len, request.stride as usize, landing);
    outcome.map_err(|error| fault(request.area, error.into()))
}

/// Executes requests in order.
pub(super) fn execute_many(
    areas: &[Area],
    requests: &[PostedVerb],
    buffer: &mut [u64],
    tally: &Tally,
) -> Outcome {
    if tally.changes() > 0 {
        return requests.iter().try_for_each(|request| match request.verb {
            Verb::Read => read(areas, request, buffer),
            _ => change(areas, request, buffer),
        });
    }
    read_ahead(requests.iter(), |next| prefetch(areas, next), |request| read(areas, request, buffer))
}

#[inline]
pub(super) fn prefetch(areas: &[Area], request: &PostedVerb) {
    if request.verb == Verb::Read
        && let Some(area) = areas.get(usize::from(request.area.0))
    {
        area.memory.prefetch(request.offset, (request.len as usize).min(PREFETCH_PER_READ));
    }
}

/// Executes a WRITE or an atomic.
fn change(areas: &[Area], request: &PostedVerb, buffer: &mut [u64]) -> Outcome {
    use zerocopy::IntoBytes;
    let area = area(areas, request.area)?;
    let (memory, word, offset) = (&area.memory, request.word as usize, request.offset);
    if area.access == Access::ReadOnly {
        return Err(fault(request.area, AccessError::ReadOnly));
    }
    let outcome = match request.verb {
        Verb::Read => Ok(()),
        Verb::Write => {
            // Changes take effect in posting order: a reader that sees this one sees those before.
            fence(Ordering::Release);
            let len = request.len as usize;
            let bytes = &buffer[word..word + len.div_ceil(8)].as_bytes()[..len];
            memory.write_bytes(offset, bytes)
        }
        Verb::CompareSwap => {
            memory.compare_exchange(offset, buffer[word + 1], buffer[word + 2]).map(|old| buffer[word] = old)
        }
    };
    outcome.map_err(|error| fault(request.area, error))
}

#[cold]
pub(super) fn fault(area: AreaId, error: AccessError) -> Box<FabricError> {
    Box::new(FabricError::of_access(area, error))
}
