//! Areas, addresses, and batches of one-sided requests.

use zerocopy::IntoBytes;

pub use crate::memory::CHANGED;

/// A registered memory area of a memory node. Access rights are granted per area.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AreaId(pub u16);

/// The region that holds the data; compute nodes normally only read it.
pub const REGION: AreaId = AreaId(0);

/// This connection's request ring ([`crate::ring`]); compute nodes read and write it.
pub const RINGS: AreaId = AreaId(1);

/// What a memory node answers without its service ([`Batch::ask`]): no memory.
pub const ANSWERS: AreaId = AreaId(3);

/// A byte in a memory node's area.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RemoteAddr {
    /// The area.
    pub area: AreaId,
    /// Offset in the area, in bytes.
    pub offset: u64,
}

impl RemoteAddr {
    /// `offset` bytes into the region.
    #[must_use]
    pub const fn region(offset: u64) -> Self {
        Self { area: REGION, offset }
    }
}

/// Largest READ or WRITE in bytes: 1 GiB, below what one RDMA message carries.
pub const MAX_REQUEST_BYTES: usize = 1 << 30;

/// Largest sum of a batch's buffered bytes: 16 GiB, so that positions fit 32-bit word numbers.
pub const MAX_BATCH_BYTES: u64 = 1 << 34;

/// Where in a batch's landing buffer the bytes of a READ, or the old value of an atomic, arrive.
/// Always 8-aligned.
///
/// Valid for the batch that gave it, until that batch is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Landing {
    word: u32,
    len: u32,
}

impl Landing {
    /// Where nothing arrives.
    pub const NOTHING: Self = Self { word: 0, len: 0 };

    /// Length in bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Whether nothing was asked for.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Read,
    Write,
    CompareSwap,
}

/// One posted request, as small as it gets: a batch of thousands stays in the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostedVerb {
    pub(crate) offset: u64,
    /// First buffer word: of the landing of a READ, of the bytes of a WRITE; of landing, then
    /// operands of an atomic.
    pub(crate) word: u32,
    pub(crate) len: u32,
    pub(crate) area: AreaId,
    pub(crate) verb: Verb,
    /// Words of a record of a guarded READ, else 0.
    pub(crate) stride: u32,
}

/// A request as a backend sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Fetch `len` bytes.
    Read {
        /// Where from.
        from: RemoteAddr,
        /// Bytes.
        len: usize,
        /// Bytes of each record if the READ is guarded ([`Batch::read_records`]), else 0.
        stride: usize,
    },
    /// Store bytes.
    Write {
        /// Where to.
        to: RemoteAddr,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Store `new` if the word holds `expected`; the old value lands.
    CompareSwap {
        /// The 8-aligned word.
        at: RemoteAddr,
        /// Value compared with.
        expected: u64,
        /// Value stored if equal.
        new: u64,
    },
}

/// What a batch asks for, counted as it is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// READ requests.
    pub reads: u32,
    /// WRITE requests.
    pub writes: u32,
    /// Compare-and-swap requests.
    pub compare_swaps: u32,
    /// Payload bytes to the memory node.
    pub bytes_to: u64,
    /// Payload bytes from the memory node.
    pub bytes_from: u64,
}

impl Tally {
    /// Requests that may change memory.
    #[must_use]
    pub const fn changes(&self) -> u32 {
        self.writes + self.compare_swaps
    }
}

/// One doorbell batch: requests, and the buffer that holds what they send and what they fetch.
///
/// A batch is filled, run, read, [cleared](Batch::clear) and filled again; its buffers grow to the
/// largest batch seen and then stay, so that a reused batch does not allocate.
///
/// **Order.** WRITEs and atomics of one batch take effect in posting order. READs of one batch are
/// unordered, among each other and against its changes, and tear: a READ shows each aligned 8 bytes
/// as of some instant during the batch, nothing more is promised (a network card tears per 64
/// bytes, mapped memory hides it most of the time). Everything of a batch happens before everything
/// of the next batch of the same endpoint.
///
/// **Failure.** If one request fails, the batch fails: no landing may be looked at, requests posted
/// before the failing one have run if they change memory (READs may or may not have), requests
/// after it have not run.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) requests: Vec<PostedVerb>,
    /// Grows only; the words up to `used` belong to the present requests.
    pub(crate) buffer: Vec<u64>,
    used: usize,
    pub(crate) tally: Tally,
    /// Where the bytes of the question lie, if it is one.
    pub(crate) question: Option<Landing>,
    /// The size of the first request that could not be taken, which fails the batch.
    pub(crate) oversize: Option<u64>,
}

