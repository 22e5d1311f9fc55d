//! Tasks' changes, which a thread sends to each memory node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache::message::WriteReply;
use fpcache_fabric::FabricError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::group::To;
use super::unanswered::{OTHERS, runtime_has_ended, unknown};
use crate::changes::Changes;
use crate::client::{TableClient, Transport};
use crate::error::{ClientError, ErrorKind};

/// Calls whose changes are sent together, at most. A request may be shorter than they are.
const TOGETHER: usize = 256;

/// Where tasks' changes wait for the threads that send them, each of which begins with the first one for its memory node and ends
/// with the queue.
///
/// One thread for a memory node, so that its changes take effect in the order in which they were asked for: one that nobody
/// waits for any more never comes after a later one. What waits while a request is under way goes with the next, so that many
/// tasks' changes cost one reply of the memory node, and one sync of its log. A memory node that is away or silent holds up its
/// own changes alone.
pub(super) struct ChangeQueue<K: BuildKeys> {
    waiting: usize,
    /// By the memory node's URL, which is empty where there is only one.
    senders: Mutex<HashMap<String, Sender<Call<K>>>>,
}

/// Changes of one call that are one memory node's.
pub(super) struct Part<K: BuildKeys> {
    node: String,
    changes: Changes<K>,
    /// All changes of the call, if others have some: where one of them cannot be the table's, none is made.
    whole: Option<Arc<Changes<K>>>,
    /// The places of these among all of the call.
    pub(super) places: Vec<usize>,
}

/// A call's changes at one memory node.
struct Call<K: BuildKeys> {
    changes: Changes<K>,
    whole: Option<Arc<Changes<K>>>,
    until: Instant,
    to: To<Vec<WriteReply>>,
}

/// Divides the changes of a call among the memory nodes that have their keys.
pub(super) fn divide<K: BuildKeys>(client: &TableClient<K>, changes: Changes<K>) -> Vec<Part<K>> {
    let all = |node: String, changes: Changes<K>| {
        let places = (0..changes.len()).collect();
        vec![Part { node, changes, whole: None, places }]
    };
    let Transport::Pool(pool) = &client.transport else { return all(String::new(), changes) };
    let ranges = pool.ranges();
    let parts = ranges.divide(changes.operations().map(|operation| operation.key).enumerate());
    let parts: Vec<_> = parts.into_iter().enumerate().filter(|(_, places)| !places.is_empty()).collect();
    if let [(index, _)] = &parts[..] {
        return all(ranges.url(*index), changes);
    }
    let whole = Arc::new(changes);
    let part = |(index, places): (usize, Vec<usize>)| {
        let (node, changes) = (ranges.url(index), whole.only(&places));
        Part { node, changes, whole: Some(Arc::clone(&whole)), places }
    };
    parts.into_iter().map(part).collect()
}

impl<K: BuildKeys> ChangeQueue<K> {
    pub(super) fn new(waiting: usize) -> Self {
        Self { waiting, senders: Mutex::default() }
    }

    /// Puts changes into the queue, once there is room: whoever drops this before has sent nothing.
    pub(super) fn push(
        &self,
        client: &TableClient<K>,
        part: Part<K>,
        until: Instant,
        to: To<Vec<WriteReply>>,
    ) -> impl Future<Output = Result<(), ClientError>> + use<K> {
        let Part { node, changes, whole, places: _ } = part;
        let sender = self.sender(client, node);
        let call = Call { changes, whole, until, to };
        async move { sender?.send(call).await.map_err(|_| runtime_has_ended()) }
    }

    fn sender(&self, client: &TableClient<K>, node: String) -> Result<Sender<Call<K>>, ClientError> {
        // Changed by one insertion.
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        // One whose thread has panicked is of no use any more.
        if let Some(sender) = senders.get(&node).filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let (calls, receiver) = channel(self.waiting);
        let client = client.clone();
        thread::Builder::new()
            .name("fpcache-changes".to_owned())
            .spawn(move || send_all(&client, receiver))
            .map_err(|source| FabricError::os("starting a thread for changes", source))?;
        senders.insert(node, calls.clone());
        Ok(calls)
    }
}

/// Sends what waits, until nobody can ask for more.
fn send_all<K: BuildKeys>(client: &TableClient<K>, mut receiver: Receiver<Call<K>>) {
    let mut calls = Vec::with_capacity(TOGETHER);
    while receiver.blocking_recv_many(&mut calls, TOGETHER) > 0 {
        send_together(client, &mut calls);
    }
}

