//! Reads by a network card, where an endpoint's address asks for that, and by its socket otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::card::SharedCard;
use super::client::session::Session;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::rdma::{CardFailure, RdmaError, Reader, WaitLimit};
use crate::verbs::{Batch, RemoteAddr};

/// How long no queue pair is made after one broken: at first, and in the end.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));
/// Time that is lost to queue pairs that do not work is no more than such a part of all, as far as
/// pauses are not longer than that.
const PART: u32 = 10;
/// What took no longer than that was no silence: an rkey that is void, for example.
const NOT_LONG: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60);
/// For how long one must work until what broke before is forgotten: some batches may work where
/// others never do.
const STEADY: Duration = Duration::from_secs(1);

/// The outcome of a batch.
#[derive(Debug)]
pub(super) enum ByCard {
    /// It was executed, or failed for good.
    Ended(Result<(), FabricError>),
    /// It is to go over the socket.
    BySocket,
    /// The memory node has gone.
    Gone,
}

/// When a queue pair may be made after one broke.
#[derive(Debug, Default)]
struct BackOff {
    /// Since when there was none, and for how long none was made.
    broken: Option<(Instant, Duration)>,
    /// Since when the one that was made then has worked.
    works: Option<Instant>,
}

impl BackOff {
    fn is_paused(&self, now: Instant) -> bool {
        self.broken.is_some_and(|(since, pause)| now.saturating_duration_since(since) < pause)
    }

    fn note_success(&mut self, now: Instant) {
        let since = *self.works.get_or_insert(now);
        if now.saturating_duration_since(since) >= STEADY {
            *self = Self::default();
        }
    }

    /// One broke, or could not be made, which took so long.
    fn note_failure(&mut self, now: Instant, took: Duration) {
        let pause = self.broken.map_or(PAUSES.0, |(_, pause)| (pause * 2).min(PAUSES.1));
        let pause = if took > NOT_LONG { pause.max((took * PART).min(LONGEST)) } else { pause };
        *self = Self { broken: Some((now, pause)), works: None };
    }
}

/// An endpoint's queue pair, which is made at its first use, and anew after it broke.
#[derive(Debug)]
pub(super) struct CardReader {
    shared: Arc<SharedCard>,
    reader: Option<Box<Reader>>,
    back_off: BackOff,
}

impl CardReader {
    pub(super) fn new(shared: Arc<SharedCard>) -> Self {
        Self { shared, reader: None, back_off: BackOff::default() }
    }

    /// A queue pair that reads what is asked for.
    fn connect(&mut self, session: &Session, patience: Duration) -> Result<(), FabricError> {
        let deadline = Deadline::after(session.patience.min(patience));
        let card = self.shared.card()?;
        let socket = Box::new(session.card_socket(patience)?);
        let reader = Reader::connect(&card, socket, session.watched, &self.shared.card_counters, deadline)?;
        self.reader = Some(Box::new(reader));
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
        if !changes && self.reader.is_none() && self.back_off.is_paused(Instant::now()) {
            self.shared.card_counters.count_socket_read();
            return ByCard::BySocket;
        }
        if self.reader.is_none() {
            let began = Instant::now();
            if let Err(error) = self.connect(session, patience) {
                return self.refuse(error, changes, began.elapsed());
            }
        }
        let Some(reader) = &mut self.reader else { return ByCard::BySocket };
        let count = fault.as_ref().map_or(batch.len(), |(at, _)| *at);
        // Half of it, so that there is time for the socket, which also tells whether the memory
        // node lives.
        let patience = patience.min(session.patience) / 2;
        let waiting = WaitLimit { link: &session.link, patience };
        let ran = reader.run(batch, count, &waiting);
        let took = reader.failed_wait();
        match ran {
            Ok(()) => {
                if self.back_off.broken.is_some() {
                    self.back_off.note_success(Instant::now());
                }
                ByCard::Ended(fault.map_or(Ok(()), |(_, error)| Err(error)))
            }
            Err(CardFailure::NotRegistered) => {
                self.shared.card_counters.count_socket_read();
                ByCard::BySocket
            }
            Err(CardFailure::Broken(error)) => self.refuse(error, changes, took),
            Err(CardFailure::Silent) => {
                let waiting_for = "the memory node's network card answers";
                self.refuse(FabricError::DeadlinePassed { waiting_for }, changes, took)
            }
            Err(CardFailure::Gone) => {
                self.leave(took);
                ByCard::Gone
            }
        }
    }

    /// The watched word, if a lease of it judges READs that have completed by now.
    pub(super) fn leased_word(&self) -> Option<u64> {
        self.reader.as_ref()?.leased_word()
    }

    /// READs of the watched word that went with those that were asked for, since this was asked
    /// last.
    pub(super) fn take_uncounted(&mut self) -> u32 {
        self.reader.as_mut().map_or(0, |reader| reader.take_uncounted())
    }

