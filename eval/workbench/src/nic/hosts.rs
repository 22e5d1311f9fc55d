//! The machines of a model.

use super::Picos;
use super::presets::NicSpec;

/// The machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hosts {
    /// Card and network of every node.
    pub nic: NicSpec,
    /// Compute nodes.
    pub compute_nodes: u16,
    /// Threads of each.
    pub threads: u16,
    /// Compute nodes, the last ones, that have one thread fewer, where each thread has one client.
    pub with_fewer: u16,
    /// Clients that take turns on each thread.
    pub coroutines: u16,
    /// A thread's time for an operation, besides that for its requests.
    pub operation: Picos,
    /// Memory nodes.
    pub memory_nodes: u16,
    /// Cores of each that serve calls: one, where one thread does all changes of a table. FPCache's
    /// table is divided among all of them, as among several memory nodes of one machine.
    pub cores: u16,
}

impl Hosts {
    /// The FPCache paper's: six compute nodes of 64 threads, one memory node, one core of which
    /// makes a table's changes.
    pub const fn paper(nic: NicSpec) -> Self {
        Self {
            nic,
            compute_nodes: 6,
            threads: 64,
            with_fewer: 0,
            coroutines: 1,
            operation: 0,
            memory_nodes: 1,
            cores: 1,
        }
    }

    /// Parts of FPCache's table: one for each core that makes changes.
    pub fn parts(&self) -> usize {
        usize::from(self.memory_nodes.max(1)) * usize::from(self.cores.max(1))
    }

    /// The same with `threads` threads of all compute nodes together, of which some nodes may have
    /// one fewer than others.
    #[must_use]
    pub const fn with_threads(self, threads: u16) -> Self {
        let each = threads.div_ceil(self.compute_nodes);
        Self { threads: each, with_fewer: each * self.compute_nodes - threads, ..self }
    }

    /// Threads of all compute nodes together.
    pub(super) const fn all_threads(&self) -> usize {
        self.compute_nodes as usize * self.threads as usize - self.with_fewer as usize
    }

    /// Clients of all compute nodes together.
    pub const fn clients(&self) -> usize {
        self.all_threads() * self.coroutines as usize
    }

    /// The compute node of a client: neighbours are spread.
    pub const fn node_of(&self, client: usize) -> usize {
        client % self.compute_nodes as usize
    }

    /// The thread of a client, among those of all nodes.
    pub(super) const fn thread_of(&self, client: usize) -> usize {
        client % self.all_threads()
    }
}
