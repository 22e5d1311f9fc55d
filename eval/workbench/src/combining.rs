//! Write combining: of the clients of a compute node that write one key at a time one does it for
//! all that have asked until it WRITEs the value, which is the last one's. Who asks later waits for
//! the next one.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::bench::Operation;
use crate::delegation::{Ended, Role};

/// Writes of one key.
#[derive(Debug, Default)]
struct Wanted {
    /// Those whose values the one under way stands for, besides who does it, once it has WRITTEN.
    sharing: Option<Vec<usize>>,
    waiting: VecDeque<(usize, Operation)>,
}

/// The writes under way of all compute nodes.
#[derive(Debug, Default)]
pub struct Combining {
    keys: HashMap<(u16, u64), Wanted>,
}

/// Whether two writes may be one: what an update says of a key that is not there an insert does
/// not.
fn are_alike(one: Operation, other: Operation) -> bool {
    matches!(
        (one, other),
        (Operation::Update { .. }, Operation::Update { .. })
            | (Operation::Insert { .. }, Operation::Insert { .. })
    )
}

impl Combining {
    /// A client of a compute node is to write.
    pub fn ask(&mut self, client: usize, compute: usize, write: Operation) -> Role {
        match self.keys.get_mut(&(compute as u16, write.key())) {
            Some(wanted) => {
                wanted.waiting.push_back((client, write));
                Role::Waits
            }
            None => {
                self.keys.insert((compute as u16, write.key()), Wanted::default());
                Role::Leads
            }
        }
    }

    /// The write under way with the value that it is to have now.
    pub fn newest(&self, compute: usize, write: Operation) -> Operation {
        let wanted = self.keys.get(&(compute as u16, write.key())).filter(|wanted| wanted.sharing.is_none());
        let alike =
            wanted.map(|wanted| wanted.waiting.iter().take_while(|(_, other)| are_alike(write, *other)));
        alike.and_then(Iterator::last).map_or(write, |(_, last)| *last)
    }

    /// It has WRITTEN its value: those who wait share it.
    pub fn close(&mut self, compute: usize, write: Operation) {
        let Some(wanted) = self.keys.get_mut(&(compute as u16, write.key())) else { return };
        if wanted.sharing.is_none() {
            let alike = wanted.waiting.iter().take_while(|(_, other)| are_alike(write, *other)).count();
            wanted.sharing = Some(wanted.waiting.drain(..alike).map(|(client, _)| client).collect());
        }
    }

    /// It has ended.
    pub fn end(&mut self, compute: usize, write: Operation) -> Ended {
        let Some(wanted) = self.keys.get_mut(&(compute as u16, write.key())) else { return Ended::default() };
        let shared = wanted.sharing.take().unwrap_or_default();
        let next = wanted.waiting.pop_front().map(|(client, _)| client);
        if next.is_none() {
            self.keys.remove(&(compute as u16, write.key()));
        }
        Ended { shared, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(value: u64) -> Operation {
        Operation::Update { key: 7, value, reads: false }
    }

    #[test]
    fn who_asks_before_the_value_is_written_shares_the_write_and_who_asks_later_does_not() {
        let mut combining = Combining::default();
        assert_eq!(combining.ask(1, 0, update(10)), Role::Leads);
        assert_eq!(combining.ask(2, 1, update(20)), Role::Leads, "of another compute node");
        assert_eq!(combining.ask(3, 0, update(30)), Role::Waits);
        assert_eq!(combining.newest(0, update(10)), update(30));
        combining.close(0, update(10));
        assert_eq!(combining.ask(4, 0, update(40)), Role::Waits);
        assert_eq!(combining.newest(0, update(10)), update(10), "what is written stays");
        assert_eq!(combining.end(0, update(10)), Ended { shared: vec![3], next: Some(4) });
        assert_eq!(combining.end(0, update(40)), Ended::default());
        assert_eq!(combining.ask(1, 0, update(50)), Role::Leads);
    }

    #[test]
    fn an_update_does_not_stand_for_an_insert() {
        let mut combining = Combining::default();
        let insert = Operation::Insert { key: 7, value: 2 };
        assert_eq!(combining.ask(1, 0, update(1)), Role::Leads);
        assert_eq!((combining.ask(2, 0, insert), combining.ask(3, 0, update(3))), (Role::Waits, Role::Waits));
        assert_eq!(combining.newest(0, update(1)), update(1));
        combining.close(0, update(1));
        assert_eq!(combining.end(0, update(1)), Ended { shared: vec![], next: Some(2) });
    }
}
