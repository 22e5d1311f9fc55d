//! One-sided verbs.

use std::sync::Barrier;
use std::time::Duration;

use fpcache_fabric::{
    Access, AreaId, Batch, Connection, Deadline, Endpoint, ErrorKind, FabricError, REGION, RemoteAddr,
    Request, verbs::MAX_REQUEST_BYTES,
};

use super::Fixture;

pub(super) fn scratch<F: Fixture>(fixture: &F) -> impl Fn(u64) -> RemoteAddr + use<F> {
    let (area, start) = fixture.scratch();
    move |offset| RemoteAddr { area, offset: start + offset }
}

pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256 + 1) as u8).collect()
}

/// READs and WRITEs of many lengths at every alignment, and nothing beside them changes.
pub fn reads_and_writes_move_bytes<F: Fixture>(fixture: &F) {
    let at = scratch(fixture);
    let mut endpoint = fixture.connection().endpoint();
    let mut batch = Batch::new();
    fixture.region().write_bytes(0, &pattern(8192)).unwrap();
    for len in [0, 1, 7, 8, 9, 16, 24, 63, 64, 65, 127, 128, 129, 520, 4000] {
        for skew in 0..9u64 {
            batch.clear();
            let from_region = batch.read(RemoteAddr::region(100 + skew), len);
            endpoint.run(&mut batch).unwrap();
            assert_eq!(batch.bytes(from_region), &pattern(8192)[100 + skew as usize..][..len]);
            let padding = batch.words(from_region).len() * 8 - len;
            if let Some(last) = batch.words(from_region).last().filter(|_| padding > 0) {
                assert_eq!(last >> (64 - 8 * padding), 0, "padding is zero");
            }

            batch.clear();
            batch.write(at(64), &[0xEE; 4200]);
            batch.write(at(128 + skew), &pattern(len));
            endpoint.run(&mut batch).unwrap();
            batch.clear();
            let back = batch.read(at(64), 4200);
            endpoint.run(&mut batch).unwrap();
            let (before, rest) = batch.bytes(back).split_at(64 + skew as usize);
            let (body, after) = rest.split_at(len);
            assert_eq!(body, pattern(len), "len {len} skew {skew}");
            assert!(before.iter().chain(after).all(|&byte| byte == 0xEE), "neighbours changed");
        }
    }
}

/// READs of words past a batch bring, cost and refuse what those of a batch do.
pub fn words_are_read_as_by_a_batch<F: Fixture>(fixture: &F) {
    let connection = fixture.connection();
    let (mut by_words, mut by_batch) = (connection.endpoint(), connection.endpoint());
    fixture.region().write_bytes(0, &pattern(8192)).unwrap();
    let (mut one, mut other) = ([0u64; 64], [0u64; 64]);
    for (first, second) in [(1, 1), (3, 64), (39, 5), (0, 2)] {
        let (from, to) = (RemoteAddr::region(104), RemoteAddr::region(4000));
        let (one, other) = (&mut one[..first], &mut other[..second]);
        by_words.read_words(from, one).unwrap();
        by_words.read_words(to, other).unwrap();
        let mut batch = Batch::new();
        for (at, out) in [(from, &*one), (to, &*other)] {
            batch.clear();
            let landing = batch.read(at, size_of_val(out));
            by_batch.run(&mut batch).unwrap();
            assert_eq!(batch.words(landing), out);
        }

        let mut records = vec![0; second];
        for stride in [1, second] {
            by_words.read_records(to, &mut records, stride).unwrap();
            assert_eq!(records, other, "records at rest");
            batch.clear();
            let landing = batch.read_records(to, size_of_val(other), stride * 8);
            by_batch.run(&mut batch).unwrap();
            assert_eq!(batch.words(landing), other, "records at rest");
        }
        assert_eq!(by_words.meter().snapshot(), by_batch.meter().snapshot());
    }

    let beyond = RemoteAddr::region(fixture.region().len() as u64 - 8);
    let refused = by_words.read_words(beyond, &mut [0; 2]);
    assert!(matches!(refused, Err(FabricError::OutOfBounds { .. })), "{refused:?}");
}

