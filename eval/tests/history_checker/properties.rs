//! The checker against the definition, on small histories of every kind, and on long ones that are
//! right.

use fpcache_eval::history::random::{Shape, generate};
use fpcache_eval::history::{Call, Checked, History, NEVER, Outcome, Violation, check};
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::Script;
use super::brute::{Candidate, candidates, has_an_order};

/// Whether the definition finds an order.
fn by_definition(history: &History) -> bool {
    has_an_order(history.initial(), &candidates(history))
}

/// What a report says must hold by the definition: its operations have no order, whether or not the
/// others took effect.
fn report_holds(history: &History, checked: &Checked) {
    for violation in &checked.violations {
        let Violation::Key(disorder) = violation else { continue };
        assert!(disorder.minimal);
        let shown = |operation| disorder.operations.iter().any(|shown| shown.operation == operation);
        let weaker: Vec<Candidate> = candidates(history)
            .into_iter()
            .filter(|candidate| candidate.operation.key == disorder.key)
            .filter_map(|candidate| {
                let operation = candidate.operation;
                let read = operation.call == Call::Get;
                // A scan stands in the report as it is, and as a get among the candidates.
                let kept = shown(operation)
                    || read
                        && disorder.operations.iter().any(|shown| {
                            shown.saw.is_some()
                                && shown.operation.invoked == operation.invoked
                                && shown.operation.process == operation.process
                        });
                match kept {
                    true => Some(candidate),
                    false if !operation.call.writes() => None,
                    false => Some(Candidate { optional: true, ..candidate }),
                }
            })
            .collect();
        assert!(!has_an_order(history.initial(), &weaker), "{disorder}");
    }
}

/// The checker and the definition agree.
fn agree(history: &History) -> bool {
    let checked = check(history).unwrap();
    assert!(checked.undecided.is_empty(), "{checked:?}");
    let faulty = checked.violations.iter().any(|violation| matches!(violation, Violation::Scan(_)));
    if !faulty {
        let expected = by_definition(history);
        assert_eq!(checked.is_linearizable(), expected, "{history:?}\n{checked:?}");
        report_holds(history, &checked);
    }
    checked.is_linearizable()
}

/// One call in anything but a likely history: `(key, sort, value seen or expected, outcome, from,
/// length, process)`.
type Raw = (u64, u8, u64, u8, u64, u64, u32);

fn script_of(initial: &[bool], calls: &[Raw]) -> Script {
    let initial: Vec<(u64, u64)> =
        initial.iter().zip(0..).filter(|(there, _)| **there).map(|(_, key)| (key, 100 + key)).collect();
    let mut script = Script::from(&initial);
    for (value, &(key, sort, seen, outcome, from, length, process)) in (0..).zip(calls) {
        // Values there are: those of the writes, and the one the key began with.
        let seen = if seen as usize >= calls.len() { 100 + key } else { seen };
        let call = match sort {
            0 | 1 => Call::Get,
            7 => Call::Contains,
            2 => Call::Insert(value),
            3 => Call::Put(value),
            4 => Call::Update(value),
            5 => Call::Delete,
            _ => Call::CompareAndSet { expected: seen, value },
        };
        let outcome = match (call, outcome) {
            (Call::Get | Call::Contains, 0..2) => Outcome::Absent,
            (Call::Contains, _) => Outcome::Exists,
            (Call::Get, _) => Outcome::Found(seen),
            (_, 0) => Outcome::Unknown,
            (Call::Insert(_), 1..3) => Outcome::Exists,
            (Call::Update(_) | Call::Delete | Call::CompareAndSet { .. }, 1) => Outcome::Absent,
            (Call::CompareAndSet { .. }, 2) => Outcome::Differs,
            _ => Outcome::Done,
        };
        script = script.call(key, call, outcome, from, from + length).by(process);
    }
    script
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn the_checker_agrees_with_the_definition_on_anything(
        initial in proptest::collection::vec(any::<bool>(), 2),
        calls in proptest::collection::vec((0u64..2, 0u8..8, 0u64..9, 0u8..6, 0u64..12, 0u64..9, 0u32..4), 1..7),
    ) {
        agree(&script_of(&initial, &calls).history());
    }

    #[test]
    fn and_on_one_key(
        initial in any::<bool>(),
        calls in proptest::collection::vec((0u64..1, 0u8..8, 0u64..8, 0u8..6, 0u64..12, 0u64..9, 0u32..4), 3..8),
    ) {
        agree(&script_of(&[initial], &calls).history());
    }
}

