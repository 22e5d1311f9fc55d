//! What code that takes a scan's records says about the rest.

use std::ops::ControlFlow;

/// What code that is passed the records of a scan returns for each: `()`, to get them all, or a
/// [`ControlFlow`], of which [`Break`](ControlFlow::Break) ends the scan after this record.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # fn main() -> Result<(), fpcache_client::ClientError> {
/// use std::ops::ControlFlow;
/// # let client = fpcache_client::Client::embedded(16 << 20)?;
/// # for key in [10u64, 20, 30] {
/// #     client.put(key, &key.to_le_bytes())?;
/// # }
/// let (mut bytes, mut keys) = (0, Vec::new());
/// client.scan_with(0, usize::MAX, |key, value| {
///     (keys.push(key), bytes += value.len());
///     if bytes >= 16 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
/// })?;
/// assert_eq!(keys, [10, 20]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "embedded"))]
/// # fn main() {}
/// ```
pub trait ScanFlow: Sealed {
    /// Whether the scan goes on.
    #[doc(hidden)]
    fn flow(self) -> ControlFlow<()>;
}

/// Keeps other crates from implementing [`ScanFlow`].
pub trait Sealed {}

impl Sealed for () {}

impl ScanFlow for () {
    fn flow(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Sealed for ControlFlow<()> {}

impl ScanFlow for ControlFlow<()> {
    fn flow(self) -> Self {
        self
    }
}