    /// Goes without a queue pair for a while. A batch that changes memory may have been executed,
    /// and is not sent again.
    #[cold]
    fn refuse(&mut self, error: FabricError, changes: bool, took: Duration) -> ByCard {
        self.leave(took);
        match error {
            FabricError::Disconnected { .. } => ByCard::Gone,
            error if changes => ByCard::Ended(Err(error)),
            _ => {
                self.shared.card_counters.count_socket_read();
                ByCard::BySocket
            }
        }
    }

    /// Leaves the queue pair, and with it what is under way.
    #[cold]
    fn leave(&mut self, took: Duration) {
        if self.reader.take().is_some() {
            self.shared.card_counters.count_broken();
        }
        self.back_off.note_failure(Instant::now(), took);
    }
}

/// How many bytes are READ to see that packets as long as cards may make them pass: more than one
/// packet has, if that many are registered.
fn probe_len(mtu: u32, registered: u64) -> usize {
    // An MTU is short.
    (u64::from(mtu) + 1).min(registered) as usize
}

impl Session {
    /// Sees at once whether the memory node's card can be reached, and leaves what was made for
    /// that.
    pub(super) fn try_card(&self, shared: &Arc<SharedCard>) -> Result<(), FabricError> {
        let mut by_card = CardReader::new(Arc::clone(shared));
        by_card.connect(self, self.patience)?;
        let Some(reader) = &mut by_card.reader else { return Ok(()) };
        let read = |reader: &mut Reader, len| {
            let mut batch = Batch::new();
            batch.read(RemoteAddr::region(0), len);
            reader.run(&mut batch, 1, &WaitLimit { link: &self.link, patience: self.patience })
        };
        let not_served = |why: &str| Err(RdmaError::NotServed { why: why.to_owned() }.into());
        match read(reader, 8) {
            Ok(()) => {}
            Err(CardFailure::Broken(error)) => return Err(error),
            Err(CardFailure::Gone) => return Err(self.link.disconnected()),
            Err(CardFailure::NotRegistered) => return not_served("nothing of its region is registered"),
            Err(CardFailure::Silent) => {
                return not_served(
                    "its card does not answer; look whether the network lets RDMA through (for RoCE v2 UDP port 4791, and \
                     frames of the MTU)",
                );
            }
        }
        let mtu = reader.path_mtu();
        let bytes = probe_len(mtu, reader.registered_from_begin());
        match read(reader, bytes) {
            // What was registered has gone meanwhile, which tells nothing.
            Ok(()) | Err(CardFailure::NotRegistered) => Ok(()),
            Err(CardFailure::Gone) => Err(self.link.disconnected()),
            Err(CardFailure::Broken(FabricError::Rdma(error))) if !error.is_silence() => {
                Err(FabricError::Rdma(error))
            }
            Err(CardFailure::Broken(_) | CardFailure::Silent) => {
                Err(RdmaError::Unusable(format!(
                    "the memory node's card answers short READs, and none of {bytes} bytes: packets of {mtu} bytes, the MTU of \
                     both cards, are lost on the way. Have the network's switches and interfaces let through {mtu} bytes and \
                     100 more for headers, or lower the MTU of one card's interface (ip link set NAME mtu), and with it the \
                     card's (ibv_devinfo: active_mtu)"
                ))
                .into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_are_made_again_after_pauses_that_a_single_batch_does_not_end() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut back_off = BackOff::default();
        assert!(!back_off.is_paused(begin));
        // One that reads a batch and breaks at the next is made more and more rarely.
        for (now, pause) in [(0, 1), (10, 2), (20, 4), (30, 8)] {
            back_off.note_failure(at(now), Duration::ZERO);
            assert!(
                back_off.is_paused(at(now + pause) - Duration::from_micros(1))
                    && !back_off.is_paused(at(now + pause))
            );
            back_off.note_success(at(now + pause));
        }
        (0..20).for_each(|_| back_off.note_failure(at(100), Duration::ZERO));
        assert!(back_off.is_paused(at(1099)) && !back_off.is_paused(at(1100)));
        // What took long is not tried for ten times as long.
        back_off.note_failure(at(2000), Duration::from_millis(500));
        assert!(back_off.is_paused(at(6999)) && !back_off.is_paused(at(7000)));
        back_off.note_failure(at(7000), Duration::from_millis(100));
        assert!(back_off.is_paused(at(7999)) && !back_off.is_paused(at(8000)));
        back_off.note_failure(at(8000), Duration::from_secs(3600));
        assert!(back_off.is_paused(at(67_999)) && !back_off.is_paused(at(68_000)));
        // A second of success makes good for all.
        back_off.note_success(at(70_000));
        back_off.note_success(at(70_999));
        assert!(back_off.broken.is_some());
        back_off.note_success(at(71_000));
        back_off.note_failure(at(71_001), Duration::ZERO);
        assert!(!back_off.is_paused(at(71_002)));
    }

    #[test]
    fn a_probe_is_longer_than_a_packet_where_so_much_is_registered() {
        assert_eq!(probe_len(1024, 1 << 20), 1025);
        assert_eq!(probe_len(4096, 1 << 20), 4097);
        assert_eq!(probe_len(4096, 4096), 4096);
        assert_eq!(probe_len(256, 64), 64);
    }
}
