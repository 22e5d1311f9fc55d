//! The compute node's view of a table.

mod error;
mod fetch;

use fpcache_fabric::{Batch, Endpoint, FabricError, Landing, REGION, RemoteAddr};

pub use error::OpenError;
pub(crate) use fetch::reuse_sequence;
use fetch::{Fetched, RefetchReason, check_lies_inside, has_moved, read_superblock};
pub use fetch::{Opening, read_parameters, read_used};

use crate::changes::{ChangeLog, Refresh, UpdateError};
use crate::key_space::KeySpace;
use crate::layout::{Corrupt, SegmentGeometry, Superblock, TableRecord};
use crate::matching::SlotStride;
pub use crate::models::Segment;
use crate::models::{Models, PagedModels};
use crate::sabotage::{Broken, Sabotage};

/// How often a directory that is replaced while it is fetched is fetched again before giving up.
const OPEN_ATTEMPTS: u32 = 16;
/// Everything a compute node needs to look keys of one table up: parameters and models, as of one
/// sequence.
///
/// The sequence is a number of records of the change log: the models contain all below it and none
/// from it on. Answers that rest on a key's absence hold as long as the region's reuse sequence
/// does not exceed it.
#[derive(Debug)]
pub struct TableView<K: KeySpace> {
    superblock: Superblock,
    record: TableRecord,
    geometry: SegmentGeometry,
    stride: SlotStride,
    models: Models<K>,
    encoders: K::Encoders,
    sequence: u64,
    broken: Broken,
}

impl<K: KeySpace> TableView<K> {
    /// Fetches a table with all its models: one round trip for the superblock, one for the
    /// directory's root, one per 64 directory pages, one for the log's head and one per 256 changes
    /// since the directory was written. For integer keys 40 bytes cross the fabric per segment.
    ///
    /// # Errors
    /// [`OpenError`], but not for want of bytes.
    pub fn open<E: Endpoint>(endpoint: &mut E) -> Result<Self, OpenError> {
        Self::open_within(endpoint, u64::MAX)
    }

    /// Fetches a table, and of its models what fits `bytes`: all of them as [`open`](Self::open)
    /// does, or the directory's top level, in two round trips, and pages when they are needed.
    /// Which of them is decided before pages are fetched, from the number of segments; the whole
    /// directory is put together page by page, without all of its separators at hand.
    ///
    /// A directory that is read in pages is that of the memory node's last checkpoint, and has its
    /// sequence.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::Budget`] if `bytes` are too few for the top level and a page.
    pub fn open_within<E: Endpoint>(endpoint: &mut E, bytes: u64) -> Result<Self, OpenError> {
        Self::open_beside(endpoint, &mut Opening::default(), |_| bytes)
    }

    /// As [`open_within`](Self::open_within), with the bytes for models decided when it is known
    /// how many a view allocates beside them, and from where earlier calls have got, whose time was
    /// over. If this one's is over while it reads the change log, the view is as of a change before
    /// the newest, which [`refresh`](Self::refresh) finds out.
    pub(crate) fn open_beside<E: Endpoint>(
        endpoint: &mut E,
        opening: &mut Opening<K>,
        mut bytes: impl FnMut(usize) -> u64,
    ) -> Result<Self, OpenError> {
        let mut last = OpenError::Moving { attempts: OPEN_ATTEMPTS };
        for _ in 0..OPEN_ATTEMPTS {
            let reason = match Self::open_once(endpoint, opening, &mut bytes) {
                Ok(view) => return Ok(view),
                // What has been fetched is as good as before.
                Err(RefetchReason::Failed(error @ OpenError::Fabric(_))) => return Err(error),
                Err(reason) => reason,
            };
            *opening = Opening::default();
            match reason {
                RefetchReason::Failed(error) => return Err(error),
                RefetchReason::Moved => last = OpenError::Moving { attempts: OPEN_ATTEMPTS },
                RefetchReason::Unusable(corrupt) => last = corrupt.into(),
            }
        }
        Err(last)
    }

