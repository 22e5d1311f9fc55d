//! Asynchronous events of a device: a port went down, a queue pair broke, or the device is gone.

use std::ffi::CStr;
use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use ibverbs_sys as ffi;
use rustix::io::Errno;

use super::RdmaError;
use crate::lock::lock;

/// The events of a device, which its users look at when something takes long or fails, and before
/// anything new is made.
#[derive(Debug)]
pub(super) struct Events {
    state: Mutex<DeviceState>,
}

#[derive(Debug, Default)]
struct DeviceState {
    /// The port in use is down.
    port_is_down: bool,
    /// The device is gone for good.
    is_gone: bool,
    /// Queue pairs that broke, by number, until they are asked for.
    broken: Vec<(u32, String)>,
}

/// Queue pairs remembered as broken; one that was given back is never asked for.
const MOST_BROKEN: usize = 1024;

impl Events {
    /// Has the device's events taken without waiting for any.
    pub(super) fn of(context: NonNull<ffi::ibv_context>) -> io::Result<Self> {
        // SAFETY: the context is open, and its descriptor stays open for as long.
        let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(context.as_ref().async_fd) };
        let flags = rustix::fs::fcntl_getfl(descriptor)?;
        rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default() })
    }

    /// Takes what has come since, and says what of it ends the use of a queue pair of that number,
    /// or of the whole `port`.
    pub(super) fn look(
        &self,
        context: NonNull<ffi::ibv_context>,
        device: &str,
        port: u8,
        number: Option<u32>,
    ) -> Result<(), RdmaError> {
        self.noted(context, port).verdict(device, port, number)
    }

    /// Whether the device is gone for good: one that comes back is another.
    pub(super) fn is_gone(&self, context: NonNull<ffi::ibv_context>, port: u8) -> bool {
        self.noted(context, port).is_gone
    }

    /// Has it so, for tests: Soft-RoCE cannot be taken away under its users, which other drivers
    /// allow.
    #[cfg(test)]
    pub(super) fn lose(&self) {
        lock(&self.state).is_gone = true;
    }

    fn noted(&self, context: NonNull<ffi::ibv_context>, port: u8) -> MutexGuard<'_, DeviceState> {
        let mut state = lock(&self.state);
        while let Some(mut event) = next(context) {
            state.note(&event, port);
            // SAFETY: it came from ibv_get_async_event and is acknowledged once; until then what it
            // names cannot be destroyed.
            unsafe { ffi::ibv_ack_async_event(&mut event) };
        }
        state
    }
}

impl DeviceState {
    /// The event noted that ends the use of a queue pair of that number, or of the whole `port`.
    fn verdict(&mut self, device: &str, port: u8, number: Option<u32>) -> Result<(), RdmaError> {
        let happened = |event: String, remedy| RdmaError::Event { device: device.to_owned(), event, remedy };
        if self.is_gone {
            let remedy = "look at the kernel's messages; when it is back it is opened anew";
            return Err(happened("the device is gone".to_owned(), remedy));
        }
        if self.port_is_down {
            let remedy = "bring the link up (ip link, ibstat); connections are made anew then";
            return Err(happened(format!("port {port} is down"), remedy));
        }
        if let Some(at) = self.broken.iter().position(|(broken, _)| Some(*broken) == number) {
            let (_, event) = self.broken.swap_remove(at);
            return Err(happened(event, "the queue pair is made anew"));
        }
        Ok(())
    }

    fn note(&mut self, event: &ffi::ibv_async_event, port: u8) {
        use ibverbs_sys as kind;
        match event.event_type {
            kind::IBV_EVENT_DEVICE_FATAL => self.is_gone = true,
            kind::IBV_EVENT_PORT_ERR | kind::IBV_EVENT_PORT_ACTIVE => {
                // SAFETY: of an event of a port the union holds the port's number.
                let is_ours = unsafe { event.element.port_num } == i32::from(port);
                if is_ours {
                    self.port_is_down = event.event_type == kind::IBV_EVENT_PORT_ERR;
                }
            }
            kind::IBV_EVENT_QP_FATAL | kind::IBV_EVENT_QP_REQ_ERR | kind::IBV_EVENT_QP_ACCESS_ERR => {
                // SAFETY: of an event of a queue pair the union points to it, and it lives until
                // the event is acknowledged.
                let number = unsafe { (*event.element.qp).qp_num };
                self.broken.truncate(MOST_BROKEN - 1);
                self.broken.insert(0, (number, text_of(event.event_type)));
            }
            // A completion queue that was overrun says so itself when it is polled; the others end
            // nothing.
            _ => {}
        }
    }
}

/// The next event, if one has come.
fn next(context: NonNull<ffi::ibv_context>) -> Option<ffi::ibv_async_event> {
    let mut event = std::mem::MaybeUninit::<ffi::ibv_async_event>::zeroed();
    loop {
        // SAFETY: the context is open, and there is room for an event, whose descriptor does not
        // wait.
        match unsafe { ffi::ibv_get_async_event(context.as_ptr(), event.as_mut_ptr()) } {
            // SAFETY: the library has filled it.
            0 => return Some(unsafe { event.assume_init() }),
            _ if io::Error::last_os_error().raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
            _ => return None,
        }
    }
}

fn text_of(kind: ffi::ibv_event_type) -> String {
    // SAFETY: the library has a text for every number, which ends with a zero and is never freed.
    let text = unsafe { CStr::from_ptr(ffi::ibv_event_type_str(kind)) };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: ffi::ibv_event_type, port: i32) -> ffi::ibv_async_event {
        // SAFETY: numbers and pointers, of which none that is zero is followed.
        let mut event: ffi::ibv_async_event = unsafe { std::mem::zeroed() };
        (event.event_type, event.element.port_num) = (kind, port);
        event
    }

    fn told(state: &mut DeviceState) -> String {
        state.verdict("mlx5_0", 1, Some(7)).expect_err("its use ended").to_string()
    }

    #[test]
    fn a_device_that_is_gone_stays_so_and_another_port_that_is_down_is_nobodys_business() {
        let mut state = DeviceState::default();
        state.note(&event(ffi::IBV_EVENT_PORT_ERR, 2), 1);
        assert!(state.verdict("mlx5_0", 1, Some(7)).is_ok());
        state.note(&event(ffi::IBV_EVENT_PORT_ERR, 1), 1);
        assert!(told(&mut state).contains("port 1 is down; bring the link up"));
        state.note(&event(ffi::IBV_EVENT_PORT_ACTIVE, 1), 1);
        assert!(state.verdict("mlx5_0", 1, Some(7)).is_ok());
        for after in [ffi::IBV_EVENT_DEVICE_FATAL, ffi::IBV_EVENT_PORT_ACTIVE] {
            state.note(&event(after, 1), 1);
            assert_eq!(
                told(&mut state),
                "mlx5_0: the device is gone; look at the kernel's messages; when it is back it is opened anew"
            );
        }
    }
}
