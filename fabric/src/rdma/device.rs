//! An opened device, of which one port is in use.

use std::ffi::CStr;
use std::io;
use std::ptr::NonNull;

use ibverbs_sys as ffi;

use super::error::succeeded;
use super::events::Events;
use super::port::Port;
use super::{CardChoice, RdmaError};

/// READs and atomics that a queue pair has outstanding at most, whatever more the device could.
const MOST_OUTSTANDING: i32 = 16;

/// A device, opened by the process that made this, and what is made on it.
#[derive(Debug)]
pub(crate) struct Device {
    context: NonNull<ffi::ibv_context>,
    domain: NonNull<ffi::ibv_pd>,
    pub(super) name: String,
    /// The choice that was asked for: the port's present state may change.
    pub(super) choice: CardChoice,
    /// As it was when the device was opened.
    found: Port,
    /// READs and atomics outstanding, as the one that asks and as the one that answers.
    pub(super) initiator_depth: u16,
    pub(super) responder_depth: u16,
    /// Whether it is the kernel's Soft-RoCE.
    pub(super) is_soft: bool,
    events: Events,
    /// A child process has the descriptor too, and must not give back what is its parent's.
    owner: u32,
}

// SAFETY: libibverbs allows any thread to use a context and a protection domain, several at once.
unsafe impl Send for Device {}
// SAFETY: as above; nothing here changes but by the library, which locks.
unsafe impl Sync for Device {}

/// All devices, as long as this lives.
struct List {
    devices: NonNull<*mut ffi::ibv_device>,
    count: usize,
}

impl List {
    fn new() -> Result<Self, RdmaError> {
        let mut count = 0;
        // SAFETY: the argument points to an integer, which the library fills.
        let devices = unsafe { ffi::ibv_get_device_list(&mut count) };
        let devices =
            NonNull::new(devices).ok_or_else(|| RdmaError::no_device(&io::Error::last_os_error()))?;
        let list = Self { devices, count: usize::try_from(count).unwrap_or(0) };
        if list.count == 0 { Err(RdmaError::no_device(&"the kernel lists none")) } else { Ok(list) }
    }

    fn device(&self, at: usize) -> *mut ffi::ibv_device {
        assert!(at < self.count);
        // SAFETY: the library made the list, which has `count` entries, and `at` is one of them.
        unsafe { *self.devices.as_ptr().add(at) }
    }

    fn name(&self, at: usize) -> String {
        // SAFETY: a device of the list has a name, which ends with a zero and lives as long as the
        // device.
        let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(self.device(at))) };
        name.to_string_lossy().into_owned()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_get_device_list, and is given back once. Opened devices outlive
        // it.
        unsafe { ffi::ibv_free_device_list(self.devices.as_ptr()) };
    }
}

/// A context that closes unless it is kept.
struct Opened(NonNull<ffi::ibv_context>);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_open_device, nothing was made on it, and it is closed once.
        unsafe { ffi::ibv_close_device(self.0.as_ptr()) };
    }
}

