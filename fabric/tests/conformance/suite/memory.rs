//! Tests of endpoints' memory: loads after READs, landings, and counts.

use fpcache_fabric::{AreaId, Batch, Connection, Endpoint, FabricError, RemoteAddr};

use super::Fixture;
use super::verbs::{pattern, scratch};

/// What is loaded after a READ is at least as new as what the READ brought, however it was read; it
/// costs what the fixture says.
pub fn loads_after_reads_follow_them<F: Fixture>(fixture: &F) {
    const ROUNDS: u64 = 20_000;
    let (watched, data) = (RemoteAddr::region(0), RemoteAddr::region(4096));
    let mut one = [0u64; 1];
    std::thread::scope(|scope| {
        let region = fixture.region();
        scope.spawn(move || {
            for round in 1..=ROUNDS {
                // As memory is reused: the word first, then a fence, then what lies there.
                region.store_relaxed(0, round).unwrap();
                std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
                region.store_relaxed(4096, round).unwrap();
            }
        });
        let mut endpoint = fixture.connection().endpoint();
        let mut batch = Batch::new();
        let (mut seen, mut way) = (0, 0);
        while seen < ROUNDS {
            let read = match way % 4 {
                0 => {
                    batch.clear();
                    let landing = batch.read(data, 8);
                    endpoint.run(&mut batch).unwrap();
                    batch.u64(landing)
                }
                1 => {
                    endpoint.read_words(data, &mut one).unwrap();
                    one[0]
                }
                2 => {
                    batch.clear();
                    let landing = batch.read(data, 8);
                    batch.read(RemoteAddr::region(8192), 64);
                    endpoint.run(&mut batch).unwrap();
                    batch.u64(landing)
                }
                _ => {
                    let mut posted = Batch::new();
                    let landing = posted.read(data, 8);
                    endpoint.post(posted).unwrap();
                    let completion = std::iter::repeat_with(|| endpoint.poll()).flatten().next().unwrap();
                    completion.result.unwrap();
                    completion.batch.u64(landing)
                }
            };
            let round_trips = endpoint.meter().snapshot().round_trips;
            let loaded = endpoint.load_after_reads(watched).unwrap();
            assert!(loaded >= read, "{loaded} after a READ of {read}, way {}", way % 4);
            assert!(read >= seen, "{read} was read after {seen}");
            let cost = endpoint.meter().snapshot().round_trips - round_trips;
            assert_eq!(cost, F::LOAD_AFTER_READS, "round trips");
            (seen, way) = (read, way + 1);
        }
    });

    let mut endpoint = fixture.connection().endpoint();
    let mut refused = |at| endpoint.load_after_reads(at).unwrap_err();
    assert!(matches!(refused(RemoteAddr::region(4)), FabricError::Misaligned { .. }));
    let beyond = RemoteAddr::region(fixture.region().len() as u64);
    assert!(matches!(refused(beyond), FabricError::OutOfBounds { .. }));
    assert!(matches!(refused(RemoteAddr { area: AreaId(999), offset: 0 }), FabricError::NoSuchArea { .. }));
}

/// What landed stays as it is until the batch is cleared, whatever the region does, and buffers are
/// reused.
pub fn landings_stay_put<F: Fixture>(fixture: &F) {
    let mut endpoint = fixture.connection().endpoint();
    let mut batch = Batch::new();
    fixture.region().write_bytes(0, &pattern(520)).unwrap();
    let landing = batch.read(RemoteAddr::region(0), 520);
    endpoint.run(&mut batch).unwrap();
    let place = batch.bytes(landing).as_ptr();
    assert_eq!(place as usize % 8, 0);
    fixture.region().write_bytes(0, &[9; 520]).unwrap();
    assert_eq!(batch.bytes(landing), pattern(520));
    let mut other = Batch::new();
    let theirs = other.read(RemoteAddr::region(0), 520);
    endpoint.run(&mut other).unwrap();
    assert_eq!(other.bytes(theirs), [9; 520]);
    assert_eq!(batch.bytes(landing), pattern(520));
    batch.clear();
    let again = batch.read(RemoteAddr::region(0), 520);
    assert_eq!(batch.bytes(again).as_ptr(), place, "a cleared batch reuses its buffer");
}

/// One doorbell is one round trip; requests and payload bytes are counted as documented.
pub fn the_meter_counts<F: Fixture>(fixture: &F) {
    let at = scratch(fixture);
    let mut endpoint = fixture.connection().endpoint();
    let before = endpoint.meter().snapshot();
    let mut batch = Batch::new();
    batch.read(RemoteAddr::region(0), 520);
    batch.read(RemoteAddr::region(1024), 24);
    batch.write(at(0), &[1; 10]);
    batch.compare_swap(at(64), 0, 1);
    batch.compare_swap(at(64), 1, 2);
    endpoint.run(&mut batch).unwrap();
    let cost = endpoint.meter().snapshot() - before;
    assert_eq!((cost.round_trips, cost.requests(), cost.reads, cost.writes), (1, 5, 2, 1));
    assert_eq!((cost.bytes_from, cost.bytes_to), (520 + 24 + 8 + 8, 10 + 16 + 16));
    batch.clear();
    endpoint.run(&mut batch).unwrap();
    assert_eq!((endpoint.meter().snapshot() - before).round_trips, 2);
    let other = fixture.connection().endpoint();
    assert_eq!(other.meter().snapshot().round_trips, 0, "meters are per endpoint");
}
