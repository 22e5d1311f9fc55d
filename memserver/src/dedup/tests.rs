use super::*;
use fpcache::message::{MAX_OPERATIONS, WriteStatus};

const DONE: WriteReply = WriteReply { status: WriteStatus::Done, token: None };

/// No client has a request in hand.
fn nobody(_: usize, _: u64) -> bool {
    false
}

#[test]
fn a_request_is_new_repeated_outdated_or_forgotten() {
    assert_eq!(DedupSessions::default().look_up(7, 1, true), DedupVerdict::New, "nobody was ever forgotten");
    let mut clients = DedupSessions::inherited();
    assert_eq!(clients.look_up(7, 1, false), DedupVerdict::New);
    assert_eq!(clients.look_up(7, 1, true), DedupVerdict::Forgotten);
    let session = clients.begin(7, 2, 1, nobody).expect("a place");
    clients.done(&session, 0, DONE);
    assert_eq!(clients.look_up(7, 2, true), DedupVerdict::Repeated(session, 1));
    assert_eq!(clients.replies(7), [DONE]);
    assert_eq!(clients.look_up(7, 1, true), DedupVerdict::Outdated);
    assert_eq!(
        clients.look_up(7, 3, true),
        DedupVerdict::New,
        "its predecessor is known, so this one never came"
    );
}

#[test]
fn the_client_silent_longest_is_forgotten_and_its_place_taken() {
    let mut clients = DedupSessions::default();
    for client in 0..MOST_CLIENTS as u64 {
        let place = clients.begin(client, 1, 1, nobody).map(|session| session.place);
        assert_eq!(place, Some(client as usize));
    }
    clients.begin(0, 2, 1, nobody);
    assert_eq!(clients.begin(5001, 1, 1, |_, _| true), None, "all have requests in hand");
    let place = clients.begin(5000, 1, 1, |_, client| client == 1).map(|session| session.place);
    assert_eq!(place, Some(2), "the first has a request in hand");
    assert_eq!(clients.begin(5002, 1, 1, nobody).map(|session| session.place), Some(1));
    assert_eq!(clients.look_up(1, 1, true), DedupVerdict::Forgotten);
    assert_eq!(
        clients.look_up(0, 2, true),
        DedupVerdict::Repeated(DedupSession { client: 0, request: 2, place: 0 }, 0)
    );
}

#[test]
fn what_was_noted_is_known_again() {
    let mut clients = DedupSessions::default();
    clients.restore(0, Some((8, 3, vec![])));
    clients.restore(1, None);
    clients.restore(2, Some((9, 4, vec![DONE])));
    let session = DedupSession { client: 9, request: 4, place: 2 };
    assert_eq!(clients.look_up(9, 4, true), DedupVerdict::Repeated(session, 1));
    clients.evict_all();
    assert_eq!(clients.look_up(9, 4, true), DedupVerdict::Evicted(session));
    clients.restore_replies(&session, vec![DONE]);
    assert_eq!(
        (clients.look_up(9, 4, true), clients.replies(9)),
        (DedupVerdict::Repeated(session, 1), &[DONE][..])
    );
    for place in 3..MOST_CLIENTS {
        assert_eq!(
            clients.begin(1000 + place as u64, 1, 1, nobody).map(|session| session.place),
            Some(place)
        );
    }
    let place = clients.begin(10, 1, 1, nobody).map(|session| session.place);
    assert_eq!(place, Some(1), "nobody's place is taken first");
}

/// What comes again is refused or known, and never new: of whatever clients, in whatever order they
/// are let go.
#[test]
fn a_request_whose_replies_were_evicted_is_never_new() {
    let kept = KeptReplies::default();
    let mut tables: Vec<DedupSessions> = (0..3).map(|_| DedupSessions::default()).collect();
    tables.iter_mut().for_each(|table| table.keep_within(&kept));
    let (mut random, mut last) = (7u64, HashMap::new());
    for request in 1..40_000u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (table, client) = ((random >> 20) as usize % 3, (random >> 33) % 700);
        let operations = if random >> 62 == 0 { MAX_OPERATIONS } else { 1 + (random >> 50) as usize % 20 };
        let session = tables[table].begin(client, request, operations, nobody).expect("a place");
        (0..operations).for_each(|operation| tables[table].done(&session, operation, DONE));
        last.insert((table, client), (request, operations));
        if kept.are_too_many() {
            while !kept.are_few_enough() {
                let oldest = tables.iter_mut().filter_map(|table| {
                    let oldest = table.oldest_kept()?;
                    Some((oldest, table))
                });
                let (_, table) = oldest.min_by_key(|(oldest, _)| *oldest).expect("some are kept");
                assert!(table.evict_oldest(nobody));
            }
        }
        let bytes = tables.iter().flat_map(|table| &table.last).map(|last| last.replies.capacity());
        if request % 500 == 0 {
            assert_eq!(
                kept.all.bytes.load(Ordering::Relaxed),
                bytes.sum::<usize>() * size_of::<WriteReply>()
            );
        }
    }
    let mut evicted = 0;
    for ((table, client), (request, operations)) in last {
        match tables[table].look_up(client, request, true) {
            DedupVerdict::Repeated(_, done) => assert_eq!(done, operations),
            DedupVerdict::Evicted(_) => evicted += 1,
            other => panic!("{other:?}"),
        }
        assert_eq!(tables[table].look_up(client, request - 1, true), DedupVerdict::Outdated);
    }
    assert!(evicted > 100, "{evicted}");
    drop(tables);
    assert_eq!(kept.all.bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn requests_in_hand_keep_their_replies_and_the_memory_of_long_ones_is_not_kept_for_short_ones() {
    let mut clients = DedupSessions::default();
    for client in 0..3 {
        let session = clients.begin(client, 1, MAX_OPERATIONS, nobody).expect("a place");
        clients.done(&session, 0, DONE);
    }
    let in_hand = |_, client| client != 1;
    assert!(clients.evict_oldest(in_hand) && !clients.evict_oldest(in_hand));
    assert!(matches!(clients.look_up(1, 1, true), DedupVerdict::Evicted(_)));
    assert!(matches!(clients.look_up(0, 1, true), DedupVerdict::Repeated(_, 1)));
    assert!(clients.evict_oldest(nobody));
    assert!(
        matches!(clients.look_up(0, 1, true), DedupVerdict::Evicted(_)),
        "it was passed over, not forgotten"
    );
    clients.begin(2, 2, 1, nobody);
    assert_eq!(clients.last[2].replies.capacity(), 1);
}
