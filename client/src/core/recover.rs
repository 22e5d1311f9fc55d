//! Recovery before a retry: a newer directory, a new connection, or a pause.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam::utils::Backoff;
use fpcache::Refresh;
use fpcache::key_space::BuildKeys;
use fpcache::layout::{DROPPED, REUSE_OFFSET, SuperblockError};
use fpcache::message::ErrorCode;
use fpcache::read::ReadError;
use fpcache::table_view::OpenError;
use fpcache_fabric::{
    Clock, Connection, Deadline, Endpoint, ErrorKind as FabricErrorKind, FabricError, RemoteAddr,
};

use super::{Connector, Core, HeldContext};
use crate::error::ClientError;
use crate::key_kind::read_kind;

/// How often a call brings the directory up to date before it asks the memory node's processor.
const REFRESHES: u32 = 8;
/// The first pause that is slept through, and the longest.
const NAPS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

/// How one attempt failed, and the number of the table it was made with. Boxed: it must not burden
/// the answers.
pub(super) struct Failure {
    pub(super) error: AttemptError,
    pub(super) number: u64,
}

impl Failure {
    #[cold]
    pub(super) fn boxed(error: AttemptError, number: u64) -> Box<Self> {
        Box::new(Self { error, number })
    }
}

/// What an attempt failed in.
pub(super) enum AttemptError {
    Open(OpenError),
    Read(ReadError),
}

impl AttemptError {
    /// Whether the table may have been dropped: it could not be opened, or makes no sense.
    fn may_be_of_dropped(&self) -> bool {
        match self {
            Self::Open(error) => !matches!(error, OpenError::Fabric(_) | OpenError::Moving { .. }),
            Self::Read(error) => matches!(error, ReadError::Corrupt(_)),
        }
    }
}

/// What can be done after an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Another attempt.
    Again,
    /// Another attempt, but the directory is as new as it gets, and still out of date.
    NoNewer,
}

/// A call's patience.
pub(super) struct Retry {
    pub(super) within: Duration,
    /// When the call began, or the first attempt failed.
    started: Option<Instant>,
    backoff: Backoff,
    nap: Duration,
    /// Attempts that found the directory out of date, since one got on last.
    stale: u32,
    /// Whether one has found a table without parameters that had some before.
    has_found_none: bool,
}

impl Retry {
    pub(super) fn new(within: Duration) -> Self {
        Self { within, started: None, backoff: Backoff::new(), nap: NAPS.0, stale: 0, has_found_none: false }
    }

    /// Notes that an attempt got on before it failed: it is the first one at what is left.
    pub(super) fn note_progress(&mut self) {
        (self.stale, self.backoff, self.nap) = (0, Backoff::new(), NAPS.0);
    }

    /// Whether it is time to have the memory node's processor look the keys up.
    pub(super) fn must_ask_node(&self, next: NextStep) -> bool {
        next == NextStep::NoNewer || self.stale > REFRESHES
    }

    /// When the call must end; the first look starts the clock.
    pub(super) fn deadline(&mut self, clock: &dyn Clock) -> Deadline {
        let started = *self.started.get_or_insert_with(|| clock.now());
        started.checked_add(self.within).map_or(Deadline::NONE, Deadline::at)
    }

    /// What is left of the call's time. All of it as long as the clock was not started: it is not
    /// looked at for that.
    #[inline]
    pub(super) fn left(&self, clock: &dyn Clock) -> Duration {
        match self.started {
            None => self.within,
            Some(started) => self.within.saturating_sub(clock.now().saturating_duration_since(started)),
        }
    }

