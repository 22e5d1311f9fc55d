//! Unique random numbers.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::FabricError;

/// 64 bits of the operating system's random numbers: no other process has the same, not even one
/// that was forked from this one. One system call.
///
/// # Errors
/// If the operating system gives none.
pub fn random_bits() -> Result<u64, FabricError> {
    let mut bytes = [0; 8];
    loop {
        match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
            // So few bytes come whole.
            Ok(8) => return Ok(u64::from_le_bytes(bytes)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(FabricError::io("drawing a random number")(errno)),
        }
    }
}
