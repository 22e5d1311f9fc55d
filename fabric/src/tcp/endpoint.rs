//! A queue pair over a socket.

mod by_card;
mod checks;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use self::checks::is_short;
use super::card_reads::CardReader;
use super::channel::{Channel, Landed, SendTime};
use super::client::session::Session;
use super::socket::{Ready, wait};
use crate::clock::Deadline;
use crate::endpoint::{AreaInfo, Completion, Endpoint, Rejected, Ticket};
use crate::error::FabricError;
use crate::in_place::NotMapped;
use crate::memory::Access;
use crate::meter::Meter;
use crate::spin::Spin;
use crate::verbs::{AreaId, Batch, REGION, RemoteAddr, Tally};

/// How often a wait receives something before the clock is looked at.
const READS: usize = 4;

/// Batches one endpoint keeps in flight.
const MAX_IN_FLIGHT: usize = 4096;

/// A queue pair to a memory node over a socket of its own, which it takes when it is first used and
/// leaves to the next endpoint of its connection.
///
/// A batch is one frame, or several where it is longer than the memory node takes at once, and is
/// sent at once. What lands does so while the endpoint is asked for something.
#[derive(Debug)]
pub struct TcpEndpoint {
    session: Arc<Session>,
    channel: Option<Box<Channel>>,
    /// Where the address asks for a network card.
    by_card: Option<Box<CardReader>>,
    meter: Meter,
    spin: Spin,
    next_ticket: u64,
    done: VecDeque<Completion>,
    /// The batch that was waited for, and its outcome.
    ran: Option<(Batch, Result<(), FabricError>)>,
    /// When the present waiter has waited long enough: of one call, while `Session::patience` is
    /// the connection's. `None` if never.
    until: Option<Instant>,
    /// When something last moved while something was under way.
    moved_at: Instant,
    /// For READs of words: kept so that they do not allocate.
    words: Box<Batch>,
}

impl TcpEndpoint {
    pub(super) fn new(session: &Arc<Session>) -> Self {
        Self {
            session: Arc::clone(session),
            channel: None,
            by_card: session.card.clone().map(|shared| Box::new(CardReader::new(shared))),
            meter: Meter::new(),
            spin: Spin::new(session.spin),
            next_ticket: 0,
            done: VecDeque::new(),
            ran: None,
            until: None,
            moved_at: Instant::now(),
            words: Box::default(),
        }
    }

    /// The memory node's address.
    #[must_use]
    pub fn peer(&self) -> &Arc<str> {
        self.session.link.peer()
    }

    /// Connects the endpoint's socket, if it has none: what is posted after that does not wait.
    /// Waits for the memory node's answer.
    ///
    /// # Errors
    /// As for [`run`](Endpoint::run).
    pub fn connect(&mut self) -> Result<(), FabricError> {
        self.begin()
    }

    /// The socket, for a caller that waits for it among others, and whether the endpoint has
    /// something to send over it; [`poll`](Endpoint::poll) moves what can be moved. `None` before
    /// there is one, and after it was left because of an error: then the next one is another.
    /// `None` also where a network card reads: posting then waits for it.
    #[must_use]
    pub fn socket(&self) -> Option<(BorrowedFd<'_>, bool)> {
        let by_socket = self.channel.as_ref().filter(|_| self.by_card.is_none());
        by_socket.map(|channel| (channel.socket(), channel.is_unsent()))
    }

    /// Gives up what is under way: it comes back from [`poll`](Endpoint::poll) with
    /// [`DeadlinePassed`](FabricError::DeadlinePassed). The socket is left, because answers may yet
    /// come over it; one over which nothing is under way stays.
    pub fn give_up(&mut self) {
        if self.channel.as_ref().is_none_or(|channel| channel.is_idle()) {
            return;
        }
        if self.session.silence.waited(self.moved_at, Instant::now()) {
            self.session.link.cut();
        }
        self.leave(answers_too_late);
    }

    /// When the memory node counts as lost, if nothing comes of it until then; `None` if it never
    /// does.
    pub fn lost_at(&self) -> Option<Instant> {
        self.moved_at.checked_add(self.session.patience)
    }

    /// Opens a socket if there is none; fails once the memory node is gone.
    fn begin(&mut self) -> Result<(), FabricError> {
        if !self.session.link.is_alive() {
            return Err(self.lose());
        }
        self.session.caller.clear_up();
        if self.channel.is_none() {
            self.channel = Some(Box::new(self.session.channel(left(self.until))?));
        }
        Ok(())
    }

