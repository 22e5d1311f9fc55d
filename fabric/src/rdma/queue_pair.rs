//! A reliable connected queue pair.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::completion::{CompletionQueue, Done};
use super::device::Device;
use super::error::succeeded;
use super::port::Port;
use super::wire::QueuePairInfo;
use super::{CardChoice, RdmaError};
use crate::random::random_bits;

/// Work requests of one list, and of the queue.
pub(super) const DEPTH: usize = 128;
/// A lost packet is sent again after 4.096 µs · 2^14, 67 ms, which cards may stretch to four times
/// as long, and so often: a path that loses some is known well before a call's deadline, and a peer
/// that is gone not waited for for ever.
const TIMEOUT: u8 = 14;
/// The same by Soft-RoCE, which was seen to break atomics when it sends again, and whose processor
/// may be elsewhere for as long.
const SOFT_TIMEOUT: u8 = 18;
const RETRIES: u8 = 7;
/// Retries where a receiver is not ready, which does not occur; 7 would be for ever.
const NOT_READY_RETRIES: u8 = 6;

/// The action of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CardVerb {
    Read,
    Write,
    CompareSwap { expected: u64, new: u64 },
}

/// A work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WorkRequest {
    pub(super) work: CardVerb,
    /// The local address that bytes land at or go from.
    pub(super) local: u64,
    pub(super) len: u32,
    pub(super) remote: u64,
    pub(super) rkey: u32,
    /// Not begun before READs and atomics before it are done.
    pub(super) is_fenced: bool,
}

/// One end of a queue pair, with the queue of its completions.
pub(super) struct QueuePair {
    pair: NonNull<ffi::ibv_qp>,
    completions: CompletionQueue,
    device: Arc<Device>,
    /// As it was when this was made.
    port: Port,
    sequence: u32,
    /// Whether it asks, and never answers.
    asks: bool,
    /// In an end that asks: the list that is posted, whose parts point to each other.
    requests: Vec<ffi::ibv_send_wr>,
    places: Vec<ffi::ibv_sge>,
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("end", &self.end()).finish_non_exhaustive()
    }
}

