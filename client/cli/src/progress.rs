//! A progress bar on standard error, drawn only on a terminal.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fpcache_datasets::Progress;
use indicatif::{ProgressBar, ProgressStyle};

const TEMPLATE: &str = "{msg} {wide_bar} {human_pos}/{human_len} keys, {eta} left";

/// One bar, used for one phase after the other.
#[derive(Default)]
pub(crate) struct Bar(Mutex<Option<ProgressBar>>);

impl Bar {
    fn bar(&self) -> MutexGuard<'_, Option<ProgressBar>> {
        // A bar is whole whatever a panicking thread did to it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Bar {
    fn begin(&self, phase: &str, total: u64) {
        // A test checks the template; without it the default style would do.
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        *self.bar() = Some(ProgressBar::new(total).with_style(style).with_message(phase.to_owned()));
    }

    fn advance(&self, done: u64) {
        if let Some(bar) = &*self.bar() {
            bar.set_position(done);
        }
    }

    fn end(&self) {
        if let Some(bar) = self.bar().take() {
            bar.finish_and_clear();
        }
    }
}

/// Ends the phase also when it ends in an error.
pub(crate) struct Phase<'b>(&'b Bar);

impl Bar {
    /// Begins a phase of `total` keys.
    pub(crate) fn phase(&self, name: &str, total: u64) -> Phase<'_> {
        self.begin(name, total);
        Phase(self)
    }
}

impl Phase<'_> {
    /// `done` keys are handled.
    pub(crate) fn advance(&self, done: u64) {
        self.0.advance(done);
    }
}

impl Drop for Phase<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_template_is_valid() {
        assert!(indicatif::ProgressStyle::with_template(super::TEMPLATE).is_ok());
    }
}
