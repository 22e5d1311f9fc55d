//! Free extents of a region, and extents in quarantine because readers may still read them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::budget::Grant;

/// A piece of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Extent {
    /// `len` bytes at `offset`, up to a multiple of eight.
    pub(crate) fn new(offset: u64, len: u64) -> Self {
        Self { offset, len: len.next_multiple_of(8) }
    }

    fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Whether some of it lies between these offsets.
    pub(crate) fn meets(self, range: &Range<u64>) -> bool {
        self.offset < range.end && self.end() > range.start
    }
}

/// The extents of a region that hold nothing: the smallest that fits is handed out, neighbours are
/// joined. Extents that were given back wait in *quarantine* until no reader can take their bytes
/// for what they held. Where nothing fits, more of the region is granted, if there is more. O(log
/// n).
#[derive(Debug, Default)]
pub(crate) struct Space {
    by_offset: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
    free: u64,
    /// By the log head that a reader's directory must have reached for them not to matter to it.
    quarantine: BTreeMap<u64, Vec<Extent>>,
    quarantined: u64,
    /// What more there is after the bytes that are free or in use.
    grant: Option<Arc<Grant>>,
    /// Bytes that are being emptied: nothing free that reaches into them is handed out.
    emptied: Option<Range<u64>>,
    /// What of them is free.
    held: Vec<Extent>,
    /// Whether free bytes at the end are being given back.
    is_shrinking: bool,
}

/// The emptiest bytes that [`Space::emptiest`] came across.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Emptiest {
    /// Where they lie, and how many of them are in use. They begin with free ones, and end after
    /// some if they end among them.
    pub(crate) found: Option<(Range<u64>, u64)>,
    /// Where the next search begins to look; `None` if this one saw all to the end.
    pub(crate) go_on_at: Option<u64>,
}

/// Bytes that cannot be emptied.
#[derive(Clone, Debug, Default)]
pub(crate) struct Obstacles(Vec<Range<u64>>);

impl Obstacles {
    /// Some of these extents may overlap.
    pub(crate) fn of(mut extents: Vec<Extent>) -> Self {
        extents.sort_unstable();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for extent in extents {
            match ranges.last_mut().filter(|last| last.end >= extent.offset) {
                Some(last) => last.end = last.end.max(extent.end()),
                None => ranges.push(extent.offset..extent.end()),
            }
        }
        Self(ranges)
    }

    /// Whether some of them lie in this range.
    pub(crate) fn meet(&self, range: &Range<u64>) -> bool {
        let first = self.0.partition_point(|obstacle| obstacle.end <= range.start);
        self.0.get(first).is_some_and(|obstacle| obstacle.start < range.end)
    }
}

impl Space {
    /// A region whose only free bytes are these.
    pub(crate) fn new(free: impl IntoIterator<Item = Extent>) -> Self {
        let mut space = Self::default();
        free.into_iter().for_each(|extent| space.put(extent));
        space
    }

    /// A region whose bytes from `start` to `end` are free but for `used`.
    pub(crate) fn around(start: u64, end: u64, mut used: Vec<Extent>) -> Self {
        used.sort_unstable();
        let (mut space, mut from) = (Self::default(), start);
        for extent in used {
            if extent.offset > from {
                space.put(Extent { offset: from, len: extent.offset - from });
            }
            from = from.max(extent.end());
        }
        let end = end & !7;
        if end > from {
            space.put(Extent { offset: from, len: end - from });
        }
        space
    }

    /// The same, which can have more of its region, whose bytes up to the grant's end are free or
    /// in use here.
    pub(crate) fn with_more(self, grant: Arc<Grant>) -> Self {
        Self { grant: Some(grant), ..self }
    }

    /// Has more of the region granted, so that its last free extent has at least `len` bytes.
    #[cold]
    fn grow(&mut self, len: u64) -> Option<()> {
        let grant = Arc::clone(self.grant.as_ref()?);
        let before = grant.end() & !7;
        let last = self.by_offset.last_key_value().filter(|(offset, len)| *offset + *len == before);
        let missing = len.checked_sub(last.map_or(0, |(_, len)| *len))?;
        grant.cover(before.checked_add(missing)?).ok()?;
        self.put(Extent { offset: before, len: (grant.end() & !7) - before });
        Some(())
    }

    /// The smallest free extent that has `len` bytes, cut to that; `None` if there is none.
    pub(crate) fn take(&mut self, len: u64) -> Option<Extent> {
        let len = len.max(1).checked_next_multiple_of(8)?;
        let (found, offset) = match self.fitting(len) {
            Some(extent) => extent,
            // What is granted after bytes that are being emptied is theirs.
            None if self.empties_end() => return None,
            None => {
                self.grow(len)?;
                self.fitting(len)?
            }
        };
        self.by_len.remove(&(found, offset));
        self.by_offset.remove(&offset);
        self.free -= found;
        if found > len {
            self.put(Extent { offset: offset + len, len: found - len });
        }
        Some(Extent { offset, len })
    }