/// Another outcome for an operation, of a kind that such a call can have.
fn another(history: &History, random: &mut impl RngCore) -> History {
    let at = random.next_u64() as usize % history.operations().len();
    let operation = history.operations()[at];
    let values: Vec<u64> = history.operations().iter().filter_map(|o| o.call.written()).collect();
    let mut pick = |choices: &[Outcome]| choices[random.next_u64() as usize % choices.len()];
    let value = values.get(at % values.len().max(1)).copied().unwrap_or(0);
    let outcome = match operation.call {
        _ if operation.returned == NEVER => return history.clone(),
        Call::Get => pick(&[Outcome::Absent, Outcome::Found(value)]),
        Call::Contains => pick(&[Outcome::Absent, Outcome::Exists]),
        Call::Insert(_) => pick(&[Outcome::Exists, Outcome::Done]),
        Call::Put(_) | Call::Clear => Outcome::Refused,
        Call::Update(_) | Call::Delete => pick(&[Outcome::Absent, Outcome::Done, Outcome::Refused]),
        Call::CompareAndSet { .. } => pick(&[Outcome::Absent, Outcome::Done, Outcome::Differs]),
        Call::ScanBack { .. } | Call::ScanRange { .. } | Call::Count { .. } | Call::Floor | Call::Ceiling => {
            return history.clone();
        }
        Call::Scan { .. } => {
            let Outcome::Scanned(scanned) = operation.outcome else { return history.clone() };
            let mut records = history.records(scanned).to_vec();
            if records.is_empty() {
                return history.clone();
            }
            let which = random.next_u64() as usize % records.len();
            match random.next_u64() % 2 {
                0 => drop(records.remove(which)),
                _ => records[which].1 = value,
            }
            return history.clone().with_records(at, records);
        }
    };
    history.clone().with_outcome(at, outcome)
}

#[test]
fn right_histories_pass_and_changed_ones_fail_when_the_definition_says_so() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let (mut wrong, mut right) = (0, 0);
    for round in 0..1_500 {
        let shape = Shape {
            processes: 3,
            keys: 1 + round % 3,
            operations: 7,
            scans: 0.1,
            scan_limit: 3,
            unknown: if round % 2 == 0 { 0.0 } else { 0.15 },
            gets: 0.4,
        };
        let history = generate(&shape, &mut random);
        assert!(agree(&history), "it is right by construction: {history:?}");
        for _ in 0..3 {
            match agree(&another(&history, &mut random)) {
                true => right += 1,
                false => wrong += 1,
            }
        }
    }
    assert!(right > 500 && wrong > 500, "{right} right and {wrong} wrong: the changes are of one kind");
}

#[test]
fn long_histories_that_are_right_pass() {
    for (seed, keys, unknown) in [(1, 3, 0.0), (2, 50, 0.0), (3, 3, 0.02), (4, 500, 0.05)] {
        let shape =
            Shape { processes: 8, keys, operations: 20_000, unknown, scans: 0.02, ..Shape::default() };
        let history = generate(&shape, &mut Xoshiro256PlusPlus::seed_from_u64(seed));
        let checked = check(&history).unwrap();
        assert!(checked.is_linearizable(), "{keys} keys: {checked:?}");
        assert!(checked.steps >= 18_000 && checked.widest > 1);
    }
}

#[test]
fn a_wrong_answer_in_a_long_history_is_found() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let shape = Shape { processes: 8, keys: 20, operations: 5_000, scans: 0.02, ..Shape::default() };
    let history = generate(&shape, &mut random);
    let gets: Vec<usize> = history
        .operations()
        .iter()
        .enumerate()
        .filter(|(_, operation)| matches!(operation.outcome, Outcome::Found(_)))
        .map(|(at, _)| at)
        .collect();
    for pick in gets.iter().skip(gets.len() / 2).step_by(200) {
        // A value long gone, of the same key.
        let key = history.operations()[*pick].key;
        let old =
            history.operations().iter().find_map(|o| (o.key == key).then(|| o.call.written())?).unwrap();
        let checked = check(&history.clone().with_outcome(*pick, Outcome::Found(old))).unwrap();
        assert_eq!(checked.violated, 1);
        let Violation::Key(disorder) = &checked.violations[0] else { panic!("{checked:?}") };
        assert_eq!(disorder.key, key);
        assert!(disorder.operations.len() <= 6, "{disorder}");
        assert!(disorder.operations.iter().any(|shown| shown.number as usize == *pick), "{disorder}");
    }
}
