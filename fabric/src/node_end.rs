//! Noticing the end of a memory node.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::bell::Bell;
use crate::error::FabricError;
use crate::mapped::{Anchor, Link};

/// The thread that notices the end of the memory node.
#[derive(Debug)]
pub(crate) struct Watch {
    bell: Bell,
    link: Arc<Link>,
    thread: Option<JoinHandle<()>>,
}

impl Anchor for Watch {}

impl Watch {
    pub(crate) fn start(bell: Bell, link: Arc<Link>) -> Result<Self, FabricError> {
        let (watched, to_cut) = (bell.clone(), Arc::clone(&link));
        let body = move || {
            watched.wait_hung_up();
            to_cut.cut();
        };
        let thread = std::thread::Builder::new()
            .name("fpcache-watch".to_owned())
            .stack_size(64 << 10)
            .spawn(body)
            .map_err(|source| FabricError::os("starting the watching thread", source))?;
        Ok(Self { bell, link, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.link.is_inherited() {
            // The parent goes on with the connection, and the thread is there alone.
            self.bell.detach_inherited();
            std::mem::forget(self.thread.take());
            return;
        }
        self.bell.hang_up();
        if let Some(thread) = self.thread.take() {
            // It only sleeps and sets a flag; it cannot have panicked.
            let _ = thread.join();
        }
    }
}
