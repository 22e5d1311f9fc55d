//! A table as a compute node reads it: models, plans and hot cache within one budget.

mod budget;

use std::sync::Arc;

use fpcache_fabric::Endpoint;

use self::budget::{COUNTS_BYTES, FEW_SEGMENTS, group_tables, hot_cache};
pub(crate) use self::budget::{
    MODELS_GROW, budget_for_models, for_group_tables, for_models, keys_for_entries, share_of_tables,
};
use crate::cache::{CacheConfig, CacheStats, HotCache};
use crate::changes::Refresh;
use crate::fingerprint::FingerprintWidth;
use crate::group_tables::{GroupBytes, GroupTables, SegmentName};
use crate::key_space::{ByteKeys, KeySpace, U64Keys};
use crate::layout::TableParameters;
use crate::matching::SlotStride;
use crate::models::{Models, Segment};
use crate::plan::{FabricCosts, PlanChoice, PlanOptions, Planner};
use crate::sabotage::Sabotage;
use crate::table_view::{OpenError, Opening, TableView};

/// How a compute node reads a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableOptions {
    /// Which plan lookups use.
    pub plan: PlanChoice,
    /// The costs of the fabric.
    pub costs: FabricCosts,
    /// What the table may keep; `None`: all models, and no hot cache.
    pub cache: Option<CacheConfig>,
    /// The part of reading that is broken on purpose.
    #[doc(hidden)]
    pub sabotage: Option<Sabotage>,
}

impl TableOptions {
    /// One way to read, over mapped memory, without a hot cache.
    pub fn plan(plan: PlanChoice) -> Self {
        Self { plan, costs: FabricCosts::MAPPED_MEMORY, cache: None, sabotage: None }
    }
}

/// A table as a compute node reads it, as of one sequence of the memory node's changes.
///
/// A newer version, from [`refreshed`](Self::refreshed), shares the hot cache and all of the
/// directory that has not changed. While threads hold the older one it takes, beside the newer one,
/// its own copies of the directory's pages on the paths to what was replaced, about a KiB per
/// change, and for models in pages up to their share of the budget: idle threads may each hold
/// another version, and so up to one share each. The budget counts one version: what a thread holds
/// longer is gone with its next call.
#[derive(Debug)]
pub struct Table<K: KeySpace> {
    view: TableView<K>,
    planner: Planner,
    cache: Option<Arc<HotCache>>,
    /// Tables of groups, as many as the budget has room for, if lookups use them.
    groups: Option<Arc<GroupTables>>,
    options: TableOptions,
    measured: Measured,
    /// Segments from which on more room for tables of groups, or a larger hot cache, would be of
    /// use.
    outgrown_at: u64,
    /// See [`word_width`](Self::word_width).
    word_width: Option<FingerprintWidth>,
}

/// Bytes of a table's models when they were last counted, which takes a look at every page, and the
/// sequence then.
#[derive(Clone, Copy, Debug)]
struct Measured {
    bytes: u64,
    sequence: u64,
}

/// A record of the change log adds no more to the models, pages that are split for it included. A
/// page of byte strings holds the first of each eight separators nearly whole, and another one may
/// be the first of each after a change.
const fn bytes_per_change<K: KeySpace>() -> u64 {
    match K::FIXED_BYTES {
        Some(_) => 64,
        None => 64 + 4 * TableParameters::MAX_KEY_BYTES as u64,
    }
}

impl<K: KeySpace> Table<K> {
    /// Fetches a table, and of its models what the budget has room for; see
    /// [`TableView::open_within`] for the cost.
    ///
    /// # Errors
    /// As for [`TableView::open_within`]; [`OpenError::Budget`] names the least budget that would
    /// do. [`OpenError::Memory`] if the hot cache's memory cannot be had.
    pub fn open<E: Endpoint>(endpoint: &mut E, options: &TableOptions) -> Result<Self, OpenError> {
        Self::open_on(endpoint, &mut Opening::default(), options)
    }

