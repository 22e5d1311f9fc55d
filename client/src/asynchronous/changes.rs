//! Tasks' changes, which a thread sends to each memory node.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fpcache::key_space::BuildKeys;
use fpcache::message::{ErrorCode, MAX_OPERATIONS};
use fpcache_fabric::FabricError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::unanswered::{OTHERS, runtime_has_ended, unknown};
use crate::changes::Changes;
use crate::client::{TableClient, Transport};
use crate::error::{ClientError, ErrorKind};
use crate::outcomes::ChangeResult;

/// Calls whose changes are sent together, at most.
const TOGETHER: usize = 256;
/// Bytes of changes, heads included, that fit one request: it has 1 MiB.
pub(super) const REQUEST_BYTES: usize = (1 << 20) - 64;
/// Bytes of changes that wait or are under way, at most: those of calls that were given up stay
/// there until their turn.
const WAITING_BYTES: u32 = 64 << 20;

/// Where tasks' changes wait for the threads that send them, each of which begins with the first
/// one for its memory node and ends with the queue.
///
/// One thread for a memory node, so that its changes take effect in the order in which they were
/// asked for: one whose call was given up never comes after a later one. What waits while a request
/// is under way goes with the next, so that many tasks' changes cost one reply of the memory node,
/// and one sync of its log. A memory node that is away or silent holds up its own changes alone.
pub(super) struct ChangeQueue<K: BuildKeys> {
    waiting: usize,
    /// By the memory node's URL, which is empty where there is only one.
    queues: Mutex<HashMap<String, Arc<NodeQueue<K>>>>,
}

/// Where the changes of one memory node wait.
struct NodeQueue<K: BuildKeys> {
    calls: Sender<Call<K>>,
    /// For as many bytes as may wait.
    room: Arc<Semaphore>,
}

/// The changes of one call that are one memory node's, by their places among all of the call.
pub(super) struct NodeChanges {
    pub(super) node: String,
    pub(super) places: Vec<usize>,
}

/// Changes of a call for one request.
pub(super) struct RequestChanges<K: BuildKeys> {
    pub(super) changes: Changes<K>,
    /// All changes of the call, if there are others and none has been sent to that memory node:
    /// where one of them cannot be the table's, none is made.
    pub(super) whole: Option<Arc<Changes<K>>>,
}

/// The call that waits for how each change of a piece ended.
pub(super) struct ChangeReplier {
    pub(super) answer: oneshot::Sender<Vec<ChangeResult>>,
    pub(super) claim: Arc<Claim>,
}

/// Who has a piece: the thread that sends it, or the task that waits for it and gives it up. The
/// first to ask gets it, so that a change that is told not to have been made is not sent any more.
#[derive(Default)]
pub(super) struct Claim(AtomicBool);

impl Claim {
    /// Takes the piece, unless the other one has it.
    pub(super) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// A piece that waits to be sent.
struct Call<K: BuildKeys> {
    piece: RequestChanges<K>,
    until: Instant,
    answer: oneshot::Sender<Vec<ChangeResult>>,
    /// Until it is taken to be sent. It may be sent again, if something is wrong with others.
    claim: Option<Arc<Claim>>,
    /// Why the first request with it was refused, if it is to be sent again.
    refused: Option<ClientError>,
    /// For its bytes, from when it gets into the queue.
    room: Option<OwnedSemaphorePermit>,
}

/// Divides the changes of a call among the memory nodes that have their keys.
pub(super) fn divide<K: BuildKeys>(client: &TableClient<K>, changes: &Changes<K>) -> Vec<NodeChanges> {
    let Transport::Pool(pool) = &client.transport else {
        return vec![NodeChanges { node: String::new(), places: (0..changes.len()).collect() }];
    };
    let ranges = pool.ranges();
    let parts = ranges.divide(changes.operations().map(|operation| operation.key).enumerate());
    let parts = parts.into_iter().enumerate().filter(|(_, places)| !places.is_empty());
    parts.map(|(index, places)| NodeChanges { node: ranges.url(index), places }).collect()
}

impl<K: BuildKeys> ChangeQueue<K> {
    pub(super) fn new(waiting: usize) -> Self {
        Self { waiting, queues: Mutex::default() }
    }

    /// Puts changes into the queue, once there is room: if this is dropped before, nothing was
    /// sent.
    pub(super) fn push(
        &self,
        client: &TableClient<K>,
        (node, piece): (String, RequestChanges<K>),
        until: Instant,
        ChangeReplier { answer, claim }: ChangeReplier,
    ) -> impl Future<Output = Result<(), ClientError>> + use<K> {
        let queue = self.queue(client, node);
        let call = Call { piece, until, answer, claim: Some(claim), refused: None, room: None };
        async move { queue?.push(call).await }
    }

