//! Accepting connections, and sharing them out among the I/O threads.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::{IoThread, LISTENING};
use crate::error::FabricError;
use crate::shm::PROTOCOL_VERSION;
use crate::tcp::counters::HangUp;
use crate::tcp::handshake::{USER_REFUSED, Welcome};
use crate::tcp::node::{Arrival, Listening, PeerKey, ToThread};
use crate::tcp::peer::Peer;
use crate::tcp::socket::{self, Origin, accept, prepare};
use crate::tcp::stream::Stream;
use crate::tcp::unauthenticated::Evicted;

/// How long no connection is accepted after the operating system had no descriptor, or no memory,
/// for it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that are accepted in a round.
const MAX_ACCEPTED: usize = 64;
/// How long none is accepted while the maximum of connections have not greeted.
const CROWDED_PAUSE: Duration = Duration::from_millis(2);

impl IoThread {
    /// Accepts connections, a bounded number, and shares them out among the threads.
    pub(super) fn accept(&mut self, which: usize) {
        if self.paused_until.is_some_and(|until| self.buffers.now < until) {
            return;
        }
        self.paused_until = None;
        let listening = Arc::clone(&self.listening);
        let Some(listening) = listening.get(which) else { return };
        for _ in 0..MAX_ACCEPTED {
            if self.buffers.shared.newcomers.is_full(self.buffers.now) {
                self.paused_until = Some(self.buffers.now + CROWDED_PAUSE);
                return self.pause_listening();
            }
            match accept(&listening.socket, &listening.target) {
                Ok(Some((socket, origin))) => {
                    if prepare(&socket, &listening.target).is_ok() {
                        self.share_out(socket, origin, listening);
                    }
                }
                Ok(None) => return,
                Err(errno) => {
                    // Out of descriptors, most likely: the queue stays readable, and looking again
                    // would spin.
                    self.paused_until = Some(self.buffers.now + ACCEPT_PAUSE);
                    let error = FabricError::io("accepting a client")(errno);
                    self.buffers.shared.report(HangUp::NoResources, error);
                    return self.pause_listening();
                }
            }
        }
    }

    pub(super) fn pause_listening(&mut self) {
        for listening in self.listening.iter() {
            let _ = epoll::delete(&self.epoll, &listening.socket);
        }
    }

    /// Accepts again. Listening sockets that cannot be watched are tried again after a pause, and
    /// that is told once.
    pub(super) fn resume_listening(&mut self) {
        self.paused_until = None;
        let mut outcome = Ok(());
        for (data, listening) in (LISTENING..).zip(self.listening.iter()) {
            match epoll::add(&self.epoll, &listening.socket, EventData::new_u64(data), EventFlags::IN) {
                // It may be watched while others are tried again.
                Ok(()) | Err(Errno::EXIST) => {}
                failed => outcome = failed,
            }
        }
        let again = outcome.err().map(|_| self.buffers.now + ACCEPT_PAUSE);
        let before = std::mem::replace(&mut self.resumes_at, again);
        if let (Err(errno), None) = (outcome, before) {
            self.buffers.shared.tell(FabricError::io("watching a listening socket")(errno));
        }
    }

    fn share_out(&mut self, socket: OwnedFd, origin: Origin, listening: &Listening) {
        let shared = Arc::clone(&self.buffers.shared);
        let options = &shared.options;
        let address = || origin.to_string();
        let refuse = |status, detail| {
            // What it has said is not looked at, and must not make the kernel take back what it is
            // told.
            socket::receive(&socket, &mut [0; 256]);
            socket::send(&socket, &Welcome::refusal(PROTOCOL_VERSION, status, detail).encode());
        };
        if let Origin::User(user) = origin
            && user != rustix::process::geteuid().as_raw()
            && !options.allowed_users.contains(&user)
        {
            refuse(USER_REFUSED, u64::from(user));
            let remedy = "name it with --allow-user to let it in";
            let error = FabricError::UserRefused { user, address: address(), remedy };
            return shared.report(HangUp::NoRight, error);
        }
        let session = match listening.is_tls.then(|| shared.tls()?.session()) {
            // Cannot happen: listening there takes a certificate.
            Some(None) => return,
            session => session.flatten(),
        };
        let thread = self.next_thread;
        self.next_thread = (thread + 1) % shared.threads.len();
        let (place, crowded) = shared.newcomers.enter(&origin, thread, self.buffers.now);
        if let Some(Evicted { thread, number }) = crowded {
            shared.threads[thread].post(ToThread::Crowded(number));
        }
        let stream = Stream::new(socket, session);
        let arrival = Arrival { stream, origin, needs_token: listening.needs_token, place };
        if thread == self.index {
            self.take(arrival);
        } else {
            shared.threads[thread].post(ToThread::Take(arrival));
        }
    }

