//! The interface for crates that implement a fabric, which users of a fabric do not need.
//!
//! A fabric is an [`Endpoint`](crate::Endpoint) that executes batches, a
//! [`Connection`](crate::Connection) that carries requests, and a loop on the memory node's side
//! that hands these to a [`Service`](crate::Service).
//!
//! | What | How |
//! |---|---|
//! | what a batch is to do, unless it is [too long](Batch::oversize) | [`Batch::requests`], [`request`] |
//! | where its results go | [`landing`] |
//! | questions to the memory node's [`Answers`](crate::Answers), and their replies | [`question`], [`land_reply`] |
//! | requests that are under way over a connection | [`posted`], [`is_request`] |
//! | requests that the service has no room for | [`RoomQueue`], [`RoomTicket`] |
//! | the watched word, where it is under a lease | [`LeasedWord`] |
//!
//! What a fabric must do is said by the traits and checked by the suite in
//! `tests/conformance/suite`. The crate `fpcache-sim` is an example.
//!
//! No version promises that anything here stays as it is.

use crate::connection::Posted;
use crate::verbs::{Batch, Request, Verb};

pub use crate::lease::LeasedWord;
pub use crate::room_queue::{RoomQueue, RoomTicket};

/// One of a batch's [requests](Batch::requests), by its place in posting order.
///
/// # Panics
/// If the batch has no such request.
#[inline]
#[must_use]
pub fn request(batch: &Batch, number: usize) -> Request<'_> {
    batch.request(&batch.requests[number])
}

/// Where a request's results go: the bytes of a READ, in whole words, or the old value of an
/// atomic. A WRITE has none.
///
/// # Panics
/// If the batch has no such request.
#[inline]
#[must_use]
pub fn landing(batch: &mut Batch, number: usize) -> &mut [u64] {
    let posted = batch.requests[number];
    let bytes = if posted.verb == Verb::Write { 0 } else { posted.len as usize };
    &mut batch.buffer[posted.word as usize..][..bytes.div_ceil(8)]
}

/// The question that a batch asks ([`Batch::ask`]), if it does. The [landing] of its only request
/// is for the reply.
#[inline]
#[must_use]
pub fn question(batch: &Batch) -> Option<&[u8]> {
    batch.question.map(|question| batch.bytes(question))
}

/// Lands the reply to a batch's question, as far as there is room, and after it zeros. Its bytes
/// count in the batch's tally in place of those that there is room for.
///
/// # Panics
/// If the batch is empty.
pub fn land_reply(batch: &mut Batch, reply: &[u64]) {
    let landing = landing(batch, 0);
    let words = reply.len().min(landing.len());
    landing[..words].copy_from_slice(&reply[..words]);
    landing[words..].fill(0);
    batch.tally.bytes_from = words as u64 * 8;
}

/// The result of [`Connection::post`](crate::Connection::post) for a request that the connection
/// calls by this number.
pub const fn posted(number: u64) -> Posted {
    Posted::new(number)
}

/// Whether it is what was [returned](posted) of the request of this number.
#[must_use]
pub fn is_request(posted: &Posted, number: u64) -> bool {
    posted.is(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{REGION, RemoteAddr};

    #[test]
    fn every_request_has_its_place_and_its_landing() {
        let mut batch = Batch::new();
        let read = batch.read(RemoteAddr::region(64), 13);
        batch.write(RemoteAddr::region(8), b"to store");
        let swapped = batch.compare_swap(RemoteAddr::region(16), 5, 6);
        assert!((0..3).map(|number| request(&batch, number)).eq(batch.requests()));
        assert_eq!(landing(&mut batch, 1), []);
        landing(&mut batch, 0).copy_from_slice(&[1, 2]);
        landing(&mut batch, 2).copy_from_slice(&[5]);
        assert_eq!((batch.words(read), batch.u64(swapped)), (&[1, 2][..], 5));
        let to = RemoteAddr { area: REGION, offset: 8 };
        assert_eq!(request(&batch, 1), Request::Write { to, bytes: b"to store" });
        assert_eq!(question(&batch), None);
    }

    #[test]
    fn a_reply_lands_as_far_as_there_is_room() {
        for reply in [&[1, 2, 3, 4][..], &[1, 2], &[]] {
            let mut batch = Batch::new();
            let landed = batch.ask(b"what?", 3);
            assert_eq!(question(&batch), Some(&b"what?"[..]));
            // What a reply before it left, say.
            landing(&mut batch, 0).fill(u64::MAX);
            land_reply(&mut batch, reply);
            let words = reply.len().min(3);
            assert_eq!(batch.words(landed)[..words], reply[..words]);
            assert!(batch.words(landed)[words..].iter().all(|&word| word == 0));
            assert_eq!((batch.tally().bytes_from, batch.tally().bytes_to), (words as u64 * 8, 5));
            assert_eq!(question(&batch), Some(&b"what?"[..]));
        }
    }

    #[test]
    fn a_posted_request_is_known_by_its_number() {
        assert!(is_request(&posted(7), 7) && !is_request(&posted(7), 8));
    }
}
