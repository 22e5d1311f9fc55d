//! Inserts: leaves that split, nodes that grow, while others read what is being written, through
//! copies that become old.

use fpcache_workbench::Sizes;
use fpcache_workbench::bench::{Operation, Tally};
use fpcache_workbench::bloom::Bloom;
use fpcache_workbench::chime::{self, Chime};
use fpcache_workbench::cuckoo::Cuckoo;
use fpcache_workbench::dmtree::{self, DmTree};
use fpcache_workbench::range::Range;
use fpcache_workbench::rolex::{self, Rolex};
use fpcache_workbench::scatter;
use fpcache_workbench::segments::{self, Filter, Segmented};
use fpcache_workbench::sherman::{self, Sherman};
use fpcache_workbench::smart::Smart;

use super::{is_near, keys, run, run_over};

const NODES: u16 = 6;
const SMALL: Sizes = Sizes { key: 8, value: 8 };

/// Half of these keys as loaded, and inserts of the others with `between` operations after each: of
/// keys that were inserted lately or are about to be, of loaded keys, and of keys that there never
/// are.
pub fn mixed(all: &[u64], between: usize) -> (Vec<u64>, Vec<Operation>) {
    let loaded: Vec<u64> = all.iter().copied().step_by(2).collect();
    let mut new: Vec<u64> = all.iter().copied().skip(1).step_by(2).collect();
    // Not by the hash that places keys in leaves.
    new.sort_by_key(|key| scatter(!*key));
    let mut operations = Vec::new();
    for (i, key) in new.iter().enumerate() {
        operations.push(Operation::Insert { key: *key, value: i as u64 });
        for j in 0..between {
            let random = scatter((i * between + j) as u64) as usize;
            let lately = new[(i + 20).saturating_sub(random % 400).min(new.len() - 1)];
            operations.push(match random >> 32 & 7 {
                0..4 => Operation::Read { key: lately },
                4 => Operation::Insert { key: lately, value: (1 << 40) + (i * between + j) as u64 },
                5 => Operation::Update {
                    key: loaded[random % loaded.len()],
                    value: (1 << 41) + random as u64,
                    reads: false,
                },
                6 => Operation::Read { key: loaded[random % loaded.len()] },
                _ => Operation::Read { key: random as u64 | 1 },
            });
        }
    }
    (loaded, operations)
}

/// Inserts of every second key alone, in no order.
pub fn inserts(all: &[u64]) -> (Vec<u64>, Vec<Operation>) {
    mixed(all, 0)
}

#[test]
fn sherman_answers_rightly_while_pages_split() {
    let (loaded, operations) = mixed(&keys(20_000), 3);
    for (budget, leaf_slots) in [(64 << 20, 54), (16 << 10, 8), (0, 3)] {
        let options = sherman::Options { leaf_slots, ..sherman::Options::published(budget) };
        run(&loaded, &operations, |memory, keys| Sherman::new(memory, keys, SMALL, NODES, &options));
    }
}

/// Records of 3 memory nodes; few, so that many clients write to one node of a tree at a time.
fn crowded() -> (Vec<u64>, Vec<Operation>) {
    mixed(&keys(6_000), 20)
}

#[test]
fn sherman_loses_nothing_over_several_memory_nodes() {
    let (loaded, operations) = crowded();
    for leaf_slots in [54, 8] {
        let options = sherman::Options { leaf_slots, ..sherman::Options::published(64 << 20) };
        run_over(3, &loaded, &operations, |memory, keys| Sherman::new(memory, keys, SMALL, NODES, &options));
    }
}

#[test]
fn others_lose_nothing_over_several_memory_nodes() {
    let (loaded, operations) = crowded();
    let chime = chime::Options::published(64 << 20);
    run_over(3, &loaded, &operations, |memory, keys| Chime::new(memory, keys, SMALL, NODES, &chime));
    let dmtree = dmtree::Options::published(64 << 20);
    run_over(3, &loaded, &operations, |memory, keys| DmTree::new(memory, keys, SMALL, NODES, &dmtree));
    run_over(3, &loaded, &operations, |memory, keys| Smart::new(memory, keys, SMALL, NODES, 64 << 20));
}

