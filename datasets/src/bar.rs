//! A progress bar on standard error, drawn only on a terminal.

use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};

use crate::progress::Progress;

/// One bar, used for one phase after the other.
///
/// It is drawn by the thread that reports, never by one of its own: that would run beside what is
/// measured.
#[derive(Default)]
pub struct Bar {
    drawn: Mutex<Option<ProgressBar>>,
    /// What is written after a number of items.
    unit: &'static str,
}

/// A phase under way, which ends when this is dropped.
pub struct Phase<'b>(&'b Bar);

impl Bar {
    /// A bar whose items are keys.
    pub fn of_keys() -> Self {
        Self { unit: " keys", ..Self::default() }
    }

    /// Begins a phase of `total` items.
    pub fn phase(&self, name: &str, total: u64) -> Phase<'_> {
        self.begin(name, total);
        Phase(self)
    }

    /// Runs `work` in a phase of `total` items; `work` reports through [`Progress::advance`].
    pub fn during<R>(&self, phase: &str, total: u64, work: impl FnOnce() -> R) -> R {
        let _phase = self.phase(phase, total);
        work()
    }

    fn drawn(&self) -> MutexGuard<'_, Option<ProgressBar>> {
        // A bar is whole whatever a panicking thread did to it.
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Bar {
    fn begin(&self, phase: &str, total: u64) {
        let bar = if total > 0 { ProgressBar::new(total) } else { ProgressBar::no_length() };
        // A test checks the templates; without them the default style would do.
        let style = ProgressStyle::with_template(&template(self.unit, total > 0));
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = bar.with_style(style).with_message(phase.to_owned());
        bar.tick();
        *self.drawn() = Some(bar);
    }

    fn advance(&self, done: u64) {
        if let Some(bar) = &*self.drawn() {
            bar.set_position(done);
        }
    }

    fn end(&self) {
        if let Some(bar) = self.drawn().take() {
            bar.finish_and_clear();
        }
    }
}

fn template(unit: &str, has_total: bool) -> String {
    match has_total {
        true => format!("{{msg}} {{wide_bar}} {{human_pos}}/{{human_len}}{unit}, {{eta}} left"),
        false => format!("{{msg}} {{human_pos}}{unit}"),
    }
}

impl Phase<'_> {
    /// `done` items are handled.
    pub fn advance(&self, done: u64) {
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
    use super::*;

    #[test]
    fn the_templates_are_valid() {
        for unit in ["", " keys"] {
            for has_total in [true, false] {
                assert!(ProgressStyle::with_template(&template(unit, has_total)).is_ok());
            }
        }
    }
}