impl Batch {
    /// An empty batch. Does not allocate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets requests and landings, keeps the buffers.
    #[inline]
    pub fn clear(&mut self) {
        self.requests.clear();
        self.used = 0;
        self.tally = Tally::default();
        self.question = None;
        self.oversize = None;
    }

    /// Requests in the batch.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether the batch holds no request. Running an empty batch is a round trip all the same.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// What the batch asks for.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Asks for `len` bytes from `from`, at any alignment (8-aligned is fastest). At most
    /// [`MAX_REQUEST_BYTES`]: a longer one makes the batch fail with
    /// [`TooLong`](crate::FabricError::TooLong) when it is run.
    #[inline]
    pub fn read(&mut self, from: RemoteAddr, len: usize) -> Landing {
        let words = len.div_ceil(8);
        let Some(word) = self.reserve(len, words) else { return Landing { word: 0, len: 0 } };
        if !len.is_multiple_of(8) {
            self.buffer[word as usize + words - 1] = 0;
        }
        self.tally.reads += 1;
        self.tally.bytes_from += len as u64;
        // `reserve` has refused lengths past MAX_REQUEST_BYTES, which fits 32 bits.
        let landing = Landing { word, len: len as u32 };
        self.push(from, landing, Verb::Read);
        landing
    }

    /// Asks for `len` bytes of records of `stride` bytes, each of which begins with its *guard*: an
    /// aligned word that its writer changes before it changes the rest and, to another value, after
    /// that. Where the fabric [guards](crate::Endpoint::guards) READs, a record that changed
    /// meanwhile lands with [`CHANGED`] in the place of its guard, and any other as it was at one
    /// moment. Elsewhere this is [`read`](Self::read).
    #[inline]
    pub fn read_records(&mut self, from: RemoteAddr, len: usize, stride: usize) -> Landing {
        let landing = self.read(from, len);
        if landing.len() == len
            && let Some(posted) = self.requests.last_mut()
        {
            // A record is no longer than what holds it, which fits 32 bits.
            posted.stride = (stride / 8) as u32;
        }
        landing
    }

    /// Asks the memory node what its [`Answers`](crate::Answers) for the region say to `question`.
    /// The reply lands as at most `reply_words` words, zeros after it; it is all zeros if questions
    /// are not answered. Costs one round trip and no READ; its bytes and those of the reply count
    /// as others do.
    ///
    /// A batch has one question and nothing else, or none. Where the endpoint's other side does not
    /// [answer](crate::Endpoint::answers) it fails with
    /// [`NoSuchArea`](crate::FabricError::NoSuchArea).
    pub fn ask(&mut self, question: &[u8], reply_words: usize) -> Landing {
        let landing = self.reserve(reply_words * 8, reply_words);
        let place = self.reserve(question.len(), question.len().div_ceil(8));
        let (Some(word), Some(place)) = (landing, place) else { return Landing::NOTHING };
        self.buffer[word as usize..][..reply_words].fill(0);
        let start = place as usize * 8;
        self.buffer.as_mut_bytes()[start..start + question.len()].copy_from_slice(question);
        // `reserve` has refused what does not fit 32 bits.
        self.question = Some(Landing { word: place, len: question.len() as u32 });
        self.tally.bytes_to += question.len() as u64;
        let landing = Landing { word, len: (reply_words * 8) as u32 };
        self.push(RemoteAddr { area: ANSWERS, offset: 0 }, landing, Verb::Read);
        landing
    }

    /// Stores `bytes` at `to`, at any alignment. The bytes are copied into the batch now. At most
    /// [`MAX_REQUEST_BYTES`], else the batch fails when it is run.
    pub fn write(&mut self, to: RemoteAddr, bytes: &[u8]) {
        let Some(word) = self.reserve(bytes.len(), bytes.len().div_ceil(8)) else { return };
        let start = word as usize * 8;
        self.buffer.as_mut_bytes()[start..start + bytes.len()].copy_from_slice(bytes);
        self.tally.writes += 1;
        self.tally.bytes_to += bytes.len() as u64;
        self.push(to, Landing { word, len: bytes.len() as u32 }, Verb::Write);
    }