    /// The smallest free extent that has `len` bytes, as length and offset.
    fn fitting(&self, len: u64) -> Option<(u64, u64)> {
        self.by_len.range((len, 0)..).next().copied()
    }

    /// Whether the last bytes that are granted are being emptied.
    fn empties_end(&self) -> bool {
        let end = self.grant.as_ref().map_or(u64::MAX, |grant| grant.end() & !7);
        self.emptied.as_ref().is_some_and(|emptied| emptied.end >= end)
    }

    /// Bytes of the longest extent available.
    pub(crate) fn longest(&self) -> u64 {
        let longest = self.by_len.last().map_or(0, |(len, _)| *len);
        let Some(grant) = &self.grant else { return longest };
        let end = grant.end() & !7;
        if self.empties_end() {
            return longest;
        }
        let last = self.by_offset.last_key_value().filter(|(offset, len)| *offset + *len == end);
        longest.max(last.map_or(0, |(_, len)| *len) + ((grant.reach() & !7) - end))
    }

    /// The `bytes` bytes before `end` that have the fewest in use, of those that begin with one of
    /// the first `most` free extents from the offset `from` on, and have none of the bytes
    /// `without`. O(`most` and the free extents of `bytes` bytes).
    pub(crate) fn emptiest(
        &self,
        bytes: u64,
        from: u64,
        end: u64,
        most: usize,
        without: &Obstacles,
    ) -> Emptiest {
        let mut emptiest = Emptiest::default();
        // Free bytes of the extents from the first on that begin before `until`.
        let (mut free, mut last_end) = (0, 0);
        let mut later = self.by_offset.range(from..).peekable();
        for (at, (&offset, &len)) in self.by_offset.range(from..).enumerate() {
            if at == most {
                emptiest.go_on_at = Some(offset);
                break;
            }
            let until = offset.checked_add(bytes).filter(|until| *until <= end.max(offset + len));
            let Some(until) = until else { break };
            while let Some((next, len)) = later.next_if(|(next, _)| **next < until) {
                free += len;
                last_end = next + len;
            }
            // The last of them may reach beyond.
            let until = until.max(last_end);
            let used = until - offset - free;
            if emptiest.found.as_ref().is_none_or(|(_, least)| used < *least)
                && !without.meet(&(offset..until))
            {
                emptiest.found = Some((offset..until, used));
            }
            free -= len;
        }
        emptiest
    }

    /// Hands out nothing of these bytes from here on, or again of all.
    pub(crate) fn set_emptied(&mut self, emptied: Option<Range<u64>>) {
        self.emptied = None;
        for extent in std::mem::take(&mut self.held) {
            self.join(extent);
        }
        let Some(emptied) = emptied else { return };
        let first =
            self.by_offset.range(..=emptied.start).next_back().map_or(emptied.start, |(offset, _)| *offset);
        let inside: Vec<Extent> = self
            .by_offset
            .range(first..emptied.end)
            .map(|(offset, len)| Extent { offset: *offset, len: *len })
            .filter(|extent| extent.meets(&emptied))
            .collect();
        self.emptied = Some(emptied);
        for extent in inside {
            self.by_offset.remove(&extent.offset);
            self.by_len.remove(&(extent.len, extent.offset));
            self.keep(extent);
        }
    }

    /// Holds back what of an extent lies among the bytes that are being emptied; the rest is free
    /// for all.
    fn keep(&mut self, extent: Extent) {
        let Some(emptied) = self.emptied.clone().filter(|emptied| extent.meets(emptied)) else {
            return self.join(extent);
        };
        let (from, until) = (emptied.start.max(extent.offset), emptied.end.min(extent.end()));
        self.held.push(Extent { offset: from, len: until - from });
        self.join(Extent { offset: extent.offset, len: from - extent.offset });
        self.join(Extent { offset: until, len: extent.end() - until });
    }

    /// The bytes of which nothing is handed out.
    pub(crate) fn emptied(&self) -> Option<&Range<u64>> {
        self.emptied.as_ref()
    }

    /// Gives some of the free bytes at the end of what is granted back to those that share the
    /// budget, if they are many; `true` if there are more to give back.
    pub(crate) fn shrink(&mut self) -> bool {
        /// Bytes that are not worth it, and the share of what is granted that is not.
        const LEAST: (u64, u64) = (256 << 10, 8);
        let was_shrinking = std::mem::take(&mut self.is_shrinking);
        let Some(grant) = self.grant.clone().filter(|grant| grant.is_shared()) else { return false };
        let end = grant.end() & !7;
        let Some((&offset, &len)) = self.by_offset.last_key_value() else { return false };
        if offset + len != end || !was_shrinking && len <= LEAST.0.max(end / LEAST.1) {
            return false;
        }
        self.is_shrinking = grant.shrink_towards(offset);
        let now = grant.end() & !7;
        if now < end {
            self.by_offset.remove(&offset);
            self.by_len.remove(&(len, offset));
            self.free -= len;
            self.put(Extent { offset, len: now - offset });
        }
        self.is_shrinking
    }

