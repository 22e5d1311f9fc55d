//! The progress of a connection: what comes of its peer, and the answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::stage::Stage;
use super::{Arriving, KEEP, Peer, PeerBuffers, Progressed};
use crate::rdma::wire::NOT_SERVED;
use crate::rdma::{CardAnswer, PeerQueuePair, RdmaError, ServedAreas};
use crate::tcp::areas::{Areas, Output};
use crate::tcp::frame::{
    CALL_BYTES, DAMAGED, FrameError, HEAD_BYTES, Kind, ReplyHead, RequestHead, SERVED, checksum,
};
use crate::tcp::node::{Client, CloseReason, ReadsByCard, ServingState, ToService};
use crate::tcp::socket::Moved;

/// Replies leave when they are this many bytes, or at the end of the input.
const FLUSH: usize = 2 << 10;
/// Bytes of replies after which others have their turn.
const TURN: usize = 1 << 20;
/// Bytes that are taken at once of what must be decrypted first.
const ENCRYPTED: usize = 32 << 10;
/// The cost of a question's byte, beside what is looked at for it, in bytes of replies: a question
/// for a key takes what READs of its length in entries do, and many of them are received at once.
const ANSWER_COST: usize = 64;

impl Peer {
    /// Moves what can be moved: sends what waits, receives, answers.
    pub(in crate::tcp) fn pump(&mut self, buffers: &mut PeerBuffers) -> Progressed {
        if self.is_unsent() {
            match self.send_rest() {
                Ok(true) => {}
                Ok(false) => return Progressed::Idle,
                Err(end) => return Progressed::Closed(end),
            }
        }
        let outcome = match &self.stage {
            Stage::Greeting => self.greet(buffers),
            Stage::Challenged(_) => self.check_proof(buffers),
            Stage::Waiting(_) | Stage::Held(_) => return Progressed::Idle,
            Stage::Open { client, .. } => {
                if !client.is_open.load(Ordering::Relaxed) {
                    // An answer may have been posted just now, before the word that it is hung up
                    // on, which will end this, too.
                    return if self.asked.is_some() {
                        Progressed::Idle
                    } else {
                        Progressed::Closed(CloseReason::Parted)
                    };
                }
                // Taken out for that: a copy of the pointer would change a count that sockets of
                // the client on other threads share.
                let stage = std::mem::replace(&mut self.stage, Stage::Greeting);
                let outcome = match &stage {
                    Stage::Open { client, is_first } => self.serve(client, *is_first, buffers),
                    _ => Ok(Progressed::Idle),
                };
                self.stage = stage;
                outcome
            }
        };
        outcome.unwrap_or_else(Progressed::Closed)
    }

    /// Receives and answers frames.
    fn serve(
        &mut self,
        client: &Arc<Client>,
        is_first: bool,
        buffers: &mut PeerBuffers,
    ) -> Result<Progressed, CloseReason> {
        if self.asked.is_some() {
            return Ok(Progressed::Idle);
        }
        let mut have = self.rest.len();
        if self.is_unparsed && self.arriving.as_mut().is_some_and(|arriving| arriving.is_starved(have)) {
            // Before anything is copied: it is asked for again and again.
            note_active(client, buffers);
            return Ok(Progressed::Starved);
        }
        if !std::mem::take(&mut self.is_unparsed) {
            let end = match self.stream.is_encrypted() {
                true => buffers.input.len().min(have + ENCRYPTED),
                false => buffers.input.len(),
            };
            match self.stream.receive(&mut buffers.input[have..end]) {
                Moved::Bytes(bytes) => have += bytes,
                Moved::Nothing => return Ok(Progressed::Idle),
                Moved::Gone => return Err(self.lost()),
            }
        }
        buffers.input[..self.rest.len()].copy_from_slice(&self.rest);
        self.rest.clear();
        note_active(client, buffers);
        buffers.out.clear();
        let parsed = self.parse((client, is_first), have, buffers);
        // What was asked for before a frame that is none is owed.
        let all_sent = self.flush(buffers)?;
        let (at, progressed) = parsed?;
        self.rest.extend_from_slice(&buffers.input[at..have]);
        if self.rest.is_empty() && self.rest.capacity() > KEEP {
            self.rest = Vec::new();
        }
        self.is_unparsed =
            at < have && (self.asked.is_some() || !all_sent || progressed != Progressed::Active);
        // What the node has no memory for is not late.
        let is_partial =
            progressed != Progressed::Starved && (self.arriving.is_some() || at < have && !self.is_unparsed);
        if !is_partial {
            self.partial_since = None;
        } else if self.partial_since.is_none() {
            self.partial_since = Some(buffers.now);
        }
        Ok(progressed)
    }

