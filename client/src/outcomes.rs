//! Outcomes of the changes of a call, and what the call is told of them.

use fpcache::message::WriteReply;

use crate::error::ClientError;

/// How a change ended.
pub(crate) type ChangeResult = Result<WriteReply, ClientError>;

/// How the changes of one call ended, as far as that is known.
pub(crate) struct ChangeResults {
    /// By their places; `None` if a change was not sent, or is not answered yet.
    ended: Vec<Option<ChangeResult>>,
    /// Replies that were handed over, of the first changes.
    reported: usize,
}

impl ChangeResults {
    pub(crate) fn of(ended: Vec<Option<ChangeResult>>) -> Self {
        Self { ended, reported: 0 }
    }

    /// Adds how changes ended that have these places.
    #[cfg(feature = "tokio")]
    pub(crate) fn put(&mut self, places: &[usize], ended: Vec<ChangeResult>) {
        places.iter().zip(ended).for_each(|(at, ended)| self.ended[*at] = Some(ended));
    }

    /// Appends the replies to the changes before the first one without, as far as they were not
    /// handed over before.
    pub(crate) fn tell(&mut self, replies: &mut Vec<WriteReply>) {
        while let Some(Some(Ok(reply))) = self.ended.get(self.reported) {
            replies.push(*reply);
            self.reported += 1;
        }
    }

    /// What the call ends with, once replies have been handed over. Where changes were made after
    /// one that was not, a caller that repeats all that have no reply makes those twice.
    pub(crate) fn end(self) -> Result<(), ClientError> {
        let left = &self.ended[self.reported..];
        let later = left.iter().filter(|ended| matches!(ended, Some(Ok(_)))).count();
        let errors = left.iter().flatten().filter_map(|ended| ended.as_ref().err());
        let error = errors.fold(None, |first, other| Some(choose_error(first, other)));
        match error {
            Some(error) if later > 0 => {
                let why = format!("{later} of the changes after the one that failed were made: {error}");
                Err(ClientError::OutcomeUnknown { why })
            }
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// Whether an error leaves open what was made.
pub(crate) fn leaves_open(error: &ClientError) -> bool {
    matches!(error, ClientError::OutcomeUnknown { .. })
}

/// Of the errors of one call, which may be of several memory nodes, the first; but before all
/// others one that leaves open what was made, as a call that ends with another may be made again.
fn choose_error<'e>(first: Option<&'e ClientError>, other: &'e ClientError) -> &'e ClientError {
    match first {
        Some(first) if leaves_open(first) || !leaves_open(other) => first,
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use fpcache::message::WriteStatus;
    use fpcache_fabric::FabricError;

    use super::*;

    fn late() -> ChangeResult {
        Err(FabricError::DeadlinePassed { waiting_for: "a reply" }.into())
    }

    fn open() -> ChangeResult {
        Err(ClientError::OutcomeUnknown { why: "no reply".to_owned() })
    }

    fn made() -> ChangeResult {
        Ok(WriteReply { status: WriteStatus::Done, token: None })
    }

    fn reported(ended: Vec<Option<ChangeResult>>) -> (usize, Result<(), ClientError>) {
        let (mut outcomes, mut replies) = (ChangeResults::of(ended), Vec::new());
        outcomes.tell(&mut replies);
        (replies.len(), outcomes.end())
    }

    /// Changes at one memory node had not been made, and what became of those at the next one was
    /// unknown.
    #[test]
    fn a_call_of_which_one_change_may_have_been_made_is_not_one_to_repeat() {
        for ended in [vec![late(), open()], vec![open(), late()], vec![late(), open(), late()]] {
            let (replies, ended) = reported(ended.into_iter().map(Some).collect());
            assert_eq!(replies, 0);
            assert!(matches!(ended, Err(ClientError::OutcomeUnknown { .. })), "{ended:?}");
        }
        let (_, ended) = reported(vec![Some(late()), None, Some(late())]);
        assert!(ended.unwrap_err().is_retryable());
    }

    #[test]
    fn what_was_made_is_told_and_what_has_no_reply_is_made_once() {
        let (replies, ended) = reported(vec![Some(made()), Some(made()), Some(late()), None]);
        assert_eq!(replies, 2);
        assert!(ended.unwrap_err().is_retryable());
        let (replies, ended) = reported(vec![Some(made()), Some(late()), Some(made()), Some(made()), None]);
        let error = ended.unwrap_err();
        assert!(replies == 1 && matches!(error, ClientError::OutcomeUnknown { .. }) && !error.is_retryable());
        assert!(error.to_string().contains("2 of the changes after the one that failed"), "{error}");
        let (replies, ended) = reported(vec![Some(made()), Some(made())]);
        assert!(replies == 2 && ended.is_ok());
    }
}
