//! The results of matching.

/// A fingerprint's matches in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// How many fingerprints match.
    pub count: u32,
    /// Position of the first that does, from the window's start; meaningless without one.
    pub first: u32,
    /// Whether any fingerprint is FROZEN.
    pub frozen: bool,
}

/// Where a window of slots shows a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyHits {
    /// How many slots show it.
    pub count: u32,
    /// Position of the first one's first word, from the window's start; meaningless without one.
    pub word: u32,
    /// Whether no slot shows it and any is frozen. A slot that shows it speaks for itself.
    pub frozen: bool,
}
