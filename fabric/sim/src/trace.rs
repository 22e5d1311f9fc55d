//! The trace of what happened: for reports, and as one number for comparisons.

use std::collections::VecDeque;
use std::fmt;

/// Mixes a number into a hash, order matters: a multiply and a fold.
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let product = u128::from(hash ^ value ^ 0x2d35_8dcc_aa6c_78a5) * 0x9e37_79b9_7f4a_7c15;
    (product as u64) ^ ((product >> 64) as u64)
}

/// The subject of an event; two numbers go with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TraceKind {
    Resumed,
    TimedOut,
    Fetched,
    Landed,
    Failed,
    Visible,
    Handled,
    Answered,
    Worked,
    NoRoom,
    Replied,
    Delivered,
    Lost,
    Doubled,
    Connected,
    Closed,
    Cut,
    Killed,
    Ended,
    Died,
    Started,
}

#[derive(Clone, Copy, Debug)]
struct Happened {
    at: u64,
    what: TraceKind,
    who: usize,
    one: u64,
    two: u64,
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, what, who, one, two } = self;
        write!(f, "{:>12.3} µs  ", *at as f64 / 1e3)?;
        match what {
            TraceKind::Resumed => write!(f, "process {who} goes on (step {one})"),
            TraceKind::TimedOut => write!(f, "process {who}: deadline passed"),
            TraceKind::Fetched => write!(f, "endpoint {who}: {one} pieces of batch {two} fetched"),
            TraceKind::Landed => write!(f, "endpoint {who}: batch {one} done"),
            TraceKind::Failed => write!(f, "endpoint {who}: batch {one} failed"),
            TraceKind::Visible => write!(f, "node {who}: {one} stores visible, {two} still queued"),
            TraceKind::Handled => write!(f, "node {who}: request {two} of connection {one} handled"),
            TraceKind::Answered => {
                write!(f, "endpoint {who}: a question of {two} bytes has an answer of {one} words")
            }
            TraceKind::Worked => write!(f, "node {who}: worked, {one} entries queued"),
            TraceKind::NoRoom => write!(f, "node {who}: request {two} of connection {one} waits for room"),
            TraceKind::Replied => write!(f, "connection {who}: reply {one} of {two} bytes arrives"),
            TraceKind::Delivered => write!(f, "connection {who}: request {one} of {two} bytes arrives"),
            TraceKind::Lost => write!(f, "connection {who}: message {one} is lost"),
            TraceKind::Doubled => write!(f, "connection {who}: request {one} will arrive twice"),
            TraceKind::Connected => write!(f, "connection {who}: connected to node {one}"),
            TraceKind::Closed => write!(f, "connection {who}: node {one} knows that it is closed"),
            TraceKind::Cut => write!(f, "connection {who}: cut"),
            TraceKind::Killed => write!(f, "process {who} dies"),
            TraceKind::Ended => write!(f, "process {who} ends"),
            TraceKind::Died => write!(f, "node {who} dies after {one} stores"),
            TraceKind::Started => write!(f, "node {who} starts its life {one}"),
        }
    }
}

/// The last events of a world and a hash of all.
#[derive(Debug)]
pub(crate) struct Trace {
    kept: VecDeque<Happened>,
    keep: usize,
    pub(crate) hash: u64,
}

impl Trace {
    pub(crate) fn new(keep: usize) -> Self {
        Self { kept: VecDeque::with_capacity(keep), keep, hash: 0 }
    }

    pub(crate) fn note(&mut self, at: u64, what: TraceKind, who: usize, one: u64, two: u64) {
        for value in [at, what as u64, who as u64, one, two] {
            self.hash = mix(self.hash, value);
        }
        if self.keep == 0 {
            return;
        }
        if self.kept.len() == self.keep {
            self.kept.pop_front();
        }
        self.kept.push_back(Happened { at, what, who, one, two });
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}
