//! Questions about a region that the threads which serve sockets answer, without the service's
//! thread.

use std::any::Any;
use std::fmt;

/// Answers questions about one region, offered by the service with
/// [`Export::with_answers`](crate::Export::with_answers).
///
/// What a question is, and what a reply, is agreed between the service and its clients: here both
/// are bytes. Any client that may READ the region can ask it, so it tells nothing that a READ would
/// not. It is called on the threads that serve sockets, while all other connections of such a
/// thread wait: so it takes a bounded time whatever the question says, waits for no lock that is
/// held for long, and never for the service's thread.
pub trait Answers: Send + Sync + fmt::Debug {
    /// Writes the reply to `question` into the first words of `reply`, and says how many these are.
    /// What the others hold does not matter. `memory` is the calling thread's.
    fn answer(&self, memory: &mut ThreadMemory, question: &[u8], reply: &mut [u64]) -> Answered;
}

/// How a question went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Answered {
    /// Words of the reply; 0 if there is no reply.
    pub words: usize,
    /// Bytes that were looked at for it, at most. They count against the connection's turn as those
    /// of replies do.
    pub cost: usize,
}

/// One thread's memory of its answers from one question to the next: a value of each type.
#[derive(Default)]
pub struct ThreadMemory {
    kept: Vec<Box<dyn Any + Send>>,
}

impl ThreadMemory {
    /// The value of this type, made if there is none yet.
    pub fn of<T: Any + Send>(&mut self, make: impl FnOnce() -> T) -> &mut T {
        let place = self.kept.iter().position(|kept| kept.is::<T>());
        let place = place.unwrap_or_else(|| {
            self.kept.push(Box::new(make()));
            self.kept.len() - 1
        });
        match self.kept[place].downcast_mut() {
            Some(value) => value,
            // It was found by its type, or made of it.
            None => unreachable!("a value of another type"),
        }
    }
}

impl fmt::Debug for ThreadMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadMemory").field("values", &self.kept.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_one_value_of_each_type() {
        let mut memory = ThreadMemory::default();
        *memory.of(|| 1u32) += 1;
        memory.of(String::new).push('a');
        assert_eq!((*memory.of(|| 7u32), memory.of(String::new).as_str()), (2, "a"));
        assert_eq!(memory.kept.len(), 2);
    }
}