#[test]
fn chime_answers_rightly_while_leaves_split() {
    let (loaded, operations) = mixed(&keys(30_000), 3);
    for (budget, fill) in [(64 << 20, 0.65), (64 << 10, 0.85), (0, 0.65)] {
        let options = chime::Options { fill, ..chime::Options::published(budget) };
        run(&loaded, &operations, |memory, keys| Chime::new(memory, keys, SMALL, NODES, &options));
    }
}

#[test]
fn dmtree_answers_rightly_while_leaves_split() {
    let (loaded, operations) = mixed(&keys(20_000), 3);
    for (budget, fill) in [(64 << 20, 0.69), (16 << 10, 1.0), (0, 0.69)] {
        let options = dmtree::Options { fill, ..dmtree::Options::published(budget) };
        run(&loaded, &operations, |memory, keys| DmTree::new(memory, keys, SMALL, NODES, &options));
    }
}

#[test]
fn rolex_answers_rightly_while_leaves_get_synonyms() {
    let (loaded, operations) = mixed(&keys(20_000), 3);
    for budget in [64 << 20, 3_000] {
        let options = rolex::Options::published(budget);
        run(&loaded, &operations, |memory, keys| {
            Rolex::new(memory, keys, SMALL, NODES, &options).expect("models fit")
        });
    }
}

#[test]
fn an_update_that_finds_no_key_yet_because_its_insert_is_under_way_is_right() {
    let (loaded, inserts) = inserts(&keys(8_000));
    let update = |insert: &Operation| Operation::Update { key: insert.key(), value: 1 << 42, reads: false };
    let operations: Vec<_> = inserts.iter().flat_map(|insert| [*insert, update(insert)]).collect();
    let budget = 64 << 20;
    let sherman = sherman::Options::published(budget);
    run(&loaded, &operations, |memory, keys| Sherman::new(memory, keys, SMALL, NODES, &sherman));
    let chime = chime::Options::published(budget);
    run(&loaded, &operations, |memory, keys| Chime::new(memory, keys, SMALL, NODES, &chime));
    let dmtree = dmtree::Options::published(budget);
    run(&loaded, &operations, |memory, keys| DmTree::new(memory, keys, SMALL, NODES, &dmtree));
    let rolex = rolex::Options::published(budget);
    run(&loaded, &operations, |memory, keys| {
        Rolex::new(memory, keys, SMALL, NODES, &rolex).expect("models fit")
    });
    run(&loaded, &operations, |memory, keys| Smart::new(memory, keys, SMALL, NODES, budget));
}

#[test]
fn smart_answers_rightly_while_nodes_grow() {
    // Keys in no pattern, and dense ones, whose nodes become full.
    for all in [keys(20_000), (1..=20_000).map(|i| i * 3).collect()] {
        let (loaded, operations) = mixed(&all, 3);
        for budget in [64 << 20, 16 << 10, 0] {
            run(&loaded, &operations, |memory, keys| Smart::new(memory, keys, SMALL, NODES, budget));
        }
    }
    // From nothing.
    let (_, operations) = mixed(&keys(5_000), 3);
    let operations: Vec<_> =
        operations.into_iter().filter(|o| !matches!(o, Operation::Update { .. })).collect();
    run(&[], &operations, |memory, keys| Smart::new(memory, keys, SMALL, NODES, 64 << 10));
}

/// Inserts of every second key, each updated 400 inserts later, between updates of loaded keys.
fn updated_after_inserts(all: &[u64]) -> (Vec<u64>, Vec<Operation>) {
    let (loaded, inserts) = inserts(all);
    let mut operations = Vec::new();
    for (i, insert) in inserts.iter().enumerate() {
        operations.push(*insert);
        let update = |key: u64, value: u64| Operation::Update { key, value, reads: false };
        if let Some(earlier) = i.checked_sub(400) {
            operations.push(update(inserts[earlier].key(), (1 << 40) + i as u64));
        }
        for j in 0..2 {
            let random = scatter((2 * i + j) as u64) as usize;
            operations.push(update(loaded[random % loaded.len()], (1 << 41) + (2 * i + j) as u64));
        }
    }
    (loaded, operations)
}

