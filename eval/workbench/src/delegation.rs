//! Read delegation: of the clients of a compute node that want one key at a time, one looks it up
//! for all.

use hashbrown::HashMap;

/// Bytes of the table for it on a compute node, whatever the number of keys: 4 M entries of 208
/// bytes in CHIME's source. Those of SMART and DMTree have such a table, too; that their entries
/// are as long is assumed.
pub const TABLE_BYTES: u64 = (4 << 20) * 208;

/// What a client that wants a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It looks the key up.
    Leads,
    /// It waits: a lookup has begun already, and may have read what is old by now; the next one is
    /// for it.
    Waits,
}

#[derive(Debug, Default)]
struct Wanted {
    /// Those that the lookup under way is for, besides the one that does it: they asked before it
    /// began.
    sharing: Vec<usize>,
    /// Those who have asked since.
    waiting: Vec<usize>,
}

/// The lookups under way of one compute node.
#[derive(Debug, Default)]
pub struct Delegation {
    keys: HashMap<u64, Wanted>,
}

/// Who goes on after a lookup.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// They have its answer.
    pub shared: Vec<usize>,
    /// This client looks the key up next, for those who asked meanwhile.
    pub next: Option<usize>,
}

impl Delegation {
    /// A client wants a key.
    pub fn ask(&mut self, client: usize, key: u64) -> Role {
        match self.keys.get_mut(&key) {
            Some(wanted) => {
                wanted.waiting.push(client);
                Role::Waits
            }
            None => {
                self.keys.insert(key, Wanted::default());
                Role::Leads
            }
        }
    }

    /// A lookup has ended.
    pub fn end(&mut self, key: u64) -> Ended {
        let Some(wanted) = self.keys.get_mut(&key) else { return Ended::default() };
        let shared = std::mem::take(&mut wanted.sharing);
        let mut waiting = std::mem::take(&mut wanted.waiting);
        let next = if waiting.is_empty() { None } else { Some(waiting.remove(0)) };
        match next {
            Some(_) => wanted.sharing = waiting,
            None => {
                self.keys.remove(&key);
            }
        }
        Ended { shared, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_during_a_lookup_gets_the_answer_of_the_next_one() {
        let mut delegation = Delegation::default();
        assert_eq!(delegation.ask(1, 7), Role::Leads);
        assert_eq!(delegation.ask(2, 7), Role::Waits);
        assert_eq!(delegation.ask(3, 7), Role::Waits);
        assert_eq!(delegation.ask(4, 8), Role::Leads);
        assert_eq!(delegation.end(7), Ended { shared: vec![], next: Some(2) });
        assert_eq!(delegation.ask(5, 7), Role::Waits);
        assert_eq!(delegation.end(7), Ended { shared: vec![3], next: Some(5) });
        assert_eq!(delegation.end(7), Ended::default());
        assert_eq!(delegation.ask(1, 7), Role::Leads);
    }
}
