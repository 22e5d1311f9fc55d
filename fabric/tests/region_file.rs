//! Memory in files: creation, locks, rights, and what a killed writer leaves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "conformance/suite/service.rs"]
mod service;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fpcache_fabric::shm::{ConnectOptions, ListenOptions, Listener, ShmAddress, connect};
use fpcache_fabric::{
    Access, Batch, Connection, Endpoint, Export, HugePages, MemoryError, NodeMemory, OneRegion, Pages,
    RegionName, RemoteAddr, SharedMemory,
};

use service::TestService;

/// The file that a re-executed test binary writes.
const FILE: &str = "FPCACHE_FABRIC_TEST_FILE";
/// Words of the log that the killed process writes; the word in front counts them.
const LOG: u64 = 1 << 20;

/// A directory on the disk, and one on a tmpfs where there is one.
fn directories() -> Vec<tempfile::TempDir> {
    let mut directories = vec![tempfile::tempdir().unwrap()];
    directories.extend(tempfile::tempdir_in("/dev/shm"));
    directories
}

fn file_in(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("region")
}

#[test]
fn a_file_holds_what_was_stored_and_has_its_space_set_aside() {
    for directory in directories() {
        let path = file_in(&directory);
        let (memory, fd) = SharedMemory::create_file(&path, 100_001, HugePages::IfAvailable).unwrap();
        let page = rustix::param::page_size();
        assert_eq!(memory.len(), 100_001usize.next_multiple_of(page));
        let stat = rustix::fs::fstat(&fd).unwrap();
        assert_eq!((stat.st_size as usize, stat.st_mode & 0o777), (memory.len(), 0o600));
        assert!(stat.st_blocks as usize * 512 >= memory.len(), "{} blocks", stat.st_blocks);
        let mut bytes = vec![1; memory.len()];
        memory.read_bytes(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));

        let last = memory.len() as u64 - 8;
        memory.store_release(last, 7).unwrap();
        memory.sync().unwrap();
        let (reader, _) = SharedMemory::open_file(&path, Access::ReadOnly).unwrap();
        assert_eq!((reader.len(), reader.load_acquire(last).unwrap()), (memory.len(), 7));
        assert!(reader.store_relaxed(0, 1).is_err());
        reader.sync().unwrap();
        memory.store_release(0, 8).unwrap();
        assert_eq!(reader.load_acquire(0).unwrap(), 8, "the same memory");
        drop((memory, fd));
        let (memory, _) = SharedMemory::open_file(&path, Access::ReadWrite).unwrap();
        assert_eq!((memory.load_acquire(0).unwrap(), memory.load_acquire(last).unwrap()), (8, 7));
    }
    SharedMemory::anonymous(8).unwrap().sync().unwrap();
}

#[test]
fn a_file_has_one_writer_at_a_time() {
    for directory in directories() {
        let path = file_in(&directory);
        let (memory, fd) = SharedMemory::create_file(&path, 4096, HugePages::No).unwrap();
        let refused = |path: &Path| {
            let error = SharedMemory::open_file(path, Access::ReadWrite).unwrap_err();
            let MemoryError::FileInUse { holder, .. } = &error else { panic!("{error}") };
            assert!(holder.is_none_or(|holder| holder == std::process::id()), "{error}");
            assert!(error.to_string().contains("stop that memory node"), "{error}");
        };
        refused(&path);
        // Whichever of the two is kept.
        drop(fd);
        refused(&path);
        drop(memory);
        let (memory, fd) = SharedMemory::open_file(&path, Access::ReadWrite).unwrap();
        drop(memory);
        refused(&path);
        drop(fd);
        SharedMemory::open_file(&path, Access::ReadWrite).unwrap();
    }
}

#[test]
fn a_lock_that_its_holder_is_just_giving_up_is_waited_for() {
    for directory in directories() {
        let path = file_in(&directory);
        drop(SharedMemory::create_file(&path, 4096, HugePages::No).unwrap());
        // Again where the holder had no processor for as long as it is waited for.
        let is_waited_for = (0..20).any(|_| {
            let held = SharedMemory::open_file(&path, Access::ReadWrite).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    drop(held);
                });
                SharedMemory::open_file(&path, Access::ReadWrite).is_ok()
            })
        });
        assert!(is_waited_for);
    }
}

