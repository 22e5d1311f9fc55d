//! Giving an empty table the parameters that its first write needs.

use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::layout::TableParameters;
use fpcache::message::{ErrorCode, Refusal, Request};
use fpcache_fabric::Deadline;

use super::{Connector, Core};
use crate::error::ClientError;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Gives the table its parameters, unless it has some by now.
    #[cold]
    pub(super) fn create_for_write(
        &self,
        parameters: TableParameters,
        within: Duration,
    ) -> Result<(), ClientError> {
        let deadline = Deadline::after_on(&*self.clock, within);
        let left = || deadline.remaining(self.clock.now()).unwrap_or(within);
        // To clean up takes a little time also when it is over.
        let to_abort = || left().max(within / 8);
        let encoders = K::encode_encoders(&K::Encoders::default());
        let load = self.next_load();
        let begin = Request::LoadBegin { load, parameters, expected_keys: 0, encoders: &encoders };
        let creation = match self.call(&begin, None, within, |creation, _| Ok(creation)) {
            Err(ClientError::Refused(refusal)) if refusal.code == ErrorCode::NotEmpty => return Ok(()),
            Err(error) => {
                if matches!(error, ClientError::Fabric(_)) {
                    // It may have been executed all the same: nothing is in the way of the next one
                    // then.
                    let _ = self.call(&Request::LoadAbort(load), None, to_abort(), |_, _| Ok(()));
                }
                return Err(error);
            }
            Ok(creation) => creation,
        };
        let committed = self.call(&Request::LoadCommit(load), Some(creation), left(), |_, _| Ok(()));
        if committed.is_err() {
            // Nothing must be in the way of the next attempt; that it was committed after all is as
            // good.
            let _ = self.call(&Request::LoadAbort(load), Some(creation), to_abort(), |_, _| Ok(()));
        }
        committed
    }
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
