//! Lookups by the memory node's threads that serve sockets: a question is answered with what the
//! region holds.
//!
//! Keys without an answer the client looks up itself: all of them while the memory node's view of
//! the table is out of date, and those whose value is external or finds no room in the reply.

use std::borrow::Borrow;

use fpcache_fabric::{Endpoint, FabricError, RegionReader};

use super::look_up_all;
use super::question::{MOST_LOOKED_AT, Reply, looked_at, take_question};
use crate::key_space::KeySpace;
use crate::plan::MOST_KEYS;
use crate::read::scratch::LookupScratch;
use crate::read::{ReadError, Wanted};
use crate::table::Table;

/// Most bytes of buffers that are kept from one question to the next.
const MOST_KEPT_BYTES: usize = 256 << 10;

/// How a question went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Replied {
    /// Words of the reply; 0 if the question is none, or costs more than one may.
    pub words: usize,
    /// Bytes that were looked at, and for each key at least those of a window and a slot; 512 KiB
    /// at most.
    pub bytes: usize,
    /// Whether a key was not looked up because the table is not known as it is now.
    pub is_outdated: bool,
}

/// Answers a question with what the region holds, as `table` knows it, in the first words of
/// `reply`.
///
/// It looks at 256 KiB of the region at most for all keys together, and at as much once more for
/// them one by one if that was not enough or some key could not be looked up: keys whose slots are
/// not among that, as others have their fingerprints or keep changing, are not looked up. `scratch`
/// is left with 256 KiB at most.
pub fn answer<K: KeySpace, E: Endpoint>(
    reader: &mut RegionReader<E>,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    question: &[u8],
    reply: &mut [u64],
) -> Replied {
    let mut keys = [None; MOST_KEYS];
    let Some((count, wanted)) = take_question::<K>(question, &mut keys) else { return Replied::default() };
    let (geometry, epsilon) = (table.view().geometry(), table.view().record().parameters.epsilon);
    let Some(least) = looked_at(geometry, epsilon, count) else { return Replied::default() };
    let keys = keys[..count].iter().flatten().map(Borrow::borrow);
    let mut looking = Looking { reader, table, scratch, wanted, least, out: Reply::new(reply) };
    let replied = looking.all(keys);
    scratch.keep_at_most(MOST_KEPT_BYTES);
    replied
}

/// A question that is being answered.
struct Looking<'a, K: KeySpace, E> {
    reader: &'a mut RegionReader<E>,
    table: &'a Table<K>,
    scratch: &'a mut LookupScratch<K>,
    wanted: Wanted,
    /// Bytes that count as looked at, even if there were fewer.
    least: usize,
    out: Reply<'a>,
}

impl<K: KeySpace, E: Endpoint> Looking<'_, K, E> {
    /// Looks keys up together and, if that cannot be, one by one: what stands in the way of some
    /// need not stand in that of others.
    fn all<'k>(&mut self, keys: impl Iterator<Item = &'k K::Key> + Clone) -> Replied {
        let (together, bytes) = self.within_bounds(|looking| looking.look_up(keys.clone()));
        match together {
            Ok(()) => Replied { words: self.out.used, bytes, is_outdated: false },
            Err(error) if keys.clone().nth(1).is_none() => {
                Replied { words: 0, bytes, is_outdated: is_outdated_by(&error) }
            }
            Err(error) => {
                let (is_outdated, more) = self.within_bounds(|looking| looking.each(keys));
                let is_outdated = is_outdated || is_outdated_by(&error);
                Replied { words: self.out.used, bytes: bytes + more, is_outdated }
            }
        }
    }

    /// Lets `look` look at no more than it may, and says at how many bytes it has.
    fn within_bounds<R>(&mut self, look: impl FnOnce(&mut Self) -> R) -> (R, usize) {
        self.reader.allow(MOST_LOOKED_AT as u64);
        let looked = look(self);
        // At most 256 KiB.
        let bytes = (MOST_LOOKED_AT as u64 - self.reader.allowed()) as usize;
        (looked, bytes.max(self.least))
    }

    fn look_up<'k>(&mut self, keys: impl Iterator<Item = &'k K::Key> + Clone) -> Result<(), ReadError> {
        look_up_all(self.reader, self.table, self.scratch, keys, self.wanted)?;
        self.out.push_all(self.scratch, self.wanted);
        Ok(())
    }

    /// Looks keys up one by one, and says whether one was not because of what is known of the
    /// table.
    fn each<'k>(&mut self, keys: impl Iterator<Item = &'k K::Key>) -> bool {
        let mut is_outdated = false;
        for key in keys {
            if let Err(error) = self.look_up([key].into_iter()) {
                is_outdated |= is_outdated_by(&error);
                self.out.push_unanswered();
            }
        }
        is_outdated
    }
}

/// Whether it may be the table's view that is to blame, not the key.
fn is_outdated_by(error: &ReadError) -> bool {
    !matches!(error, ReadError::Contended { .. } | ReadError::Fabric(FabricError::TooLong { .. }))
}
