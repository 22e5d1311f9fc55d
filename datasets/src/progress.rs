//! Progress reports from long work to its caller.

/// Receives the progress of long work: reading, generating, hashing. The library calls it at most
/// once per chunk of some hundred thousand keys, so an implementation may lock or draw.
pub trait Progress: Sync {
    /// A phase begins that will handle `total` items; 0 if their number is not known yet.
    fn begin(&self, phase: &str, total: u64);
    /// `done` of them are handled.
    fn advance(&self, done: u64);
    /// The phase is over.
    fn end(&self);
}

/// Reports a phase that handles `total` items while `work` is done.
pub(crate) fn during<T>(
    progress: Option<&dyn Progress>,
    phase: &str,
    total: u64,
    work: impl FnOnce() -> T,
) -> T {
    if let Some(progress) = progress {
        progress.begin(phase, total);
    }
    let done = work();
    if let Some(progress) = progress {
        progress.end();
    }
    done
}