    fn queue(&self, client: &TableClient<K>, node: String) -> Result<Arc<NodeQueue<K>>, ClientError> {
        // Changed by one insertion.
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        // One whose thread has panicked is of no use any more.
        if let Some(queue) = queues.get(&node).filter(|queue| !queue.calls.is_closed()) {
            return Ok(Arc::clone(queue));
        }
        let (queue, receiver) = NodeQueue::new(self.waiting);
        let client = client.clone();
        thread::Builder::new()
            .name("fpcache-changes".to_owned())
            .spawn(move || send_all(&client, receiver))
            .map_err(|source| FabricError::os("starting a thread for changes", source))?;
        let queue = Arc::new(queue);
        queues.insert(node, Arc::clone(&queue));
        Ok(queue)
    }
}

impl<K: BuildKeys> NodeQueue<K> {
    fn new(waiting: usize) -> (Self, Receiver<Call<K>>) {
        let (calls, receiver) = channel(waiting);
        (Self { calls, room: Arc::new(Semaphore::new(WAITING_BYTES as usize)) }, receiver)
    }

    async fn push(&self, mut call: Call<K>) -> Result<(), ClientError> {
        let RequestChanges { changes, whole } = &call.piece;
        let bytes = changes.request_bytes() + whole.as_ref().map_or(0, |whole| whole.request_bytes());
        // One that is longer waits until it is alone.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(WAITING_BYTES);
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await;
        call.room = Some(room.map_err(|_| runtime_has_ended())?);
        self.calls.send(call).await.map_err(|_| runtime_has_ended())
    }
}

/// Sends what waits, until no more can be asked for.
fn send_all<K: BuildKeys>(client: &TableClient<K>, mut receiver: Receiver<Call<K>>) {
    let mut calls = Vec::with_capacity(TOGETHER);
    while receiver.blocking_recv_many(&mut calls, TOGETHER) > 0 {
        // The others are not under way yet: they can be given up still.
        while !calls.is_empty() {
            let mut fitting = calls.drain(..fitting(&calls)).collect();
            send_together(client, &mut fitting);
        }
    }
}

/// How many of the first calls fit one request, but one at least.
fn fitting<K: BuildKeys>(calls: &[Call<K>]) -> usize {
    let (mut bytes, mut operations) = (0, 0);
    let fits = |call: &&Call<K>| {
        bytes += call.piece.changes.request_bytes();
        operations += call.piece.changes.len();
        bytes <= REQUEST_BYTES && operations <= MAX_OPERATIONS
    };
    calls.iter().take_while(fits).count().max(1)
}

/// Sends the changes of several calls as one request.
fn send_together<K: BuildKeys>(client: &TableClient<K>, calls: &mut Vec<Call<K>>) {
    let Some(left) = drop_expired(calls) else { return };
    leave_out_misfits(&client.with_deadline(left), calls);
    // Other memory nodes may have been waited for: what is no longer waited for is not sent,
    // however late it is now.
    let Some(left) = drop_expired(calls) else { return };
    calls.retain_mut(Call::take);
    let client = client.with_deadline(left);
    let changes = calls.iter().flat_map(|call| call.piece.changes.operations());
    let mut ended = client.write_each(changes).into_iter();
    let (is_alone, mut again) = (calls.len() == 1, Vec::new());
    for mut call in calls.drain(..) {
        let count = call.piece.changes.len();
        let mut own: Vec<ChangeResult> = ended.by_ref().take(count).collect();
        own.resize_with(count, || Err(unknown("the memory node has sent too few replies")));
        // Something is wrong with a change, perhaps another call's, or its long value was refused,
        // and none of the request was made.
        match own.first() {
            Some(Err(error)) if !is_alone && own.iter().all(is_of_one_change) => {
                call.refused.get_or_insert_with(|| error.clone());
                again.push(call);
            }
            _ => call.answer(own),
        }
    }
    // By halves, as most have nothing to do with it: one of hundreds costs the others a few
    // requests more, in order still.
    let rest = again.split_off(again.len() / 2);
    for mut half in [again, rest] {
        if !half.is_empty() {
            send_together(&client, &mut half);
        }
    }
}

/// Whether none of the changes of a request was made because of one of them, perhaps: for lack of
/// room, or of memory for the time being, its long value may have been refused. What is refused for
/// other reasons is refused to all.
fn is_of_one_change(ended: &ChangeResult) -> bool {
    ended.as_ref().is_err_and(|error| match error {
        ClientError::Refused(refusal) if matches!(refusal.code, ErrorCode::Busy | ErrorCode::Full) => true,
        error => error.kind() == ErrorKind::Invalid,
    })
}

impl<K: BuildKeys> Call<K> {
    /// Takes it to be sent; `false` if it was given up.
    fn take(&mut self) -> bool {
        self.claim.take().is_none_or(|claim| claim.take())
    }

