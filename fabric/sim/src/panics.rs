//! Panics of code that is not the simulation's own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use crate::time::Time;

/// Runs code of a memory node; its panic becomes a message.
pub(crate) fn guarded<R>(time: &Time, code: impl FnOnce() -> R) -> Result<R, String> {
    time.in_service.store(true, Ordering::Relaxed);
    let outcome = catch_unwind(AssertUnwindSafe(code));
    time.in_service.store(false, Ordering::Relaxed);
    outcome.map_err(|payload| message(&*payload))
}

/// The message of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