    /// Fails if the time is over: before anything is counted, as nothing is sent then, and the
    /// socket stays.
    fn begin_in_time(&self) -> Result<(), FabricError> {
        if self.is_late() { Err(answers_too_late()) } else { Ok(()) }
    }

    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// The memory node is gone, and what was under way with it.
    #[cold]
    fn lose(&mut self) -> FabricError {
        let link = Arc::clone(&self.session.link);
        link.cut();
        self.leave(|| link.disconnected())
    }

    /// Leaves the socket, and what was under way over it.
    #[cold]
    fn leave(&mut self, error: impl Fn() -> FabricError) -> FabricError {
        if let Some(mut channel) = self.channel.take() {
            for (ticket, batch) in channel.abandon() {
                let result = Err(error());
                if ticket.is_some() && batch.question.is_some() {
                    // It was to be counted with its answer.
                    self.meter.record(batch.tally());
                }
                match ticket {
                    Some(ticket) => self.done.push_back(Completion { ticket, batch, result }),
                    None => self.ran = Some((batch, result)),
                }
            }
        }
        error()
    }

    /// The error of a wait that took too long: for the call that it belongs to, or for any call.
    #[cold]
    fn wait_no_longer(&mut self) -> FabricError {
        let (from, now) = (self.moved_at, Instant::now());
        let is_silent = self.session.silence.waited(from, now) || now - from >= self.session.patience;
        let lost = is_silent.then(|| self.lose());
        if let Some(lost) = lost.filter(|_| !self.is_late()) {
            return lost;
        }
        // The socket is of no use to the next call while the answer to this one may come over it.
        self.leave(answers_too_late)
    }

    /// Runs a batch without counting it.
    fn execute(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        if self.by_card.is_some()
            && let Some(outcome) = self.execute_by_card(batch)
        {
            return outcome;
        }
        self.begin()?;
        if let Some(len) = batch.oversize() {
            return Err(FabricError::oversize(len));
        }
        self.submit(None, std::mem::take(batch));
        let finished = self.finish();
        match self.ran.take() {
            Some((back, result)) => {
                *batch = back;
                finished.and(result)
            }
            None => finished.and_then(|()| Err(self.session.link.disconnected())),
        }
    }

    /// Puts a batch on its way.
    fn submit(&mut self, ticket: Option<Ticket>, batch: Batch) {
        let error = self.session.fault_of(&batch);
        if let Some(channel) = &mut self.channel {
            let is_alone = channel.is_idle();
            if is_alone {
                self.moved_at = Instant::now();
            }
            // The poster of one may look for it late.
            let is_trip = ticket.is_none() && is_alone && is_short(&batch);
            let sent = SendTime { at: Instant::now(), is_trip };
            channel.submit(ticket, batch, error, sent);
        }
    }