    /// Begins to serve a connection.
    pub(super) fn take(&mut self, arrival: Arrival) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        self.next_key += 1;
        // Places fit 31 bits, because descriptors do; keys stay below those of the mailbox and the
        // listening sockets.
        let key = (self.next_key & 0x7fff_ffff) << 32 | at as u64;
        let data = EventData::new_u64(key);
        if let Err(errno) = epoll::add(&self.epoll, &arrival.stream, data, EventFlags::IN) {
            self.free.push(at);
            let error = FabricError::io("watching a client's socket")(errno);
            // Its socket is closed with it.
            return self.buffers.shared.report(HangUp::NoResources, error);
        }
        let peer_key = PeerKey { thread: self.index, key };
        self.peers[at] = Some(Peer::new(arrival, peer_key, self.buffers.now));
        self.greeting.push(key);
        self.expect_end(at);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::target::Target;
    use crate::tcp::node::{ServingState, ToService};
    use crate::tcp::options::ListenOptions;

    /// Nothing was accepted at that address ever after.
    #[test]
    fn listening_that_cannot_be_resumed_is_tried_again_and_told_once() {
        let options = ListenOptions { io_threads: 1, ..ListenOptions::default() };
        let shared = Arc::new(ServingState::new(options, None, None).unwrap());
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let at = socket.local_addr().unwrap();
        let listen_by = |sockets: [OwnedFd; 2]| -> Arc<[Listening]> {
            let target = || Target::Internet(at);
            let all = sockets.map(|socket| Listening {
                socket,
                target: target(),
                is_tls: false,
                needs_token: false,
            });
            Arc::from(all)
        };
        let well = listen_by([socket.try_clone().unwrap().into(), socket.try_clone().unwrap().into()]);
        let mut thread = IoThread::new(0, Arc::clone(&shared), Arc::clone(&well)).unwrap();
        thread.pause_listening();
        // What epoll does not take, whatever the reason.
        let file = tempfile::tempfile().unwrap();
        thread.listening = listen_by([file.into(), socket.into()]);
        for _ in 0..3 {
            thread.resume_listening();
            assert!(thread.resumes_at.is_some(), "it is not tried again");
        }
        let mut told = 0;
        while let Some(message) = shared.service_side.take() {
            assert!(matches!(message, ToService::Rejected(FabricError::Io { .. })), "{message:?}");
            told += 1;
        }
        assert_eq!(told, 1);
        thread.listening = well;
        thread.resume_listening();
        assert_eq!(thread.resumes_at, None);
        let _client = TcpStream::connect(at).unwrap();
        thread.look(&mut Vec::with_capacity(4), Some(Duration::from_secs(10))).unwrap();
        assert_eq!(thread.greeting.len(), 1);
    }

    /// Such a client was left without a word, here and there.
    #[test]
    fn a_connection_that_cannot_be_watched_is_told_of() {
        let options = ListenOptions { io_threads: 1, ..ListenOptions::default() };
        let shared = Arc::new(ServingState::new(options, None, None).unwrap());
        let mut thread = IoThread::new(0, Arc::clone(&shared), Arc::from([])).unwrap();
        // What epoll does not take, whatever the reason.
        let stream = Stream::new(tempfile::tempfile().unwrap().into(), None);
        let origin = Origin::User(0);
        let (place, _) = shared.newcomers.enter(&origin, 0, thread.buffers.now);
        thread.take(Arrival { stream, origin, needs_token: false, place });
        assert_eq!((thread.greeting.len(), thread.free.len()), (0, 1));
        let told = shared.service_side.take();
        assert!(matches!(told, Some(ToService::Rejected(FabricError::Io { .. }))), "{told:?}");
    }
}
