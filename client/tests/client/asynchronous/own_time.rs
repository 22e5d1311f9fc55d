//! The time of a thread, but for what it waits for a processor.

use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::yield_now;

/// The time that goes by while one thread has a processor or waits for anything else.
struct OwnTime {
    begun: Instant,
    /// Where the kernel tells how long the thread has waited for a processor.
    waits: Option<File>,
}

impl OwnTime {
    fn of_this_thread() -> Self {
        Self { begun: Instant::now(), waits: File::open("/proc/thread-self/schedstat").ok() }
    }

    fn waited(&self) -> Duration {
        let mut bytes = [0; 64];
        let len = self.waits.as_ref().map_or(0, |file| file.read_at(&mut bytes, 0).unwrap());
        let nanos = str::from_utf8(&bytes[..len]).unwrap().split(' ').nth(1);
        Duration::from_nanos(nanos.map_or(0, |nanos| nanos.parse().unwrap()))
    }

    fn elapsed(&self) -> Duration {
        loop {
            let (waited, elapsed) = (self.waited(), self.begun.elapsed());
            // Otherwise it had to wait between the two.
            if self.waited() == waited {
                return elapsed.saturating_sub(waited);
            }
        }
    }
}

/// Runs `work` beside a task that only wants its turn, and says how long that had to wait at most,
/// but for times when this thread, which runs both, got no processor.
pub async fn longest_wait(work: impl Future<Output = ()>) -> Duration {
    let done = Arc::new(AtomicBool::new(false));
    let heart = tokio::spawn({
        let done = Arc::clone(&done);
        async move {
            let time = OwnTime::of_this_thread();
            let (mut last, mut longest) = (time.elapsed(), Duration::ZERO);
            while !done.load(Ordering::Relaxed) {
                yield_now().await;
                let now = time.elapsed();
                longest = longest.max(now.saturating_sub(last));
                last = now;
            }
            longest
        }
    });
    work.await;
    done.store(true, Ordering::Relaxed);
    heart.await.unwrap()
}
