//! Regions by name, which clients ask for when they connect and memory nodes hand out.
//!
//! What a name means is the business of the layers above; here it is up to 64 bytes.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::memory::{Access, MemoryError, Registrations, SharedMemory, reopen_read_only, reopen_writable};
use crate::region_questions::Answers;
use crate::shm::ListenError;

/// The name of a region: 0 to 64 bytes. The empty one is a name like any other.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionName {
    len: u8,
    bytes: [u8; Self::MAX],
}

/// A name that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a region has {0} bytes; give it one of at most {max}", max = RegionName::MAX)]
pub struct NameTooLong(pub usize);

impl RegionName {
    /// Most bytes of a name.
    pub const MAX: usize = 64;

    /// A name of these bytes.
    ///
    /// # Errors
    /// If they are more than [`MAX`](Self::MAX).
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self, NameTooLong> {
        let name = name.as_ref();
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..name.len()).ok_or(NameTooLong(name.len()))?.copy_from_slice(name);
        // At most 64.
        Ok(Self { len: name.len() as u8, bytes })
    }

    /// The name's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Default for RegionName {
    fn default() -> Self {
        Self { len: 0, bytes: [0; Self::MAX] }
    }
}

impl fmt::Display for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().escape_ascii().fmt(f)
    }
}

impl fmt::Debug for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionName({self})")
    }
}

/// A region as a client gets it: a descriptor for reading, and all that it must know to map it.
/// Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct Export {
    len: u64,
    read_only: Arc<OwnedFd>,
    incarnation: u64,
    creation: u64,
    watched: Option<u64>,
    /// How long it is leased for.
    lease: Duration,
    /// From where on its bytes hold nothing.
    backed_end: Arc<AtomicU64>,
    /// The devices that it is registered with.
    registrations: Arc<Registrations>,
    /// The code that answers questions about it.
    answers: Option<Arc<dyn Answers>>,
    /// Where this process maps it for those who cannot. It stays when the last of them goes:
    /// unmapping a table takes time in proportion to its pages, and the next reader would map it
    /// anew.
    mapped: Mapped,
    /// For this memory node's network card.
    for_card: ForCard,
}

/// A region's mapping for the memory node's own network card. Kernels before 6.2 pin pages for a
/// card as if it were to write to them, whatever it may do, which they refuse where they are mapped
/// for reading alone.
#[derive(Clone, Debug)]
struct ForCard {
    /// Without one the region is mapped for reading.
    writable: Option<Arc<OwnedFd>>,
    mapped: Mapped,
}

/// A mapping that is made when it is first asked for.
type Mapped = Arc<OnceLock<Arc<SharedMemory>>>;

impl Export {
    /// Descriptors that each holds open, and its clones with it.
    pub const DESCRIPTORS: usize = if cfg!(feature = "rdma") { 2 } else { 1 };

    /// Hands out `region`, whose descriptor is `fd`, for reading. `incarnation` says which life of
    /// the region this is; clients compare it after connecting again.
    ///
    /// The file after `fd`, if it is a memfd of [`SharedMemory::create_memfd`], loses its write
    /// permission, so that it cannot be opened for writing by accident; descriptors and mappings
    /// that exist keep theirs.
    ///
    /// # Errors
    /// If the operating system does not open it once more.
    pub fn new(region: &SharedMemory, fd: impl AsFd, incarnation: u64) -> Result<Self, ListenError> {
        // Before the permission for it is taken away.
        let writable = if cfg!(feature = "rdma") { reopen_writable(fd.as_fd()) } else { None };
        let read_only = reopen_read_only(fd.as_fd())
            .map_err(crate::shm::os("opening for reading", Path::new("the region")))?;
        Ok(Self {
            len: region.len() as u64,
            read_only: Arc::new(read_only),
            incarnation,
            creation: 0,
            watched: None,
            lease: Duration::ZERO,
            backed_end: region.share_backed_end(),
            registrations: Arc::clone(region.registrations()),
            answers: None,
            mapped: Arc::default(),
            for_card: ForCard { writable: writable.map(Arc::new), mapped: Arc::default() },
        })
    }

    /// The same with another creation number than 0. Which numbers there are is the service's to
    /// say: regions of one name with different numbers have nothing in common, and requests meant
    /// for one are not meant for the other.
    #[must_use]
    pub fn with_creation(self, creation: u64) -> Self {
        Self { creation, ..self }
    }

    /// The same, whose aligned word at `offset` is *watched*: over fabrics that map nothing, what
    /// [`Endpoint::load_after_reads`](crate::Endpoint::load_after_reads) loads there comes with
    /// every batch of READs and costs no round trip.
    #[must_use]
    pub fn with_watched(self, offset: u64) -> Self {
        Self { watched: Some(offset), ..self }
    }

