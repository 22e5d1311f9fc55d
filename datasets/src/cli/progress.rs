//! A progress bar on stderr, drawn only on a terminal.

use std::sync::Mutex;

use fpcache_datasets::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// One bar, used for one phase after the other.
#[derive(Default)]
pub(super) struct Bar(Mutex<Option<ProgressBar>>);

impl Bar {
    fn with(&self, act: impl FnOnce(&mut Option<ProgressBar>)) {
        // A bar is whole whatever a panicking thread did to it.
        act(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}

impl Progress for Bar {
    fn begin(&self, phase: &str, total: u64) {
        let (bar, template) = match total {
            0 => (ProgressBar::no_length(), TEMPLATE_WITHOUT_TOTAL),
            total => (ProgressBar::new(total), TEMPLATE),
        };
        // The templates are checked by a test; without them the default style would do.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = bar.with_style(style).with_message(phase.to_owned());
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

const TEMPLATE: &str = "{msg} {wide_bar} {human_pos}/{human_len} keys, {eta} left";
const TEMPLATE_WITHOUT_TOTAL: &str = "{msg} {human_pos} keys";

#[cfg(test)]
mod tests {
    #[test]
    fn the_templates_are_valid() {
        for template in [super::TEMPLATE, super::TEMPLATE_WITHOUT_TOTAL] {
            assert!(indicatif::ProgressStyle::with_template(template).is_ok());
        }
    }
}