#[test]
fn errors_of_files_name_cause_and_remedy() {
    for directory in directories() {
        let path = file_in(&directory);
        let says = |error: MemoryError, expected: &str| {
            let text = error.to_string();
            assert!(text.contains(expected), "{text}");
        };
        std::fs::write(&path, "").unwrap();
        let error = SharedMemory::create_file(&path, 4096, HugePages::No).unwrap_err();
        assert!(matches!(error, MemoryError::FileExists { .. }));
        says(error, "exists already; open it");
        assert!(path.exists(), "somebody else's file is not removed");
        says(SharedMemory::open_file(&path, Access::ReadWrite).unwrap_err(), "is empty");
        says(SharedMemory::open_file(directory.path(), Access::ReadOnly).unwrap_err(), "not a plain file");
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        says(SharedMemory::open_file(&pipe, Access::ReadOnly).unwrap_err(), "not a plain file");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        says(SharedMemory::open_file(&link, Access::ReadWrite).unwrap_err(), "symbolic link");

        let fresh = directory.path().join("fresh");
        says(SharedMemory::open_file(&fresh, Access::ReadWrite).unwrap_err(), "correct the path");
        let below = directory.path().join("missing/region");
        says(SharedMemory::create_file(&below, 4096, HugePages::No).unwrap_err(), "its directory included");
        let error = SharedMemory::create_file(&fresh, 0, HugePages::No).unwrap_err();
        assert!(matches!(error, MemoryError::BadLength { len: 0 }), "{error}");
        let error = SharedMemory::create_file(&fresh, 4096, HugePages::Required).unwrap_err();
        assert!(matches!(error, MemoryError::NotHugeFileSystem { .. }), "{error}");
        // More than any disk here has.
        let error = SharedMemory::create_file(&fresh, 1 << 55, HugePages::No).unwrap_err();
        assert!(matches!(error, MemoryError::NoSpace { .. }), "{error}");
        assert!(!fresh.exists(), "a file that could not be made is left behind");
    }
}

#[test]
fn clients_read_a_region_file_and_cannot_write_it() {
    for directory in directories() {
        let (path, address) = (file_in(&directory), directory.path().join("node.sock"));
        let (region, fd) = SharedMemory::create_file(&path, 1 << 16, HugePages::No).unwrap();
        let region = Arc::new(region);
        let address = ShmAddress::at_path(address).unwrap();
        let export = Export::new(&region, fd.as_fd(), 1).unwrap();
        let listener = Listener::bind(&address, ListenOptions::default()).unwrap();
        assert_eq!(rustix::fs::fstat(&fd).unwrap().st_mode & 0o777, 0o600, "its next memory node writes it");
        let service = OneRegion::new(RegionName::default(), export, TestService::default());
        let _serving = listener.spawn(service).unwrap();
        let connection = connect(&address, ConnectOptions::default()).unwrap();
        region.store_release(4096, 77).unwrap();
        let mut endpoint = connection.endpoint();
        let mut word = [0];
        endpoint.read_words(RemoteAddr::region(4096), &mut word).unwrap();
        assert_eq!((word[0], endpoint.load_after_reads(RemoteAddr::region(4096)).unwrap()), (77, 77));
        let mut batch = Batch::new();
        batch.write(RemoteAddr::region(0), &[1]);
        assert!(endpoint.run(&mut batch).is_err());

        // Descriptors of this process that name the file: the writer's two are writable, the one
        // handed out is not.
        let mut read_only = 0;
        for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
            let Ok(number) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("2").trim();
            if std::fs::read_link(entry.path()).unwrap_or_default() == path && flags.ends_with('0') {
                read_only += 1;
                let again = std::fs::File::open(entry.path()).unwrap();
                assert!(rustix::io::write(&again, &[1]).is_err());
                assert!(SharedMemory::map(&again, 4096, Access::ReadWrite).is_err());
                assert!(rustix::fs::ftruncate(&again, 0).is_err());
            }
        }
        assert!(read_only >= 1, "the listener holds a read-only descriptor");

        // Neither a client nor the descriptor it got keeps the next memory node out.
        drop(_serving);
        drop((region, fd));
        let (region, _) = SharedMemory::open_file(&path, Access::ReadWrite).unwrap();
        assert_eq!(region.load_acquire(4096).unwrap(), 77);
    }
}

fn entry(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number
}