#[test]
fn updates_through_old_copies_leave_no_lock_of_another_keys_leaf_held() {
    let (loaded, operations) = updated_after_inserts(&keys(6_000));
    // Who finds a lock held for ever does not end, and the others do its share: that shows in the
    // locks that were tried.
    let tries = |tally: &Tally| tally.atomics as f64 / tally.operations as f64;
    let smart = run(&loaded, &operations, |memory, keys| Smart::new(memory, keys, SMALL, NODES, 64 << 20));
    assert!(tries(&smart.tally) < 1.5, "{:?}", smart.tally);
    let chime = chime::Options::published(64 << 20);
    let chime = run(&loaded, &operations, |memory, keys| Chime::new(memory, keys, SMALL, NODES, &chime));
    assert!(tries(&chime.tally) < 2.0, "{:?}", chime.tally);
    let sherman = sherman::Options::published(64 << 20);
    let sherman =
        run(&loaded, &operations, |memory, keys| Sherman::new(memory, keys, SMALL, NODES, &sherman));
    assert!(tries(&sherman.tally) < 2.0, "{:?}", sherman.tally);
    let dmtree = dmtree::Options::published(64 << 20);
    let dmtree = run(&loaded, &operations, |memory, keys| DmTree::new(memory, keys, SMALL, NODES, &dmtree));
    assert!(tries(&dmtree.tally) < 2.0, "{:?}", dmtree.tally);
    let rolex = rolex::Options::published(64 << 20);
    let rolex = run(&loaded, &operations, |memory, keys| {
        Rolex::new(memory, keys, SMALL, NODES, &rolex).expect("models fit")
    });
    assert!(tries(&rolex.tally) < 2.0, "{:?}", rolex.tally);
}

/// Segments with and without pages, hot entries, room.
fn ranges() -> impl Iterator<Item = segments::Options> {
    [(16, None, false, 0.85), (4, None, true, 1.0), (16, Some(1), false, 1.0), (32, Some(4), true, 0.85)]
        .into_iter()
        .map(|(epsilon, page, keeps_hot, fill)| {
            let published = segments::Options::published(128 << 10);
            segments::Options { epsilon, page, keeps_hot, fill, ..published }
        })
}

#[test]
fn range_reads_answer_rightly_while_segments_are_replaced() {
    for all in [keys(20_000), (1..=20_000).map(|i| i * 3).collect()] {
        let (loaded, operations) = mixed(&all, 3);
        for segments in ranges() {
            run(&loaded, &operations, |memory, keys| {
                Range::new(memory, keys, SMALL, NODES, &segments).expect("a directory")
            });
        }
    }
}

#[test]
fn filtered_range_reads_answer_rightly_while_segments_are_replaced() {
    for all in [keys(20_000), (1..=20_000).map(|i| i * 3).collect()] {
        let (loaded, operations) = mixed(&all, 3);
        for segments in ranges() {
            let with = |bits: f64, of: f64| segments::Options { bits_share: bits / of, ..segments };
            filtered::<Bloom>(&loaded, &operations, &with(8.0, Bloom::PUBLISHED_BITS));
            filtered::<Cuckoo>(&loaded, &operations, &with(8.0, Cuckoo::PUBLISHED_BITS));
        }
    }
}

fn filtered<F: Filter>(loaded: &[u64], operations: &[Operation], options: &segments::Options) {
    run(loaded, operations, |memory, keys| {
        Segmented::<F>::new(memory, keys, SMALL, NODES, options).expect("a filter")
    });
}

#[test]
fn range_reads_begin_with_nothing() {
    let (_, operations) = mixed(&keys(5_000), 3);
    let operations: Vec<_> =
        operations.into_iter().filter(|o| !matches!(o, Operation::Update { .. })).collect();
    filtered::<Bloom>(&[], &operations, &segments::Options::published(64 << 20));
    filtered::<Cuckoo>(&[], &operations, &segments::Options::published(64 << 20));
}

/// Round trips besides those that found a lock held.
fn trips(tally: &Tally) -> f64 {
    tally.per_operation(tally.round_trips - (tally.atomics - tally.operations))
}

