//! The results of matching.

/// Where a window shows what is looked for. In two registers, in which functions return it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// How many, with [`FROZEN`](Self::FROZEN).
    marks: u32,
    first: u32,
}

/// What to do about hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Nothing is there.
    Nothing,
    /// One thing, here.
    One(u32),
    /// Several, or some are frozen.
    Rare,
}

impl Hits {
    const FROZEN: u32 = 1 << 31;

    /// A count, of less than 2^31, and where the first hit is, which means nothing without one.
    #[inline(always)]
    pub(super) fn new(count: u32, first: u32, frozen: bool) -> Self {
        Self { marks: if frozen { count | Self::FROZEN } else { count }, first }
    }

    /// How many fingerprints match, or how many slots show the key.
    #[inline(always)]
    pub fn count(self) -> u32 {
        self.marks & !Self::FROZEN
    }

    /// Position of the first that does, from the window's start: among fingerprints, or of the
    /// slot's first word. Meaningless without one.
    #[inline(always)]
    pub fn first(self) -> u32 {
        self.first
    }

    /// Whether any fingerprint is FROZEN; or whether no slot shows the key, and any is frozen: one
    /// that shows it speaks for itself.
    #[inline(always)]
    pub fn frozen(self) -> bool {
        self.marks & Self::FROZEN != 0
    }

    /// What nearly every lookup asks, by as few comparisons as possible.
    #[inline(always)]
    pub(crate) fn shown(self) -> Shown {
        if self.marks == 1 {
            return Shown::One(self.first);
        }
        is_rare();
        if self.marks == 0 { Shown::Nothing } else { Shown::Rare }
    }
}

/// Marks what follows as rare, so that it is not looked for first.
#[cold]
#[inline(never)]
fn is_rare() {}