    /// Stores `new` in the 8-aligned word at `at` if it holds `expected`; the old value lands
    /// either way.
    pub fn compare_swap(&mut self, at: RemoteAddr, expected: u64, new: u64) -> Landing {
        let Some(word) = self.reserve(8, 3) else { return Landing { word: 0, len: 0 } };
        self.buffer[word as usize + 1] = expected;
        self.buffer[word as usize + 2] = new;
        self.tally.compare_swaps += 1;
        self.tally.bytes_to += 16;
        self.tally.bytes_from += 8;
        let landing = Landing { word, len: 8 };
        self.push(at, landing, Verb::CompareSwap);
        landing
    }

    /// The bytes that landed. Meaningful only after the batch has run without error.
    ///
    /// # Panics
    /// If `landing` is of another batch and does not fit this one.
    #[inline]
    #[must_use]
    pub fn bytes(&self, landing: Landing) -> &[u8] {
        let start = landing.word as usize;
        let words = &self.buffer[start..start + landing.len().div_ceil(8)];
        &words.as_bytes()[..landing.len()]
    }

    /// The landed bytes as little-endian words, the last one padded with zeros. As
    /// [`bytes`](Self::bytes) otherwise.
    ///
    /// # Panics
    /// If `landing` is of another batch and does not fit this one.
    #[inline]
    #[must_use]
    pub fn words(&self, landing: Landing) -> &[u64] {
        let start = landing.word as usize;
        &self.buffer[start..start + landing.len().div_ceil(8)]
    }

    /// The first landed word: the old value of an atomic, or the first 8 bytes of a READ (short
    /// ones zero-padded).
    ///
    /// # Panics
    /// If `landing` is empty, or is of another batch and does not fit this one.
    #[inline]
    #[must_use]
    pub fn u64(&self, landing: Landing) -> u64 {
        self.words(landing)[0]
    }

    /// The requests in posting order, for backends.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = Request<'_>> {
        self.requests.iter().map(|posted| self.request(posted))
    }

    /// One of its requests as a backend sees it.
    #[inline]
    pub(crate) fn request(&self, posted: &PostedVerb) -> Request<'_> {
        let at = RemoteAddr { area: posted.area, offset: posted.offset };
        let word = posted.word as usize;
        match posted.verb {
            Verb::Read => {
                Request::Read { from: at, len: posted.len as usize, stride: posted.stride as usize * 8 }
            }
            Verb::Write => {
                let landing = Landing { word: posted.word, len: posted.len };
                Request::Write { to: at, bytes: self.bytes(landing) }
            }
            Verb::CompareSwap => {
                let (expected, new) = (self.buffer[word + 1], self.buffer[word + 2]);
                Request::CompareSwap { at, expected, new }
            }
        }
    }

    /// The size that makes this batch impossible, for backends, which must fail it with
    /// [`TooLong`](crate::FabricError::TooLong).
    #[must_use]
    pub fn oversize(&self) -> Option<u64> {
        self.oversize
    }

    #[inline]
    fn push(&mut self, at: RemoteAddr, place: Landing, verb: Verb) {
        let Landing { word, len } = place;
        self.requests.push(PostedVerb { offset: at.offset, word, len, area: at.area, verb, stride: 0 });
    }

    /// Takes `words` words of the buffer and returns the first one's number.
    #[inline]
    fn reserve(&mut self, len: usize, words: usize) -> Option<u32> {
        let start = self.used;
        let end = start.checked_add(words)?;
        if end > self.buffer.len() || len > MAX_REQUEST_BYTES {
            self.grow(len, end)?;
        }
        self.used = end;
        // MAX_BATCH_BYTES keeps word numbers below 2^31.
        Some(start as u32)
    }

    #[cold]
    fn grow(&mut self, len: usize, end: usize) -> Option<()> {
        let total = end as u64 * 8;
        if len > MAX_REQUEST_BYTES || total > MAX_BATCH_BYTES {
            self.oversize.get_or_insert(if len > MAX_REQUEST_BYTES { len as u64 } else { total });
            return None;
        }
        self.buffer.resize(end.next_power_of_two().max(64), 0);
        Some(())
    }
}