#[test]
fn an_insert_of_sherman_is_three_round_trips_with_a_page_and_an_entry() {
    // Leaves with room for all: half full at first, three quarters in the end.
    let (loaded, operations) = inserts(&keys(20_000));
    let options = sherman::Options { fill: 0.35, ..sherman::Options::published(64 << 20) };
    let measured =
        run(&loaded, &operations, |memory, keys| Sherman::new(memory, keys, SMALL, NODES, &options));
    let tally = measured.tally;
    assert!(is_near(trips(&tally), 3.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.bytes_from), 1024.0 + 8.0), "{tally:?}");
    // An entry, the unlock, an atomic's operands.
    assert!(
        is_near(tally.per_operation(tally.bytes_to), 18.0 + 8.0 + 16.0 * tally.per_operation(tally.atomics)),
        "{tally:?}"
    );
}

#[test]
fn an_insert_of_chime_is_three_round_trips_with_a_neighbourhood() {
    let (loaded, operations) = inserts(&keys(20_000));
    let options = chime::Options { fill: 0.3, hot_share: 0.0, ..chime::Options::published(64 << 20) };
    let measured = run(&loaded, &operations, |memory, keys| Chime::new(memory, keys, SMALL, NODES, &options));
    let tally = measured.tally;
    assert!(is_near(trips(&tally), 3.0), "{tally:?}");
    // A neighbourhood, and the lock's word.
    assert!(is_near(tally.per_operation(tally.bytes_from), 164.5 + 8.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.reads), 1.0 + 7.0 / 64.0), "{tally:?}");
}

#[test]
fn an_insert_of_dmtree_is_four_round_trips() {
    let (loaded, operations) = inserts(&keys(20_000));
    let options = dmtree::Options { fill: 0.32, ..dmtree::Options::published(64 << 20) };
    let measured =
        run(&loaded, &operations, |memory, keys| DmTree::new(memory, keys, SMALL, NODES, &options));
    let tally = measured.tally;
    // Lock, fingerprints, record, fingerprints with the unlock; one in 255 fingerprints of the
    // others is the key's.
    let others = 17.0 / 255.0;
    assert!(is_near(tally.per_operation(tally.round_trips), 4.0 + others), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.bytes_from), 8.0 + 56.0 + others * 24.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.bytes_to), 16.0 + 24.0 + 56.0), "{tally:?}");
}

#[test]
fn an_insert_of_rolex_into_a_synonym_leaf_is_four_round_trips() {
    let (loaded, operations) = inserts(&keys(20_000));
    let options = rolex::Options::published(64 << 20);
    let measured = run(&loaded, &operations, |memory, keys| {
        Rolex::new(memory, keys, SMALL, NODES, &options).expect("models fit")
    });
    let tally = measured.tally;
    // Leaves; the lock with the leaf again; the synonym leaf; record and unlock. All leaves have
    // synonyms by then, and none of these is full but a few.
    assert!(is_near(tally.per_operation(tally.round_trips), 4.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.bytes_from), (3.0 + 1.0 + 1.0) * 256.0 + 8.0), "{tally:?}");
}

#[test]
fn an_insert_of_smart_is_a_node_a_leaf_and_a_slot() {
    // Nodes of 192 keys of 256 bytes have a slot for each byte; a fourth of the bytes come later.
    let all: Vec<u64> = (0..65_536u64).map(|i| i << 40).collect();
    let (loaded, new): (Vec<u64>, Vec<u64>) = all.iter().partition(|key| *key >> 40 & 3 != 0);
    let mut operations: Vec<_> =
        new.into_iter().map(|key| Operation::Insert { key, value: scatter(key) }).collect();
    operations.sort_by_key(|operation| scatter(operation.key()));
    let tally =
        run(&loaded, &operations, |memory, keys| Smart::new(memory, keys, SMALL, NODES, 64 << 20)).tally;
    // The node, which may have got the slot meanwhile; the leaf; the slot.
    assert!(is_near(tally.per_operation(tally.round_trips), 3.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.bytes_from), 2064.0 + 8.0), "{tally:?}");
    assert!(is_near(tally.per_operation(tally.bytes_to), 34.0 + 16.0), "{tally:?}");
}