    /// Yields to other threads, longer each time.
    pub(super) fn pause(&mut self, clock: &dyn Clock) {
        if self.backoff.is_completed() {
            clock.sleep(self.nap);
            self.nap = (2 * self.nap).min(NAPS.1);
        } else {
            self.backoff.snooze();
        }
    }
}

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Prepares a retry, or returns the error that ends the call.
    #[cold]
    pub(super) fn recover(
        &self,
        held: &mut HeldContext<K, T>,
        failure: Failure,
        retry: &mut Retry,
    ) -> Result<NextStep, ClientError> {
        if failure.error.may_be_of_dropped() && self.was_dropped(failure.number, retry) {
            self.tally.retries.add(1);
            return self.leave(held, failure.number, retry);
        }
        let error = match failure.error {
            AttemptError::Read(error) => error,
            AttemptError::Open(OpenError::Fabric(error)) => ReadError::Fabric(error),
            // The next attempt opens it.
            AttemptError::Open(OpenError::Moving { attempts }) => ReadError::Contended { attempts },
            AttemptError::Open(OpenError::Empty) if self.has_opened.load(Ordering::Acquire) => {
                // It may have got its first parameters since the attempt looked: another one knows.
                if std::mem::replace(&mut retry.has_found_none, true) {
                    return Err(ClientError::Emptied);
                }
                ReadError::Contended { attempts: 1 }
            }
            AttemptError::Open(error) => self.explained(error, failure.number, retry)?,
        };
        self.tally.retries.add(1);
        let deadline = retry.deadline(&*self.clock);
        if deadline.has_passed(self.clock.now()) {
            return Err(ClientError::Deadline { deadline: retry.within, last: error });
        }
        match error {
            ReadError::Contended { .. } => retry.pause(&*self.clock),
            ReadError::Stale => return self.refresh_or_wait(held, failure.number, deadline, retry),
            ReadError::Fabric(e) if e.kind() == FabricErrorKind::Reconnect => {
                *held = None;
                self.reconnect(failure.number, deadline)?;
            }
            error @ ReadError::Fabric(FabricError::DeadlinePassed { .. }) => {
                return Err(ClientError::Deadline { deadline: retry.within, last: error });
            }
            ReadError::Fabric(e) => return Err(e.into()),
            // It was told to stop when the deadline had passed.
            error @ ReadError::Unfinished { .. } => {
                return Err(ClientError::Deadline { deadline: retry.within, last: error });
            }
            ReadError::Corrupt(e) => return Err(OpenError::Corrupt(e).into()),
        }
        Ok(NextStep::Again)
    }

    /// What a table that could not be opened is an error of: its keys may be of another kind than
    /// this client's. Not an error of the call if the table was dropped meanwhile.
    fn explained(&self, error: OpenError, seen: u64, retry: &Retry) -> Result<ReadError, ClientError> {
        let OpenError::Superblock(SuperblockError::Corrupt(_)) = &error else { return Err(error.into()) };
        let connection = Arc::clone(&self.session().connection);
        let mut endpoint = connection.endpoint();
        endpoint.set_patience(retry.left(&*self.clock));
        match read_kind(&mut endpoint) {
            Ok(Some(theirs)) if !theirs.is::<K>() => Err(ClientError::OtherKeys { theirs, own: K::NAME }),
            // Between the look that found other keys and this one.
            _ if self.was_dropped(seen, retry) => Ok(ReadError::Contended { attempts: 1 }),
            _ => Err(error.into()),
        }
    }

    /// Gets a newer table than the one with the number `seen`, or waits a little where there is
    /// none.
    fn refresh_or_wait(
        &self,
        held: &mut HeldContext<K, T>,
        seen: u64,
        deadline: Deadline,
        retry: &mut Retry,
    ) -> Result<NextStep, ClientError> {
        retry.stale += 1;
        if retry.stale > 1 {
            retry.pause(&*self.clock);
        }
        match self.refresh(held, seen, retry.left(&*self.clock)) {
            // Of a table that was dropped there is never a newer one.
            Ok(Some(_)) if retry.stale > 1 && self.number() == seen && self.was_dropped(seen, retry) => {
                self.leave(held, seen, retry)
            }
            Ok(Some(next)) => Ok(next),
            Ok(None) => {
                // The old table is useless now, and fetching the new one may need its memory.
                *held = None;
                self.renew(seen, deadline)?;
                Ok(NextStep::Again)
            }
            Err(OpenError::Fabric(e)) if e.kind() == FabricErrorKind::Reconnect => {
                *held = None;
                self.reconnect(seen, deadline)?;
                Ok(NextStep::Again)
            }
            Err(OpenError::Moving { .. }) => Ok(NextStep::Again),
            Err(_) if self.was_dropped(seen, retry) => self.leave(held, seen, retry),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the table with the number `seen` was dropped, its memory node has hung up, or
    /// another one is in use by now: the next attempt learns what is there.
    pub(super) fn was_dropped(&self, seen: u64, retry: &Retry) -> bool {
        let (connection, number) = self.connected();
        if number != seen || !connection.is_alive() {
            return true;
        }
        let mut reuse = [0];
        let mut endpoint = connection.endpoint();
        endpoint.set_patience(retry.left(&*self.clock));
        match endpoint.read_words(RemoteAddr::region(REUSE_OFFSET), &mut reuse) {
            Ok(()) => reuse == [DROPPED],
            // It may have hung up meanwhile.
            Err(_) => !connection.is_alive(),
        }
    }

    /// Leaves the table in use for what is there if it was dropped, or its memory node has hung up;
    /// whether it did.
    pub(crate) fn leave_if_dropped(&self, within: Duration) -> Result<bool, ClientError> {
        let (seen, mut retry) = (self.number(), Retry::new(within));
        let deadline = retry.deadline(&*self.clock);
        let is_left = self.was_dropped(seen, &retry);
        if is_left {
            self.leave_dropped(seen, deadline)?;
        }
        Ok(is_left)
    }

    /// Leaves the table with the number `seen`, which was dropped, for what is there.
    fn leave(
        &self,
        held: &mut HeldContext<K, T>,
        seen: u64,
        retry: &mut Retry,
    ) -> Result<NextStep, ClientError> {
        let deadline = retry.deadline(&*self.clock);
        if deadline.has_passed(self.clock.now()) {
            let last = ReadError::Contended { attempts: 1 };
            return Err(ClientError::Deadline { deadline: retry.within, last });
        }
        retry.pause(&*self.clock);
        *held = None;
        self.leave_dropped(seen, deadline)?;
        Ok(NextStep::Again)
    }

    /// The error of a call to the table with the number `seen` that was not answered; that there is
    /// no such table, if that is why.
    #[cold]
    pub(super) fn or_dropped(&self, error: ClientError, seen: u64, deadline: Deadline) -> ClientError {
        let connected = match &error {
            ClientError::Fabric(e) | ClientError::Open(OpenError::Fabric(e))
                if e.kind() == FabricErrorKind::Reconnect =>
            {
                self.reconnect(seen, deadline)
            }
            ClientError::Open(OpenError::Superblock(SuperblockError::Dropped)) => {
                self.leave_dropped(seen, deadline)
            }
            _ => return error,
        };
        match connected.map_err(ClientError::from) {
            Err(gone @ ClientError::NoSuchTable { .. }) => gone,
            _ => error,
        }
    }

    /// Prepares a retry if the memory node's processor gave no answer; else returns the error.
    #[cold]
    pub(super) fn recover_or_fail(
        &self,
        held: &mut HeldContext<K, T>,
        error: ClientError,
        retry: &mut Retry,
    ) -> Result<(), ClientError> {
        let is_lost = match &error {
            ClientError::Fabric(e) => e.kind() == FabricErrorKind::Reconnect,
            ClientError::NoSuchTable { .. } => true,
            // Another thread has connected to another table of the name meanwhile.
            ClientError::Refused(refusal) => refusal.code == ErrorCode::OtherTable,
            _ => false,
        };
        let deadline = retry.deadline(&*self.clock);
        if !is_lost || deadline.has_passed(self.clock.now()) {
            return Err(error);
        }
        retry.pause(&*self.clock);
        match (error, held.take().map(|context| context.number)) {
            (ClientError::NoSuchTable { .. }, Some(seen)) => Ok(self.leave_dropped(seen, deadline)?),
            // Nobody was asked: a look for the table that has the name now has found none.
            (error @ ClientError::NoSuchTable { .. }, None) => Err(error),
            (_, seen) => Ok(self.reconnect(seen.unwrap_or_else(|| self.number()), deadline)?),
        }
    }

    /// Brings the table with the number `seen` up to date, unless another thread has done so;
    /// `None` if it must be fetched anew.
    fn refresh(
        &self,
        held: &mut HeldContext<K, T>,
        seen: u64,
        left: Duration,
    ) -> Result<Option<NextStep>, OpenError> {
        let session = Arc::clone(&*self.session());
        // One thread at a time: the others find a newer table when they come in.
        let (_opening, left) = session.opening(left, &*self.clock)?;
        if self.number() != seen {
            return Ok(Some(NextStep::Again));
        }
        let Some(table) = session.fetched() else { return Ok(Some(NextStep::Again)) };
        let refreshed = match held {
            Some(context) => {
                context.buffers.endpoint.set_patience(left);
                table.refreshed_on(&mut context.buffers.endpoint, &mut session.so_far())
            }
            None => {
                let mut endpoint = session.connection.endpoint();
                endpoint.set_patience(left);
                table.refreshed_on(&mut endpoint, &mut session.so_far())
            }
        };
        match refreshed? {
            // A reader that sees a replaced segment finds the change in the log, but pages are as
            // of the last checkpoint.
            Refresh::Current if table.view().models().paged().is_some() => Ok(Some(NextStep::NoNewer)),
            Refresh::Current => Ok(Some(NextStep::Again)),
            Refresh::Lost => Ok(None),
            Refresh::Newer(table) => {
                self.tally.refreshes.add(1);
                self.publish(seen, &session, Arc::new(table));
                Ok(Some(NextStep::Again))
            }
        }
    }
}