/// Sends the changes of several calls as one request, or as few as they fit.
fn send_together<K: BuildKeys>(client: &TableClient<K>, calls: &mut Vec<Call<K>>) {
    let Some(left) = leave_out_late(calls) else { return };
    leave_out_misfits(&client.with_deadline(left), calls);
    // Other memory nodes may have been waited for: what nobody waits for any more is not sent, however late it is now.
    let Some(left) = leave_out_late(calls) else { return };
    let client = client.with_deadline(left);
    let changes = calls.iter().flat_map(|call| call.changes.operations());
    let mut ended = client.write_each(changes).into_iter();
    let is_alone = calls.len() == 1;
    for call in calls.drain(..) {
        let count = call.changes.len();
        let (mut replies, mut error) = (Vec::with_capacity(count), None);
        for ended in ended.by_ref().take(count) {
            match ended {
                Ok(reply) => replies.push(reply),
                Err(other) => error = Some(what_to_tell(error, other)),
            }
        }
        match error {
            None if replies.len() == count => drop(call.to.send(Ok(replies))),
            None => drop(call.to.send(Err(unknown("the memory node has sent too few replies")))),
            // It may have been of this call, and of what came after it nobody knows more.
            Some(error @ ClientError::OutcomeUnknown { .. }) => drop(call.to.send(Err(error))),
            // Some of its changes were made, with the requests before the one that failed, or at another memory node.
            Some(error) if !replies.is_empty() => {
                drop(call.to.send(Err(in_part(replies.len(), count, &error))));
            }
            Some(error) if is_alone => drop(call.to.send(Err(error))),
            // Something is wrong with a change, perhaps another call's, and none was sent.
            Some(error) if error.kind() == ErrorKind::Invalid => send_together(&client, &mut vec![call]),
            // A reply that makes no sense does not say what was made.
            Some(ClientError::Message(error)) => drop(call.to.send(Err(unknown(&error.to_string())))),
            // What was sent all the same is gone with its table.
            Some(error) => drop(call.to.send(Err(error))),
        }
    }
}

/// Leaves out the calls whose time is over or that nobody waits for any more, and says how long the others have; `None` if there
/// are none.
fn leave_out_late<K: BuildKeys>(calls: &mut Vec<Call<K>>) -> Option<Duration> {
    let now = Instant::now();
    calls.retain(|call| !call.to.is_closed());
    for call in calls.extract_if(.., |call| call.until <= now) {
        drop(call.to.send(Err(FabricError::DeadlinePassed { waiting_for: OTHERS }.into())));
    }
    calls.iter().map(|call| call.until.saturating_duration_since(now)).max()
}

/// Answers the calls of which another memory node has a change that cannot be the table's: it is not made there either.
fn leave_out_misfits<K: BuildKeys>(client: &TableClient<K>, calls: &mut Vec<Call<K>>) {
    let Transport::Pool(pool) = &client.transport else { return };
    let end = Instant::now() + client.deadline;
    let misfit = |call: &mut Call<K>| {
        let left = end.saturating_duration_since(Instant::now());
        call.whole.as_ref().and_then(|whole| pool.misfit_of(&call.changes, whole, left))
    };
    let mut at = 0;
    // All of them together wait for a memory node that is silent no longer than one of them may.
    while at < calls.len() && Instant::now() < end {
        match misfit(&mut calls[at]) {
            Some(error) => drop(calls.remove(at).to.send(Err(error))),
            None => at += 1,
        }
    }
}

/// Of the errors of one call, which may be of several memory nodes, the first; but before all others one that leaves open what was
/// made, as a call that ends with another may be made again.
pub(super) fn what_to_tell(first: Option<ClientError>, other: ClientError) -> ClientError {
    let leaves_open =
        |error: &ClientError| matches!(error, ClientError::OutcomeUnknown { .. } | ClientError::Message(_));
    match first {
        Some(first) if leaves_open(&first) || !leaves_open(&other) => first,
        _ => other,
    }
}

/// What a call is told of which some changes were made, and then something went wrong: whoever makes all of them again makes
/// those twice.
pub(super) fn in_part(made: usize, count: usize, error: &ClientError) -> ClientError {
    unknown(&format!("{made} of {count} changes were made, and then: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes at one memory node had not been made, and what became of those at the next one nobody knew.
    #[test]
    fn a_call_of_which_one_change_may_have_been_made_is_not_one_to_repeat() {
        let late: ClientError = FabricError::DeadlinePassed { waiting_for: OTHERS }.into();
        let errors = [late.clone(), unknown("no reply"), late.clone()];
        for told in [&errors[..2], &errors[1..], &errors[..]] {
            let told = told.iter().cloned().fold(None, |first, other| Some(what_to_tell(first, other)));
            assert!(matches!(told, Some(ClientError::OutcomeUnknown { .. })), "{told:?}");
        }
        assert!(what_to_tell(Some(late.clone()), late).is_retryable());
    }

    #[test]
    fn a_call_that_was_made_in_part_is_not_one_to_repeat() {
        let late: ClientError = FabricError::DeadlinePassed { waiting_for: OTHERS }.into();
        assert!(late.is_retryable());
        let told = in_part(3, 5, &late);
        assert!(matches!(told, ClientError::OutcomeUnknown { .. }) && !told.is_retryable(), "{told}");
        assert!(told.to_string().contains("3 of 5 changes were made"), "{told}");
    }
}