// SAFETY: libibverbs allows any thread to use a queue pair. This one is posted to through `&mut`
// alone, and the pointers in the lists are used only inside `post`, which writes them.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// One that asks, or one that only answers, whose queue is short.
    pub(super) fn new(device: &Arc<Device>, asks: bool) -> Result<Self, RdmaError> {
        device.look_at_events(None)?;
        let port = device.port()?;
        let depth = if asks { DEPTH as u32 } else { 1 };
        let completions = CompletionQueue::new(device, depth + 1)?;
        let refused = |doing| move |source| device.refused(doing, source);
        let mut attributes = ffi::ibv_qp_init_attr {
            send_cq: completions.as_ptr(),
            recv_cq: completions.as_ptr(),
            cap: ffi::ibv_qp_cap {
                max_send_wr: depth,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
            ..Default::default()
        };
        // SAFETY: protection domain and completion queue live, and outlive the pair; the attributes
        // are of this call.
        let pair = NonNull::new(unsafe { ffi::ibv_create_qp(device.domain(), &mut attributes) });
        let pair = pair.ok_or_else(io::Error::last_os_error).map_err(refused("making a queue pair"))?;
        let bits = random_bits().map_err(|_| refused("drawing a random number")(io::Error::last_os_error()));
        let made = Self {
            pair,
            completions,
            device: Arc::clone(device),
            port,
            // 24 bits.
            sequence: (*bits.as_ref().unwrap_or(&0) & 0xff_ffff) as u32,
            asks,
            requests: Vec::with_capacity(DEPTH),
            places: Vec::with_capacity(DEPTH),
        };
        bits?;
        Ok(made)
    }

    /// Its end, as the other side must know it.
    pub(super) fn end(&self) -> QueuePairInfo {
        let Port { gid, lid, mtu, .. } = self.port;
        // SAFETY: the pair lives, and its number does not change.
        let number = unsafe { self.pair.as_ref().qp_num };
        let CardChoice { service_level, traffic_class, .. } = self.device.choice;
        QueuePairInfo {
            number,
            sequence: self.sequence,
            gid,
            lid,
            mtu,
            service_level: service_level.unwrap_or(0),
            depth: self.device.initiator_depth,
            traffic_class: traffic_class.unwrap_or(0),
            zero: 0,
        }
    }

    /// Whether the device has told of something that ends its use.
    pub(super) fn look_at_events(&self) -> Result<(), RdmaError> {
        // SAFETY: the pair lives, and its number does not change.
        self.device.look_at_events(Some(unsafe { self.pair.as_ref().qp_num }))
    }

    /// Connects it to the other end, with `outstanding` READs of this side and `answered` of the
    /// other.
    pub(super) fn connect(
        &mut self,
        other: &QueuePairInfo,
        outstanding: u16,
        answered: u16,
    ) -> Result<(), RdmaError> {
        use ffi::{ibv_access_flags as access, ibv_qp_attr_mask as mask, ibv_qp_state as state};
        let (port, is_soft) = (self.port, self.device.is_soft);
        // Rights are those of the other end, to which one that asks gives none.
        let rights = match self.asks {
            true => access(0),
            false => {
                access::IBV_ACCESS_REMOTE_READ
                    | access::IBV_ACCESS_REMOTE_WRITE
                    | access::IBV_ACCESS_REMOTE_ATOMIC
            }
        };
        let initial = ffi::ibv_qp_attr {
            qp_state: state::IBV_QPS_INIT,
            port_num: port.number,
            pkey_index: self.device.choice.pkey.unwrap_or(0),
            qp_access_flags: rights.0,
            ..Default::default()
        };
        let which =
            mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        self.modify(initial, which, "preparing a queue pair")?;

        let depth = |depth: u16| u8::try_from(depth).unwrap_or(u8::MAX);
        let receiving = ffi::ibv_qp_attr {
            qp_state: state::IBV_QPS_RTR,
            path_mtu: u32::from(port.mtu.min(other.mtu)),
            dest_qp_num: other.number,
            rq_psn: other.sequence,
            max_dest_rd_atomic: depth(answered),
            min_rnr_timer: 12,
            ah_attr: port.way_to(other, &self.device.choice),
            ..Default::default()
        };
        let which = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(receiving, which, "connecting a queue pair")?;

        let sending = ffi::ibv_qp_attr {
            qp_state: state::IBV_QPS_RTS,
            timeout: if is_soft { SOFT_TIMEOUT } else { TIMEOUT },
            retry_cnt: RETRIES,
            rnr_retry: NOT_READY_RETRIES,
            sq_psn: self.sequence,
            max_rd_atomic: depth(outstanding),
            ..Default::default()
        };
        let which = mask::IBV_QP_STATE
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(sending, which, "letting a queue pair send")
    }

    fn modify(
        &mut self,
        mut attributes: ffi::ibv_qp_attr,
        which: ffi::ibv_qp_attr_mask,
        doing: &'static str,
    ) -> Result<(), RdmaError> {
        // SAFETY: the pair lives; the attributes are of this call, and those that are named have
        // values.
        let errno = unsafe { ffi::ibv_modify_qp(self.pair.as_ptr(), &mut attributes, which.0 as i32) };
        succeeded(errno).map_err(|source| self.device.refused(doing, source))
    }

    /// Hands a list to the card, with one doorbell. The last one's completion has the number, and
    /// says that all are done; those before it complete only if they fail. At most [`DEPTH`], and
    /// none may be under way.
    ///
    /// # Safety
    /// Until the completion, or until this is dropped, what lies at the local places must be
    /// registered with the device by `lkey`, stay so, and not be used by code that minds a change
    /// of it.
    pub(super) unsafe fn post(&mut self, list: &[WorkRequest], lkey: u32, number: u64) -> io::Result<()> {
        assert!((1..=DEPTH).contains(&list.len()), "a list fits the queue");
        self.requests.clear();
        self.places.clear();
        for (at, request) in list.iter().enumerate() {
            self.places.push(ffi::ibv_sge { addr: request.local, length: request.len, lkey });
            self.requests.push(Self::encode(request, at + 1 == list.len(), number));
        }
        let (first, places) = (self.requests.as_mut_ptr(), self.places.as_mut_ptr());
        for at in 0..list.len() {
            // SAFETY: both lists have `list.len()` entries, which stay where they are until this
            // returns.
            unsafe {
                let request = first.add(at);
                (*request).sg_list = places.add(at);
                if at + 1 < list.len() {
                    (*request).next = first.add(at + 1);
                }
            }
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: the pair lives and its context has the device's functions. The list is well
        // formed, and the library copies it before it returns; the local places are as the caller
        // vouches.
        let errno = unsafe {
            match (*self.pair.as_ref().context).ops.post_send {
                Some(post) => post(self.pair.as_ptr(), first, &mut bad),
                None => libc::ENOSYS,
            }
        };
        succeeded(errno)
    }

    fn encode(request: &WorkRequest, is_last: bool, number: u64) -> ffi::ibv_send_wr {
        use ffi::{ibv_send_flags as flags, ibv_wr_opcode as opcode};
        let WorkRequest { work, remote, rkey, is_fenced, .. } = *request;
        let mut encoded = ffi::ibv_send_wr { wr_id: number, num_sge: 1, ..Default::default() };
        let mut set = ffi::ibv_send_flags(0);
        if is_last {
            set |= flags::IBV_SEND_SIGNALED;
        }
        if is_fenced {
            set |= flags::IBV_SEND_FENCE;
        }
        encoded.send_flags = set.0;
        let plain = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: remote, rkey };
        match work {
            CardVerb::Read => {
                encoded.opcode = opcode::IBV_WR_RDMA_READ;
                encoded.wr.rdma = plain;
            }
            CardVerb::Write => {
                encoded.opcode = opcode::IBV_WR_RDMA_WRITE;
                encoded.wr.rdma = plain;
            }
            CardVerb::CompareSwap { expected, new } => {
                encoded.opcode = opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
                encoded.wr.atomic = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
                    remote_addr: remote,
                    compare_add: expected,
                    swap: new,
                    rkey,
                };
            }
        }
        encoded
    }

    /// The next completion, if there is one.
    pub(super) fn poll(&mut self) -> io::Result<Option<Done>> {
        self.completions.poll()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if self.device.is_own() {
            // SAFETY: it came from ibv_create_qp and is given back once, before its completion
            // queue. When this returns the card moves nothing for it any more.
            unsafe { ffi::ibv_destroy_qp(self.pair.as_ptr()) };
        }
    }
}