    /// As [`open`](Self::open), from where earlier calls have got, whose time was over: what has
    /// been fetched when this one's is over stays in `opening`, too. Where only the change log's
    /// records are missing, the table is as of a change before.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_on<E: Endpoint>(
        endpoint: &mut E,
        opening: &mut Opening<K>,
        options: &TableOptions,
    ) -> Result<Self, OpenError> {
        let view = match options.cache {
            None => TableView::open_beside(endpoint, opening, |_| u64::MAX)?,
            Some(CacheConfig { budget, .. }) => {
                let mut beside = 0;
                let opened = TableView::open_beside(endpoint, opening, |stride| {
                    beside = Self::beside_models(stride);
                    for_models(budget, beside)
                });
                opened.map_err(|error| match error {
                    OpenError::Budget { least, .. } => {
                        OpenError::Budget { budget, least: budget_for_models(least, beside) }
                    }
                    other => other,
                })?
            }
        };
        Self::over(view, options)
    }

    /// A table over models that were fetched before. What the budget leaves beside them, or beside
    /// what they may grow into as pages are fetched, is the hot cache's.
    ///
    /// # Errors
    /// [`OpenError::Budget`] if the models have been allowed more than the budget,
    /// [`OpenError::Memory`] if the hot cache's memory cannot be had. A budget without room for a
    /// hot cache is no error: then there is no hot cache.
    pub fn over(view: TableView<K>, options: &TableOptions) -> Result<Self, OpenError> {
        let record = view.record();
        let at_home = record.at_home as f64 / record.keys.max(1) as f64;
        let on_conflict = options.cache.map(|config| config.on_conflict).unwrap_or_default();
        let planner = Planner::new(options.plan, &options.costs, view.geometry(), at_home.min(1.0))
            .with_on_conflict(on_conflict)
            .with_epsilon(record.parameters.epsilon);
        let beside = Self::beside_models(view.stride().heap_bytes());
        let groups = group_tables(&view, &planner, options.cache.as_ref(), beside);
        let cache = match &options.cache {
            None => None,
            Some(config) => hot_cache(&view, config, beside, groups.as_ref())?.map(Arc::new),
        };
        let groups = groups.map(|kept| Arc::new(kept.tables));
        let measured = Measured { bytes: view.model_bytes() as u64, sequence: view.sequence() };
        let view = view.broken_by(options.sabotage);
        let options = *options;
        let word_width = word_width(&view, &planner, cache.is_some());
        let outgrown_at = u64::MAX;
        let mut table = Self { view, planner, cache, groups, options, measured, outgrown_at, word_width };
        let room = table.options.cache.map_or(0, |config| config.budget);
        let used = table.measured.bytes / 8 + table.measured.bytes + table.most_shared_bytes();
        // More than half of the budget is left only where there are too few keys to fill it.
        if used < room / 2 {
            table.outgrown_at = table.view.segments().saturating_mul(2);
        }
        if table.groups.is_some() {
            // Tables of more segments would push one another out.
            let segments = table.view.segments();
            let few = if table.options.cache.is_none() { FEW_SEGMENTS } else { 0 };
            table.outgrown_at =
                table.outgrown_at.min(segments.saturating_add((segments / 4).max(1)).max(few));
        }
        Ok(table)
    }

    /// The table as it is now, if this is not it: with the hot cache of this one, whose entries are
    /// checked whenever they are used and so stay right, and with models brought up to date by
    /// [`TableView::refresh`], or opened anew in the bytes that the hot cache leaves them.
    ///
    /// [`Refresh::Lost`] if the models have outgrown what the budget has for them, if the table has
    /// twice as many segments as the hot cache was made for while most of the budget is free, or
    /// more than the tables of groups have room for, or if this is not the same table any more: it
    /// must be opened from nothing.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn refreshed<E: Endpoint>(&self, endpoint: &mut E) -> Result<Refresh<Self>, OpenError> {
        self.refreshed_on(endpoint, &mut Opening::default())
    }

    /// As [`refreshed`](Self::refreshed); models that are opened anew are so from where earlier
    /// calls have got, as in [`open_on`](Self::open_on), beside this table's until all are here.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn refreshed_on<E: Endpoint>(
        &self,
        endpoint: &mut E,
        opening: &mut Opening<K>,
    ) -> Result<Refresh<Self>, OpenError> {
        Ok(match self.view.refresh(endpoint)? {
            Refresh::Current => Refresh::Current,
            Refresh::Newer(view) => match self.grown(&view) {
                Some(measured) => Refresh::Newer(self.with(view, measured)),
                None => Refresh::Lost,
            },
            Refresh::Lost => self.reopened(endpoint, opening)?,
        })
    }

    /// The same table over newer models.
    fn with(&self, view: TableView<K>, measured: Measured) -> Self {
        let view = view.broken_by(self.options.sabotage);
        let (planner, options, outgrown_at) = (self.planner, self.options, self.outgrown_at);
        let (cache, groups) = (self.cache.clone(), self.groups.clone());
        let word_width = word_width(&view, &planner, cache.is_some());
        Self { view, planner, cache, groups, options, measured, outgrown_at, word_width }
    }

    /// The width of its fingerprints, if the common course of its lookups is the short one of words:
    /// records of a word of key and one of value at most, all models here, no hot cache, and nothing
    /// but two-stage reads for a key on its own.
    #[inline(always)]
    pub(crate) fn word_width(&self) -> Option<FingerprintWidth> {
        self.word_width
    }

    /// Bytes of the view's models, counted or estimated; `None` if the budget has no room for them.
    fn grown(&self, view: &TableView<K>) -> Option<Measured> {
        if view.segments() >= self.outgrown_at {
            return None;
        }
        let room = self.room_for_models(view.stride().heap_bytes());
        let changes = view.sequence().saturating_sub(self.measured.sequence);
        if self.measured.bytes.saturating_add(changes.saturating_mul(bytes_per_change::<K>())) <= room {
            return Some(self.measured);
        }
        let bytes = view.model_bytes() as u64;
        (bytes <= room).then_some(Measured { bytes, sequence: view.sequence() })
    }

    /// Bytes the models may take beside everything else of this table.
    fn room_for_models(&self, stride: usize) -> u64 {
        let budget = self.options.cache.map_or(u64::MAX, |config| config.budget);
        budget.saturating_sub(Self::beside_models(stride) + self.most_shared_bytes())
    }

    /// Opens the models anew, with what the hot cache leaves them.
    fn reopened<E: Endpoint>(
        &self,
        endpoint: &mut E,
        opening: &mut Opening<K>,
    ) -> Result<Refresh<Self>, OpenError> {
        let room = |stride| self.room_for_models(stride);
        let view = match TableView::open_beside(endpoint, opening, room) {
            Ok(view) => view,
            Err(OpenError::Budget { .. }) => return Ok(Refresh::Lost),
            Err(error) => return Err(error),
        };
        let (old, new) = (&self.view, &view);
        let is_same = new.superblock().incarnation == old.superblock().incarnation
            && new.record().parameters == old.record().parameters;
        // Without the hot cache all of the models may fit: what was whole stays whole.
        let is_whole_no_more = old.models().resident().is_some() && new.models().paged().is_some();
        if !is_same || is_whole_no_more || new.segments() >= self.outgrown_at {
            return Ok(Refresh::Lost);
        }
        let measured = Measured { bytes: view.model_bytes() as u64, sequence: view.sequence() };
        let mut table = self.with(view, measured);
        // Another table may have come under this one's name, whose segments are named like those of
        // this one.
        let fresh = |tables: &Arc<GroupTables>| tables.emptied().map(Arc::new);
        table.groups = table.groups.as_ref().and_then(fresh);
        Ok(Refresh::Newer(table))
    }

    /// Bytes that versions of the table share at most: the hot cache, and the tables of groups with
    /// all that will come.
    fn most_shared_bytes(&self) -> u64 {
        self.hot_bytes() + self.groups.as_ref().map_or(0, |tables| tables.most_bytes() + COUNTS_BYTES)
    }

    /// Bytes of all that is kept of the table: its own structure, models, tables of groups, hot
    /// cache. O(pages of the directory).
    pub fn size_in_bytes(&self) -> u64 {
        Self::beside_models(self.view.stride().heap_bytes())
            + self.view.model_bytes() as u64
            + self.hot_bytes()
            + self.group_bytes()
    }

    /// The parts of [`group_bytes`](Self::group_bytes), if all models are here. O(separators).
    pub fn group_parts(&self) -> GroupBytes {
        let (Some(tables), Some(directory)) = (&self.groups, self.view.models().resident()) else {
            return GroupBytes::default();
        };
        let name = |segment: &Segment<K>| SegmentName {
            address: segment.address().offset(),
            generation: segment.generation(),
            cap: segment.model().cap,
        };
        tables.parts(directory.iter().map(|(_, segment)| name(segment)))
    }

    /// Bytes of tables of groups, and of the counts of those who share them; 0 if lookups do not
    /// use them. They grow with the tables that are fetched, up to what has been set aside for them
    /// in a budget.
    pub fn group_bytes(&self) -> u64 {
        self.groups.as_ref().map_or(0, |tables| tables.size_in_bytes() + COUNTS_BYTES)
    }

    /// Bytes of the hot cache and of the counts of those who share it.
    fn hot_bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, |hot| hot.size_in_bytes() as u64 + COUNTS_BYTES)
    }

    /// Bytes of everything but the models and the hot cache, which count themselves.
    const fn beside_models(stride: usize) -> u64 {
        (size_of::<Self>() - size_of::<Models<K>>() + stride) as u64
    }

    /// Models and parameters.
    #[inline]
    pub fn view(&self) -> &TableView<K> {
        &self.view
    }

    /// The planner.
    #[inline]
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// The ways in which lookups over this endpoint can be made.
    pub fn ways<E: Endpoint>(&self, endpoint: &E) -> PlanOptions {
        PlanOptions {
            answers: endpoint.answers(),
            round_trip: endpoint.round_trip(),
            has_groups: self.groups.is_some(),
            has_cache: self.cache.is_some(),
        }
    }

    /// The hot cache, if there is a budget and it has room for one.
    #[inline]
    pub fn cache(&self) -> Option<&HotCache> {
        self.cache.as_deref()
    }

    /// Tables of groups, as many as the budget has room for, if lookups use them.
    #[inline]
    pub fn groups(&self) -> Option<&GroupTables> {
        self.groups.as_deref()
    }

    /// Statistics of what is kept within the budget; `None` without one. Counts the entries: tens
    /// of microseconds per MiB.
    pub fn cache_stats(&self) -> Option<CacheStats> {
        let config = self.options.cache?;
        let model_bytes = self.view.model_bytes() as u64;
        let hot = self.cache();
        let counts = hot.map(HotCache::counts).unwrap_or_default();
        Some(CacheStats {
            budget: config.budget,
            used: self.size_in_bytes(),
            model_bytes,
            group_bytes: self.group_bytes(),
            hot_bytes: hot.map_or(0, |hot| hot.size_in_bytes() as u64),
            paged: self.view.models().paged().is_some(),
            capacity: hot.map_or(0, HotCache::capacity),
            entries: hot.map_or(0, HotCache::entries),
            hits: counts.hits,
            misses: counts.misses,
            conflicts: counts.conflicts,
        })
    }
}

