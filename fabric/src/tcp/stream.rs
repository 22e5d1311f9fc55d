//! A connected socket that bytes go over: as they are, or encrypted. What it does not take at once
//! is kept, and sent after.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::socket::{self, Moved, Ready, wait, wait_to_send};
use super::tls::{Fault, TlsSession};
use crate::clock::Deadline;

/// A socket that never blocks, and the session over it if there is one. Whatever receives less than
/// there is room for has emptied the socket, so that it is announced when more comes.
#[derive(Debug)]
pub(super) struct Stream<S = OwnedFd> {
    socket: S,
    session: Option<Box<TlsSession>>,
    /// Bytes to be sent, and how many of them have been.
    queue: Vec<u8>,
    sent: usize,
}

/// Why a wait for bytes to move was in vain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InVain {
    /// The peer has closed its end or is gone.
    Gone,
    /// The deadline passed.
    TimedOut,
}

impl<S: AsFd> Stream<S> {
    pub(super) fn new(socket: S, session: Option<TlsSession>) -> Self {
        Self { socket, session: session.map(Box::new), queue: Vec::new(), sent: 0 }
    }

    /// The same over another holder of the socket.
    pub(super) fn map<T>(self, holder: impl FnOnce(S) -> T) -> Stream<T> {
        let Self { socket, session, queue, sent } = self;
        Stream { socket: holder(socket), session, queue, sent }
    }

    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    /// Sends what fits, if nothing is queued.
    #[inline]
    pub(super) fn send(&mut self, bytes: &[u8]) -> Moved {
        send(&self.socket, &mut self.session, bytes)
    }

    /// Where bytes to send are appended. [`push_out`](Self::push_out) sends them.
    #[inline]
    pub(super) fn queue(&mut self) -> &mut Vec<u8> {
        if self.queued() == 0 {
            self.queue.clear();
            self.sent = 0;
        }
        &mut self.queue
    }

    /// Bytes that are queued.
    #[inline]
    pub(super) fn queued(&self) -> usize {
        self.queue.len() - self.sent
    }

    /// Gives room of the queue above `most` bytes back, once it is empty.
    pub(super) fn shrink_queue(&mut self, most: usize) {
        if self.queued() == 0 {
            self.queue().shrink_to(most);
        }
    }

    /// Sends what fits, and queues the rest. `false` if the peer is gone.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> bool {
        while self.queued() == 0 && !bytes.is_empty() {
            match self.send(bytes) {
                Moved::Bytes(sent) => bytes = &bytes[sent..],
                Moved::Nothing => break,
                Moved::Gone => return false,
            }
        }
        self.queue().extend_from_slice(bytes);
        true
    }

    /// Receives what is there. The buffer must have room.
    #[inline]
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Moved {
        match &mut self.session {
            None => socket::receive(&self.socket, into),
            Some(session) => session.receive(self.socket.as_fd(), into),
        }
    }

    /// Whether what was sent is not with the socket yet.
    #[inline]
    pub(super) fn is_unsent(&self) -> bool {
        self.queued() > 0 || self.session.as_ref().is_some_and(|session| session.is_unsent())
    }

    /// Sends what is not with the socket yet, as far as it fits.
    #[inline]
    pub(super) fn push_out(&mut self) -> Moved {
        let mut all = 0;
        while self.queued() > 0 {
            match send(&self.socket, &mut self.session, &self.queue[self.sent..]) {
                Moved::Bytes(sent) => {
                    self.sent += sent;
                    all += sent;
                }
                Moved::Nothing => break,
                Moved::Gone => return Moved::Gone,
            }
        }
        // Also where there is always something left to send. More was sent than is moved.
        if self.sent > self.queue.len() / 2 {
            self.queue.drain(..self.sent);
            self.sent = 0;
        }
        match self.session.as_mut().map_or(Moved::Nothing, |session| session.push_out(self.socket.as_fd())) {
            Moved::Nothing if all > 0 => Moved::Bytes(all),
            encrypted => encrypted,
        }
    }

    /// Waits until these bytes are sent, and all before them.
    pub(super) fn send_all(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), InVain> {
        self.queue().extend_from_slice(bytes);
        while self.is_unsent() {
            match self.push_out() {
                Moved::Bytes(_) => {}
                Moved::Gone => return Err(InVain::Gone),
                Moved::Nothing if wait_to_send(&*self, deadline) == Ready::TimedOut => {
                    return Err(InVain::TimedOut);
                }
                Moved::Nothing => {}
            }
        }
        Ok(())
    }

    /// Waits for bytes: at least one.
    pub(super) fn receive_some(&mut self, into: &mut [u8], deadline: Deadline) -> Result<usize, InVain> {
        loop {
            match self.receive(into) {
                Moved::Bytes(bytes) => return Ok(bytes),
                Moved::Gone => return Err(InVain::Gone),
                Moved::Nothing if wait(&*self, self.is_unsent(), deadline) == Ready::TimedOut => {
                    return Err(InVain::TimedOut);
                }
                Moved::Nothing => {}
            }
        }
    }

    /// Waits until all that there is room for has come.
    pub(super) fn receive_all(&mut self, into: &mut [u8], deadline: Deadline) -> Result<(), InVain> {
        let mut have = 0;
        while have < into.len() {
            have += self.receive_some(&mut into[have..], deadline)?;
        }
        Ok(())
    }

    /// Whether there is a session.
    #[inline]
    pub(super) fn is_encrypted(&self) -> bool {
        self.session.is_some()
    }

    /// Whether nothing can be sent before the peer has said more.
    pub(super) fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// The fault that ended it, if its encryption went wrong.
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.session.as_ref()?.fault()
    }
}

impl<S: AsFd> AsFd for Stream<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[inline]
fn send(socket: &impl AsFd, session: &mut Option<Box<TlsSession>>, bytes: &[u8]) -> Moved {
    match session {
        None => socket::send(socket, bytes),
        Some(session) => session.send(socket.as_fd(), bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// An endpoint that keeps more posted than the kernel takes kept all that it had ever sent.
    #[test]
    fn a_queue_that_is_never_empty_forgets_what_was_sent() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut stream = Stream::new(ours, None);
        let mut bytes = vec![7; 64 << 10];
        while stream.queued() < 4 * bytes.len() {
            stream.queue().extend_from_slice(&bytes);
            stream.push_out();
        }
        let room = stream.queue.capacity();
        for _ in 0..200 {
            let mut taken = 0;
            while let Moved::Bytes(came) = socket::receive(&theirs, &mut bytes[taken..]) {
                taken += came;
                if taken == bytes.len() {
                    break;
                }
            }
            stream.queue().extend_from_slice(&bytes[..taken]);
            stream.push_out();
            assert!(taken > 0 && stream.queued() > 0);
        }
        assert!(stream.queue.capacity() <= 4 * room, "{} of {room}", stream.queue.capacity());
    }
}