/// Empty batches, mixed ones, and a thousand requests at once.
pub fn batches_of_every_shape<F: Fixture>(fixture: &F) {
    let at = scratch(fixture);
    let mut endpoint = fixture.connection().endpoint();
    let mut batch = Batch::new();
    assert!(batch.is_empty());
    endpoint.run(&mut batch).unwrap();

    for word in 0..1000u64 {
        fixture.region().store_release(word * 512, word ^ 0xABCD).unwrap();
    }
    let landings: Vec<_> = (0..1000u64).map(|word| batch.read(RemoteAddr::region(word * 512), 8)).collect();
    assert_eq!(batch.len(), 1000);
    endpoint.run(&mut batch).unwrap();
    for (word, landing) in (0u64..).zip(&landings) {
        assert_eq!(batch.u64(*landing), word ^ 0xABCD);
    }

    batch.clear();
    batch.write(at(0), &5u64.to_le_bytes());
    let first = batch.compare_swap(at(0), 5, 7);
    let swapped = batch.compare_swap(at(0), 7, 100);
    let refused = batch.compare_swap(at(0), 7, 200);
    let region = batch.read(RemoteAddr::region(512), 8);
    let seen: Vec<_> = batch.requests().collect();
    assert_eq!(seen[1], Request::CompareSwap { at: at(0), expected: 5, new: 7 });
    assert_eq!(seen[3], Request::CompareSwap { at: at(0), expected: 7, new: 200 });
    endpoint.run(&mut batch).unwrap();
    assert_eq!([first, swapped, refused, region].map(|l| batch.u64(l)), [5, 7, 100, 1 ^ 0xABCD]);
    // A batch may be run again as it is.
    endpoint.run(&mut batch).unwrap();
    assert_eq!([first, swapped, refused].map(|l| batch.u64(l)), [5, 7, 100]);
}

/// WRITEs and atomics of a batch take effect in posting order, also as another thread sees them.
pub fn changes_take_posting_order<F: Fixture>(fixture: &F) {
    let at = scratch(fixture);
    let rounds = 2000u64;
    std::thread::scope(|scope| {
        let mut writer = fixture.connection().endpoint();
        let mut reader = fixture.connection().endpoint();
        scope.spawn({
            let at = &at;
            move || {
                let mut batch = Batch::new();
                for round in 1..=rounds {
                    batch.clear();
                    // The body first, in two places; the word that announces it last.
                    batch.write(at(1024), &round.to_le_bytes());
                    batch.compare_swap(at(2048), round - 1, round);
                    batch.write(at(0), &round.to_le_bytes());
                    writer.run(&mut batch).unwrap();
                }
            }
        });
        let mut batch = Batch::new();
        let mut announced = 0;
        while announced < rounds {
            batch.clear();
            let word = batch.read(at(0), 8);
            reader.run(&mut batch).unwrap();
            announced = batch.u64(word);
            batch.clear();
            let (body, count) = (batch.read(at(1024), 8), batch.read(at(2048), 8));
            reader.run(&mut batch).unwrap();
            assert!(batch.u64(body) >= announced, "announced {announced} before its body");
            assert!(batch.u64(count) >= announced, "announced {announced} before its count");
        }
    });
}

/// Bounds, alignment, rights, unknown areas and sizes: the right error, and nothing later in the
/// batch has run.
pub fn bad_requests_are_refused<F: Fixture>(fixture: &F) {
    let at = scratch(fixture);
    let mut endpoint = fixture.connection().endpoint();
    let len = endpoint.area(REGION).unwrap().len;
    assert_eq!(len, fixture.region().len() as u64);
    assert_eq!(endpoint.area(REGION).unwrap().access, Access::ReadOnly);
    assert!(endpoint.area(AreaId(999)).is_none());
    let mut failing = |fill: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::new();
        batch.write(at(0), &1u64.to_le_bytes());
        fill(&mut batch);
        batch.write(at(8), &1u64.to_le_bytes());
        let error = endpoint.run(&mut batch).unwrap_err();
        batch.clear();
        let (ran, not_run) = (batch.read(at(0), 8), batch.read(at(8), 8));
        endpoint.run(&mut batch).unwrap();
        let ran = (batch.u64(ran), batch.u64(not_run));
        batch.clear();
        batch.write(at(0), &[0; 16]);
        endpoint.run(&mut batch).unwrap();
        (error, ran)
    };
    for (offset, size) in
        [(len - 7, 8), (len, 1), (len + 1, 0), (u64::MAX, 1), (u64::MAX - 7, 16), (0, len + 1)]
    {
        let (error, ran) = failing(&|batch| {
            batch.read(RemoteAddr::region(offset), size as usize);
        });
        assert_eq!(ran, (1, 0));
        assert_eq!(error.kind(), ErrorKind::Invalid);
        match error {
            FabricError::OutOfBounds { area: REGION, offset: o, len: l, area_len } => {
                assert_eq!((o, l, area_len), (offset, size, len));
            }
            other => panic!("{other}"),
        }
    }
    for skew in [1, 4, 7] {
        let (error, ran) = failing(&|batch| {
            batch.compare_swap(at(16 + skew), 0, 1);
        });
        assert!(matches!(error, FabricError::Misaligned { .. }), "{error}");
        assert_eq!(ran, (1, 0));
    }
    let changes: [&dyn Fn(&mut Batch); 2] = [&|batch| batch.write(RemoteAddr::region(0), &[1]), &|batch| {
        batch.compare_swap(RemoteAddr::region(0), 0, 1);
    }];
    for change in changes {
        let (error, ran) = failing(change);
        assert!(matches!(error, FabricError::AccessDenied { area: REGION }), "{error}");
        assert_eq!((error.kind(), error.is_retryable(), ran), (ErrorKind::Denied, false, (1, 0)));
    }
    assert_eq!(fixture.region().load_acquire(0).unwrap(), 0, "the region was changed");
    let (error, _) = failing(&|batch| {
        batch.read(RemoteAddr { area: AreaId(999), offset: 0 }, 8);
    });
    assert!(matches!(error, FabricError::NoSuchArea { area: AreaId(999) }), "{error}");
    too_long_requests_are_refused(&mut endpoint);
}