    /// Moves what can be moved, but receives so often at most, and says whether anything moved.
    fn progress(&mut self, reads: usize) -> Result<bool, FabricError> {
        let Self { session, channel, done, ran, meter, .. } = self;
        let Some(channel) = channel else { return Ok(false) };
        let moved = channel.progress(reads, &mut |Landed { ticket, batch, sent, result }| {
            // Of a batch with an error nothing may have been sent.
            if result.is_ok() {
                session.silence.note_received();
                session.took(sent);
            }
            match ticket {
                Some(ticket) => {
                    if batch.question.is_some() {
                        // Only now it is known how long the reply is.
                        meter.record(batch.tally());
                    }
                    done.push_back(Completion { ticket, batch, result });
                }
                None => *ran = Some((batch, result)),
            }
        });
        if channel.is_unanswered {
            self.session.answers.store(false, Ordering::Relaxed);
        }
        match moved {
            Ok(true) => {
                self.moved_at = Instant::now();
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(_) => Err(self.lose()),
        }
    }

    /// Waits until what was submitted without a ticket is back: looks for a while, then sleeps.
    fn finish(&mut self) -> Result<(), FabricError> {
        self.progress(READS)?;
        if self.ran.is_some() {
            return Ok(());
        }
        let budget = self.spin.budget();
        let began = Instant::now();
        while began.elapsed() < budget {
            if self.progress(READS)? && self.ran.is_some() {
                self.spin.note_success();
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.spin.note_failure();
        while self.ran.is_none() {
            let ends = [self.lost_at(), self.until].into_iter().flatten().min();
            let deadline = ends.map_or(Deadline::NONE, Deadline::at);
            let Some(channel) = &self.channel else { return Err(self.session.link.disconnected()) };
            // What was decrypted and not taken is not announced.
            let ready = match channel.is_cut_short {
                true => Ready::Try,
                false => wait(channel.socket(), channel.is_unsent(), deadline),
            };
            let has_moved = self.progress(READS)?;
            // However much has moved: a call's time is its own.
            let is_over = !has_moved && ready == Ready::TimedOut || self.is_late();
            if is_over && self.ran.is_none() {
                return Err(self.wait_no_longer());
            }
        }
        Ok(())
    }
}

impl Endpoint for TcpEndpoint {
    type InPlace<'a> = NotMapped;

    fn run(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        self.begin_in_time()?;
        let mut tally = *batch.tally();
        let outcome = self.execute(batch);
        if batch.question.is_some() {
            // Only now it is known how long the reply is.
            tally = *batch.tally();
        }
        if !matches!(outcome, Err(FabricError::Disconnected { .. } | FabricError::TooLong { .. })) {
            self.meter.record(&tally);
        }
        outcome
    }

    fn read_words(&mut self, from: RemoteAddr, out: &mut [u64]) -> Result<(), FabricError> {
        self.read_kept(from, out, None, true)
    }

    fn read_records(&mut self, from: RemoteAddr, out: &mut [u64], stride: usize) -> Result<(), FabricError> {
        self.read_kept(from, out, Some(stride), true)
    }

    fn answers(&self) -> bool {
        self.session.answers.load(Ordering::Relaxed)
    }

    /// Measured by short batches that were waited for while nothing else was under way, and by all
    /// others that took less. A network card's are not measured.
    fn round_trip(&self) -> Option<Duration> {
        self.session.round_trip.known().filter(|_| self.by_card.is_none())
    }

    /// A network card guards nothing.
    fn guards(&self) -> bool {
        self.by_card.is_none()
    }

    fn set_patience(&mut self, patience: Duration) {
        self.until = Instant::now().checked_add(patience);
    }

    /// The watched word comes with every batch over the socket: of it the newest reply tells. Where
    /// a network card reads, it is known by a [lease](crate::Export::with_lease), and costs a round
    /// trip where there is no lease. Any other word costs one.
    fn load_after_reads(&mut self, at: RemoteAddr) -> Result<u64, FabricError> {
        self.session.check_word(at)?;
        let is_watched = at.area == REGION && self.session.watched == Some(at.offset);
        let known = match &self.by_card {
            Some(by_card) => by_card.leased_word(),
            None => self.channel.as_ref().and_then(|channel| channel.watched),
        };
        if let Some(word) = known.filter(|_| is_watched) {
            return Ok(word);
        }
        if self.by_card.is_some() {
            self.begin_in_time()?;
            self.meter.record(&Tally { reads: 1, bytes_from: 8, ..Tally::default() });
        }
        self.look(at)
    }

    fn post(&mut self, batch: Batch) -> Result<Ticket, Rejected> {
        if let Err(error) = self.begin_in_time().and_then(|()| self.begin()) {
            return Err(Rejected { batch, error });
        }
        let in_flight = self.channel.as_ref().map_or(0, |channel| channel.len()) + self.done.len();
        if in_flight >= MAX_IN_FLIGHT {
            return Err(Rejected { batch, error: FabricError::QueueFull { in_flight } });
        }
        if let Some(len) = batch.oversize() {
            return Err(Rejected { batch, error: FabricError::oversize(len) });
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        if batch.question.is_none() {
            self.meter.record(batch.tally());
        }
        // One list is under way at a time, so it comes back before others are posted.
        let mut batch = batch;
        if self.by_card.is_some()
            && let Some(result) = self.execute_by_card(&mut batch)
        {
            self.done.push_back(Completion { ticket, batch, result });
            return Ok(ticket);
        }
        self.submit(Some(ticket), batch);
        // The batch is under way; what fails here comes with its completion.
        let _ = self.progress(usize::MAX);
        Ok(ticket)
    }

    fn poll(&mut self) -> Option<Completion> {
        if self.done.is_empty() && self.channel.as_ref().is_some_and(|channel| !channel.is_idle()) {
            if !self.session.link.is_alive() {
                // Cut, or the parent's, from which this process was forked.
                self.lose();
                return self.done.pop_front();
            }
            let moved = self.progress(usize::MAX);
            if matches!(moved, Ok(false)) && self.moved_at.elapsed() >= self.session.patience {
                self.lose();
            }
        }
        self.done.pop_front()
    }

    fn area(&self, area: AreaId) -> Option<AreaInfo> {
        let len = self.session.area_len(area)?;
        let access = if area == REGION { Access::ReadOnly } else { Access::ReadWrite };
        Some(AreaInfo { len, access })
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }
}

impl Drop for TcpEndpoint {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take() {
            self.session.keep(*channel);
        }
    }
}

/// How long is left until then.
fn left(until: Option<Instant>) -> Duration {
    until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()))
}

fn answers_too_late() -> FabricError {
    FabricError::DeadlinePassed { waiting_for: "the memory node's answer to a batch" }
}

#[cfg(test)]
mod tests;
