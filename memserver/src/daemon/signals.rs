//! The signals that end a daemon or have it read files again.

use std::io;
use std::thread;

use fpcache_fabric::StopHandle;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::access::Rereading;

/// What tells a process that its parent has ended. A signal of its own, because it comes beside a
/// `SIGTERM` of the parent, and once for each thread that the child is handed to while the parent
/// ends.
pub(super) const PARENT_ENDED: Signal = Signal::USR1;

/// `SIGHUP`, which does not end the process any more, and is not acted on yet.
pub(super) struct HeldSignals(Signals);

impl HeldSignals {
    pub(super) fn hold() -> io::Result<Self> {
        Signals::new([SIGHUP]).map(Self)
    }

    /// Has the [parent's end](PARENT_ENDED) end the process too. Otherwise that signal belongs to
    /// the program around the memory node.
    pub(super) fn end_with_parent(&self) -> io::Result<()> {
        self.0.add_signal(PARENT_ENDED.as_raw())
    }

    /// Uses the handle when the process is told to end; told twice, the process ends at once. The
    /// parent's end, if [it was asked for](Self::end_with_parent), does not count among these. Told
    /// by `SIGHUP`, it reads again what lets clients in, if that is in files; that signal has no
    /// other effect, and does not end a memory node without such files.
    pub(super) fn handle(self, stop: StopHandle, access: Option<Rereading>) -> io::Result<()> {
        let Self(mut signals) = self;
        for ending in [SIGTERM, SIGINT] {
            signals.add_signal(ending)?;
        }
        let watch = move || {
            let mut is_told = false;
            for signal in signals.forever() {
                if signal == SIGHUP {
                    if let Some(access) = &access {
                        access.read_again();
                    }
                    continue;
                }
                if signal == PARENT_ENDED.as_raw() {
                    stop.stop();
                    continue;
                }
                if is_told {
                    // Nothing acknowledged is lost: the second signal overrides what holds up the
                    // first.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                is_told = true;
                stop.stop();
            }
        };
        thread::Builder::new().name("fpcache-signals".into()).spawn(watch).map(drop)
    }
}