    /// The same, whose watched word is *leased*: after storing it the memory node waits for that
    /// long, from when the store can be seen ([`NodeMemory::flush`](crate::NodeMemory::flush)),
    /// until it stores what the word warns of. Clients that read by network cards need no round
    /// trip for the word then. Zero, as without this, is no lease.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// The same, about which the threads that serve sockets have questions answered, for as long as
    /// this or a clone of it is there.
    #[must_use]
    pub fn with_answers(self, answers: Arc<dyn Answers>) -> Self {
        Self { answers: Some(answers), ..self }
    }

    /// The code that answers questions about it, for holders that do not keep it.
    pub(crate) fn answers(&self) -> Option<Weak<dyn Answers>> {
        self.answers.as_ref().map(Arc::downgrade)
    }

    /// The watched word, if it is one.
    pub(crate) fn watched(&self) -> Option<u64> {
        self.watched.filter(|offset| {
            offset.is_multiple_of(8) && offset.checked_add(8).is_some_and(|end| end <= self.len)
        })
    }

    /// How long the watched word is leased for; zero: it is not.
    pub(crate) fn lease(&self) -> Duration {
        self.watched().map_or(Duration::ZERO, |_| self.lease)
    }

    /// From where on its bytes hold nothing and are not to be touched.
    pub(crate) fn backed_end(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.backed_end)
    }

    /// The region mapped into this process for reading, once for all who ask.
    pub(crate) fn map(&self) -> Result<Arc<SharedMemory>, MemoryError> {
        self.map_once(&self.mapped, self.read_only.as_fd(), Access::ReadOnly)
    }

    /// The region mapped into this process for its network card, once for all who ask. What is
    /// registered with the card may be read and no more; that the mapping could be written to is
    /// for the kernel's sake.
    pub(crate) fn map_for_card(&self) -> Result<Arc<SharedMemory>, MemoryError> {
        match &self.for_card.writable {
            Some(fd) => self.map_once(&self.for_card.mapped, fd.as_fd(), Access::ReadWrite),
            None => self.map(),
        }
    }

    fn map_once(
        &self,
        mapped: &OnceLock<Arc<SharedMemory>>,
        fd: BorrowedFd<'_>,
        access: Access,
    ) -> Result<Arc<SharedMemory>, MemoryError> {
        if let Some(memory) = mapped.get() {
            return Ok(Arc::clone(memory));
        }
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        let memory = SharedMemory::map(fd, len, access)?;
        // Of two threads that come first one's is unmapped again, before anything was read there.
        Ok(Arc::clone(mapped.get_or_init(|| Arc::new(memory.with_registrations(&self.registrations)))))
    }

    /// Bytes of the region.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        self.len
    }

    /// Which life of the region this is.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Which of the regions that have had its name this is.
    #[must_use]
    pub fn creation(&self) -> u64 {
        self.creation
    }
}

impl AsFd for Export {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read_only.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels before 6.2 register nothing that is mapped for reading alone.
    #[cfg(feature = "rdma")]
    #[test]
    fn cards_get_a_mapping_that_could_be_written_to_and_hold_no_lock() {
        use crate::memory::HugePages;
        let (memory, fd) = SharedMemory::create_memfd("region", 4096, HugePages::No).unwrap();
        // The second one finds a file that may be opened for reading alone.
        let exports = [(); 2].map(|()| Export::new(&memory, &fd, 1).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        let (in_file, file) = SharedMemory::create_file(&path, 4096, HugePages::No).unwrap();
        let of_file = Export::new(&in_file, &file, 1).unwrap();
        for export in exports.iter().chain([&of_file]) {
            let mapped = export.map_for_card().unwrap();
            assert_eq!(mapped.access(), Access::ReadWrite);
            assert!(Arc::ptr_eq(&mapped, &export.map_for_card().unwrap()));
            assert!(Arc::ptr_eq(mapped.registrations(), export.map().unwrap().registrations()));
        }
        drop((in_file, file));
        SharedMemory::open_file(&path, Access::ReadWrite).expect("its lock went with its memory node");
    }

    /// A thread that serves sockets unmapped all of it, for a third of a second of some GiB, when
    /// the last client went.
    #[test]
    fn a_region_stays_mapped_when_nobody_reads_it_any_more() {
        let (memory, fd) = SharedMemory::create_memfd("region", 4096, crate::memory::HugePages::No).unwrap();
        let export = Export::new(&memory, &fd, 1).unwrap();
        let first = Arc::downgrade(&export.clone().map().unwrap());
        assert!(first.upgrade().is_some_and(|first| Arc::ptr_eq(&first, &export.map().unwrap())));
        drop(export);
        assert!(first.upgrade().is_none());
    }

    #[test]
    fn names_are_bytes_up_to_a_length() {
        for name in [&b""[..], b"orders", &[0xff; 64]] {
            assert_eq!(RegionName::new(name).unwrap().as_bytes(), name);
        }
        assert_eq!(RegionName::default(), RegionName::new("").unwrap());
        assert_eq!(RegionName::new(b"a\n\xff").unwrap().to_string(), "a\\n\\xff");
        let error = RegionName::new([0; 65]).unwrap_err().to_string();
        assert!(error.contains("65 bytes") && error.contains("at most 64"), "{error}");
    }
}
