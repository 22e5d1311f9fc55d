//! Progress bars on stderr, drawn only on a terminal.

use std::sync::{Mutex, PoisonError};

use fpcache_datasets::Progress;
use indicatif::{ProgressBar, ProgressStyle};

const TEMPLATE: &str = "{msg} {wide_bar} {human_pos}/{human_len}, {eta} left";

/// One bar, used for one phase after the other.
///
/// It is drawn by whoever reports, never by a thread of its own: that would run beside what is
/// measured.
#[derive(Default)]
pub struct Bar(Mutex<Option<ProgressBar>>);

impl Bar {
    fn with(&self, act: impl FnOnce(&mut Option<ProgressBar>)) {
        // A bar is whole whatever a panicking thread did to it.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Runs `work` under a bar of `total` items; `work` reports through [`Progress::advance`].
    pub fn during<R>(&self, phase: &str, total: u64, work: impl FnOnce() -> R) -> R {
        self.begin(phase, total);
        let result = work();
        self.end();
        result
    }
}

impl Progress for Bar {
    fn begin(&self, phase: &str, total: u64) {
        // A test checks the template; the default style would do as well.
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(total).with_style(style).with_message(phase.to_owned());
        bar.tick();
        self.with(|current| *current = Some(bar));
    }

    fn advance(&self, done: u64) {
        self.with(|bar| {
            if let Some(bar) = bar {
                bar.set_position(done);
            }
        });
    }

    fn end(&self) {
        self.with(|bar| {
            if let Some(bar) = bar.take() {
                bar.finish_and_clear();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_template_is_valid() {
        assert!(indicatif::ProgressStyle::with_template(super::TEMPLATE).is_ok());
    }
}