impl Device {
    /// Opens what was chosen.
    pub(crate) fn open(choice: &CardChoice) -> Result<Self, RdmaError> {
        // SAFETY: it takes nothing. It has pages that a card writes to kept from children of this
        // process where the kernel does not copy them at a fork, and must come before memory is
        // registered.
        unsafe { ffi::ibv_fork_init() };
        let list = List::new()?;
        let names: Vec<String> = (0..list.count).map(|at| list.name(at)).collect();
        let at = match &choice.device {
            None => 0,
            Some(wanted) => names.iter().position(|name| name == wanted).ok_or_else(|| {
                let found = names.join(", ");
                RdmaError::Unusable(format!(
                    "there is no RDMA device `{wanted}`, only {found}; `fpcache-cli devices` lists them"
                ))
            })?,
        };
        let name = names[at].clone();
        let refused = |doing| {
            let device = name.clone();
            move |source| RdmaError::Refused { device, doing, source }
        };
        // SAFETY: the list has the device and lives.
        let context = NonNull::new(unsafe { ffi::ibv_open_device(list.device(at)) });
        let context = context.ok_or_else(io::Error::last_os_error).map_err(refused("opening"))?;
        let opened = Opened(context);
        let found = Port::look(context, &name, choice)?;
        let mut limits = ffi::ibv_device_attr::default();
        // SAFETY: the context is open, and the attributes are the library's to fill.
        let errno = unsafe { ffi::ibv_query_device(context.as_ptr(), &mut limits) };
        succeeded(errno).map_err(refused("asking for its limits"))?;
        // SAFETY: the context is open.
        let domain = NonNull::new(unsafe { ffi::ibv_alloc_pd(context.as_ptr()) });
        let domain =
            domain.ok_or_else(io::Error::last_os_error).map_err(refused("making a protection domain"))?;
        let events = Events::of(context).map_err(refused("watching its events"));
        let events = events.inspect_err(|_| {
            // SAFETY: it was made just now and nothing was made on it.
            unsafe { ffi::ibv_dealloc_pd(domain.as_ptr()) };
        })?;
        std::mem::forget(opened);
        // At least 1 and at most 16.
        let depth = |most: i32| most.clamp(1, MOST_OUTSTANDING) as u16;
        Ok(Self {
            context,
            domain,
            name,
            choice: choice.clone(),
            found,
            initiator_depth: depth(limits.max_qp_init_rd_atom),
            responder_depth: depth(limits.max_qp_rd_atom),
            is_soft: limits.vendor_id == SOFT_VENDOR,
            events,
            owner: std::process::id(),
        })
    }

    /// The choice that was opened.
    pub(crate) fn choice(&self) -> CardChoice {
        let Port { number, gid_index, .. } = self.found;
        let (device, gid, port) = (Some(self.name.clone()), Some(gid_index), Some(number));
        CardChoice { device, gid, port, ..self.choice.clone() }
    }

    /// Its port as it is now.
    pub(super) fn port(&self) -> Result<Port, RdmaError> {
        Port::look(self.context, &self.name, &self.choice)
    }

    /// Whether it is gone for good: it may be opened anew when it is back.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_own() && self.events.is_gone(self.context, self.found.number)
    }

    /// Has it so, for tests.
    #[cfg(test)]
    pub(super) fn lose(&self) {
        self.events.lose();
    }

    /// Whether events have come that end the use of the device, or of the queue pair of that
    /// number.
    ///
    /// # Errors
    /// [`Event`](RdmaError::Event), which says what happened.
    pub(super) fn look_at_events(&self, queue_pair: Option<u32>) -> Result<(), RdmaError> {
        // A child would take what its parent is told.
        if !self.is_own() {
            return Ok(());
        }
        self.events.look(self.context, &self.name, self.found.number, queue_pair)
    }

    pub(super) fn context(&self) -> *mut ffi::ibv_context {
        self.context.as_ptr()
    }

    pub(super) fn domain(&self) -> *mut ffi::ibv_pd {
        self.domain.as_ptr()
    }

    /// Whether this process opened it, and not one that it was forked from.
    pub(super) fn is_own(&self) -> bool {
        self.owner == std::process::id()
    }

    /// Has it be that of a process that this one was forked from, for tests.
    #[cfg(test)]
    pub(super) fn inherit(&mut self) {
        self.owner = 0;
    }

    pub(super) fn refused(&self, doing: &'static str, source: io::Error) -> RdmaError {
        RdmaError::Refused { device: self.name.clone(), doing, source }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: both were made by `open` and are given back once; what was made on them holds
            // the device and is gone.
            unsafe {
                ffi::ibv_dealloc_pd(self.domain.as_ptr());
                ffi::ibv_close_device(self.context.as_ptr());
            }
        }
    }
}

/// The vendor number of Soft-RoCE (`RXE_VENDOR_ID`).
const SOFT_VENDOR: u32 = 0xff_ffff;
