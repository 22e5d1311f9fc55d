//! Prefetches that run ahead of copies, so that their waits overlap.

/// How many READs they run ahead: what they fetch must stay in a first-level cache of 32 KiB or
/// more.
const READS_AHEAD: usize = 32;
/// The most that is prefetched of one READ; after that the processor's own prefetcher has caught
/// on.
pub(crate) const PREFETCH_PER_READ: usize = 1024;

/// Executes READs in order, until one fails, and prefetches each a fixed number of them before.
#[inline(always)]
pub(crate) fn read_ahead<R, E>(
    reads: impl Iterator<Item = R> + Clone,
    prefetch: impl Fn(&R),
    mut read: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let mut upcoming = reads.clone();
    for next in upcoming.by_ref().take(READS_AHEAD) {
        prefetch(&next);
    }
    for now in reads {
        if let Some(next) = upcoming.next() {
            prefetch(&next);
        }
        read(now)?;
    }
    Ok(())
}
