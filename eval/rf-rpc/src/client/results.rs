//! The results of a batch.

/// The results of a batch, one after another in one buffer. Reused, it does not allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Results {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// None, into this buffer.
    pub(super) fn over(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { bytes, ends: Vec::new() }
    }

    /// The buffer: the one result, if there is one.
    pub(super) fn into_only(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(super) fn push(&mut self, result: &[u8]) {
        self.bytes.extend_from_slice(result);
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The results, in the order of their requests.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ends.iter().enumerate().map(|(index, &end)| &self.bytes[self.begin(index)..end])
    }

    /// The result of one request, by its place in the batch.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        Some(&self.bytes[self.begin(index)..end])
    }

    fn begin(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}
