//! Lookups, and the attempts that every read is made of, repeated until there is an answer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fpcache::key_space::BuildKeys;
use fpcache::layout::RecordShape;
use fpcache::read::{Outcome, ReadError, WordAnswer, contains, look_up, look_up_word};
use fpcache::sabotage::Sabotage;
use fpcache::table::Table;
use fpcache_fabric::{Connection, Endpoint};

use super::recover::{AttemptError, Failure, NextStep, Retry};
use super::{Connector, ContextOf, Core, EndpointOf, HeldContext};
use crate::error::ClientError;
use crate::session::{Buffers, ReaderContext};
use crate::thread_exit::here;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// The answer of a lookup without anything rare in it, in a table of words.
    #[inline(always)]
    pub(crate) fn look_up_word<'h>(
        &self,
        held: &'h mut HeldContext<K, T>,
        key: &K::Key,
    ) -> Option<(WordAnswer, &'h RecordShape)> {
        let context = held.as_mut().filter(|context| self.is_current(context))?;
        let ReaderContext { table, buffers, .. } = context;
        let Buffers { endpoint, lookup, .. } = buffers;
        let answer = look_up_word(endpoint, table, lookup, key)?;
        Some((answer, &table.view().geometry().shape))
    }

    /// Looks up one key and passes the answer to `take`.
    #[inline(never)]
    pub(crate) fn look_up<R>(
        &self,
        held: &mut HeldContext<K, T>,
        key: &K::Key,
        within: Duration,
        take: impl FnMut(&Outcome, Option<&[u8]>) -> R,
    ) -> Result<R, ClientError> {
        self.read_or_ask(
            (held, within),
            take,
            |take, Buffers { endpoint, lookup, .. }, table| look_up(endpoint, table, lookup, key, take),
            |take, held, retry| self.look_up_server_side(held, key, retry, take),
            |mut take| take(&Outcome::server_side(None, 0, 0), None),
        )
    }

    /// Whether a key is there.
    pub(crate) fn contains(
        &self,
        held: &mut HeldContext<K, T>,
        key: &K::Key,
        within: Duration,
    ) -> Result<bool, ClientError> {
        let is_there = |outcome: &Outcome| outcome.version.is_some();
        self.read_or_ask(
            (held, within),
            (),
            |(), Buffers { endpoint, lookup, .. }, table| contains(endpoint, table, lookup, key, is_there),
            |(), held, retry| self.contains_server_side(held, key, retry),
            |()| false,
        )
    }

    /// Reads until there is an answer, or asks the memory node's processor once the directory has
    /// been out of date too often; that of a table without parameters is `absent`. All three have
    /// `what` they share.
    #[inline(always)]
    pub(super) fn read_or_ask<W, R>(
        &self,
        (held, within): (&mut HeldContext<K, T>, Duration),
        mut what: W,
        mut read: impl FnMut(&mut W, &mut Buffers<K, EndpointOf<T>>, &Table<K>) -> Result<R, ReadError>,
        mut ask: impl FnMut(&mut W, &mut HeldContext<K, T>, &mut Retry) -> Result<R, ClientError>,
        absent: impl FnOnce(W) -> R,
    ) -> Result<R, ClientError> {
        let mut retry = self.begun(within);
        loop {
            match self.try_table(held, &mut retry, |buffers, table, _| read(&mut what, buffers, table)) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(error) if error.is_of_empty_table() => return Ok(absent(what)),
                Err(error) => return Err(error),
            }
            match ask(&mut what, held, &mut retry) {
                Err(error) => self.recover_or_fail(held, error, &mut retry)?,
                answered => return answered,
            }
        }
    }

    /// Runs `f` with what the calling thread holds of this client.
    #[inline]
    pub(crate) fn here<R>(&self, f: impl FnOnce(&mut HeldContext<K, T>) -> R) -> R {
        here(&self.threads, |held| held.is_none().then(|| self.weak_self.clone()), f)
    }

    /// The patience of a call that begins now.
    #[inline]
    pub(super) fn begun(&self, within: Duration) -> Retry {
        let mut retry = Retry::new(within);
        if T::IS_FAR {
            retry.deadline(&*self.clock);
        }
        retry
    }

    /// Runs `read` with the reader's buffers and the table until it gives an answer: a directory
    /// that is out of date is renewed, a lost memory node connected to again, a record that is
    /// being written read again, all within the deadline. The clock is first looked at when
    /// something went wrong; over sockets, when the call begins.
    #[inline]
    pub(super) fn with_table<R>(
        &self,
        held: &mut HeldContext<K, T>,
        within: Duration,
        mut read: impl FnMut(&mut Buffers<K, EndpointOf<T>>, &Table<K>) -> Result<R, ReadError>,
    ) -> Result<R, ClientError> {
        self.by_parts(held, within, |buffers, table, _| read(buffers, table))
    }

    /// As [`with_table`](Self::with_table), of what is read by parts, of which an attempt that
    /// fails may have got some: it sets the flag then, and the deadline is then that of the rest.
    #[inline]
    pub(super) fn by_parts<R>(
        &self,
        held: &mut HeldContext<K, T>,
        within: Duration,
        read: impl FnMut(&mut Buffers<K, EndpointOf<T>>, &Table<K>, &mut bool) -> Result<R, ReadError>,
    ) -> Result<R, ClientError> {
        self.attempt_all(held, within, |retry| *retry = self.begun(within), read)
    }

    /// As [`by_parts`](Self::by_parts), of what has one deadline for all parts.
    #[inline]
    pub(super) fn in_time_by_parts<R>(
        &self,
        held: &mut HeldContext<K, T>,
        within: Duration,
        read: impl FnMut(&mut Buffers<K, EndpointOf<T>>, &Table<K>, &mut bool) -> Result<R, ReadError>,
    ) -> Result<R, ClientError> {
        self.attempt_all(held, within, Retry::note_progress, read)
    }

    #[inline]
    fn attempt_all<R>(
        &self,
        held: &mut HeldContext<K, T>,
        within: Duration,
        note_progress: impl Fn(&mut Retry),
        mut read: impl FnMut(&mut Buffers<K, EndpointOf<T>>, &Table<K>, &mut bool) -> Result<R, ReadError>,
    ) -> Result<R, ClientError> {
        let mut retry = self.begun(within);
        let is_as_new_as_it_gets = |_: &Retry, next| next == NextStep::NoNewer;
        loop {
            let how = (&note_progress, is_as_new_as_it_gets);
            if let Some(answer) = self.attempt(held, &mut retry, how, &mut read)? {
                return Ok(answer);
            }
            self.ask_for_directory(&mut retry);
        }
    }

    /// As [`with_table`](Self::with_table), but `None` once the directory has been out of date too
    /// often since an attempt got on last.
    #[inline]
    pub(super) fn try_table<R>(
        &self,
        held: &mut HeldContext<K, T>,
        retry: &mut Retry,
        read: impl FnMut(&mut Buffers<K, EndpointOf<T>>, &Table<K>, &mut bool) -> Result<R, ReadError>,
    ) -> Result<Option<R>, ClientError> {
        self.attempt(held, retry, (Retry::note_progress, Retry::must_ask_node), read)
    }

    /// Makes attempts until one gives an answer, or it `gives_up` after one that has failed: `None`
    /// then.
    #[inline]
    fn attempt<R>(
        &self,
        held: &mut HeldContext<K, T>,
        retry: &mut Retry,
        (note_progress, gives_up): (impl Fn(&mut Retry), impl Fn(&Retry, NextStep) -> bool),
        mut read: impl FnMut(&mut Buffers<K, EndpointOf<T>>, &Table<K>, &mut bool) -> Result<R, ReadError>,
    ) -> Result<Option<R>, ClientError> {
        loop {
            let (left, mut progressed) = (retry.left(&*self.clock), false);
            let read = |ReaderContext { table, buffers, .. }: &mut ContextOf<K, T>| {
                read(buffers, table, &mut progressed)
            };
            match self.with_context(held, left, read) {
                Ok(answer) => return Ok(Some(answer)),
                Err(failure) => {
                    if progressed {
                        note_progress(retry);
                    }
                    let next: NextStep = self.recover(held, *failure, retry)?;
                    if gives_up(retry, next) {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Runs `f` with the reader's context for the session in use, for a call that has so much time
    /// `left`.
    #[inline]
    pub(super) fn with_context<R>(
        &self,
        held: &mut HeldContext<K, T>,
        left: Duration,
        f: impl FnOnce(&mut ContextOf<K, T>) -> Result<R, ReadError>,
    ) -> Result<R, Box<Failure>> {
        let context = match held {
            Some(context) if self.is_current(context) => {
                context.buffers.endpoint.set_patience(left);
                context
            }
            outdated => self.enter(outdated, left)?,
        };
        f(context).map_err(|error| context.failed(error))
    }

    /// How the table's records lie in slots.
    pub(crate) fn shape(&self, within: Duration) -> Result<RecordShape, ClientError> {
        self.here(|held| self.shape_by(held, within))
    }

    /// As [`shape`](Self::shape), by a reader.
    pub(crate) fn shape_by(
        &self,
        held: &mut HeldContext<K, T>,
        within: Duration,
    ) -> Result<RecordShape, ClientError> {
        self.with_table(held, within, |_, table| Ok(table.view().geometry().shape))
    }

    /// Reads how the table's records lie in slots, without the rest of it, and its creation number.
    pub(super) fn read_shape(&self, within: Duration) -> Result<(u64, RecordShape), ClientError> {
        let mut retry = self.begun(within);
        loop {
            let (session, number) = self.current();
            match session.read_shape(retry.left(&*self.clock)) {
                Ok(shape) => {
                    self.has_opened.store(true, Ordering::Release);
                    return Ok((session.connection.creation(), shape));
                }
                Err(error) => {
                    let failure = Failure { error: AttemptError::Open(error), number };
                    self.here(|held| self.recover(held, failure, &mut retry))?;
                }
            }
        }
    }

    /// What a reader holds, if that is the table in use; for callers without time to renew it.
    #[cfg(feature = "tokio")]
    pub(crate) fn present<'h>(&self, held: &'h mut HeldContext<K, T>) -> Option<&'h mut ContextOf<K, T>> {
        held.as_mut().filter(|context| self.is_current(context))
    }

    /// Makes one attempt to read with what the calling thread holds; `None` if anything is in the
    /// way of it, such as that the table has to be fetched. Does not block where memory is mapped.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn at_once<R>(
        &self,
        read: impl FnOnce(&mut Buffers<K, EndpointOf<T>>, &Table<K>) -> Result<R, ReadError>,
    ) -> Option<R> {
        self.here(|held| {
            if self.present(held).is_none() && self.session().fetched().is_none() {
                return None;
            }
            let read = |ReaderContext { table, buffers, .. }: &mut ContextOf<K, T>| read(buffers, table);
            self.with_context(held, Duration::ZERO, read).ok()
        })
    }

    /// What a reader reads with; `None` if something is in the way, which its usual calls get over.
    pub(crate) fn ready<'h>(
        &self,
        held: &'h mut HeldContext<K, T>,
        left: Duration,
    ) -> Option<&'h mut ContextOf<K, T>> {
        let is_current = held.as_ref().is_some_and(|context| self.is_current(context));
        if !is_current {
            return self.enter(held, left).ok();
        }
        let context = held.as_mut()?;
        context.buffers.endpoint.set_patience(left);
        Some(context)
    }

    /// The number of its table.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Whether a reader has the table in use.
    #[inline(always)]
    pub(super) fn is_current(&self, context: &ContextOf<K, T>) -> bool {
        context.number == self.number() || Sabotage::ReadersStay.is(self.options.sabotage)
    }

    /// Gives a reader a context for the session in use, or the one it has the newer table.
    #[cold]
    pub(super) fn enter<'h>(
        &self,
        held: &'h mut HeldContext<K, T>,
        left: Duration,
    ) -> Result<&'h mut ContextOf<K, T>, Box<Failure>> {
        let (session, number) = self.current();
        if let Some(context) = held
            && context.session == session.id
        {
            context.buffers.endpoint.set_patience(left);
            let newer = session.table(&mut context.buffers.endpoint, left, &*self.clock);
            context.table = newer.map_err(|error| Failure::boxed(AttemptError::Open(error), number))?;
            context.number = number;
            // Just found to be there.
            return held.as_mut().ok_or_else(|| Failure::boxed(AttemptError::Read(ReadError::Stale), number));
        }
        // Before the new table is fetched: a reader never holds two.
        *held = None;
        // Any numbers that differ between readers will do.
        let seed = self.contexts.fetch_add(1, Ordering::Relaxed);
        let context = session.context(number, self.matcher, seed, left, &*self.clock);
        let context = context.map_err(|error| Failure::boxed(AttemptError::Open(error), number))?;
        self.has_opened.store(true, Ordering::Release);
        Ok(held.insert(context))
    }
}

impl<K: BuildKeys, C: Connection> ReaderContext<K, C> {
    /// The failure of an attempt with this. No thread keeps the memory of a long scan that failed.
    #[cold]
    fn failed(&mut self, error: ReadError) -> Box<Failure> {
        self.buffers.scan.clear();
        Failure::boxed(AttemptError::Read(error), self.number)
    }
}