    /// Bytes that are granted and free, but for those that are being given back.
    pub(crate) fn remaining_free_bytes(&self) -> u64 {
        let going = if self.is_shrinking { self.by_offset.last_key_value() } else { None };
        self.free - going.map_or(0, |(_, len)| *len)
    }

    /// Gives bytes back that no reader has ever known of.
    pub(crate) fn put(&mut self, extent: Extent) {
        self.free += extent.len;
        self.keep(extent);
    }

    /// Joins an extent with its neighbours.
    fn join(&mut self, mut extent: Extent) {
        if extent.len == 0 {
            return;
        }
        if let Some((&before, &len)) = self.by_offset.range(..extent.offset).next_back()
            && before + len == extent.offset
        {
            self.by_offset.remove(&before);
            self.by_len.remove(&(len, before));
            extent = Extent { offset: before, len: len + extent.len };
        }
        if let Some(len) = self.by_offset.remove(&extent.end()) {
            self.by_len.remove(&(len, extent.end()));
            extent.len += len;
        }
        self.by_offset.insert(extent.offset, extent.len);
        self.by_len.insert((extent.len, extent.offset));
    }

    /// Has the region granted up to `end`, which is in use already, whatever the budget says: what
    /// lies between counts as free. `false` if the region does not reach so far.
    pub(crate) fn reach(&mut self, end: u64) -> bool {
        let Some(grant) = self.grant.clone() else { return true };
        let before = grant.end() & !7;
        if end > before {
            if grant.claim(end).is_err() {
                return false;
            }
            self.put(Extent { offset: before, len: (grant.end() & !7) - before });
        }
        true
    }

    /// Takes just these bytes, which are in use already, out of the free ones; `false` if not all
    /// of them are free.
    pub(crate) fn claim(&mut self, wanted: Extent) -> bool {
        let Some(end) = wanted.offset.checked_add(wanted.len).filter(|end| self.reach(*end)) else {
            return false;
        };
        let Some((&offset, &len)) = self.by_offset.range(..=wanted.offset).next_back() else { return false };
        if offset + len < end {
            return false;
        }
        self.by_offset.remove(&offset);
        self.by_len.remove(&(len, offset));
        self.free -= len;
        self.put(Extent { offset, len: wanted.offset - offset });
        self.put(Extent { offset: end, len: offset + len - end });
        true
    }

    /// Whether some of these bytes are free.
    pub(crate) fn overlaps(&self, extent: Extent) -> bool {
        let before = self.by_offset.range(..extent.end()).next_back();
        before.is_some_and(|(offset, len)| offset + len > extent.offset)
            || self.held.iter().any(|held| held.meets(&(extent.offset..extent.end())))
    }

    /// Gives bytes back that readers may look at whose directories are older than the log head
    /// `tag`. At once while the table is being restored, when it has no readers.
    pub(crate) fn retire(&mut self, tag: u64, extent: Extent) {
        if self.grant.as_ref().is_some_and(|grant| grant.is_restoring()) {
            return self.put(extent);
        }
        self.quarantined += extent.len;
        self.quarantine.entry(tag).or_default().push(extent);
    }

    /// The greatest tag up to `limit` among what waits; `None` if nothing so old does.
    pub(crate) fn newest_tag(&self, limit: u64) -> Option<u64> {
        self.quarantine.range(..=limit).next_back().map(|(tag, _)| *tag)
    }

    /// The greatest tag up to `limit` that the oldest `most` extents reach, of those that wait: of
    /// one change at least; `None` if nothing so old waits.
    pub(crate) fn tag_of_oldest(&self, limit: u64, most: usize) -> Option<u64> {
        let (mut reached, mut extents) = (None, 0);
        for (tag, waiting) in self.quarantine.range(..=limit) {
            extents += waiting.len();
            if reached.is_some() && extents > most {
                break;
            }
            reached = Some(*tag);
        }
        reached
    }

    /// Frees what was retired with tags up to `limit`. Readers must have been told before.
    pub(crate) fn release(&mut self, limit: u64) {
        while let Some(oldest) = self.quarantine.first_entry().filter(|oldest| *oldest.key() <= limit) {
            for extent in oldest.remove() {
                self.quarantined -= extent.len;
                self.put(extent);
            }
        }
    }

    /// Bytes that are free, or could be.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free + self.grant.as_ref().map_or(0, |grant| grant.reach() - grant.end())
    }

    /// End of the bytes that could be granted.
    pub(crate) fn end_in_reach(&self) -> u64 {
        self.grant.as_ref().map_or(0, |grant| grant.reach())
    }

    /// Bytes that are granted and free.
    pub(crate) fn granted_free_bytes(&self) -> u64 {
        self.free
    }

    /// Bytes in quarantine.
    pub(crate) fn quarantined_bytes(&self) -> u64 {
        self.quarantined
    }

    /// End of the last byte in use.
    pub(crate) fn used_end(&self, end: u64) -> u64 {
        let end = end & !7;
        match self.by_offset.last_key_value() {
            Some((offset, len)) if offset + len == end => *offset,
            _ => end,
        }
    }
}

#[cfg(test)]
mod tests;
