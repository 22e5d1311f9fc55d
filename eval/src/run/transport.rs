//! The transports of an experiment.

/// Where the memory node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// A second process, over shared memory
    Shm,
    /// A second process, over TCP
    Tcp,
    /// A second process, over network cards (RDMA), at 127.0.0.1
    Rdma,
    /// A second process, over a unix socket
    Unix,
    /// Inside this process
    Local,
    /// Modelled cards: ConnectX-6 at 100 Gb/s
    #[value(name = "nic:cx6-100g")]
    NicCx6,
    /// ConnectX-5 at 100 Gb/s
    #[value(name = "nic:cx5-100g")]
    NicCx5,
    /// ConnectX-3 at 40 Gb/s
    #[value(name = "nic:cx3-40g")]
    NicCx3,
    /// Kernel TCP at 25 Gb/s
    #[value(name = "nic:tcp-25g")]
    NicTcp,
}

impl Transport {
    /// Its name in options and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
            Self::Unix => "unix",
            Self::Local => "local",
            Self::NicCx6 => "nic:cx6-100g",
            Self::NicCx5 => "nic:cx5-100g",
            Self::NicCx3 => "nic:cx3-40g",
            Self::NicTcp => "nic:tcp-25g",
        }
    }

    /// The name of the modelled card, if it is one.
    pub fn card(self) -> Option<&'static str> {
        self.as_str().strip_prefix("nic:")
    }
}
