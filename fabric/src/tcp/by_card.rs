//! Reading by a network card, where an endpoint's address asks for that, and by its socket where that cannot be.

use std::time::{Duration, Instant};

use super::card::SharedCard;
use super::client::session::Session;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::rdma::{Miss, RdmaError, Reader, Waiting};
use crate::verbs::{Batch, RemoteAddr};

/// How long no queue pair is made after one broke: at first, and in the end.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// What became of a batch.
#[derive(Debug)]
pub(super) enum ByCard {
    /// It was executed, or failed for good.
    Ended(Result<(), FabricError>),
    /// It is to go over the socket.
    BySocket,
    /// The memory node has gone.
    Gone,
}

/// An endpoint's queue pair, which is made at its first use, and anew after it broke.
#[derive(Debug)]
pub(super) struct CardReader {
    shared: SharedCard,
    reader: Option<Box<Reader>>,
    /// Since when there is none, and for how long none is made.
    broke: Option<(Instant, Duration)>,
}

impl CardReader {
    pub(super) fn new(shared: SharedCard) -> Self {
        Self { shared, reader: None, broke: None }
    }

    /// A queue pair that reads what is asked for.
    fn connect(&mut self, session: &Session, patience: Duration) -> Result<(), FabricError> {
        if self.reader.is_none() {
            let deadline = Deadline::after(session.patience.min(patience));
            let socket = session.card_socket(patience)?;
            let SharedCard { card, tallies } = &self.shared;
            self.reader =
                Some(Box::new(Reader::connect(card, Box::new(socket), session.watched, tallies, deadline)?));
        }
        Ok(())
    }

    /// Executes a batch, the request of which at `fault` is bad.
    pub(super) fn run(
        &mut self,
        session: &Session,
        batch: &mut Batch,
        fault: Option<(usize, FabricError)>,
        patience: Duration,
    ) -> ByCard {
        let changes = batch.tally().changes() > 0;
        if !changes && self.broke.is_some_and(|(since, pause)| since.elapsed() < pause) {
            self.shared.tallies.went_by_socket();
            return ByCard::BySocket;
        }
        if let Err(error) = self.connect(session, patience) {
            return self.refuse(error, changes);
        }
        let Some(reader) = &mut self.reader else { return ByCard::BySocket };
        let count = fault.as_ref().map_or(batch.len(), |(at, _)| *at);
        // Half of it, so that there is time for the socket, which also tells whether the memory node lives.
        let patience = patience.min(session.patience) / 2;
        let waiting = Waiting { link: &session.link, patience };
        match reader.run(batch, count, &waiting) {
            Ok(()) => {
                self.broke = None;
                ByCard::Ended(fault.map_or(Ok(()), |(_, error)| Err(error)))
            }
            Err(Miss::NotRegistered) => {
                self.shared.tallies.went_by_socket();
                ByCard::BySocket
            }
            Err(Miss::Broken(error)) => self.refuse(error, changes),
            Err(Miss::Silent) => {
                let waiting_for = "the memory node's network card answers";
                self.refuse(FabricError::DeadlinePassed { waiting_for }, changes)
            }
            Err(Miss::Gone) => {
                self.leave();
                ByCard::Gone
            }
        }
    }

    /// The watched word, if a lease of it judges READs that have completed by now.
    pub(super) fn leased_word(&self) -> Option<u64> {
        self.reader.as_ref()?.leased_word()
    }

    /// READs of the watched word that went with those that were asked for, since this was asked last.
    pub(super) fn take_uncounted(&mut self) -> u32 {
        self.reader.as_mut().map_or(0, |reader| reader.take_uncounted())
    }

    /// Goes without a queue pair for a while. A batch that changes memory may have been executed, and is not sent again.
    #[cold]
    fn refuse(&mut self, error: FabricError, changes: bool) -> ByCard {
        self.leave();
        match error {
            FabricError::Disconnected { .. } => ByCard::Gone,
            error if changes => ByCard::Ended(Err(error)),
            _ => {
                self.shared.tallies.went_by_socket();
                ByCard::BySocket
            }
        }
    }

    /// Leaves the queue pair, and with it what is under way.
    #[cold]
    fn leave(&mut self) {
        if self.reader.take().is_some() {
            self.shared.tallies.broke();
        }
        let pause = self.broke.map_or(PAUSES.0, |(_, pause)| (pause * 2).min(PAUSES.1));
        self.broke = Some((Instant::now(), pause));
    }
}

impl Session {
    /// Sees at once whether the memory node's card can be reached, and leaves what was made for that.
    pub(super) fn try_card(&self, shared: &SharedCard) -> Result<(), FabricError> {
        let mut by_card = CardReader::new(shared.clone());
        by_card.connect(self, self.patience)?;
        let Some(reader) = &mut by_card.reader else { return Ok(()) };
        let mut batch = Batch::new();
        batch.read(RemoteAddr::region(0), 8);
        let not_served = |why: &str| Err(RdmaError::NotServed { why: why.to_owned() }.into());
        match reader.run(&mut batch, 1, &Waiting { link: &self.link, patience: self.patience }) {
            Ok(()) => Ok(()),
            Err(Miss::Broken(error)) => Err(error),
            Err(Miss::Gone) => Err(self.link.disconnected()),
            Err(Miss::NotRegistered) => not_served("nothing of its region is registered"),
            Err(Miss::Silent) => not_served(
                "its card does not answer; look whether the network lets RDMA through (for RoCE v2 UDP port 4791, and frames of \
                 the MTU)",
            ),
        }
    }
}
