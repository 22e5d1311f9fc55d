//! Pages of the directory that are fetched on demand.

use zerocopy::IntoBytes;

use super::{Engine, Lists, Probe, Source, Stage};
use crate::key_space::KeySpace;
use crate::layout::Corrupt;
use crate::matching::Kernels;
use crate::read::ReadError;
use crate::read::outcome::Outcome;
use crate::read::slot_window::SlotWindow;

impl<K: KeySpace, S: Source, M: Kernels> Engine<'_, K, S, M> {
    /// Asks for the page of the directory that says where a key is, if no other key has.
    #[cold]
    pub(super) fn ask_for_page(&mut self, key: &K::Key, outcome: &mut Outcome) -> Probe {
        let Some(models) = self.view().models().paged() else { return Probe::DONE };
        let number = models.page_of(key);
        // The page's trip comes before the one every lookup is charged with.
        outcome.cost.round_trips += 1;
        let ask = |bytes| self.source.ask(models.address(number), bytes);
        self.lists.pending_pages.ask(number, &mut outcome.cost, ask);
        Probe { stage: Stage::Page(number), ..Probe::DONE }
    }

    /// Takes a page of the directory, and begins.
    #[cold]
    pub(super) fn take_page(
        &mut self,
        number: u32,
        key: &K::Key,
        probe: &mut Probe,
        outcome: &mut Outcome,
    ) -> Result<(), ReadError> {
        let unexpected = || Corrupt::new("directory page", 0, "none is expected");
        let models = self.view().models().paged().ok_or_else(unexpected)?;
        let Lists { pending_pages, copy, .. } = &mut *self.lists;
        let page = pending_pages.page(number, |asked| {
            self.source.words(asked)?.copy_to(copy);
            let bytes = copy.as_bytes();
            models.keep(number, &bytes[..K::PAGE_BYTES.min(bytes.len())]).map_err(ReadError::from)
        })?;
        let page = page.ok_or_else(unexpected)?;
        let target = SlotWindow::in_page(&page, key, self.view().encoders());
        *probe = self.begin_at(target, key, outcome);
        Ok(())
    }
}
