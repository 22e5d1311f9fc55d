//! Errors of cards, and their remedies.

use std::io;

/// The result of a function of the verbs' library that returns an error number.
#[cfg(feature = "rdma")]
pub(super) fn succeeded(errno: i32) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// An error of a network card, or of what stands in front of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdmaError {
    /// This program was built without verbs.
    #[error(
        "this program was built without RDMA; build it with `--features rdma`, for which Debian has the packages cmake, \
         libibverbs-dev, libclang1-14 and libclang-common-14-dev, or write tcp:// in place of rdma://"
    )]
    NotBuilt,
    /// The machine, the device or the way to the other card cannot be used: why, and the remedy.
    #[error("{0}")]
    Unusable(String),
    /// No such port, or it is down.
    #[error("port {port} of {device} {what}; `fpcache-cli devices` lists the ports and their states")]
    Port {
        /// The device.
        device: String,
        /// The port asked for.
        port: u8,
        /// What is wrong.
        what: &'static str,
    },
    /// The library or the device refused something else.
    #[error(
        "{doing} failed on {device}: {source}; look at the kernel's messages, and at the device's limits with ibv_devinfo -v"
    )]
    Refused {
        /// The device.
        device: String,
        /// What was being done.
        doing: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The device told of something that ends its use, or that of a queue pair.
    #[error("{device}: {event}; {remedy}")]
    Event {
        /// The device.
        device: String,
        /// The event.
        event: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A work request ended with an error.
    #[error("a work request to {peer} ended with status {status} ({text}); {remedy}")]
    Completion {
        /// Which memory node.
        peer: String,
        /// The status of the completion.
        status: u32,
        /// The library's text for it.
        text: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The memory node's card does not take part.
    #[error("the memory node cannot be read by RDMA: {why}")]
    NotServed {
        /// The memory node's message.
        why: String,
    },
    /// The other side said something that cannot be.
    #[error(
        "{what} was said over the socket that introduces the cards; install the same version on both sides"
    )]
    Introduction {
        /// What.
        what: &'static str,
    },
}

impl RdmaError {
    /// The kernel has no verbs, or no device.
    #[cfg(feature = "rdma")]
    pub(super) fn no_device(why: &dyn std::fmt::Display) -> Self {
        Self::Unusable(format!(
            "this machine has no RDMA device ({why}); load its driver, or Soft-RoCE by `modprobe rdma_rxe` and `rdma link add \
             rxe0 type rxe netdev NAME`, or write tcp:// in place of rdma://"
        ))
    }

    /// Memory could not be registered for this reason, in a process that may lock `may_lock`
    /// bytes.
    #[cfg(feature = "rdma")]
    pub(super) fn not_registered(
        device: &str,
        bytes: u64,
        source: &io::Error,
        may_lock: Option<u64>,
    ) -> Self {
        let remedy = if source.raw_os_error() == Some(libc::EFAULT) {
            "The kernel does not give the card these pages: let this user open the region's file for writing, which kernels \
             before 6.2 ask for, and see that its file system, or the reserved huge pages, are not full"
                .to_owned()
        } else {
            let limit = may_lock.map_or_else(|| "any amount".to_owned(), |bytes| format!("{bytes} bytes"));
            format!(
                "A process may lock {limit}; raise it by `ulimit -l unlimited`, or LimitMEMLOCK=infinity in its systemd unit"
            )
        };
        Self::Unusable(format!(
            "{bytes} bytes of memory cannot be registered with {device}: {source}. {remedy}"
        ))
    }

    /// Whether it says that the other card does not answer.
    pub(crate) fn is_silence(&self) -> bool {
        // IBV_WC_RETRY_EXC_ERR.
        matches!(self, Self::Completion { status: 12, .. })
    }
}