    /// Tells the call that waits how its changes ended.
    fn answer(self, ended: Vec<ChangeResult>) {
        drop(self.answer.send(ended));
    }

    /// Tells the call that waits why none of its changes was made.
    fn fail(self, error: ClientError) {
        let count = self.piece.changes.len();
        self.answer(vec![Err(error); count]);
    }
}

/// Leaves out the calls whose time is over or that were given up, and says how long the others
/// have; `None` if there are none.
fn drop_expired<K: BuildKeys>(calls: &mut Vec<Call<K>>) -> Option<Duration> {
    let now = Instant::now();
    calls.retain(|call| !call.answer.is_closed());
    for mut call in calls.extract_if(.., |call| call.until <= now) {
        let late = || FabricError::DeadlinePassed { waiting_for: OTHERS }.into();
        let error = call.refused.take().unwrap_or_else(late);
        call.fail(error);
    }
    calls.iter().map(|call| call.until.saturating_duration_since(now)).max()
}

/// Answers the calls of which another piece has a change that cannot be the table's: this one is
/// not made either.
fn leave_out_misfits<K: BuildKeys>(client: &TableClient<K>, calls: &mut Vec<Call<K>>) {
    let end = Instant::now() + client.deadline;
    let misfit = |RequestChanges { changes, whole }: &mut RequestChanges<K>| {
        let left = end.saturating_duration_since(Instant::now());
        whole.take().and_then(|whole| client.misfit_of(changes, &whole, left))
    };
    let mut at = 0;
    // All of them together wait for a memory node that is silent no longer than one of them may.
    while at < calls.len() && Instant::now() < end {
        match misfit(&mut calls[at].piece) {
            Some(error) => calls.remove(at).fail(error),
            None => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use fpcache::key_space::U64Keys;
    use fpcache::message::WriteKind;

    use super::*;

    fn call(changes: Changes<U64Keys>) -> Call<U64Keys> {
        Call {
            piece: RequestChanges { changes, whole: None },
            until: Instant::now(),
            answer: oneshot::channel().0,
            claim: None,
            refused: None,
            room: None,
        }
    }

    #[test]
    fn calls_of_many_small_changes_are_not_claimed_together_that_do_not_fit_one_request() {
        let calls = |count: u64| {
            let mut changes = Changes::<U64Keys>::default();
            for key in 0..count {
                changes.put(key, &[7]);
            }
            (0..4).map(|_| call(changes.only(&(0..count as usize).collect::<Vec<_>>()))).collect::<Vec<_>>()
        };
        let most = MAX_OPERATIONS as u64;
        assert_eq!([1, most / 2, most / 2 + 1, 3 * most].map(|count| fitting(&calls(count))), [4, 2, 1, 1]);
        // Nor does a piece of one call need several.
        let mut changes = Changes::<U64Keys>::default();
        for key in 0..3 * most {
            changes.put(key, &[7]);
        }
        let places: Vec<usize> = (0..3 * MAX_OPERATIONS).collect();
        assert_eq!(changes.fitting(&places, REQUEST_BYTES), MAX_OPERATIONS);
    }

    /// Four thousand calls of any length waited, though they had been given up.
    #[test]
    fn changes_of_many_bytes_wait_for_room_however_few_they_are() {
        let call = || call(Changes::of_one(WriteKind::Put, 1, &[7; 1 << 20]));
        let (queue, mut receiver) = NodeQueue::new(4096);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..WAITING_BYTES >> 20 {
            if pin!(queue.push(call())).poll(&mut context).is_pending() {
                break;
            }
        }
        let mut next = pin!(queue.push(call()));
        assert!(next.as_mut().poll(&mut context).is_pending());
        // It is their memory that counts, and not their place in the queue.
        let first = receiver.try_recv().unwrap();
        assert!(next.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(next.as_mut().poll(&mut context).is_ready());
    }
}
