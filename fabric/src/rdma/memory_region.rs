//! Memory that a device may address.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as ffi;
use rustix::process::{Resource, getrlimit};

use super::RdmaError;
use super::device::Device;
use crate::memory::SharedMemory;

/// Rights to registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegionRights {
    /// Another machine's card may read it.
    RemoteRead,
    /// Another machine's card may read and change it.
    RemoteChange,
    /// This machine's card lands in it what was read.
    Landing,
}

impl RegionRights {
    fn flags(self) -> i32 {
        let all = match self {
            Self::RemoteRead => ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ,
            Self::RemoteChange => {
                ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
                    | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ
                    | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
                    | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC
            }
            Self::Landing => ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE,
        };
        // Flags are small.
        all.0 as i32
    }
}

/// Bytes of a memory that are registered with a device until this is dropped. The memory stays
/// mapped for as long; in a forked child it is never unmapped.
#[derive(Debug)]
pub(super) struct MemoryRegion {
    registered: NonNull<ffi::ibv_mr>,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) memory: Arc<SharedMemory>,
    device: Arc<Device>,
}

// SAFETY: libibverbs allows any thread to give a registration back, and nothing else is done with
// it.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above; shared, only its keys are looked at, which do not change.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers `len` bytes from `offset` on, which are pinned from then on.
    pub(super) fn register(
        device: &Arc<Device>,
        memory: &Arc<SharedMemory>,
        offset: u64,
        len: u64,
        rights: RegionRights,
    ) -> Result<Self, RdmaError> {
        let refused = |source: io::Error| {
            RdmaError::not_registered(&device.name, len, &source, getrlimit(Resource::Memlock).current)
        };
        let end = offset.checked_add(len).filter(|end| *end <= memory.len() as u64);
        if end.is_none() {
            return Err(refused(io::ErrorKind::InvalidInput.into()));
        }
        // SAFETY: the bytes lie inside the mapping, which the value made here keeps mapped until
        // the registration is given back. What a card of whichever machine does there is what
        // another process does: all of this program's looks at `SharedMemory` are atomic loads or
        // stand for them, and no reference into it exists.
        let registered = unsafe {
            let first = memory.base_address().as_ptr().add(offset as usize);
            ffi::ibv_reg_mr(device.domain(), first.cast(), len as usize, rights.flags())
        };
        let registered = NonNull::new(registered).ok_or_else(|| refused(io::Error::last_os_error()))?;
        Ok(Self { registered, offset, len, memory: Arc::clone(memory), device: Arc::clone(device) })
    }

    /// The end of its bytes in the memory.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Its first byte, as a card is told.
    pub(super) fn address(&self) -> u64 {
        self.memory.base_address().as_ptr().addr() as u64 + self.offset
    }

    /// The key for this machine's card.
    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the registration is the library's until it is given back, and its keys do not
        // change.
        unsafe { self.registered.as_ref().lkey }
    }

    /// The key that another machine's card must show.
    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.registered.as_ref().rkey }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if !self.device.is_own() {
            // Where the kernel does not copy pinned pages at a fork, this child was given none of
            // these, and something else may be mapped at their addresses by now: the mapping is no
            // longer this memory's to unmap.
            std::mem::forget(Arc::clone(&self.memory));
            return;
        }
        // SAFETY: it came from ibv_reg_mr and is given back once. When this returns no card
        // addresses the memory any more.
        let errno = unsafe { ffi::ibv_dereg_mr(self.registered.as_ptr()) };
        if errno != 0 {
            // A card may still address the memory, which must not become anything else: it stays
            // mapped for ever, and its pages stay its own.
            self.memory.registrations().keep(self.end());
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}
