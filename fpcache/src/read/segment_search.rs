//! Segments and their neighbours, wherever the directory is.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;

use fpcache_fabric::{Batch, Landing, REGION, RemoteAddr};
use fpcache_index::Window;

use crate::group_tables::SegmentName;
use crate::key_space::KeySpace;
use crate::layout::Corrupt;
use crate::models::{Models, Page, PagedModels, Segment};
use crate::read::Cost;
use crate::table_view::TableView;

/// A segment and where its range begins.
#[derive(Clone, Debug)]
pub(super) struct LocatedSegment<K: KeySpace> {
    pub(super) start: K::Owned,
    pub(super) segment: Segment<K>,
}

impl<K: KeySpace> LocatedSegment<K> {
    pub(super) fn of((start, segment): (K::Owned, &Segment<K>)) -> Self {
        Self { start, segment: *segment }
    }

    /// The coordinate of `key`, one of its range.
    #[inline]
    pub(super) fn coordinate(&self, key: &K::Key, view: &TableView<K>) -> u64 {
        self.segment.coordinate(key, K::shared(key, self.start.borrow()), view.encoders())
    }

    /// The slots that `key`, one of its range, can have.
    #[inline]
    pub(super) fn window(&self, key: &K::Key, view: &TableView<K>) -> Window {
        self.segment.model().window(self.coordinate(key, view))
    }

    /// Its name in the tables of groups.
    pub(super) fn name(&self) -> SegmentName {
        let (address, cap) = (self.segment.address().offset(), self.segment.model().cap);
        SegmentName { address, generation: self.segment.generation(), cap }
    }

    /// How many slots it has.
    #[inline]
    pub(super) fn cap(&self) -> u32 {
        u32::from(self.segment.model().cap)
    }

    /// Asks for these of its slots.
    #[inline]
    pub(super) fn ask(
        &self,
        (first, end): (u32, u32),
        view: &TableView<K>,
        batch: &mut Batch,
        cost: &mut Cost,
    ) -> Landing {
        let geometry = view.geometry();
        let offset = geometry.slot_offset(self.segment.model().cap, first) as u64;
        let len = (end - first) as usize * geometry.slot_bytes;
        cost.reads += 1;
        cost.bytes += len as u64;
        let from = RemoteAddr { area: REGION, offset: self.segment.address().offset() + offset };
        view.ask_for_slots(batch, from, len)
    }
}

/// Where the search for a segment ended.
#[derive(Debug)]
pub(super) enum SegmentSearch<K: KeySpace> {
    Here(LocatedSegment<K>),
    /// No segment: the table ends.
    Nowhere,
    /// A page of the directory is needed first.
    InPage(u32),
}

impl<K: KeySpace> SegmentSearch<K> {
    fn of(found: Option<(K::Owned, &Segment<K>)>) -> Self {
        found.map_or(Self::Nowhere, |found| Self::Here(LocatedSegment::of(found)))
    }
}

/// Pages of the directory that were asked for together, each once, however many keys need it.
#[derive(Debug)]
pub(super) struct PendingPages<K: KeySpace, A = Landing> {
    /// Where each is found, by its number, and what came of it, once looked at.
    pages: HashMap<u32, Awaited<K, A>>,
}

type Awaited<K, A> = (A, Option<Arc<Page<K>>>);

impl<K: KeySpace, A> Default for PendingPages<K, A> {
    fn default() -> Self {
        Self { pages: HashMap::new() }
    }
}

impl<K: KeySpace, A> PendingPages<K, A> {
    /// Forgets the pages that were asked for.
    #[inline]
    pub(super) fn clear(&mut self) {
        if !self.pages.is_empty() {
            self.pages.clear();
        }
    }

    /// Asks for a page, unless it was asked for already.
    pub(super) fn ask(&mut self, number: u32, cost: &mut Cost, ask: impl FnOnce(usize) -> A) {
        self.pages.entry(number).or_insert_with(|| {
            cost.reads += 1;
            cost.bytes += K::PAGE_BYTES as u64;
            (ask(K::PAGE_BYTES), None)
        });
    }

    /// A page that has come, which `take` takes if it is the first to look.
    pub(super) fn page<E>(
        &mut self,
        number: u32,
        take: impl FnOnce(&A) -> Result<Arc<Page<K>>, E>,
    ) -> Result<Option<Arc<Page<K>>>, E> {
        let Some((asked, page)) = self.pages.get_mut(&number) else { return Ok(None) };
        if page.is_none() {
            *page = Some(take(asked)?);
        }
        Ok(page.clone())
    }
}

