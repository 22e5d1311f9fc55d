//! The results of matching.

/// Where a window shows what is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// How many fingerprints match, or how many slots show the key.
    pub count: u32,
    /// Position of the first that does, from the window's start: among fingerprints, or of the
    /// slot's first word. Meaningless without one.
    pub first: u32,
    /// Whether any fingerprint is FROZEN; or whether no slot shows the key, and any is frozen: one
    /// that shows it speaks for itself.
    pub frozen: bool,
}
