//! Entries that a compute node keeps within a budget, by number: of two entries drawn at random the
//! less used one goes.

use hashbrown::HashMap;

#[derive(Debug)]
struct Entry<V> {
    number: u64,
    uses: u32,
    value: V,
}

/// Entries that take the same bytes each.
#[derive(Debug)]
pub struct Kept<V> {
    room: usize,
    each: u64,
    entries: Vec<Entry<V>>,
    places: HashMap<u64, usize>,
    most: usize,
    random: u64,
}

impl<V> Kept<V> {
    /// Of `budget` bytes, of which an entry takes `each`.
    pub fn new(budget: u64, each: u64, seed: u64) -> Self {
        let room = (budget / each.max(1)) as usize;
        let random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { room, each, entries: Vec::new(), places: HashMap::new(), most: 0, random }
    }

    /// An entry, which is thereby used.
    pub fn get(&mut self, number: u64) -> Option<&V> {
        let entry = &mut self.entries[*self.places.get(&number)?];
        entry.uses = entry.uses.saturating_add(1);
        Some(&entry.value)
    }

    /// Keeps a value.
    pub fn keep(&mut self, number: u64, value: V) {
        if self.room == 0 {
            return;
        }
        if let Some(place) = self.places.get(&number) {
            self.entries[*place].value = value;
            return;
        }
        if self.entries.len() == self.room {
            let (a, b) = (self.draw(), self.draw());
            let loser = if self.entries[a].uses <= self.entries[b].uses { a } else { b };
            let removed = self.entries.swap_remove(loser);
            self.places.remove(&removed.number);
            if let Some(moved) = self.entries.get(loser) {
                self.places.insert(moved.number, loser);
            }
        }
        self.places.insert(number, self.entries.len());
        self.entries.push(Entry { number, uses: 1, value });
        self.most = self.most.max(self.entries.len());
    }

    fn draw(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % self.entries.len() as u64) as usize
    }

    /// The most bytes there were.
    pub fn most_bytes(&self) -> u64 {
        self.most as u64 * self.each
    }
}