    /// Answers the whole frames of the input, and says up to where it is done.
    fn parse(
        &mut self,
        (client, is_first): (&Arc<Client>, bool),
        have: usize,
        buffers: &mut PeerBuffers,
    ) -> Result<(usize, Progressed), CloseReason> {
        let limits = client.welcome.limits;
        let (mut at, mut replied) = (0, 0);
        loop {
            if self.arriving.is_some() {
                match self.take_arriving(client, &mut at, have, buffers) {
                    Some(progressed) => return Ok((at, progressed)),
                    None => continue,
                }
            }
            let Some((head, rest)) = buffers.input[at..have].split_first_chunk::<HEAD_BYTES>() else { break };
            let head = RequestHead::decode(head, &limits).map_err(CloseReason::of_frame)?;
            let len = head.bytes as usize;
            if head.kind == Kind::Call {
                // One that was joined is for batches: answers to requests go over the client's
                // first.
                if !is_first {
                    return Err(CloseReason::of_frame(FrameError::CALL));
                }
                let Some((sum, _)) = rest.split_first_chunk::<CALL_BYTES>() else { break };
                self.arriving = Some(Arriving {
                    tag: head.tag,
                    len: len - CALL_BYTES,
                    checksum: u64::from_le_bytes(*sum),
                    bytes: Vec::new(),
                    charge: client.share.charge(),
                });
                at += HEAD_BYTES + CALL_BYTES;
                continue;
            }
            let Some(body) = rest.get(..len) else { break };
            let answered = match head.kind {
                Kind::Reads => client.areas.read(&head, body, limits.reply_bytes, &mut buffers.out),
                Kind::Question => {
                    let cost = client.areas.answer(&mut buffers.memory, &head, body, &mut buffers.out);
                    replied += cost.saturating_add(len * ANSWER_COST);
                    Ok(())
                }
                Kind::Card => {
                    introduce(&mut self.queue_pair, client, &head, body, &buffers.shared, &mut buffers.out);
                    // A queue pair takes the driver long.
                    replied += TURN;
                    let has_pair = self.queue_pair.is_some();
                    self.reads_by_card = has_pair.then(|| ReadsByCard::begin(client, &buffers.shared));
                    Ok(())
                }
                _ => client.areas.change(&head, body, limits.reply_bytes, &mut buffers.out),
            };
            answered.map_err(CloseReason::of_frame)?;
            at += HEAD_BYTES + len;
            self.partial_since = None;
            let replies = buffers.out.len();
            if replies >= FLUSH {
                replied += replies;
                if !self.flush(buffers)? {
                    break;
                }
            }
            if replied >= TURN {
                return Ok((at, Progressed::Paused));
            }
        }
        Ok((at, Progressed::Active))
    }

    /// Takes what has come of a call; `None` if frames after it are to be looked at.
    fn take_arriving(
        &mut self,
        client: &Client,
        at: &mut usize,
        have: usize,
        buffers: &mut PeerBuffers,
    ) -> Option<Progressed> {
        let arriving = self.arriving.as_mut()?;
        let more = arriving.missing().min(have - *at);
        if !arriving.has_memory_for(more) {
            return Some(Progressed::Starved);
        }
        arriving.bytes.extend_from_slice(&buffers.input[*at..*at + more]);
        *at += more;
        if arriving.missing() > 0 {
            return Some(Progressed::Active);
        }
        self.partial_since = None;
        self.hand_over(client, buffers).then_some(Progressed::Active)
    }

    /// Gives a call that has arrived to the service; `false` if it was damaged and is answered.
    fn hand_over(&mut self, client: &Client, buffers: &mut PeerBuffers) -> bool {
        let Some(Arriving { tag, checksum: sum, bytes, charge, .. }) = self.arriving.take() else {
            return false;
        };
        if checksum(&bytes) != sum {
            buffers.out.push(ReplyHead { bytes: 0, tag, status: DAMAGED, word: 0 }, &[]);
            return false;
        }
        self.asked = Some(tag);
        buffers.shared.service_side.post(ToService::Request { client: client.id(), bytes, charge });
        true
    }
}

/// Notes that a client is not idle.
fn note_active(client: &Client, buffers: &PeerBuffers) {
    let seconds = buffers.shared.seconds(buffers.now);
    if client.active.load(Ordering::Relaxed) != seconds {
        client.active.store(seconds, Ordering::Relaxed);
    }
}

/// Answers a client's network card. The first of a region waits until some of it is registered, and
/// those of its thread with it.
fn introduce(
    queue_pair: &mut Option<PeerQueuePair>,
    client: &Client,
    head: &RequestHead,
    body: &[u8],
    shared: &ServingState,
    out: &mut Output,
) {
    let Areas { for_card, backed_end, lease, scratch, .. } = &client.areas;
    let areas = ServedAreas { region: for_card, backed_end, lease: *lease, scratch: scratch.as_ref() };
    let (status, bytes) = match &shared.card {
        Some(card) => reply_of_card(card.answer(&areas, queue_pair, body), shared),
        None => (NOT_SERVED, b"it listens at no address that begins with rdma://".to_vec()),
    };
    // A few dozen kilobytes at most.
    let len = bytes.len() as u32;
    out.push(ReplyHead { bytes: len, tag: head.tag, status, word: 0 }, &bytes);
}

/// The reply to a client's network card; the service is told what is wrong with the memory node's.
fn reply_of_card(answer: Result<CardAnswer, RdmaError>, shared: &ServingState) -> (u16, Vec<u8>) {
    match answer {
        Ok(CardAnswer { bytes, trouble }) => {
            if let Some(trouble) = trouble {
                shared.tell(trouble.into());
            }
            (SERVED, bytes)
        }
        Err(error) => {
            let why = error.to_string();
            shared.card_refused(error, &why);
            (NOT_SERVED, why.into_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FabricError;
    use crate::tcp::options::ListenOptions;

    /// A memory node that could register nothing said so to its clients only.
    #[test]
    fn refusals_by_the_network_card_are_told_once_for_each_reason() {
        let shared = ServingState::new(ListenOptions::default(), None, None).unwrap();
        let refuse = |error| {
            assert_eq!(reply_of_card(Err(error), &shared).0, NOT_SERVED);
            let mut told = 0;
            while let Some(message) = shared.service_side.take() {
                assert!(matches!(message, ToService::Rejected(FabricError::Rdma(_))), "{message:?}");
                told += 1;
            }
            told
        };
        let unusable = |why: &str| RdmaError::Unusable(why.to_owned());
        assert_eq!([refuse(unusable("too little")), refuse(unusable("too little"))], [1, 0]);
        assert_eq!(refuse(unusable("it has gone")), 1);
        // The client's to tell.
        assert_eq!(refuse(RdmaError::Introduction { what: "nonsense" }), 0);
    }
}
