//! Running operations over a socket that a runtime waits for.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::Poll;
use std::time::{Duration, Instant};

use fpcache::read::{Operation, ReadError, advance};
use fpcache_fabric::{Batch, Completion, Endpoint, FabricError, Spin, TcpEndpoint};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout_at;

/// Round trips between two looks at the clock.
const UNTIMED: u32 = 64;

/// Has the runtime watch a descriptor.
#[allow(
    deprecated,
    reason = "what is unsound with types whose descriptor may change is not with owned descriptors"
)]
fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}

/// What waits for an endpoint's socket.
pub(super) struct Socket {
    /// A descriptor of its own for the socket, which closes when this is dropped.
    watched: Option<AsyncFd<OwnedFd>>,
    spin: Spin,
}

impl Socket {
    /// The thread that waits looks for no longer than this before it sleeps.
    pub(super) fn new(longest_look: Duration) -> Self {
        Self { watched: None, spin: Spin::new(longest_look) }
    }

    /// Lets go of the endpoint's socket, which has left it or is about to.
    pub(super) fn forget(&mut self) {
        self.watched = None;
    }

    /// Runs an operation to its end, and counts the doorbell batches.
    pub(super) async fn drive<O: Operation>(
        &mut self,
        endpoint: &mut TcpEndpoint,
        operation: &mut O,
        until: Instant,
        mut count: impl FnMut(),
    ) -> Result<(), ReadError> {
        let mut round_trips = 0u32;
        while advance(endpoint, operation)? {
            if round_trips > 0 && round_trips.is_multiple_of(UNTIMED) && Instant::now() >= until {
                return Err(ReadError::Unfinished { round_trips });
            }
            let batch = std::mem::take(operation.batch());
            *operation.batch() = self.run(endpoint, batch, until).await?;
            round_trips = round_trips.saturating_add(1);
            count();
        }
        Ok(())
    }

    /// Posts a batch and waits for it. Dropped, the endpoint has the batch until it is back or its
    /// socket is left.
    async fn run(
        &mut self,
        endpoint: &mut TcpEndpoint,
        batch: Batch,
        until: Instant,
    ) -> Result<Batch, FabricError> {
        endpoint.post(batch).map_err(|rejected| rejected.error)?;
        let Completion { batch, result, .. } = match self.look(endpoint).await {
            Some(back) => back,
            None => self.sleep(endpoint, until).await?,
        };
        result.map(|()| batch)
    }

    /// Looks for what comes back, while that pays off. Other tasks have their turns between two
    /// looks.
    async fn look(&mut self, endpoint: &mut TcpEndpoint) -> Option<Completion> {
        let (began, budget) = (Instant::now(), self.spin.budget());
        loop {
            if let Some(back) = endpoint.poll() {
                self.spin.note_success();
                return Some(back);
            }
            if began.elapsed() >= budget {
                self.spin.note_failure();
                return None;
            }
            let mut is_first = true;
            poll_fn(|context| match std::mem::take(&mut is_first) {
                true => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                false => Poll::Ready(()),
            })
            .await;
        }
    }

    /// Has the runtime wait for the socket.
    async fn sleep(&mut self, endpoint: &mut TcpEndpoint, until: Instant) -> Result<Completion, FabricError> {
        loop {
            let Some((socket, is_unsent)) = endpoint.socket() else {
                // What was under way came back when the socket was left.
                let back = endpoint.poll();
                return back.ok_or_else(|| FabricError::Disconnected { peer: endpoint.peer().clone() });
            };
            let watched = match &self.watched {
                Some(watched) => watched,
                None => {
                    let own = socket.as_fd().try_clone_to_owned().and_then(watch);
                    match own {
                        Ok(own) => self.watched.insert(own),
                        Err(source) => {
                            endpoint.give_up();
                            drop(endpoint.poll());
                            return Err(FabricError::os("watching a socket", source));
                        }
                    }
                }
            };
            let interest =
                if is_unsent { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            // By then the memory node counts as lost, however long a call may take.
            let wake = endpoint.lost_at().map_or(until, |lost| until.min(lost));
            match timeout_at(wake.into(), watched.ready(interest)).await {
                Ok(Ok(mut ready)) => match endpoint.poll() {
                    Some(back) => return Ok(back),
                    // All that was there has been taken, so that more of it is told anew.
                    None => ready.clear_ready(),
                },
                Ok(Err(source)) => {
                    endpoint.give_up();
                    drop(endpoint.poll());
                    return Err(FabricError::os("waiting for a socket", source));
                }
                Err(_) => match endpoint.poll() {
                    Some(back) => return Ok(back),
                    None if wake < until => {}
                    None => endpoint.give_up(),
                },
            }
        }
    }
}
