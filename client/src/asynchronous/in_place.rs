//! Reads of groups that tasks make themselves, where memory is mapped.

use fpcache::key_space::BuildKeys;
use fpcache::read::{
    LookupScratch, NearestScratch, ReadError, Side, Wanted, drive_while, find_nearest, look_up_all,
    look_up_more,
};
use fpcache::table::Table;
use fpcache::table_view::TableView;
use fpcache_fabric::Endpoint;

use super::group::{Group, Kind, MOST_KEPT_BYTES, records};
use crate::client::Record;
use crate::session::Buffers;

/// Round trips of a search or a scan that a task makes in place. Few take one more than a part has
/// records for; over long runs of segments that deletes have emptied there is no end to them, and
/// others are to have their turns.
const TRIPS_IN_PLACE: u32 = 256;

/// Bytes of the answers to a group after which a task leaves it to a thread, and keys of values of
/// any length between two looks at that.
const MOST_IN_PLACE: (usize, usize) = (4 << 20, 16);

impl<K: BuildKeys> Group<K> {
    /// Reads and answers over memory that can be looked at in place. An error, which has answered
    /// nothing, also where that takes longer than a task may.
    pub(super) fn read_in_place<E: Endpoint>(
        &mut self,
        buffers: &mut Buffers<K, E>,
        table: &Table<K>,
    ) -> Result<(), ReadError> {
        let Buffers { endpoint, lookup, scan, nearest, .. } = buffers;
        match self.kind {
            Kind::Value | Kind::Presence => {
                let ended = look_up_in_place(endpoint, table, lookup, (self.keys(), self.wanted()));
                if ended.is_ok() {
                    self.looked_up(&table.view().geometry().shape, lookup.outcomes());
                }
                lookup.keep_at_most(MOST_KEPT_BYTES);
                ended?;
            }
            Kind::Nearest(side) => {
                let found = find_in_place(endpoint, table.view(), nearest, (side, self.keys()));
                nearest.clear();
                self.searched_by(found?.into_iter());
            }
            Kind::Scan => {
                let Some(section) = self.section() else { return Ok(()) };
                let mut operation = section.scan(table, scan, (section.limit, Wanted::Value));
                drive_while(endpoint, &mut operation, |round_trips| round_trips < TRIPS_IN_PLACE)?;
                let part = section.part(&operation, Ok(()))?;
                // What failed is let go of by who called.
                scan.clear();
                self.scanned(part);
            }
        }
        Ok(())
    }
}

/// Finds the records nearest to keys, unless their values are too long for a task to copy them.
fn find_in_place<'k, K: BuildKeys, E: Endpoint>(
    endpoint: &mut E,
    view: &TableView<K>,
    scratch: &mut NearestScratch<K>,
    (side, keys): (Side, impl Iterator<Item = &'k K::Key>),
) -> Result<Vec<Option<Record<K>>>, ReadError> {
    let may_be_long = view.geometry().shape.value_bytes.is_none();
    let at_once = if may_be_long { MOST_IN_PLACE.1 } else { usize::MAX };
    let (mut keys, mut found, mut bytes) = (keys.peekable(), Vec::new(), 0);
    let mut left = TRIPS_IN_PLACE;
    while keys.peek().is_some() {
        if may_be_long && bytes > MOST_IN_PLACE.0 {
            return Err(ReadError::Unfinished { round_trips: 0 });
        }
        // Those of all keys together.
        let goes_on = |_| {
            left = left.saturating_sub(1);
            left > 0
        };
        find_nearest(endpoint, view, scratch, (side, keys.by_ref().take(at_once)), goes_on)?;
        bytes += scratch.answers().filter_map(|(found, _)| Some(found?.value.len())).sum::<usize>();
        found.extend(records(scratch));
    }
    Ok(found)
}

