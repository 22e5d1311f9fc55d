//! A client's network card, and the socket over which it and the memory node's card are introduced
//! to each other.

use std::sync::{Arc, Mutex, OnceLock};

use super::frame::{HEAD_BYTES, Kind, ReplyHead, RequestHead, SERVED};
use super::stream::{InVain, Stream};
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::lock::lock;
use crate::rdma::wire::{MAX_ANSWER_BYTES, NOT_SERVED};
use crate::rdma::{CardChoice, CardCounters, ClientCard, Introduction, RdmaError};

/// The network card that the endpoints of a connection share.
#[derive(Debug)]
pub(super) struct SharedCard {
    choice: CardChoice,
    /// Opened when it is needed first, and again if it could not be or has gone.
    card: Mutex<Option<Arc<ClientCard>>>,
    pub(super) card_counters: Arc<CardCounters>,
    /// Why the connection began without it.
    trouble: OnceLock<FabricError>,
}

impl SharedCard {
    pub(super) fn new(choice: &CardChoice) -> Self {
        let (card, trouble) = (Mutex::default(), OnceLock::new());
        Self { choice: choice.clone(), card, card_counters: Arc::default(), trouble }
    }

    /// The card, opened once for all endpoints.
    pub(super) fn card(&self) -> Result<Arc<ClientCard>, FabricError> {
        let mut card = lock(&self.card);
        if let Some(card) = card.as_ref().filter(|card| !card.is_gone()) {
            return Ok(Arc::clone(card));
        }
        Ok(Arc::clone(card.insert(Arc::new(ClientCard::open(&self.choice)?))))
    }

    /// The connection begins without the card.
    pub(super) fn begins_without(&self, trouble: FabricError) {
        self.card_counters.count_unusable();
        // There is one beginning.
        self.trouble.get_or_init(|| trouble);
    }

    pub(super) fn trouble(&self) -> Option<&FabricError> {
        self.trouble.get()
    }
}

/// A socket that joined a client, and on which nothing else is asked. While it lives so does the
/// memory node's end of the queue pair.
#[derive(Debug)]
pub(super) struct CardSocket {
    stream: Stream,
    peer: String,
    tag: u16,
}

impl CardSocket {
    pub(super) fn new(stream: Stream, peer: String) -> Self {
        Self { stream, peer, tag: 0 }
    }

    fn send(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), FabricError> {
        self.stream.send_all(bytes, deadline).map_err(|why| self.error(why))
    }

    fn receive(&mut self, bytes: &mut [u8], deadline: Deadline) -> Result<(), FabricError> {
        self.stream.receive_all(bytes, deadline).map_err(|why| self.error(why))
    }

    fn error(&self, why: InVain) -> FabricError {
        match why {
            InVain::Gone => FabricError::Disconnected { peer: self.peer.as_str().into() },
            InVain::TimedOut => FabricError::DeadlinePassed {
                waiting_for: "the memory node to register memory with its network card",
            },
        }
    }
}

impl Introduction for CardSocket {
    fn exchange(&mut self, request: &[u8], deadline: Deadline) -> Result<Vec<u8>, FabricError> {
        let wrong = |what| FabricError::from(RdmaError::Introduction { what });
        let tag = self.tag;
        self.tag = tag.wrapping_add(1);
        // A few dozen bytes.
        let head = RequestHead { bytes: request.len() as u32, entries: 0, tag, kind: Kind::Card };
        self.send(&[&head.encode()[..], request].concat(), deadline)?;
        let mut head = [0; HEAD_BYTES];
        self.receive(&mut head, deadline)?;
        let ReplyHead { bytes, tag: answered, status, .. } = ReplyHead::decode(&head);
        if answered != tag || bytes as usize > MAX_ANSWER_BYTES {
            return Err(wrong("an answer that cannot be"));
        }
        let len = bytes as usize;
        let mut answer = vec![0; len.next_multiple_of(8)];
        self.receive(&mut answer, deadline)?;
        answer.truncate(len);
        match status {
            SERVED => Ok(answer),
            NOT_SERVED => {
                let why = String::from_utf8_lossy(&answer).into_owned();
                Err(RdmaError::NotServed { why }.into())
            }
            _ => Err(wrong("an answer of no kind")),
        }
    }
}
