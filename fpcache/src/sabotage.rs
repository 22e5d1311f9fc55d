//! Deliberate breaks of the protocol, by which tests show that they would notice. Not for use:
//! without the feature `sabotage` nothing is broken, whatever is asked for.

/// One step of the protocol to leave out or to swap with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sabotage {
    /// Readers take live slots without comparing the checksum. Where the fabric guards READs,
    /// nothing is torn without it.
    NoChecksum,
    /// Readers have slots READ without guards, and take them without comparing the checksum.
    Unguarded,
    /// Readers conclude absence without looking at the reuse sequence after their last READ.
    NoReuseCheck,
    /// Readers take external values without comparing the checksum.
    UnprovenExtents,
    /// Readers take the nearest key that they find without proof that no other was there at the
    /// same time.
    UnprovenNeighbours,
    /// Scans, up or down, and counts take a frozen slot for a free one.
    ScansPassFrozen,
    /// Readers keep the table that they have, whatever newer one their client has.
    ReadersStay,
    /// The memory node publishes an insert's word before its fingerprint.
    WordBeforeFingerprint,
    /// The memory node clears a deleted record's fingerprint before it frees its word.
    FingerprintBeforeWord,
    /// The memory node gives the memory of a replaced segment a new use at once.
    ReuseAtOnce,
    /// The memory node hands memory out before the lease of those has ended who do not know of it.
    ReuseWithinLease,
    /// The memory node freezes segments before the change that replaces them is in the change log.
    FreezeBeforeLog,
    /// The memory node moves a live key inside its segment.
    MoveLiveKey,
    /// The memory node answers a write before its effect is on the disk, although it is told to
    /// wait for that.
    AckBeforeLog,
    /// The memory node changes a slot before it writes that down.
    ApplyBeforeStaging,
    /// The memory node makes a record live outside its group before it marks the group.
    LiveBeforeMark,
    /// The memory node does not mark the block that it makes a record live outside of, but its
    /// group.
    BlockUnmarked,
    /// The memory node clears the mark of a slot with every change of it.
    MarkLost,
    /// Readers take a frozen slot of a group for one that is not marked.
    GroupsPassFrozen,
    /// The memory node's threads that look keys up conclude absence without looking at the reuse
    /// sequence.
    AnswersUnproven,
    /// The memory node takes a lookup of no key for no wish for a newer directory.
    WishOfNoKey,
    /// The memory node copies damaged records into new segments, under checksums that match.
    CopiesUnproven,
    /// The memory node goes on with a file of the log whose sync failed.
    FailedSyncTrusted,
    /// The memory node leaves the region of a table that is dropped to those who map it.
    DropLeavesRegion,
    /// The memory node accepts writes to new segments without a release after the freezing of the
    /// old ones.
    NoFenceAfterFreeze,
}

/// What is broken on purpose about reading: nothing, in no bytes, without the feature.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Broken([Option<Sabotage>; cfg!(feature = "sabotage") as usize]);

impl Broken {
    pub(crate) fn by(what: Option<Sabotage>) -> Self {
        Self([what; cfg!(feature = "sabotage") as usize])
    }

    /// Whether this is what is broken.
    #[inline(always)]
    pub(crate) fn is(self, what: Sabotage) -> bool {
        self.0.contains(&Some(what))
    }
}

impl Sabotage {
    /// Whether this is what is broken. Without the feature the compiler knows that it is not.
    #[inline(always)]
    pub fn is(self, broken: Option<Self>) -> bool {
        cfg!(feature = "sabotage") && broken == Some(self)
    }
}