    fn open_once<E: Endpoint>(
        endpoint: &mut E,
        opening: &mut Opening<K>,
        bytes: &mut impl FnMut(usize) -> u64,
    ) -> Result<Self, RefetchReason> {
        let mut batch = Batch::new();
        let superblock = opening.superblock(endpoint, &mut batch)?;
        let record = superblock.table.ok_or(OpenError::Empty)?;
        // What follows believes no more than the region's length has room for.
        if endpoint.area(REGION).is_some_and(|area| superblock.region_bytes > area.len) {
            return Err(
                OpenError::from(Corrupt::new("superblock", 0, "the region is shorter than it says")).into()
            );
        }
        check_lies_inside("used bytes", 0, record.used, superblock.region_bytes)?;
        check_lies_inside("directory root", record.root, record.root_bytes, superblock.region_bytes)?;
        check_lies_inside("encoders", record.encoders, record.encoders_bytes, superblock.region_bytes)?;
        let log = ChangeLog::of(&record, superblock.region_bytes)?;
        let geometry = record.parameters.geometry();
        let stride = SlotStride::new(geometry.slot_bytes / 8);
        let bytes = bytes(stride.heap_bytes());
        // What byte strings take shows when their top level and their encoders are here.
        if K::FIXED_BYTES.is_some() {
            let paged = PagedModels::<K>::least_bytes(record.pages) as u64;
            let least = Models::<K>::resident_bytes_at_most(record.segments, record.pages).min(paged);
            if bytes < least {
                return Err(OpenError::Budget { budget: bytes, least }.into());
            }
        }
        let fetched = opening.directory(endpoint, &mut batch, &superblock, &record, bytes);
        let Fetched { root, directory, encoders } = match fetched {
            Err(RefetchReason::Failed(OpenError::Corrupt(_)))
                if has_moved::<K, E>(endpoint, &mut batch, &superblock, &record)? =>
            {
                return Err(RefetchReason::Moved);
            }
            other => other?,
        };
        let paged = PagedModels::least_bytes_with(&root) as u64;
        let (given, shared) = (bytes, K::encoders_bytes(&encoders) as u64);
        let bytes = given.saturating_sub(shared);
        let (mut resident, mut sequence) = (None, record.checkpoint);
        if let Some(mut directory) = directory {
            let mut reached = sequence;
            match log.apply_all::<K, E>(endpoint, &mut reached, &mut directory, &encoders) {
                Ok(()) | Err(UpdateError::Fabric(FabricError::DeadlinePassed { .. })) => {}
                Err(UpdateError::Unusable(corrupt)) => return Err(RefetchReason::Unusable(corrupt)),
                Err(UpdateError::Fabric(error)) => return Err(error.into()),
            }
            let models = Models::Resident(directory);
            // The changes may have been many.
            if models.most_bytes() as u64 <= bytes {
                (resident, sequence) = (Some(models), reached);
            }
        }
        if resident.is_none() && bytes < paged {
            return Err(OpenError::Budget { budget: given, least: paged.saturating_add(shared) }.into());
        }
        let models = resident.unwrap_or_else(|| {
            // Fits: the directory that does not is larger.
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            Models::Paged(PagedModels::new(root, &record, bytes))
        });
        debug_assert!(models.most_bytes() as u64 <= bytes, "both kinds were foretold to fit");
        let broken = Broken::default();
        Ok(Self { superblock, record, geometry, stride, models, encoders, sequence, broken })
    }

    /// The table as it is now, if this is not it: one round trip for the log's head, and one per
    /// 256 records of its changes; as of a change before, if the call's time is over and some of
    /// them have been read. The models of both share what has not changed: beside the old ones, the new
    /// ones take about a KiB per change.
    ///
    /// Models that are fetched in pages know nothing of single changes: they are [`Refresh::Lost`]
    /// once the memory node has written a newer directory, and [`Refresh::Current`] before.
    ///
    /// # Errors
    /// If the fabric fails, or for pages, if the superblock cannot be taken.
    pub fn refresh<E: Endpoint>(&self, endpoint: &mut E) -> Result<Refresh<Self>, OpenError> {
        let Models::Resident(directory) = &self.models else {
            let superblock = read_superblock::<K, E>(endpoint, &mut Batch::new())?;
            let same = superblock.table.is_some_and(|table| table.checkpoint == self.record.checkpoint);
            return Ok(if same { Refresh::Current } else { Refresh::Lost });
        };
        let head = ChangeLog::head(endpoint)?;
        if head == self.sequence {
            return Ok(Refresh::Current);
        }
        let (mut directory, mut sequence) = (directory.clone(), self.sequence);
        let log = ChangeLog::of(&self.record, self.superblock.region_bytes)?;
        match log.apply::<K, E>(endpoint, &mut sequence, head, &mut directory, &self.encoders) {
            Ok(()) => {}
            Err(UpdateError::Unusable(_)) => return Ok(Refresh::Lost),
            // What has been applied the next refresh need not read.
            Err(UpdateError::Fabric(FabricError::DeadlinePassed { .. })) if sequence > self.sequence => {}
            Err(UpdateError::Fabric(error)) => return Err(error.into()),
        }
        Ok(Refresh::Newer(Self {
            superblock: Superblock { log_head: sequence, ..self.superblock },
            record: self.record,
            geometry: self.geometry,
            stride: self.stride.clone(),
            models: Models::Resident(directory),
            encoders: self.encoders.clone(),
            sequence,
            broken: self.broken,
        }))
    }

