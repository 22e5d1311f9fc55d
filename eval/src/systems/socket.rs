//! Systems that are reached over a socket, with any protocol.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use fpcache_client::ByteKeys;
use fpcache_datasets::{Bar, Progress};

use super::server::{Server, cpu_time};
use super::{Facts, Reader, System};
use crate::data::{DataKeys, DataSet};
use crate::run::values::ValueBytes;

/// How long a store may take to answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// Records that are stored with one write.
const STORED_TOGETHER: usize = 1_000;
/// Bytes that are read from a socket at once.
const READ_BYTES: usize = 64 << 10;

/// What a store speaks.
pub trait Dialect: Copy + Send + Sync + 'static {
    /// Appends the request for the values of `keys`.
    fn ask(self, keys: &[&[u8]], out: &mut Vec<u8>);

    /// Takes what has come of the reply, from where the last call stopped. `true` once it is
    /// complete.
    ///
    /// # Errors
    /// If the store answers something else.
    fn take(self, keys: &[&[u8]], bytes: &[u8], taken: &mut Taken) -> anyhow::Result<bool>;

    /// Appends the request that stores a record.
    fn store(self, key: &[u8], value: &[u8], out: &mut Vec<u8>);

    /// What the store says when it has stored a record.
    fn stored(self) -> &'static [u8];
}

/// How far a reply has been taken.
#[derive(Debug, Default)]
pub struct Taken {
    /// Bytes of it.
    pub at: usize,
    /// Of each key, in order: where its value lies, if there is one.
    pub answers: Vec<Option<Range<usize>>>,
}

impl Taken {
    fn clear(&mut self) {
        self.at = 0;
        self.answers.clear();
    }
}

/// Where a store listens.
#[derive(Clone, Debug)]
pub enum Address {
    /// A file.
    Unix(PathBuf),
    /// A port of this machine.
    Tcp(SocketAddr),
}

impl Address {
    /// As reports spell the way there.
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Unix(_) => "unix",
            Self::Tcp(_) => "tcp",
        }
    }

    /// Whether the server listens.
    pub fn is_up(&self) -> bool {
        self.connect().is_ok()
    }

    fn connect(&self) -> std::io::Result<Stream> {
        Ok(match self {
            Self::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        })
    }
}

/// A connection.
#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Has reads return at once, whether or not something has come.
    fn spin(&self) -> std::io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }
}

/// How a client waits for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// It sleeps until the operating system wakes it.
    #[default]
    Sleeping,
    /// It looks again and again.
    Spinning,
}

/// A store that holds a data set, asked in one dialect over one way there.
#[derive(Debug)]
pub struct SocketStore<D> {
    name: String,
    server: Arc<Server>,
    address: Address,
    dialect: D,
    waiting: Waiting,
    facts: Facts,
}

impl<D: Dialect> SocketStore<D> {
    /// A store that holds the data set already.
    pub fn new(name: String, server: Arc<Server>, address: Address, dialect: D, waiting: Waiting) -> Self {
        Self { name, server, address, dialect, waiting, facts: Facts::default() }
    }

    /// Stores a data set.
    ///
    /// # Errors
    /// If the store refuses a record, or is gone.
    pub fn load(
        &self,
        set: &<ByteKeys as DataKeys>::Set,
        values: ValueBytes,
        bar: &Bar,
    ) -> anyhow::Result<()> {
        bar.during(&format!("loading {}", self.name), set.len() as u64, || {
            let mut line = Line::open(&self.address, Waiting::Sleeping)?;
            let (mut key, mut value, mut out) = (Vec::new(), Vec::new(), Vec::new());
            let expected = self.dialect.stored();
            for first in (0..set.len()).step_by(STORED_TOGETHER) {
                let some = STORED_TOGETHER.min(set.len() - first);
                out.clear();
                for i in first..first + some {
                    value.clear();
                    values.append(set.value(i), &mut value);
                    self.dialect.store(set.key(i, &mut key), &value, &mut out);
                }
                line.send(&out)?;
                line.forget();
                while line.bytes().len() < some * expected.len() {
                    line.receive()?;
                }
                let is_stored = line.bytes().chunks(expected.len()).all(|reply| reply == expected);
                let said =
                    || String::from_utf8_lossy(&line.bytes()[..line.bytes().len().min(200)]).into_owned();
                ensure!(is_stored, "{} did not store a record: {}", self.name, said());
                bar.advance((first + some) as u64);
            }
            Ok(())
        })
    }
}

