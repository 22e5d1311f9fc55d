//! Low priority for background threads.

/// How nice: a thread like that has a third of what another one has that wants the same processor.
const NICE: i32 = 5;

/// Has the calling thread give way where others want its processor: what it does takes
/// milliseconds, and other tables' clients wait for the thread that serves them. A hint, which a
/// sandbox may refuse.
pub(crate) fn lower_priority() {
    let own = Some(rustix::thread::gettid());
    if rustix::process::getpriority_process(own).is_ok_and(|nice| nice < NICE) {
        let _ = rustix::process::setpriority_process(own, NICE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stands_back_alone() {
        let of_this_thread =
            || rustix::process::getpriority_process(Some(rustix::thread::gettid())).expect("it lives");
        let before = of_this_thread();
        let after = std::thread::spawn(move || {
            lower_priority();
            of_this_thread()
        });
        assert_eq!(after.join().expect("it does not panic"), before.max(NICE));
        assert_eq!(of_this_thread(), before);
    }
}