/// Looks up keys, unless their values are too long for a task to copy them.
fn look_up_in_place<'k, K: BuildKeys, E: Endpoint>(
    endpoint: &mut E,
    table: &Table<K>,
    scratch: &mut LookupScratch<K>,
    (keys, wanted): (impl Iterator<Item = &'k K::Key>, Wanted),
) -> Result<(), ReadError> {
    let may_be_long = wanted == Wanted::Value && table.view().geometry().shape.value_bytes.is_none();
    if !may_be_long {
        return look_up_all(endpoint, table, scratch, keys, wanted);
    }
    scratch.clear_outcomes();
    let mut keys = keys.peekable();
    while keys.peek().is_some() {
        look_up_more(endpoint, table, scratch, keys.by_ref().take(MOST_IN_PLACE.1), wanted)?;
        if scratch.kept_bytes() > MOST_IN_PLACE.0 && keys.peek().is_some() {
            return Err(ReadError::Unfinished { round_trips: 0 });
        }
    }
    Ok(())
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use fpcache::key_space::U64Keys;
    use fpcache::layout::{RecordShape, TableParameters};

    use super::*;
    use crate::asynchronous::AsyncClient;
    use crate::client::{Client, Transport};
    use crate::core::Core;
    use crate::mapped::MappedNode;
    use crate::one_node::SharedCore;

    /// A client of four records with values of 2 MiB.
    fn with_long_values() -> (Client, Arc<Core<U64Keys, MappedNode>>) {
        let client = Client::embedded(64 << 20).expect("memory");
        let shape = RecordShape { key_bytes: Some(8), value_bytes: None, room: 64 };
        client.create(TableParameters { shape, ..TableParameters::default() }).expect("an empty table");
        (0..4).for_each(|key| client.put(key, &vec![7; 2 << 20]).expect("room"));
        let Transport::One(SharedCore::Mapped(core)) = client.transport.clone() else {
            panic!("it is mapped")
        };
        (client, core)
    }

    /// The task's thread kept the values of the last group.
    #[tokio::test]
    async fn reads_in_place_keep_little_of_long_values() {
        let (client, core) = with_long_values();
        let values = AsyncClient::of(client).multi_get(&[0, 1, 2, 3]).await.expect("answers");
        assert!(values.iter().all(|value| value.as_ref().is_some_and(|value| value.len() == 2 << 20)));
        let kept = core.here(|held| held.as_ref().map(|context| context.buffers.lookup.kept_bytes()));
        assert!(kept.is_some_and(|kept| kept <= MOST_KEPT_BYTES), "{kept:?}");
    }

    /// The same of neighbours.
    #[tokio::test]
    async fn searches_in_place_keep_little_of_long_values() {
        let (client, core) = with_long_values();
        let client = AsyncClient::of(client);
        for found in [client.multi_floor(&[0, 1, 2, 9]).await, client.multi_ceiling(&[0, 1, 2, 3]).await] {
            let found = found.expect("answers");
            assert!(found.iter().flatten().map(|(key, _)| *key).eq(0..4), "of {} keys", found.len());
            assert!(found.iter().flatten().all(|(_, value)| value.len() == 2 << 20));
            let kept = core.here(|held| held.as_ref().map(|context| context.buffers.nearest.kept_bytes()));
            assert!(kept.is_some_and(|kept| kept <= 3 * MOST_KEPT_BYTES), "{kept:?}");
        }
    }

    /// The task copied them all, however many gigabytes these were.
    #[tokio::test]
    async fn many_long_neighbours_are_left_to_a_thread() {
        let (client, _) = with_long_values();
        let client = AsyncClient::of(client);
        client.first().await.expect("the table is fetched");
        let keys: Vec<u64> = (0..2 * MOST_IN_PLACE.1 as u64).collect();
        let mut call = pin!(client.multi_floor(&keys));
        let at_once = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(at_once.is_pending(), "it was answered in place");
        let found = call.await.expect("answers");
        assert!(found.iter().flatten().map(|(key, _)| *key).eq(keys.iter().map(|key| *key.min(&3))));
    }
}