/// Bytes that a table of slots of `slot_bytes` bytes takes beside its models, tables of groups and
/// hot cache, whatever its keys are.
pub(crate) fn beside_models(slot_bytes: usize) -> u64 {
    let stride = SlotStride::new(slot_bytes / 8).heap_bytes();
    Table::<U64Keys>::beside_models(stride).max(Table::<ByteKeys>::beside_models(stride))
}

/// Bytes of a slot of a word of key and one of value at most.
pub(crate) const WORD_SLOT_BYTES: u64 = 24;

/// The width of a table's fingerprints, if the common course of its lookups is the short one:
/// records of a word of key and one of value at most, with few false candidates; all models here, no
/// hot cache, and two-stage reads for a key on its own.
fn word_width<K: KeySpace>(
    view: &TableView<K>,
    planner: &Planner,
    has_cache: bool,
) -> Option<FingerprintWidth> {
    let geometry = view.geometry();
    let has_words = geometry.slot_bytes as u64 == WORD_SLOT_BYTES
        && geometry.shape.is_fixed()
        && K::word(K::lowest()).is_some()
        && geometry.stores_fingerprints
        && geometry.width >= FingerprintWidth::Bits16
        && view.models().resident().is_some()
        && !has_cache
        && planner.single().is_two_stage()
        && view.guards_slots();
    has_words.then_some(geometry.width)
}