    /// How many records of the change log the models contain.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The greatest reuse sequence with which absence may still be concluded from these models.
    #[inline]
    pub(crate) fn holds_until(&self) -> u64 {
        if self.breaks(Sabotage::NoReuseCheck) { u64::MAX } else { self.sequence }
    }

    /// Whether this is what is broken on purpose about reading.
    #[inline(always)]
    pub(crate) fn breaks(&self, what: Sabotage) -> bool {
        self.broken.is(what)
    }

    /// What is broken on purpose.
    #[inline(always)]
    pub(crate) fn broken(&self) -> Broken {
        self.broken
    }

    /// The same view, by which is read in a way that is broken on purpose.
    pub(crate) fn broken_by(self, sabotage: Option<Sabotage>) -> Self {
        Self { broken: Broken::by(sabotage), ..self }
    }

    /// The superblock this view was taken from.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The table's record.
    pub fn record(&self) -> &TableRecord {
        &self.record
    }

    /// Sizes and offsets inside the table's segments.
    #[inline]
    pub fn geometry(&self) -> &SegmentGeometry {
        &self.geometry
    }

    /// Whether slots are READ with their words as guards.
    #[inline(always)]
    pub(crate) fn guards_slots(&self) -> bool {
        !self.breaks(Sabotage::Unguarded)
    }

    /// Asks for slots: each lands as it was at one moment, or with a busy word, where the fabric
    /// can tell.
    #[inline]
    pub(crate) fn ask_for_slots(&self, batch: &mut Batch, from: RemoteAddr, len: usize) -> Landing {
        match self.guards_slots() {
            true => batch.read_records(from, len, self.geometry().slot_bytes),
            false => batch.read(from, len),
        }
    }

    /// Where slots begin in a window of them.
    #[inline]
    pub fn stride(&self) -> &SlotStride {
        &self.stride
    }

    /// The models: what this compute node keeps of the directory.
    #[inline]
    pub fn models(&self) -> &Models<K> {
        &self.models
    }

    /// The encoders that the segments share to compute coordinates.
    #[inline]
    pub fn encoders(&self) -> &K::Encoders {
        &self.encoders
    }

    /// Segments of the table, as of this view.
    pub(crate) fn segments(&self) -> u64 {
        self.models.resident().map_or(self.record.segments, |directory| directory.len() as u64)
    }

    /// About how many keys the table has: what it had when its directory was written, grown as its
    /// segments have, and no more than the region has room for.
    pub(crate) fn keys(&self) -> u64 {
        let (keys, before) = (u128::from(self.record.keys), u128::from(self.record.segments.max(1)));
        let grown = keys * u128::from(self.segments()).max(before) / before;
        let room = self.superblock.region_bytes / (self.geometry.slot_bytes as u64).max(1);
        u64::try_from(grown).unwrap_or(u64::MAX).min(room)
    }

    /// Bytes this compute node spends on models: what it keeps of the directory, with everything
    /// around it, and what the segments share.
    pub fn model_bytes(&self) -> usize {
        self.models.size_in_bytes() + K::encoders_bytes(&self.encoders)
    }

    /// The bytes they never exceed, whatever is fetched.
    pub(crate) fn most_model_bytes(&self) -> usize {
        self.models.most_bytes() + K::encoders_bytes(&self.encoders)
    }
}
