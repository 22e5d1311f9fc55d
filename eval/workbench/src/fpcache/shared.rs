//! State that the clients of FPCache share.

use std::cell::{Cell, RefCell};

use fpcache::table::TableOptions;

use super::keys::Numbered;
use super::nodes::{Held, Node};
use super::together::Queue;
use super::turns::Mail;
use crate::Sizes;
use crate::nic::{Background, Hosts, Picos, Target};

/// What clients share.
pub(super) struct Shared<K: Numbered> {
    pub(super) nodes: Vec<Node<K>>,
    /// Tables of each compute node, one for each memory node.
    pub(super) tables: Vec<Vec<Held<K>>>,
    pub(super) mail: Vec<RefCell<Mail>>,
    pub(super) woken: RefCell<Vec<usize>>,
    /// Changes that wait for each memory node, of the clients of each compute node, if these travel
    /// together.
    pub(super) queues: Option<Vec<RefCell<Queue>>>,
    /// A core's time that the last call took besides what it said.
    pub(super) besides: Cell<Picos>,
    /// What cores do between calls, and the model has not been told yet.
    pub(super) background: RefCell<Vec<Background>>,
    pub(super) options: TableOptions,
    pub(super) hosts: Hosts,
    pub(super) sizes: Sizes,
    pub(super) put: Picos,
}

impl<K: Numbered> Shared<K> {
    /// The memory node that has a key.
    pub(super) fn node_of(&self, key: u64) -> usize {
        self.nodes.partition_point(|node| node.first <= key).saturating_sub(1)
    }

    /// The machine of a memory node: as many have one as it has cores for changes.
    pub(super) fn target_of(&self, node: usize) -> Target {
        Target::Memory(node as u16 / self.hosts.cores.max(1))
    }

    /// Its core there.
    pub(super) fn core_of(&self, node: usize) -> u16 {
        node as u16 % self.hosts.cores.max(1)
    }

    /// Has a memory node do some of what it does between calls, which takes its core.
    pub(super) fn work(&self, node: usize) {
        let service = self.nodes[node].work();
        if service > 0 {
            let (machine, core) = (node as u16 / self.hosts.cores.max(1), Some(self.core_of(node)));
            self.background.borrow_mut().push(Background { node: machine, core, service });
        }
    }

    /// The changes that wait for a memory node with a client's, if they travel together.
    pub(super) fn queue(&self, client: usize, node: usize) -> Option<&RefCell<Queue>> {
        self.queues.as_ref()?.get(self.hosts.node_of(client) * self.nodes.len() + node)
    }

    /// A client's table of a memory node.
    pub(super) fn held(&self, client: usize, node: usize) -> &Held<K> {
        &self.tables[self.hosts.node_of(client)][node]
    }
}