impl<D: Dialect> System for SocketStore<D> {
    type Keys = ByteKeys;
    type Reader<'a> = SocketReader<'a, D>;

    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> Facts {
        self.facts
    }

    fn server_cpu(&self) -> Option<Duration> {
        cpu_time(self.server.process_id())
    }

    fn reader(&self) -> SocketReader<'_, D> {
        SocketReader { store: self, line: None, out: Vec::new(), taken: Taken::default() }
    }
}

/// One thread's connection and buffers.
pub struct SocketReader<'a, D> {
    store: &'a SocketStore<D>,
    /// Made by the first request.
    line: Option<Line>,
    out: Vec<u8>,
    taken: Taken,
}

impl<D> fmt::Debug for SocketReader<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketReader").field("line", &self.line).finish_non_exhaustive()
    }
}

impl<D: Dialect> SocketReader<'_, D> {
    fn ask(&mut self, keys: &[&[u8]]) -> anyhow::Result<()> {
        let SocketStore { dialect, address, waiting, .. } = self.store;
        let line = match &mut self.line {
            Some(line) => line,
            none => none.insert(Line::open(address, *waiting)?),
        };
        self.out.clear();
        dialect.ask(keys, &mut self.out);
        line.send(&self.out)?;
        line.forget();
        self.taken.clear();
        loop {
            line.receive()?;
            if dialect.take(keys, line.bytes(), &mut self.taken)? {
                return Ok(());
            }
        }
    }
}

impl<D: Dialect> Reader<ByteKeys> for SocketReader<'_, D> {
    fn get(&mut self, key: &[u8]) -> anyhow::Result<Option<&[u8]>> {
        self.ask(&[key])?;
        Ok(self.answer(0))
    }

    fn get_many(&mut self, keys: &[&[u8]]) -> anyhow::Result<()> {
        self.ask(keys)
    }

    fn answer(&self, index: usize) -> Option<&[u8]> {
        let range = self.taken.answers.get(index)?.clone()?;
        Some(&self.line.as_ref()?.bytes()[range])
    }
}

/// A connection, and what has come over it since it was last asked.
#[derive(Debug)]
struct Line {
    stream: Stream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Line {
    fn open(address: &Address, waiting: Waiting) -> anyhow::Result<Self> {
        let stream = address.connect().with_context(|| format!("connecting to {address:?}"))?;
        if waiting == Waiting::Spinning {
            stream.spin().context("having a socket not wait")?;
        }
        Ok(Self { stream, buffer: vec![0; READ_BYTES], filled: 0 })
    }

    fn send(&mut self, mut bytes: &[u8]) -> anyhow::Result<()> {
        let until = Instant::now() + DEADLINE;
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_for_now(error.kind()) && Instant::now() < until => std::hint::spin_loop(),
                Err(error) => return Err(error).context("sending a request"),
            }
        }
        Ok(())
    }

    /// Waits for more.
    fn receive(&mut self) -> anyhow::Result<()> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.filled * 2, 0);
        }
        let mut until = None;
        loop {
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => bail!("the store closed the connection"),
                Ok(read) => {
                    self.filled += read;
                    return Ok(());
                }
                Err(error) if is_for_now(error.kind()) => {
                    std::hint::spin_loop();
                    let until = *until.get_or_insert_with(|| Instant::now() + DEADLINE);
                    ensure!(Instant::now() < until, "no answer within {} s", DEADLINE.as_secs());
                }
                Err(error) => return Err(error).context("receiving a reply"),
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    fn forget(&mut self) {
        self.filled = 0;
    }
}

fn is_for_now(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
