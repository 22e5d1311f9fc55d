//! Proxies between clients and memory nodes, which pass on what these say to each other, late or
//! not at all.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::PATIENCE;

/// Where bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Towards {
    Node,
    Client,
}

/// Listens before a memory node, and has each connection's bytes looked at before they are passed
/// on, by what `connected` gives for it: the connection ends when that says `false`. The address to
/// connect to.
pub fn stand_before<L>(url: &str, connected: impl Fn() -> L + Send + 'static) -> String
where
    L: Fn(Towards, &[u8]) -> bool + Send + Sync + 'static,
{
    stand_at(TcpListener::bind("127.0.0.1:0").unwrap(), url, connected)
}

/// As [`stand_before`], at this address.
pub fn stand_at<L>(listener: TcpListener, url: &str, connected: impl Fn() -> L + Send + 'static) -> String
where
    L: Fn(Towards, &[u8]) -> bool + Send + Sync + 'static,
{
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let to = url.strip_prefix("tcp://").unwrap().to_owned();
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(node) = TcpStream::connect(&to) else { return };
            let (client, look) = (client.unwrap(), Arc::new(connected()));
            client.set_nodelay(true).unwrap();
            node.set_nodelay(true).unwrap();
            for towards in [Towards::Node, Towards::Client] {
                let (client, node) = (client.try_clone().unwrap(), node.try_clone().unwrap());
                let (from, to) = if towards == Towards::Node { (client, node) } else { (node, client) };
                let look = Arc::clone(&look);
                thread::spawn(move || pass_on(from, to, |bytes| look(towards, bytes)));
            }
        }
    });
    address
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, look: impl Fn(&[u8]) -> bool) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !look(&bytes[..count]) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// The address of a memory node to which everything takes so long, and back again.
pub fn slow(url: &str, delay: Duration) -> String {
    slow_while(url, delay, &Arc::new(AtomicBool::new(true)))
}

/// The address of a memory node to which everything takes so long, and back again, while it is told
/// to.
pub fn slow_while(url: &str, delay: Duration, is_slow: &Arc<AtomicBool>) -> String {
    let is_slow = Arc::clone(is_slow);
    stand_before(url, move || {
        let is_slow = Arc::clone(&is_slow);
        move |_, _: &[u8]| {
            if is_slow.load(Ordering::SeqCst) {
                thread::sleep(delay);
            }
            true
        }
    })
}

/// Answers, more than any call gets.
pub const ALL: usize = 1 << 20;

/// The address of a memory node that gives only the answers that are left, the last but one of them
/// late, and none after them until there are more; and how many are left.
pub fn so_many_answers(url: &str, late: Duration) -> (String, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(ALL));
    let passes = Arc::clone(&left);
    let address = stand_before(url, move || {
        let left = Arc::clone(&passes);
        move |towards, _: &[u8]| {
            if towards == Towards::Node {
                return true;
            }
            if left.load(Ordering::SeqCst) == 2 {
                thread::sleep(late);
            }
            let take = |left: usize| left.checked_sub(1);
            while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
                thread::sleep(Duration::from_millis(5));
            }
            true
        }
    });
    (address, left)
}

/// The address of a memory node of which only those bytes come that are left, and none after them
/// until there are more; and how many are left.
pub fn so_many_bytes(url: &str) -> (String, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let passes = Arc::clone(&left);
    let address = stand_before(url, move || {
        let left = Arc::clone(&passes);
        move |towards, bytes: &[u8]| {
            let take = |left: usize| left.checked_sub(bytes.len());
            let is_from_node = towards == Towards::Client;
            while is_from_node && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
                thread::sleep(Duration::from_millis(5));
            }
            true
        }
    });
    (address, left)
}

/// Passes on what it gets, but no reply to a message that has [`MARK`] in it, until it hangs up.
pub struct Silent {
    pub address: String,
    /// One for each message that had the mark, once its reply is there.
    pub heard: Receiver<()>,
    /// Hangs up once it is told to.
    pub hang_up: Arc<AtomicBool>,
}

pub const MARK: [u8; 8] = [0xA7; 8];

impl Silent {
    pub fn before(url: &str) -> Self {
        let (tell, heard) = channel();
        let hang_up = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&hang_up);
        let address = stand_before(url, move || {
            let (tell, over, is_silent) = (tell.clone(), Arc::clone(&over), AtomicBool::new(false));
            move |towards, bytes: &[u8]| {
                if towards == Towards::Node {
                    let is_marked = bytes.windows(MARK.len()).any(|part| part == MARK);
                    is_silent.fetch_or(is_marked, Ordering::SeqCst);
                    return true;
                }
                if !is_silent.load(Ordering::SeqCst) {
                    return true;
                }
                let _ = tell.send(());
                while !over.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
                false
            }
        });
        Self { address, heard, hang_up }
    }
}

/// Stands before each of several memory nodes, and lets a reply of one pass once all of them have
/// been sent as many messages.
pub struct Together {
    pub addresses: Vec<String>,
    pub count: Arc<Count>,
}

pub struct Count {
    pub is_armed: AtomicBool,
    /// Messages to each memory node since it was armed.
    pub sent: Vec<AtomicUsize>,
    pub was_alone: AtomicBool,
}

impl Together {
    pub fn before<'u>(urls: impl IntoIterator<Item = &'u str>) -> Self {
        let urls: Vec<&str> = urls.into_iter().collect();
        let sent = urls.iter().map(|_| AtomicUsize::default()).collect();
        let (is_armed, was_alone) = (AtomicBool::new(false), AtomicBool::new(false));
        let count = Arc::new(Count { is_armed, sent, was_alone });
        let one = |(at, url): (usize, &&str)| {
            let count = Arc::clone(&count);
            stand_before(url, move || {
                let count = Arc::clone(&count);
                move |towards, _: &[u8]| {
                    match (count.is_armed.load(Ordering::SeqCst), towards) {
                        (true, Towards::Node) => _ = count.sent[at].fetch_add(1, Ordering::SeqCst),
                        (true, Towards::Client) => count.wait_for_all(at),
                        (false, _) => {}
                    }
                    true
                }
            })
        };
        let addresses = urls.iter().enumerate().map(one).collect();
        Self { addresses, count }
    }
}

impl Count {
    fn wait_for_all(&self, at: usize) {
        let (own, begun) = (self.sent[at].load(Ordering::SeqCst), Instant::now());
        while self.sent.iter().any(|sent| sent.load(Ordering::SeqCst) < own) {
            if begun.elapsed() > PATIENCE {
                self.was_alone.store(true, Ordering::SeqCst);
                return;
            }
            thread::sleep(Duration::from_micros(100));
        }
    }
}
