//! Release of a thread's share of its clients when the thread ends.

use std::cell::RefCell;
use std::sync::Weak;

/// Something of which each thread that uses it holds a part.
pub(crate) trait Leave {
    /// Drops the calling thread's part.
    fn leave(&self);
}

/// What a thread has used and must leave.
struct Used(RefCell<Vec<Weak<dyn Leave>>>);

thread_local! {
    static USED: Used = const { Used(RefCell::new(Vec::new())) };
}

/// Has `used` left when the calling thread ends.
pub(crate) fn when_thread_ends(used: Weak<dyn Leave>) {
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
