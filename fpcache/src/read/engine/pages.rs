//! Pages of the directory that are fetched on demand.

use std::sync::Arc;

use zerocopy::IntoBytes;

use super::{AwaitedPage, Engine, Lists, Probe, Stage};
use crate::key_space::KeySpace;
use crate::layout::Corrupt;
use crate::matching::Kernels;
use crate::models::{Page, PagedModels};
use crate::read::ReadError;
use crate::read::outcome::Outcome;
use crate::read::slot_window::SlotWindow;
use crate::read::source::Source;

impl<K: KeySpace, S: Source, M: Kernels> Engine<'_, K, S, M> {
    fn paged(&self) -> Option<&PagedModels<K>> {
        self.table.view().models().paged()
    }

    /// Asks for the page of the directory that says where a key is, if no other key has.
    #[cold]
    pub(super) fn ask_for_page(&mut self, key: &K::Key, outcome: &mut Outcome) -> Probe {
        let Some(models) = self.table.view().models().paged() else { return Probe::DONE };
        let number = models.page_of(key);
        // The page's trip comes before the one every lookup is charged with.
        outcome.cost.round_trips += 1;
        let Lists { pages, page_places, .. } = &mut *self.lists;
        let place = *page_places.entry(number).or_insert_with(|| {
            outcome.cost.reads += 1;
            outcome.cost.bytes += K::PAGE_BYTES as u64;
            let asked = self.source.ask(models.address(number), K::PAGE_BYTES);
            pages.push(AwaitedPage { number, asked, page: None });
            (pages.len() - 1) as u32
        });
        Probe { stage: Stage::Page(place), ..Probe::DONE }
    }

    /// Takes a page of the directory, and begins.
    #[cold]
    pub(super) fn take_page(
        &mut self,
        place: u32,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let page = self.page(place as usize)?;
        let target = SlotWindow::in_page(&page, key, self.view().encoders());
        *probe = self.begin_at(target, key, outcome);
        Ok(())
    }

    fn page(&mut self, place: usize) -> Result<Arc<Page<K>>, ReadError> {
        let AwaitedPage { number, asked, page } = &self.lists.pages[place];
        let (number, asked) = (*number, *asked);
        if let Some(page) = page {
            return Ok(Arc::clone(page));
        }
        self.source.words(&asked)?.copy_to(&mut self.lists.copy);
        let bytes = self.lists.copy.as_bytes();
        let models = self.paged().ok_or_else(|| Corrupt::new("directory page", 0, "none is expected"))?;
        let kept = models.keep(number, &bytes[..K::PAGE_BYTES.min(bytes.len())])?;
        self.lists.pages[place].page = Some(Arc::clone(&kept));
        Ok(kept)
    }
}
