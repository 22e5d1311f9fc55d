//! A cursor over a peer's bytes, taken from the front one field after another.

/// Fewer bytes are left than a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutShort;

/// A cursor over bytes: those not taken yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Takes what `take` finds at the front; it returns what lies after.
    #[inline]
    pub(crate) fn part<T>(
        &mut self,
        take: impl FnOnce(&'a [u8]) -> Option<(T, &'a [u8])>,
    ) -> Result<T, CutShort> {
        let (part, rest) = take(self.0).ok_or(CutShort)?;
        self.0 = rest;
        Ok(part)
    }

    /// Takes `len` bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], CutShort> {
        self.part(|bytes| bytes.split_at_checked(len))
    }

    /// Takes `N` bytes.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], CutShort> {
        self.part(|bytes| bytes.split_first_chunk()).copied()
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, CutShort> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, CutShort> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, CutShort> {
        self.array().map(u64::from_le_bytes)
    }

    /// The rest.
    #[inline]
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}
