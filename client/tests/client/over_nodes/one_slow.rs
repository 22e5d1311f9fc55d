//! A table over two memory nodes, of which one takes long to answer once it is made anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fpcache_client::{CreateOptions, Nodes, U64Keys};

use super::{Node, name};
use crate::common::TestKeys;
use crate::proxies::slow_while;

pub struct OneSlow {
    /// Of both memory nodes, the second by way of what makes it slow.
    pub urls: String,
    is_slow: Arc<AtomicBool>,
    all: Nodes,
    _nodes: [Node; 2],
}

impl OneSlow {
    /// Divided at 100; neither is slow yet.
    pub fn new() -> Self {
        let nodes = [Node::tcp(), Node::tcp()];
        let is_slow = Arc::new(AtomicBool::new(false));
        let address = slow_while(&nodes[1].url, Duration::from_millis(200), &is_slow);
        let urls = format!("{},{address}", nodes[0].url);
        let all = Nodes::at(&urls).unwrap();
        let slow = Self { urls, is_slow, all, _nodes: nodes };
        slow.make();
        slow
    }

    fn make(&self) {
        let (parameters, options) = (U64Keys::parameters(), CreateOptions::default());
        self.all.create::<U64Keys>(&name(), parameters, &[100], options).unwrap();
    }

    /// Drops the table and makes it again; from then on the second memory node is slow.
    pub fn make_anew(&self) {
        self.all.drop_table(&name()).unwrap();
        self.make();
        self.is_slow.store(true, Ordering::SeqCst);
    }
}
