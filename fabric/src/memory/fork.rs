//! Memory that a forked child does not inherit.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::DupFlags;
use rustix::mm::Advice;
use rustix::process::{Pid, getpid};

use super::mapping::os;
use super::{MemoryError, SharedMemory};

/// A flag of one process: a child that is forked finds it lowered, and that it was inherited.
///
/// A look at it is one relaxed load. It lies in a page of its own that the kernel wipes in a child
/// (`MADV_WIPEONFORK`); where the kernel cannot, before Linux 4.14, a look asks for the process's
/// number as well.
#[derive(Debug)]
pub struct ForkFlag {
    /// Two words: whether and how it is raised, and whether this process has made it its own.
    page: SharedMemory,
    /// Whose it is, where the kernel does not wipe the page.
    owner: Option<AtomicU64>,
}

/// Where the words lie in the page.
const RAISED: usize = 0;
const OWN: usize = 1;

/// What is in the first word while it is raised: that it is this process's, as no other finds it
/// so, or that the process's number tells.
const RAISED_HERE: u64 = 1;
const RAISED_BY_OWNER: u64 = 2;

impl ForkFlag {
    /// A raised flag of this process.
    ///
    /// # Errors
    /// If the operating system has no page of memory.
    pub fn raised() -> Result<Self, MemoryError> {
        let page = SharedMemory::anonymous(rustix::param::page_size())?;
        // SAFETY: the page was just mapped, belongs to `page` alone and holds nothing yet. The
        // advice changes nothing but what a forked child finds in it.
        let advised =
            unsafe { rustix::mm::madvise(page.base.as_ptr().cast(), page.mapped, Advice::LinuxWipeOnFork) };
        let owner = match advised {
            Ok(()) => None,
            Err(rustix::io::Errno::INVAL) => Some(AtomicU64::new(0)),
            Err(errno) => return Err(os("asking that children get no copy of", page.mapped)(errno)),
        };
        let flag = Self { page, owner };
        flag.raise();
        Ok(flag)
    }

    /// Raises it, for this process from here on.
    pub fn raise(&self) {
        let raised = match &self.owner {
            Some(owner) => {
                owner.store(number_of(getpid()), Ordering::Relaxed);
                RAISED_BY_OWNER
            }
            None => RAISED_HERE,
        };
        self.word(RAISED).store(raised, Ordering::Relaxed);
        self.word(OWN).store(1, Ordering::Relaxed);
    }

    /// Lowers it.
    pub fn lower(&self) {
        self.word(RAISED).store(0, Ordering::Relaxed);
    }

    /// Whether it is raised, by this process.
    #[inline]
    pub fn is_raised(&self) -> bool {
        let raised = self.word(RAISED).load(Ordering::Relaxed);
        raised == RAISED_HERE || self.is_raised_by_owner(raised)
    }

    /// Whether it was raised by another process, from which this one was forked.
    pub fn is_inherited(&self) -> bool {
        self.word(OWN).load(Ordering::Relaxed) == 0 || !self.is_owners()
    }

    #[cold]
    fn is_raised_by_owner(&self, raised: u64) -> bool {
        raised == RAISED_BY_OWNER && self.is_owners()
    }

    fn is_owners(&self) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner.load(Ordering::Relaxed) == number_of(getpid()))
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the page is mapped for reading and writing as long as `self.page` is there,
        // begins on a page boundary and has room for both words. No other code has a pointer to it,
        // and all accesses are atomic.
        unsafe { self.page.base.cast::<AtomicU64>().add(index).as_ref() }
    }
}

fn number_of(process: Pid) -> u64 {
    u64::from(process.as_raw_nonzero().get().unsigned_abs())
}

/// Lets go of a socket that this process has inherited: its descriptor stays, and stays its
/// owner's, but leads nowhere. The process that it was inherited from keeps its own, and the peer
/// notices nothing.
pub(crate) fn detach_inherited(socket: BorrowedFd<'_>) {
    // Without a descriptor to put there it stays as it is, until this process ends.
    let Ok(nothing) = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else { return };
    // SAFETY: the descriptor is open, as it is borrowed; it is never closed through this second
    // owner.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(socket.as_raw_fd()) });
    let _ = rustix::io::dup3(&nothing, &mut place, DupFlags::CLOEXEC);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_raised_and_lowered() {
        let flag = ForkFlag::raised().unwrap();
        assert!(flag.is_raised() && !flag.is_inherited());
        flag.lower();
        assert!(!flag.is_raised() && !flag.is_inherited());
        flag.raise();
        assert!(flag.is_raised());
    }

    #[test]
    fn where_the_kernel_wipes_nothing_the_process_number_tells() {
        let flag = ForkFlag { owner: Some(AtomicU64::new(0)), ..ForkFlag::raised().unwrap() };
        flag.word(RAISED).store(RAISED_BY_OWNER, Ordering::Relaxed);
        assert!(!flag.is_raised() && flag.is_inherited(), "another process's");
        flag.raise();
        assert!(flag.is_raised() && !flag.is_inherited());
    }

    #[test]
    fn a_socket_that_was_let_go_is_nobodys_and_its_peer_lives_on() {
        use rustix::net::{
            AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
        };
        use std::os::fd::AsFd;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let parents = ours.try_clone().unwrap();
        detach_inherited(ours.as_fd());
        assert!(send(&ours, &[1], SendFlags::NOSIGNAL).is_err());
        send(&parents, &[7], SendFlags::NOSIGNAL).unwrap();
        let mut byte = [0];
        recv(&theirs, &mut byte[..], RecvFlags::DONTWAIT).unwrap();
        assert_eq!(byte, [7]);
    }
}
