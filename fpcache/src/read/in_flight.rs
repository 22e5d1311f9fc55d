//! Operations in flight: those of one thread over several memory nodes, of which some go on while
//! others wait for their batches.

use fpcache_fabric::Endpoint;

use super::{Operation, ReadError, advance};

/// An operation under way over an endpoint that nothing else uses meanwhile.
///
/// One that is given up leaves a batch posted: its endpoint must not be used any more.
#[derive(Debug)]
pub struct InFlight<'e, E, O> {
    endpoint: &'e mut E,
    operation: O,
    is_done: bool,
}

impl<'e, E: Endpoint, O: Operation> InFlight<'e, E, O> {
    /// Begins an operation: its first batch is on its way.
    ///
    /// # Errors
    /// As for [`drive`](super::drive).
    pub fn begin(endpoint: &'e mut E, operation: O) -> Result<Self, ReadError> {
        let mut flight = Self { endpoint, operation, is_done: false };
        flight.advance()?;
        Ok(flight)
    }

    /// Takes what has come, and posts what comes next. Says whether something had come.
    ///
    /// # Errors
    /// As for [`drive`](super::drive).
    pub fn poll(&mut self) -> Result<bool, ReadError> {
        if self.is_done {
            return Ok(false);
        }
        let Some(completion) = self.endpoint.poll() else { return Ok(false) };
        *self.operation.batch() = completion.batch;
        completion.result?;
        self.advance()?;
        Ok(true)
    }

    /// Whether the operation has ended.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    fn advance(&mut self) -> Result<(), ReadError> {
        self.is_done = !advance(self.endpoint, &mut self.operation)?;
        if !self.is_done
            && let Err(rejected) = self.endpoint.post(std::mem::take(self.operation.batch()))
        {
            *self.operation.batch() = rejected.batch;
            return Err(rejected.error.into());
        }
        Ok(())
    }
}
