//! The daemon's messages at start-up.

use std::fmt;
use std::path::PathBuf;

use bytesize::ByteSize;
use fpcache::TableName;
use fpcache::key_space::KeyKind;
use fpcache::message::TableInfo;
use fpcache_fabric::shm::{Listener, ShmAddress};
use fpcache_fabric::{Pages, tcp};

use super::limits::DescriptorLimit;
use crate::catalogue::{Catalogue, DESCRIPTORS_FOR_CLIENTS};
use crate::durability::SyncPolicy;
use crate::recovery::{Origin, Recovery};

/// Pages are no larger: a region may exceed what was asked for by less.
const LARGEST_PAGE: u64 = 2 << 20;

/// A daemon's first words: address, transport, capacity, tables, and the next command to type.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// Where it listens.
    addresses: Vec<String>,
    /// Of those over TCP, the ones where clients need a token, and the others.
    with_tokens: [Vec<String>; 2],
    maps: bool,
    others: Option<ShmAddress>,
    capacity: u64,
    granted: u64,
    /// The folder that keeps the data, and when they reach the disk.
    durable: Option<(PathBuf, SyncPolicy)>,
    pages: Pages,
    room: DescriptorRoom,
    tables: Vec<(TableInfo, Option<Recovery>)>,
    /// Tables that are not served, and why.
    closed: Vec<(TableName, String)>,
}

/// What the limits of open files and of connections leave room for.
#[derive(Clone, Copy, Debug)]
struct DescriptorRoom {
    limit: usize,
    /// Clients that map the memory, where they can connect.
    clients: Option<usize>,
    /// Connections over sockets, where there are some, and whether no more are wanted.
    connections: Option<(usize, bool)>,
    tables: usize,
}

impl fmt::Display for DescriptorRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, clients, connections, tables } = *self;
        if let Some(clients) = clients {
            write!(f, "{clients} clients")?;
            f.write_str(if connections.is_some() { " by shared memory and " } else { "" })?;
        }
        if let Some((connections, is_wanted)) = connections {
            write!(f, "{connections} connections over sockets")?;
            f.write_str(if is_wanted { " (--max-connections)" } else { "" })?;
        }
        write!(f, ", or {tables} more tables (the limit of {limit} open files, ulimit -n)")
    }
}

impl Greeting {
    pub(super) fn of(
        (listener, sockets): (Option<&Listener>, Option<&tcp::Listener>),
        catalogue: &Catalogue,
        durable: Option<(PathBuf, SyncPolicy)>,
        descriptors: &DescriptorLimit,
    ) -> Self {
        let left = descriptors.shared.left();
        let mapped = listener.map(|listener| listener.address().to_string());
        let over_sockets = sockets.map(tcp::Listener::addresses).unwrap_or_default();
        let room = DescriptorRoom {
            limit: descriptors.limit,
            clients: listener.map(|listener| listener.max_clients().min(left)),
            connections: sockets.map(|sockets| {
                let most = sockets.max_connections();
                (most.min(left), most <= left)
            }),
            tables: left.saturating_sub(DESCRIPTORS_FOR_CLIENTS) / catalogue.table_descriptors(),
        };
        let found = catalogue.recoveries().map(|(_, recovery)| recovery.cloned());
        Self {
            with_tokens: [true, false].map(|needed| {
                let rules = sockets.iter().flat_map(|sockets| sockets.token_rules());
                rules.filter(|(_, needs)| *needs == needed).map(|(address, _)| address.to_string()).collect()
            }),
            maps: mapped.is_some(),
            addresses: mapped.into_iter().chain(over_sockets.iter().map(ToString::to_string)).collect(),
            others: listener.and_then(Listener::address_for_others),
            capacity: catalogue.budget().bytes(),
            granted: catalogue.budget().granted(),
            durable,
            pages: catalogue.pages(),
            room,
            tables: catalogue.tables().zip(found).collect(),
            closed: catalogue.closed().map(|(name, why)| (*name, why)).collect(),
        }
    }

    /// The first address, which every client of this machine can use.
    fn address(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }

    /// Where clients over TCP need a token, if there are such.
    fn write_tokens(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const OPEN: &str = "where none is asked for (--require-token)";
        let [needed, open] = &self.with_tokens;
        match (needed.is_empty(), open.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => writeln!(f, "  tokens     required"),
            (true, false) => writeln!(f, "  tokens     not required at {}, {OPEN}", open.join(", ")),
            (false, false) => {
                let (needed, open) = (needed.join(", "), open.join(", "));
                writeln!(f, "  tokens     required at {needed}; not at {open}, {OPEN}")
            }
        }
    }