/// The two pages of the directory that were needed last, which neighbours on either side of a
/// page's end may take, held so that they do not make way before they were used; and the one that
/// was asked for.
#[derive(Debug, Default)]
pub(super) struct RecentPages<K: KeySpace> {
    held: [Option<(u32, Arc<Page<K>>)>; 2],
    wanted: Option<u32>,
}

impl<K: KeySpace> RecentPages<K> {
    pub(super) fn clear(&mut self) {
        (self.held, self.wanted) = ([None, None], None);
    }

    /// The page of this number, if it is here.
    pub(super) fn page(&mut self, models: &PagedModels<K>, number: u32) -> Option<Arc<Page<K>>> {
        let held = self.held.iter().flatten().find(|(held, _)| *held == number);
        if let Some((_, page)) = held {
            return Some(Arc::clone(page));
        }
        let page = models.kept(number)?;
        self.hold(number, Arc::clone(&page));
        Some(page)
    }

    fn hold(&mut self, number: u32, page: Arc<Page<K>>) {
        self.held.swap(0, 1);
        self.held[0] = Some((number, page));
    }

    /// What `find` finds in the page of this number.
    #[inline]
    fn find_in(
        &mut self,
        models: &PagedModels<K>,
        number: u32,
        find: impl FnOnce(&Page<K>) -> Option<(K::Owned, &Segment<K>)>,
    ) -> SegmentSearch<K> {
        let Some(page) = self.page(models, number) else { return SegmentSearch::InPage(number) };
        SegmentSearch::of(find(&page))
    }

    /// The segment whose range holds `key`.
    #[inline]
    pub(super) fn holding(&mut self, view: &TableView<K>, key: &K::Key) -> SegmentSearch<K> {
        match view.models() {
            Models::Resident(directory) => {
                SegmentSearch::of(directory.locate(key).map(|located| (located.start, located.entry)))
            }
            Models::Paged(models) => self.find_in(models, models.page_of(key), |page| page.locate(key)),
        }
    }

    /// The segment before the one whose range begins at `start`.
    pub(super) fn before(&mut self, view: &TableView<K>, start: &K::Key) -> SegmentSearch<K> {
        let models = match view.models() {
            Models::Resident(directory) => return SegmentSearch::of(directory.before(start)),
            Models::Paged(models) => models,
        };
        let number = models.page_of(start);
        match (self.find_in(models, number, |page| page.before(start)), number.checked_sub(1)) {
            (SegmentSearch::Nowhere, Some(number)) => self.find_in(models, number, Page::last),
            (found, _) => found,
        }
    }

    /// The segment after the one whose range begins at `start`.
    pub(super) fn after(&mut self, view: &TableView<K>, start: &K::Key) -> SegmentSearch<K> {
        let models = match view.models() {
            Models::Resident(directory) => return SegmentSearch::of(directory.after(start)),
            Models::Paged(models) => models,
        };
        let number = models.page_of(start);
        match (self.find_in(models, number, |page| page.after(start)), models.first_after(number)) {
            (SegmentSearch::Nowhere, Some(first)) => {
                self.find_in(models, number + 1, |page| page.locate(first.borrow()))
            }
            (found, _) => found,
        }
    }

    /// Asks for a page, unless another key has with the same doorbell.
    pub(super) fn ask(
        &mut self,
        number: u32,
        view: &TableView<K>,
        (batch, coming): (&mut Batch, &mut PendingPages<K>),
        cost: &mut Cost,
    ) {
        let Models::Paged(models) = view.models() else { return };
        self.wanted = Some(number);
        let from = RemoteAddr { area: REGION, offset: models.address(number) };
        coming.ask(number, cost, |bytes| batch.read(from, bytes));
    }

    /// Takes the page that was asked for, if there is one.
    pub(super) fn take(
        &mut self,
        view: &TableView<K>,
        (batch, coming): (&Batch, &mut PendingPages<K>),
    ) -> Result<(), Corrupt> {
        if let (Some(number), Models::Paged(models)) = (self.wanted.take(), view.models())
            && let Some(page) = coming.page(number, |landing| models.keep(number, batch.bytes(*landing)))?
        {
            self.hold(number, page);
        }
        Ok(())
    }
}