fn too_long_requests_are_refused(endpoint: &mut impl Endpoint) {
    let mut batch = Batch::new();
    batch.read(RemoteAddr::region(0), MAX_REQUEST_BYTES + 1);
    assert!(matches!(endpoint.run(&mut batch).unwrap_err(), FabricError::TooLong { .. }));
    batch.clear();
    endpoint.run(&mut batch).unwrap();
}

/// Of several threads' compare-and-swaps exactly one wins.
pub fn atomics_agree_under_contention<F: Fixture>(fixture: &F) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 500;
    let at = scratch(fixture);
    let barrier = Barrier::new(THREADS as usize);
    let wins: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (at, barrier) = (&at, &barrier);
                let mut endpoint = fixture.connection().endpoint();
                scope.spawn(move || {
                    barrier.wait();
                    let (mut batch, mut wins) = (Batch::new(), 0);
                    for round in 0..ROUNDS {
                        batch.clear();
                        let swap = batch.compare_swap(at(64), round, round + 1);
                        endpoint.run(&mut batch).unwrap();
                        wins += u64::from(batch.u64(swap) == round);
                        // All threads try every round.
                        barrier.wait();
                    }
                    wins
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(wins, ROUNDS);
    let mut endpoint = fixture.connection().endpoint();
    let mut batch = Batch::new();
    let rounds = batch.read(at(64), 8);
    endpoint.run(&mut batch).unwrap();
    assert_eq!(batch.u64(rounds), ROUNDS);
}

/// Posted batches come back in order, each with its own bytes, and before what is run later.
pub fn many_in_flight<F: Fixture>(fixture: &F) {
    let at = scratch(fixture);
    let mut endpoint = fixture.connection().endpoint();
    assert!(endpoint.poll().is_none());
    for word in 0..64u64 {
        fixture.region().store_release(word * 4096, word).unwrap();
    }
    let mut expected = Vec::new();
    for word in 0..64u64 {
        let mut batch = Batch::new();
        let landing = if word % 3 == 0 {
            batch.compare_swap(at(0), word / 3, word / 3 + 1)
        } else {
            batch.read(RemoteAddr::region(word * 4096), 8)
        };
        expected.push((endpoint.post(batch).unwrap(), landing, if word % 3 == 0 { word / 3 } else { word }));
    }
    let mut batch = Batch::new();
    let counter = batch.read(at(0), 8);
    endpoint.run(&mut batch).unwrap();
    assert_eq!(batch.u64(counter), 22, "posted changes come before a later batch");
    for (ticket, landing, value) in expected {
        let patience = Deadline::after(Duration::from_secs(60));
        let completion = loop {
            match endpoint.poll() {
                Some(completion) => break completion,
                None => assert!(!patience.has_passed(std::time::Instant::now()), "no completion"),
            }
        };
        assert_eq!(completion.ticket, ticket);
        completion.result.unwrap();
        assert_eq!(completion.batch.u64(landing), value);
    }
    assert!(endpoint.poll().is_none());

    let mut bad = Batch::new();
    bad.read(RemoteAddr::region(u64::MAX), 1);
    endpoint.post(bad).unwrap();
    let completion = std::iter::repeat_with(|| endpoint.poll()).flatten().next().unwrap();
    assert!(matches!(completion.result, Err(FabricError::OutOfBounds { .. })));

    let mut rejected = None;
    for _ in 0..1_000_000 {
        let mut batch = Batch::new();
        batch.read(RemoteAddr::region(0), 8);
        if let Err(refusal) = endpoint.post(batch) {
            rejected = Some(refusal);
            break;
        }
    }
    let rejected = rejected.expect("the queue has an end");
    assert_eq!(rejected.batch.len(), 1);
    assert_eq!(rejected.error.kind(), ErrorKind::Retry);
    // Dropping the endpoint with batches in flight is allowed.
}
