//! Readers beside a memory node that changes the directory at any moment.

use super::*;
use crate::impatient::Impatient;
use fpcache::table_view::Opening;

/// What a memory node does between two READs of a reader.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    Rebuild(u8),
    Cut(u8),
    Merge(u8),
    Put(u8),
    Checkpoint,
    Reuse,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::Nothing),
        1 => any::<u8>().prop_map(Act::Rebuild),
        2 => any::<u8>().prop_map(Act::Cut),
        2 => any::<u8>().prop_map(Act::Merge),
        4 => any::<u8>().prop_map(Act::Put),
        1 => Just(Act::Checkpoint),
        1 => Just(Act::Reuse),
    ]
}

impl<K: Numbered> Node<K> {
    fn do_it(&mut self, act: Act, number: u64) {
        if self.head + 12 > self.checkpoint_sequence() + self.log_records {
            self.checkpoint();
        }
        let firsts: Vec<u64> = self.segments.keys().copied().collect();
        let at = |n: u8| firsts[usize::from(n) % firsts.len()];
        // After the last key there may be of a segment.
        let last = |node: &Self, start| node.end_after(start).unwrap_or(51).min(51);
        match act {
            Act::Nothing => {}
            Act::Rebuild(n) => _ = self.replace(at(n), self.end_after(at(n)), &[at(n)]),
            Act::Cut(n) if last(self, at(n)) > at(n) + 2 => {
                let (start, end) = (at(n), self.end_after(at(n)));
                self.replace(
                    start,
                    end,
                    &[start, start + 1 + u64::from(n) % (last(self, start) - 1 - start)],
                );
            }
            Act::Cut(_) => {}
            Act::Merge(n) => {
                let start = at(n);
                // A key for every slot.
                if let Some(next) = self.end_after(start)
                    && last(self, next) - 1 - start < u64::from(CAP)
                {
                    self.replace(start, self.end_after(next), &[start]);
                }
            }
            // A change of a record that the node makes by replacing its segment.
            Act::Put(n) => {
                let key = u64::from(n) % 50;
                match n % 3 {
                    0 => _ = self.records.remove(&key),
                    _ => _ = self.records.insert(key, 1000 * number + key),
                }
                let start = *self.segments.range(..=key).next_back().unwrap().0;
                self.replace(start, self.end_after(start), &[start]);
            }
            Act::Checkpoint => self.checkpoint(),
            Act::Reuse => self.reuse(self.checkpoint_sequence()),
        }
    }
}