    /// Whether the data outlive the process, and how.
    fn write_durability(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((folder, sync)) = &self.durable else {
            return writeln!(f, "  durable    no: the data end with this process (--data-dir keeps them)");
        };
        let synced = match sync {
            SyncPolicy::Always => "synced before writes are acknowledged".to_owned(),
            SyncPolicy::Interval(_) => format!("synced every {sync}"),
            SyncPolicy::Never => "synced when the operating system likes".to_owned(),
        };
        writeln!(f, "  durable    in {}, {synced} (--fsync {sync})", folder.display())
    }

    /// A region that was kept, and has another size than a new one would have.
    fn write_kept(
        &self,
        f: &mut fmt::Formatter<'_>,
        (table, recovery): &(TableInfo, Option<Recovery>),
    ) -> fmt::Result {
        let kept = matches!(recovery.as_ref().map(|found| &found.origin), Some(Origin::Memory { .. }));
        if kept && self.capacity > table.region_bytes + LARGEST_PAGE {
            let region = iec(table.region_bytes);
            writeln!(
                f,
                "  region     of {}: {region}; to change its size, stop this memory node, move its region.fpr away and start \
                 it again",
                table.name
            )?;
        }
        Ok(())
    }

    /// One table, in as many lines as there is to say.
    fn write_only(&self, f: &mut fmt::Formatter<'_>, table: &(TableInfo, Option<Recovery>)) -> fmt::Result {
        let (TableInfo { name, kind, keys, .. }, recovery) = table;
        if *name != TableName::default() {
            writeln!(f, "  table      {name}")?;
        }
        if let Some(recovery) = recovery {
            writeln!(f, "  found      {recovery}")?;
        }
        self.write_kept(f, table)?;
        match keys {
            0 => writeln!(f, "  keys       {kind}"),
            keys => writeln!(f, "  holds      {keys} keys, {kind}"),
        }
    }

    fn write_many(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for table in &self.tables {
            let (TableInfo { name, kind, keys, .. }, recovery) = table;
            writeln!(f, "  table      {name}: {keys} keys, {kind}")?;
            if let Some(recovery) = recovery {
                writeln!(f, "             found {recovery}")?;
            }
            self.write_kept(f, table)?;
        }
        Ok(())
    }
}

fn iec(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

impl fmt::Display for Greeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = match self.pages {
            Pages::Ordinary => "ordinary pages",
            Pages::Advised => "ordinary pages, merged into huge ones as they fill",
            Pages::Huge => "huge pages",
        };
        writeln!(f, "FPCache memory node {}", env!("CARGO_PKG_VERSION"))?;
        for address in &self.addresses {
            writeln!(f, "  address    {address}")?;
        }
        if let Some(others) = &self.others {
            writeln!(f, "  others     {others}, for the users of --allow-user")?;
        }
        self.write_tokens(f)?;
        let transport = match (self.maps, self.addresses.len()) {
            (true, 1) => "shared memory of this machine",
            (true, _) => "shared memory of this machine, and sockets",
            (false, _) => "sockets",
        };
        writeln!(f, "  transport  {transport}, {pages}")?;
        write!(f, "  capacity   {}", iec(self.capacity))?;
        match self.granted > self.capacity {
            true => writeln!(f, ", of which existing tables use {}", iec(self.granted))?,
            false => writeln!(f)?,
        }
        self.write_durability(f)?;
        writeln!(f, "  room       {}", self.room)?;
        match &self.tables[..] {
            [only] => self.write_only(f, only)?,
            _ => self.write_many(f)?,
        }
        for (name, why) in &self.closed {
            writeln!(f, "  closed     {name}: {why}")?;
        }
        // Of a table with keys if there is one, and of the one that need not be named before
        // others.
        let shown = self.tables.iter().map(|(table, _)| table);
        let Some(TableInfo { name, kind, keys, .. }) =
            shown.max_by_key(|table| (table.keys > 0, table.name == TableName::default()))
        else {
            return write!(f, "  next       fpcache-cli --url {} tables", self.address());
        };
        write!(f, "  next       fpcache-cli --url {}", self.address())?;
        if *name != TableName::default() {
            write!(f, " --table {name}")?;
        }
        match (keys, kind) {
            (0, KeyKind::U64) => write!(f, " load ipv4"),
            (0, KeyKind::Bytes) => write!(f, " load words"),
            _ => write!(f, " scan --limit 5"),
        }
    }
}
