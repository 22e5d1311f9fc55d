//! The begin of loads, and of tables by the parameters that their first write needs.

use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::layout::TableParameters;
use fpcache::message::{ErrorCode, Refusal, Request};
use fpcache_fabric::Deadline;

use super::{Connector, Core};
use crate::error::ClientError;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Begins a load, and returns its number and the creation number of its table. After an error
    /// nothing is in the way of the next one.
    pub(crate) fn begin_load(
        &self,
        parameters: TableParameters,
        expected_keys: u64,
        encoders: &K::Encoders,
        within: Duration,
    ) -> Result<(u64, u64), ClientError> {
        let deadline = Deadline::after_on(&*self.clock, within);
        let (load, encoders) = (self.next_load(), K::encode_encoders(encoders));
        let begin = Request::LoadBegin { load, parameters, expected_keys, encoders: &encoders };
        let begun = self.call(&begin, None, within, |creation, _| Ok((load, creation)));
        if matches!(begun, Err(ClientError::Fabric(_))) {
            // It may have been executed all the same.
            let left = deadline.remaining(self.clock.now()).unwrap_or(within);
            let _ = self.call(&Request::LoadAbort(load), None, to_abort(left, within), |_, _| Ok(()));
        }
        begun
    }

    /// Gives the table its parameters, unless it has some by now.
    #[cold]
    pub(super) fn create_for_write(
        &self,
        parameters: TableParameters,
        within: Duration,
    ) -> Result<(), ClientError> {
        let deadline = Deadline::after_on(&*self.clock, within);
        let left = || deadline.remaining(self.clock.now()).unwrap_or(within);
        let (load, creation) = match self.begin_load(parameters, 0, &K::Encoders::default(), within) {
            Err(ClientError::Refused(refusal)) if refusal.code == ErrorCode::NotEmpty => return Ok(()),
            begun => begun.map_err(|error| self.or_other_keys(error, deadline))?,
        };
        let committed = self.call(&Request::LoadCommit(load), Some(creation), left(), |_, _| Ok(()));
        if committed.is_err() {
            // Nothing must be in the way of the next attempt; that it was committed after all is as
            // good.
            let _ =
                self.call(&Request::LoadAbort(load), Some(creation), to_abort(left(), within), |_, _| Ok(()));
        }
        committed
    }

    /// The error of a load's begin; to a table with other keys it made no sense.
    fn or_other_keys(&self, error: ClientError, deadline: Deadline) -> ClientError {
        let is_senseless =
            matches!(&error, ClientError::Refused(refusal) if refusal.code == ErrorCode::Invalid);
        match is_senseless.then(|| self.connector().listed_kind(deadline)).flatten() {
            Some(theirs) if !theirs.is::<K>() => ClientError::OtherKeys { theirs, own: K::NAME },
            _ => error,
        }
    }
}

/// The time to clean up after a call `within` which there is so much `left`: a little also when it
/// is over.
fn to_abort(left: Duration, within: Duration) -> Duration {
    left.max(within / 8)
}

/// Whether giving a table parameters failed because of another attempt to do so, or because the
/// connection of this one was lost in between, so that trying again may help.
pub(super) fn is_of_another_attempt(error: &ClientError) -> bool {
    match error {
        // A commit's begin may have been forgotten with another connection; and a table that was
        // made anew meanwhile may have other keys, to which this request makes no sense.
        ClientError::Refused(Refusal { code, .. }) => matches!(
            code,
            ErrorCode::Busy | ErrorCode::OtherTable | ErrorCode::NoSuchLoad | ErrorCode::Invalid
        ),
        _ => false,
    }
}