/// Each segment's memory is left as it was frozen, so that every answer is right or stale; and
/// keeping up is possible.
fn assert_answers_were_true_meanwhile<K: Numbered>(
    acts: Vec<Act>,
    keys: Vec<u64>,
    (pages, in_place, plan, batches): (bool, bool, Plan, usize),
) -> Result<(), TestCaseError> {
    let node = RefCell::new(node_with_log::<K>(16));
    let mut acts = acts.into_iter();
    let number = RefCell::new(0);
    // What every key was at some time since the lookup began.
    let seen: RefCell<Vec<Vec<Option<u64>>>> = RefCell::new(vec![Vec::new(); 50]);
    let note = |all: &mut Vec<Vec<Option<u64>>>| {
        (0..50).for_each(|key| all[key as usize].push(node.borrow().records.get(&key).copied()));
    };
    let inner = node.borrow().endpoint();
    let before = Box::new(|| {
        *number.borrow_mut() += 1;
        node.borrow_mut().do_it(acts.next().unwrap_or(Act::Nothing), *number.borrow());
        note(&mut seen.borrow_mut());
    });
    let mut endpoint = Interrupted { inner, before, in_place };
    // Enough for the top level of a larger directory.
    let bytes = if pages { least_bytes(&node.borrow()) + 27 * 100 } else { u64::MAX };
    let open = |endpoint: &mut Interrupted<'_>| {
        let (mut opening, options) = (Opening::default(), TableOptions::plan(PlanChoice::Fixed(plan)));
        if !pages {
            return loop {
                let mut short = Impatient { inner: endpoint, left: batches };
                match Table::open_on(&mut short, &mut opening, &options) {
                    Ok(table) => break table,
                    Err(OpenError::Moving { .. } | OpenError::Corrupt(_) | OpenError::Fabric(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            };
        }
        let mut opened = TableView::<K>::open_within(endpoint, bytes);
        while matches!(opened, Err(OpenError::Moving { .. } | OpenError::Corrupt(_))) {
            opened = TableView::<K>::open_within(endpoint, bytes);
        }
        by(opened.unwrap(), plan)
    };
    let (mut table, mut opening) = (open(&mut endpoint), Opening::default());
    let mut scratch = LookupScratch::new(Matcher::detect());
    for key in keys {
        let mut attempts = 0;
        loop {
            seen.borrow_mut().iter_mut().for_each(Vec::clear);
            note(&mut seen.borrow_mut());
            let number = |_: &Outcome, v: Option<&[u8]>| v.map(Node::<K>::number);
            match look_up(&mut endpoint, &table, &mut scratch, K::key(key).borrow(), number) {
                Ok(answer) => {
                    let seen = &seen.borrow()[key as usize];
                    prop_assert!(seen.contains(&answer), "{key}: {answer:?} {seen:?}");
                    break;
                }
                Err(ReadError::Stale) => {
                    let mut short = Impatient { inner: &mut endpoint, left: batches };
                    match table.refreshed_on(&mut short, &mut opening) {
                        Ok(Refresh::Newer(newer)) => table = newer,
                        Ok(Refresh::Current) if pages => node.borrow_mut().checkpoint(),
                        Ok(Refresh::Current) => prop_assert!(false, "stale and nothing new"),
                        Ok(Refresh::Lost) => table = open(&mut endpoint),
                        Err(error) => prop_assert!(matches!(error, OpenError::Fabric(_)), "{error}"),
                    }
                }
                Err(error) => prop_assert!(false, "{error}"),
            }
            attempts += 1;
            prop_assert!(attempts < 300, "it never catches up");
        }
    }
    Ok(())
}

/// What a forged change says of a segment: number of its first key, slots, and an address that is
/// also its line.
type Forged = (u64, u16, u64);

fn assert_no_panic<K: Numbered>(
    drawn: &[(Vec<Forged>, Option<u64>)],
    torn: &[u8],
) -> Result<(), TestCaseError> {
    let mut node = node::<K>();
    let view = open(&node);
    let mut head = 0;
    for (segments, end) in drawn {
        let forged = |(start, cap, address): &Forged| Descriptor::<K> {
            start: K::key(*start),
            tail: K::tail(*start),
            model: SegmentModel {
                origin: *start,
                line: Line::from_bits(*address),
                cap: *cap,
                epsilon: u16::MAX,
            },
            address: SegmentAddress::from_bits((address % (5 << 20)) & !7),
            generation: 1,
        };
        let change = SegmentReplacement { with: segments.iter().map(forged).collect(), end: end.map(K::key) };
        for record in change.records(head) {
            node.log_record(&record);
            head += 1;
        }
    }
    node.put(node.log + 64 * 5, torn);
    node.set_head(head);
    let _ = view.refresh(&mut node.endpoint()).unwrap();
    if let Ok(view) = TableView::<K>::open(&mut node.endpoint()) {
        let table = by(view, Plan::Range);
        for key in [0, 10, 33, u64::MAX] {
            let mut scratch = LookupScratch::new(Matcher::detect());
            let key = K::key(key);
            let _ = look_up(&mut node.endpoint(), &table, &mut scratch, key.borrow(), |_: &Outcome, _| ());
            let mut scratch = ScanScratch::default();
            let _ = drive(&mut node.endpoint(), &mut Scan::new(table.view(), &mut scratch, key.borrow(), 5));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readers_that_keep_up_answer_what_was_true_meanwhile(
        acts in prop::collection::vec(act(), 1..120),
        keys in prop::collection::vec(0u64..50, 1..20),
        pages: bool,
        in_place: bool,
        plan in prop::sample::select(vec![Plan::TwoStage, Plan::Range, Plan::Speculative]),
        batches in 2usize..9,
    ) {
        let way = (pages, in_place, plan, batches);
        assert_answers_were_true_meanwhile::<U64Keys>(acts.clone(), keys.clone(), way)?;
        assert_answers_were_true_meanwhile::<ByteKeys>(acts, keys, way)?;
    }

    #[test]
    fn hostile_changes_end_in_an_error_or_a_directory_but_never_in_a_panic(
        drawn in prop::collection::vec(
            (
                prop::collection::vec((0u64..60, 0u16..20, any::<u64>()), 0..4),
                prop::option::of(0u64..60),
            ),
            1..5,
        ),
        sound in prop::collection::vec((0u64..5, 1u16..20, any::<u64>()), 0..3),
        torn in prop::option::of(prop::collection::vec(any::<u8>(), 0..64)),
    ) {
        // Some that fit the directory come first, so that what they say is used.
        let sound = sound.into_iter().map(|(n, cap, bits)| (vec![(10 * n, cap, bits)], (n < 4).then_some(10 * n + 10)));
        let drawn: Vec<_> = sound.chain(drawn).collect();
        assert_no_panic::<U64Keys>(&drawn, torn.as_deref().unwrap_or_default())?;
        assert_no_panic::<ByteKeys>(&drawn, torn.as_deref().unwrap_or_default())?;
    }
}
