//! The place of a memory node's tables, and its lives.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fpcache_client::TableName;
use fpcache_fabric::Serving;
use fpcache_fabric::shm::{ListenOptions, Listener, ShmAddress};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::files::Folders;
use fpcache_memserver::{Catalogue, CatalogueConfig};
use fpcache_sim::Random;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const CAPACITY: u64 = 32 << 20;

/// Bytes that the tables and what is left of dropped ones may take: of each a recovery area of about
/// 32 MiB, its log and its share of the capacity.
const ROOM: u64 = 256 << 20;

/// Bytes that may be written to a folder's file system; none if there is no such folder.
fn room_in(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |found| found.f_bavail * found.f_frsize)
}

/// Of a folder in which nothing can be made, renamed or removed.
const REFUSING: u32 = 0o500;

fn set_mode(folder: &Path, mode: u32) {
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("ours");
}

/// Has this thread, and those it starts, go by the modes of folders as any user but the superuser.
pub fn go_by_modes() {
    let mut sets = capabilities(None).expect("ours");
    sets.effective.remove(CapabilitySet::DAC_OVERRIDE);
    set_capabilities(None, sets).expect("fewer are always allowed");
}

/// The name of a table.
pub fn name(table: usize) -> TableName {
    format!("t{table}").parse().expect("a name")
}

pub struct Place {
    folder: tempfile::TempDir,
    address: ShmAddress,
    /// `None`: tables end with the memory node.
    sync: Option<SyncPolicy>,
    /// Whether the folder of a table is gone at each start, on purpose.
    pub loses_a_table: bool,
    /// Whether its disk refuses changes of folders now and then.
    pub is_failing: bool,
}

impl Place {
    pub fn new(random: &mut Random) -> Self {
        // Where a sync takes no time.
        let memory = Path::new("/dev/shm");
        let folder = match room_in(memory) >= ROOM {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let folder = folder.expect("a folder");
        let address = ShmAddress::at_path(folder.path().join("node.sock")).expect("a short path");
        let interval = SyncPolicy::Interval(Duration::from_millis(2));
        let sync = [Some(SyncPolicy::Always), Some(SyncPolicy::Always), Some(interval), None];
        Self {
            folder,
            address,
            sync: sync[random.below(4) as usize],
            loses_a_table: false,
            is_failing: false,
        }
    }

    /// The same, where tables outlast the memory node and the machine, on a disk that refuses to make
    /// or drop some.
    #[must_use]
    pub fn failing(self) -> Self {
        Self { sync: Some(SyncPolicy::Always), is_failing: true, ..self }
    }

    /// From here on no table's folder can be made, renamed or removed, of one kind or of both.
    pub fn refuse(&self, random: &mut Random) {
        let [data, regions] = self.tables();
        match random.below(3) {
            0 => set_mode(&data, REFUSING),
            1 => set_mode(&regions, REFUSING),
            _ => [data, regions].iter().for_each(|folder| set_mode(folder, REFUSING)),
        }
    }

    /// The disk takes everything again.
    pub fn mend(&self) {
        self.tables().iter().for_each(|folder| set_mode(folder, 0o700));
    }

    /// The folders of tables' folders.
    fn tables(&self) -> [PathBuf; 2] {
        let Folders { data, region } = self.folders();
        [data, region].map(|folder| folder.join("tables"))
    }

    pub fn url(&self) -> String {
        self.address.to_string()
    }

    pub fn is_durable(&self) -> bool {
        self.sync.is_some()
    }

    /// Whether the disk has all that was acknowledged.
    pub fn may_lose_memory(&self) -> bool {
        self.sync == Some(SyncPolicy::Always)
    }

    fn folders(&self) -> Folders {
        Folders { data: self.folder.path().join("data"), region: self.folder.path().join("regions") }
    }

    pub fn start(&self) -> Serving {
        if self.loses_a_table {
            self.lose_table();
        }
        let durable = self.sync.map(|sync| (self.folders(), sync));
        let config = CatalogueConfig { durable, ..CatalogueConfig::of(CAPACITY) };
        let catalogue = Catalogue::open(&config).expect("a start");
        let closed: Vec<_> = catalogue.closed().map(|(name, why)| format!("{name}: {why}")).collect();
        assert!(closed.is_empty(), "nothing is damaged, but tables are closed: {closed:?}");
        let listener = Listener::bind(&self.address, ListenOptions::default()).expect("a socket");
        listener.spawn(catalogue).expect("a thread")
    }

    fn lose_table(&self) {
        let Ok(mut tables) = fs::read_dir(self.folders().data.join("tables")) else { return };
        if let Some(table) = tables.next() {
            fs::remove_dir_all(table.expect("readable").path()).expect("ours");
        }
    }

    /// What the end of the machine takes: all regions, if they are in memory.
    pub fn lose_memory(&self) {
        let regions = self.folders().region;
        if regions.exists() {
            fs::remove_dir_all(regions).expect("ours");
        }
    }
}
