//! What a durable memory node is told when it begins.

use std::time::Instant;

#[cfg(doc)]
use crate::boot::UNKNOWN_BOOT;
use crate::durability::SyncPolicy;

/// How a memory node begins whose data outlive it.
#[derive(Clone, Copy, Debug)]
pub struct Startup {
    /// When mutations reach the disk.
    pub sync: SyncPolicy,
    /// Bytes of the staging ring in the recovery area.
    pub ring_bytes: u64,
    /// Names this start of the machine, or is [`UNKNOWN_BOOT`]: memory that is no file does not
    /// survive another, and files may lack what was last stored.
    pub boot: [u8; 16],
    /// Differs from that of any earlier memory node its clients may have known.
    pub incarnation: u64,
    /// A random number, should the store be a new one.
    pub lineage: u64,
    /// The memory node's number in segments' addresses.
    pub node: u16,
    /// Now.
    pub now: Instant,
}
