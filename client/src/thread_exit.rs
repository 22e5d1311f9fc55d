//! Release of a thread's share of its clients when the thread ends.

use std::cell::RefCell;
use std::sync::Weak;

use thread_local::ThreadLocal;

/// Something of which each thread that uses it holds a part.
pub(crate) trait ThreadRelease {
    /// Drops the calling thread's part.
    fn leave(&self);
}

/// What a thread has used and must leave.
struct Used(RefCell<Vec<Weak<dyn ThreadRelease>>>);

thread_local! {
    static USED: Used = const { Used(RefCell::new(Vec::new())) };
}

/// Runs `f` with what the calling thread holds; with something of its own if what takes a scan's
/// records calls the client meanwhile. What `to_leave` gives when a thread begins to hold something
/// is left when the thread ends.
#[inline]
pub(crate) fn here<H: Default + Send, L: ThreadRelease + 'static, R>(
    threads: &ThreadLocal<RefCell<H>>,
    to_leave: impl FnOnce(&H) -> Option<Weak<L>>,
    f: impl FnOnce(&mut H) -> R,
) -> R {
    let mut kept = threads.get_or_default().try_borrow_mut();
    let mut own = None;
    let held = match &mut kept {
        Ok(held) => {
            if let Some(used) = to_leave(held) {
                when_thread_ends(used);
            }
            &mut **held
        }
        Err(_) => own.insert(H::default()),
    };
    f(held)
}

/// Has `used` left when the calling thread ends.
fn when_thread_ends(used: Weak<dyn ThreadRelease>) {
    // A thread that is ending already takes no more promises; what it holds stays until a
    // successor's first call.
    let _ = USED.try_with(|Used(list)| {
        let mut list = list.borrow_mut();
        list.retain(|other| other.strong_count() > 0);
        if !list.iter().any(|other| other.ptr_eq(&used)) {
            list.push(used);
        }
    });
}

impl Drop for Used {
    fn drop(&mut self) {
        self.0.get_mut().iter().filter_map(Weak::upgrade).for_each(|used| used.leave());
    }
}
