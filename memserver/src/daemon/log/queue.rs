//! Lines on their way to a reader, which there may not be: a bounded number of bytes.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::Level;

use super::format::{LONGEST, LogFormat};

/// Bytes of lines that wait, at most: a few of the longest.
const ROOM: usize = 4 * LONGEST;

/// Lines that wait to be written. A thread that adds one never waits for the one that writes.
#[derive(Debug, Default)]
pub(super) struct LogQueue {
    state: Mutex<LineBuffer>,
    has_come: Condvar,
    is_empty: Condvar,
}

#[derive(Debug, Default)]
struct LineBuffer {
    /// Of the line about those that are lost.
    format: LogFormat,
    lines: VecDeque<Vec<u8>>,
    /// Of all lines together.
    bytes: usize,
    /// Lines for which there was no room since the last line about such.
    lost: u64,
    is_writing: bool,
}

impl LineBuffer {
    fn add(&mut self, line: &[u8]) {
        if self.bytes + line.len() > ROOM {
            self.lost += 1;
            return;
        }
        self.tell_of_lost();
        self.push(line.to_vec());
    }

    fn tell_of_lost(&mut self) {
        if self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            let told = format!(
                "fpcache-memserver: warning: {lost} lines are missing here: nobody took them in time"
            );
            self.push(self.format.line(Level::WARN, told).into_bytes());
        }
    }

    fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.lines.is_empty() {
            self.tell_of_lost();
        }
        let line = self.lines.pop_front()?;
        self.bytes -= line.len();
        Some(line)
    }
}

impl LogQueue {
    pub(super) fn of(format: LogFormat) -> Self {
        let queue = Self::default();
        queue.state().format = format;
        queue
    }

    fn state(&self) -> MutexGuard<'_, LineBuffer> {
        // Nothing panics in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes lines as they come, and never returns. What cannot be written is lost.
    pub(super) fn write_all_to(&self, to: &mut dyn io::Write) {
        let mut state = self.state();
        loop {
            match state.next() {
                Some(line) => {
                    state.is_writing = true;
                    drop(state);
                    let _ = to.write_all(&line);
                    state = self.state();
                    state.is_writing = false;
                }
                None => {
                    self.is_empty.notify_all();
                    state = self.has_come.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Waits until all lines have been written, or for so long.
    pub(super) fn wait_until_written(&self, patience: Duration) {
        let is_to_be_written = |state: &mut LineBuffer| !state.lines.is_empty() || state.is_writing;
        let _ = self.is_empty.wait_timeout_while(self.state(), patience, is_to_be_written);
    }
}

/// Where lines are added, each in one go.
#[derive(Clone, Debug)]
pub(super) struct Lines(pub(super) Arc<LogQueue>);

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.state().add(line);
        self.0.has_come.notify_one();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_which_there_is_no_room_are_counted_and_told_of() {
        let mut state = LineBuffer::default();
        let line = |n: usize| format!("{n:0>1023}\n").into_bytes();
        (0..300).for_each(|n| state.add(&line(n)));
        assert_eq!((state.bytes, state.lost), (ROOM, 44));
        // The first line for which there is room again comes after the word about those between.
        for n in 0..2 {
            assert_eq!(state.next().unwrap(), line(n));
        }
        state.add(&line(300));
        let rest: Vec<Vec<u8>> = std::iter::from_fn(|| state.next()).collect();
        let told = String::from_utf8(rest[rest.len() - 2].clone()).unwrap();
        assert!(told.contains("warning: 44 lines"), "{told}");
        assert_eq!(*rest.last().unwrap(), line(300));
        // So is it where none comes.
        state.lost = 1;
        assert!(String::from_utf8(state.next().unwrap()).unwrap().contains("1 lines"));
        assert_eq!((state.next(), state.bytes), (None, 0));
    }

    /// It was dropped, and "nobody took it in time".
    #[test]
    fn a_line_longer_than_there_is_room_for_is_cut() {
        for format in [LogFormat::Plain, LogFormat::Text, LogFormat::Json] {
            let mut state = LineBuffer::default();
            state.add(format.line(Level::ERROR, "\u{1}".repeat(2 * ROOM)).as_bytes());
            let line = state.next().unwrap();
            assert!(line.len() <= LONGEST && line.len() > LONGEST - 300, "{format:?}: {} bytes", line.len());
            assert_eq!(state.next(), None);
        }
    }
}
