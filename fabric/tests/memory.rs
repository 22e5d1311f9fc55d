//! Mapped memory: copies against an oracle, rights, sizes, and racing writers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use fpcache_fabric::{Access, AccessError, HugePages, MemoryError, Pages, SharedMemory};
use proptest::prelude::*;

const LEN: usize = 1000;

#[derive(Clone, Debug)]
enum Step {
    WriteBytes(u64, Vec<u8>),
    WriteWords(u64, Vec<u64>),
    Fill(u64, usize, u64),
    ReadBytes(u64, usize),
    ReadWords(u64, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let offset = 0..=LEN as u64 + 8;
    prop_oneof![
        (offset.clone(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(o, b)| Step::WriteBytes(o, b)),
        (offset.clone(), prop::collection::vec(any::<u64>(), 0..80))
            .prop_map(|(o, w)| Step::WriteWords(o, w)),
        (offset.clone(), 0..40usize, any::<u64>()).prop_map(|(o, n, v)| Step::Fill(o, n, v)),
        (offset.clone(), 0..400usize).prop_map(|(o, n)| Step::ReadBytes(o, n)),
        (offset, 0..100usize).prop_map(|(o, n)| Step::ReadWords(o, n)),
    ]
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Applies a write to the oracle, if it fits.
fn write(oracle: &mut [u8], offset: u64, bytes: &[u8]) -> bool {
    let range = offset as usize..offset as usize + bytes.len();
    oracle.get_mut(range).map(|place| place.copy_from_slice(bytes)).is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn copies_agree_with_a_vector(steps in prop::collection::vec(step(), 1..40)) {
        let memory = SharedMemory::anonymous(LEN).unwrap();
        let mut oracle = vec![0u8; LEN];
        for step in steps {
            match step {
                Step::WriteBytes(offset, bytes) => {
                    prop_assert_eq!(memory.write_bytes(offset, &bytes).is_ok(), write(&mut oracle, offset, &bytes));
                }
                Step::WriteWords(offset, words) => {
                    let fits = write(&mut oracle, offset, &bytes_of(&words));
                    prop_assert_eq!(memory.write_words(offset, &words).is_ok(), fits);
                }
                Step::Fill(offset, count, value) => {
                    let fits = offset % 8 == 0 && write(&mut oracle, offset, &bytes_of(&vec![value; count]));
                    prop_assert_eq!(memory.fill_words(offset, count, value).is_ok(), fits);
                }
                Step::ReadBytes(offset, len) => {
                    let mut out = vec![0; len];
                    let read = memory.read_bytes(offset, &mut out).is_ok();
                    let expected = oracle.get(offset as usize..offset as usize + len);
                    prop_assert_eq!(read.then_some(&out[..]), expected);
                }
                Step::ReadWords(offset, count) => {
                    let mut out = vec![0; count];
                    let read = memory.read_words(offset, &mut out).is_ok();
                    let expected = oracle.get(offset as usize..offset as usize + count * 8);
                    prop_assert_eq!(read.then(|| bytes_of(&out)), expected.map(<[u8]>::to_vec));
                }
            }
            memory.prefetch(990, 50);
        }
        let mut all = vec![0; LEN];
        memory.read_bytes(0, &mut all).unwrap();
        prop_assert_eq!(all, oracle);
    }
}

#[test]
fn atomics_check_alignment_and_bounds() {
    let memory = SharedMemory::anonymous(64).unwrap();
    assert_eq!(memory.compare_exchange(56, 0, 5).unwrap(), 0);
    assert_eq!(memory.compare_exchange(56, 5, 9).unwrap(), 5);
    assert_eq!(memory.compare_exchange(56, 5, 1).unwrap(), 9);
    assert_eq!(memory.load_acquire(56).unwrap(), 9);
    assert_eq!(memory.load_relaxed(60), Err(AccessError::Misaligned { offset: 60 }));
    assert!(matches!(memory.store_release(64, 1), Err(AccessError::OutOfBounds(_))));
    assert!(matches!(memory.load_acquire(u64::MAX - 7), Err(AccessError::OutOfBounds(_))));
    assert!(memory.fill_words(0, usize::MAX, 1).is_err());
}

#[test]
fn a_memory_file_is_shared_and_cannot_shrink() {
    let (owner, fd) = SharedMemory::create_memfd("test", 5000, HugePages::No).unwrap();
    let reader = SharedMemory::map(&fd, 5000, Access::ReadOnly).unwrap();
    owner.write_bytes(4999, &[7]).unwrap();
    let mut byte = [0];
    reader.read_bytes(4999, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    assert!(rustix::fs::ftruncate(&fd, 0).is_err(), "sealed against shrinking");
    for refused in [
        reader.write_bytes(0, &[1]),
        reader.write_words(0, &[1]),
        reader.fill_words(0, 1, 1),
        reader.store_relaxed(0, 1),
        reader.store_release(0, 1),
        reader.compare_exchange(0, 0, 1).map(drop),
    ] {
        assert_eq!(refused, Err(AccessError::ReadOnly));
    }
}

#[test]
fn a_file_shorter_than_the_mapping_is_refused() {
    let (_, fd) = SharedMemory::create_memfd("test", 4096, HugePages::No).unwrap();
    let error = SharedMemory::map(&fd, 4097, Access::ReadOnly).unwrap_err();
    assert!(matches!(error, MemoryError::FileTooShort { file_len: 4096, len: 4097 }), "{error}");
    assert!(matches!(SharedMemory::map(&fd, 0, Access::ReadOnly), Err(MemoryError::BadLength { .. })));
    assert!(matches!(SharedMemory::anonymous(usize::MAX), Err(MemoryError::BadLength { .. })));
    assert!(matches!(SharedMemory::anonymous(0), Err(MemoryError::BadLength { .. })));
}

#[test]
fn whoever_shares_a_memory_file_cannot_forbid_its_owner_to_map_it_for_writing() {
    use rustix::fs::{SealFlags, fcntl_add_seals};
    let (_memory, fd) = SharedMemory::create_memfd("test", 4096, HugePages::No).unwrap();
    assert_eq!(fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE), Err(rustix::io::Errno::PERM));
    SharedMemory::map(&fd, 4096, Access::ReadWrite).unwrap();
}

#[test]
fn huge_pages_are_had_or_the_error_says_how() {
    let (memory, fd) = SharedMemory::create_memfd("test", 3 << 20, HugePages::IfAvailable).unwrap();
    assert_ne!(memory.pages(), Pages::Ordinary);
    memory.store_release((3 << 20) - 8, 1).unwrap();
    memory.populate(0, usize::MAX);
    drop(SharedMemory::map(fd, 3 << 20, Access::ReadWrite).unwrap());
    match SharedMemory::create_memfd("test", 3 << 20, HugePages::Required) {
        Ok((memory, _)) => assert_eq!(memory.pages(), Pages::Huge),
        Err(error) => assert!(error.to_string().contains("vm.nr_hugepages=2"), "{error}"),
    }
    assert!(SharedMemory::anonymous_with(1 << 20, HugePages::IfAvailable).is_ok());
}

#[test]
fn racing_copies_never_tear_inside_a_word() {
    let memory = SharedMemory::anonymous(4096).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0u8;
            while !stop.load(Ordering::Relaxed) {
                byte = byte.wrapping_add(1);
                memory.write_words(8, &[u64::from_le_bytes([byte; 8]); 65]).unwrap();
            }
        });
        let mut words = [0u64; 65];
        for _ in 0..20_000 {
            memory.read_words(8, &mut words).unwrap();
            for word in words {
                let bytes = word.to_le_bytes();
                assert_eq!(bytes, [bytes[0]; 8], "torn word");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn writes_of_neighbouring_bytes_do_not_lose_each_other() {
    let memory = SharedMemory::anonymous(64).unwrap();
    std::thread::scope(|scope| {
        for lane in 0..4u64 {
            let memory = &memory;
            scope.spawn(move || {
                for round in 0..=255u8 {
                    for _ in 0..20 {
                        memory.write_bytes(3 + lane, &[round]).unwrap();
                        let mut seen = [0];
                        memory.read_bytes(3 + lane, &mut seen).unwrap();
                        assert_eq!(seen, [round], "another thread's write undid this one");
                    }
                }
            });
        }
    });
}
