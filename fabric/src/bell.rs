//! Waking a peer that sleeps, and sleeping until woken: one byte on a socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::clock::Deadline;
use crate::memory::detach_inherited;

/// One end of the stream socket between a compute node and a memory node. After the handshake it
/// carries nothing but wake-up bytes; its closing tells that the peer has gone.
#[derive(Clone, Debug)]
pub(crate) struct Bell {
    socket: Arc<OwnedFd>,
}

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// The peer rang, or the kernel woke us for nothing: look again.
    Rung,
    /// The peer has closed its end or ended.
    HungUp,
    /// The deadline passed.
    TimedOut,
}

/// Conditions that mean the peer has gone.
pub(crate) const HUNG_UP: PollFlags =
    PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR).union(PollFlags::NVAL);

impl Bell {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket: Arc::new(socket) }
    }

    /// Wakes the peer. A full socket holds wake-ups enough, and a closed one is noticed by the
    /// waiting side.
    pub(crate) fn ring(&self) {
        let _ = rustix::net::send(&*self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Takes wake-up bytes out of the socket, a bounded number: a peer that floods it only wakes us
    /// again.
    pub(crate) fn drain(&self) {
        let mut bytes = [0u8; 256];
        let _ = rustix::net::recv(&*self.socket, &mut bytes[..], RecvFlags::DONTWAIT);
    }

    /// Sleeps until the peer rings, hangs up or the deadline passes.
    pub(crate) fn wait(&self, deadline: Deadline) -> Woken {
        let timeout = deadline.remaining(Instant::now()).map(timespec);
        let mut fds = [PollFd::new(&*self.socket, PollFlags::IN | PollFlags::RDHUP)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => Woken::TimedOut,
            Ok(_) if fds[0].revents().intersects(HUNG_UP) => Woken::HungUp,
            Ok(_) => {
                self.drain();
                Woken::Rung
            }
            Err(Errno::INTR) => Woken::Rung,
            // poll(2) of one valid descriptor fails only for want of kernel memory; waiting on
            // would spin.
            Err(_) => Woken::HungUp,
        }
    }

    /// Sleeps until the peer has gone, however often it rings.
    pub(crate) fn wait_hung_up(&self) {
        loop {
            let mut fds = [PollFd::new(&*self.socket, PollFlags::RDHUP)];
            match poll(&mut fds, None) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Lets go of the socket in a process that has inherited it; see [`detach_inherited`].
    pub(crate) fn detach_inherited(&self) {
        detach_inherited(self.socket.as_fd());
    }

    /// Closes both directions, also for clones: every waiter on either side wakes up.
    pub(crate) fn hang_up(&self) {
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A duration as poll(2) takes it; saturates at centuries.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).min(1 << 33);
    Timespec { tv_sec: seconds, tv_nsec: i64::from(duration.subsec_nanos()) as _ }
}
