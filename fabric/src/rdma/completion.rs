//! Completion queues: where a card reports that work requests are done.

use std::ffi::CStr;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::RdmaError;
use super::device::Device;

/// A completion queue, of one queue pair.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    queue: NonNull<ffi::ibv_cq>,
    device: Arc<Device>,
}

// SAFETY: libibverbs allows any thread to poll a queue; this one is polled through `&mut` alone.
unsafe impl Send for CompletionQueue {}

/// A work request that is done, and with it those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Done {
    /// The number that it was given.
    pub(super) number: u64,
    /// Not 0 if it failed.
    pub(super) status: u32,
}

impl CompletionQueue {
    /// A queue for `entries` completions at once.
    pub(super) fn new(device: &Arc<Device>, entries: u32) -> Result<Self, RdmaError> {
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        // SAFETY: the device is open and stays so; no channel is notified.
        let queue = unsafe {
            ffi::ibv_create_cq(device.context(), entries, std::ptr::null_mut(), std::ptr::null_mut(), 0)
        };
        let queue = NonNull::new(queue)
            .ok_or_else(|| device.refused("making a completion queue", io::Error::last_os_error()))?;
        Ok(Self { queue, device: Arc::clone(device) })
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_cq {
        self.queue.as_ptr()
    }

    /// The next completion, if there is one.
    pub(super) fn poll(&mut self) -> io::Result<Option<Done>> {
        let mut completion = ffi::ibv_wc::default();
        // SAFETY: the queue lives, its context has the device's functions, and there is room for
        // the one completion asked for.
        let count = unsafe {
            let context = (*self.queue.as_ptr()).context;
            match (*context).ops.poll_cq {
                Some(poll) => poll(self.queue.as_ptr(), 1, &mut completion),
                None => -1,
            }
        };
        match count {
            0 => Ok(None),
            1 => {
                let status = completion.error().map_or(0, |(status, _)| status);
                Ok(Some(Done { number: completion.wr_id(), status }))
            }
            _ => Err(io::Error::other("the completion queue was overrun, or its device is gone")),
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if self.device.is_own() {
            // SAFETY: it came from ibv_create_cq, and its queue pair, which is dropped before it,
            // is gone.
            unsafe { ffi::ibv_destroy_cq(self.queue.as_ptr()) };
        }
    }
}

/// The library's text for a status.
pub(super) fn text_of(status: u32) -> String {
    // SAFETY: the library has a text for every number, which ends with a zero and is never freed.
    let text = unsafe { CStr::from_ptr(ffi::ibv_wc_status_str(status)) };
    text.to_string_lossy().into_owned()
}

/// The remedy for a status.
pub(super) fn remedy_for(status: u32) -> &'static str {
    use ffi::ibv_wc_status as s;
    match status {
        s::IBV_WC_REM_ACCESS_ERR => {
            "the memory has another use since, and what is there is asked for anew; if it comes again, connect anew"
        }
        s::IBV_WC_RETRY_EXC_ERR => {
            "the other card does not answer: look whether the memory node lives, and whether the network lets RDMA through (for \
             RoCE v2 UDP port 4791, and frames of the MTU)"
        }
        s::IBV_WC_WR_FLUSH_ERR => "an earlier request broke the queue pair; it is made anew",
        _ => "look at the kernel's messages on both machines",
    }
}