/// Kills the process also when the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test of its own: the process that another test starts and kills.
#[test]
fn a_memory_node_that_is_killed() {
    let Ok(path) = std::env::var(FILE) else { return };
    let (region, _fd) = match SharedMemory::create_file(&path, (8 * (LOG + 1)) as usize, HugePages::No) {
        Err(MemoryError::FileExists { .. }) => SharedMemory::open_file(&path, Access::ReadWrite).unwrap(),
        other => other.unwrap(),
    };
    let mut written = region.load_acquire(0).unwrap();
    loop {
        region.store_relaxed(8 * (1 + written % LOG), entry(written)).unwrap();
        written += 1;
        NodeMemory::store_release(&region, 0, written).unwrap();
    }
}

#[test]
fn what_a_killed_memory_node_stored_is_there_in_program_order() {
    for directory in directories() {
        let path = file_in(&directory);
        let mut before = 0;
        for round in 0..4 {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "a_memory_node_that_is_killed", "--nocapture"])
                .env(FILE, &path)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let child = Killed(child);
            let patience = Instant::now() + Duration::from_secs(20);
            let reader = loop {
                assert!(Instant::now() < patience, "the process writes nothing");
                std::thread::sleep(Duration::from_millis(1));
                let Ok((reader, _)) = SharedMemory::open_file(&path, Access::ReadOnly) else { continue };
                if reader.load_acquire(0).unwrap() > before {
                    break reader;
                }
            };
            std::thread::sleep(Duration::from_millis(7 * round));
            match SharedMemory::open_file(&path, Access::ReadWrite).unwrap_err() {
                MemoryError::FileInUse { holder, .. } => {
                    assert!(holder.is_none_or(|pid| pid == child.0.id()))
                }
                other => panic!("{other}"),
            }
            drop(child);

            let (region, _fd) = SharedMemory::open_file(&path, Access::ReadWrite).unwrap();
            let written = region.load_acquire(0).unwrap();
            assert!(written > before, "{written} after {before}");
            // All that was announced is there; beyond it at most the one that was not.
            for number in written.saturating_sub(LOG - 1)..written {
                assert_eq!(region.load_relaxed(8 * (1 + number % LOG)).unwrap(), entry(number));
            }
            assert_eq!(reader.load_acquire(0).unwrap(), written, "who had it mapped sees the same");
            assert_eq!(region.pages(), Pages::Ordinary);
            before = written;
        }
    }
}

/// Bytes that the file system has set aside for a file.
fn set_aside(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn a_sparse_file_takes_space_a_stretch_at_a_time_and_gives_it_back() {
    const LEN: u64 = 64 << 20;
    for directory in directories() {
        let path = file_in(&directory);
        let (memory, _fd) = SharedMemory::create_sparse_file(&path, LEN as usize, HugePages::No).unwrap();
        assert!(memory.len() as u64 == LEN && set_aside(&path) <= 64 << 10, "a page at most");
        memory.reserve(0, 1 << 20).unwrap();
        assert!((1 << 20..2 << 20).contains(&set_aside(&path)), "{}", set_aside(&path));
        memory.reserve(LEN - 4096, 1 << 20).unwrap();
        assert_eq!(memory.len() as u64, std::fs::metadata(&path).unwrap().len(), "it does not grow");
        let other = SharedMemory::open_file(&path, Access::ReadOnly).unwrap().0;
        for offset in [0, 4096, 8192, LEN - 8] {
            memory.store_release(offset, 7).unwrap();
            assert_eq!(other.load_acquire(offset).unwrap(), 7);
        }
        memory.discard_from(5000).unwrap();
        let words = [0, 4096, 8192, LEN - 8].map(|offset| other.load_acquire(offset).unwrap());
        assert_eq!(words, [7, 7, 0, 0], "whole pages after the offset are zeros, for everyone");
        assert!(set_aside(&path) < 1 << 20, "{}", set_aside(&path));
        assert!(other.discard_from(0).is_err(), "nobody who may only read");
        memory.store_release(LEN - 8, 9).unwrap();
        assert_eq!(other.load_acquire(LEN - 8).unwrap(), 9, "it can be used again");
    }
    let (memory, _fd) = SharedMemory::create_memfd("region", 1 << 20, HugePages::No).unwrap();
    memory.reserve(0, 1 << 20).unwrap();
    memory.store_release(1 << 19, 7).unwrap();
    memory.discard_from(0).unwrap();
    assert_eq!(memory.load_acquire(1 << 19).unwrap(), 0);
}
