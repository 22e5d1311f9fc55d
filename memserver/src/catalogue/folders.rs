//! The folders of a durable memory node, one for each table.
//!
//! ```text
//! DATA_DIR/tables/NAME/         table.fpt · map.fpm (of a range) · notes.fpn · log-*.fpl · snapshot-*.fps
//! REGION_DIR/tables/NAME/       region.fpr
//! DATA_DIR/tables/.new-NAME     a table that is being made
//! DATA_DIR/tables/.dropped-NAME a table that is being removed
//! ```
//!
//! Creating and dropping a table each take effect by renaming its folder. What a crash leaves of
//! either is removed when the memory node starts.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use fpcache::TableName;
use fpcache::map::{MAX_MAP_BYTES, RangeMap};
use fpcache_fabric::{Access, FileAt, MemoryError, SharedMemory};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tracing::warn;

use super::descriptor::TableDescriptor;
use super::error::TableOpenError;
use super::hosted;
use crate::files::{Folders, RECOVERY_AREA_FILE, REGION_FILE};
use crate::folder::{Folder, FolderError};

const TABLES: &str = "tables";
const DESCRIPTOR: &str = "table.fpt";
const MAP: &str = "map.fpm";
const NEW_MAP: &str = "map.new";
const OLD_MAP: &str = "map.old";
const NEW: &str = ".new-";
const DROPPED: &str = ".dropped-";

/// The folders of a memory node's tables.
#[derive(Debug)]
pub(crate) struct TablesFolder {
    data: Folder,
    regions: Folder,
}

/// The folders of one table.
#[derive(Debug)]
pub(crate) struct TableFolder {
    /// Log, snapshots and recovery area.
    pub(crate) data: Folder,
    /// The region.
    pub(crate) region: Folder,
    region_path: PathBuf,
    recovery_area_path: PathBuf,
}

impl TableFolder {
    fn new(data: Folder, region: Folder) -> Self {
        let (region_path, recovery_area_path) =
            (region.path().join(REGION_FILE), data.path().join(RECOVERY_AREA_FILE));
        Self { data, region, region_path, recovery_area_path }
    }

    /// The region's file; its path too.
    pub(crate) fn region_file(&self) -> (FileAt<'_>, &PathBuf) {
        (FileAt::within(self.region.as_fd(), &self.region_path), &self.region_path)
    }

    /// The recovery area's file; its path too.
    pub(crate) fn notes_file(&self) -> (FileAt<'_>, &PathBuf) {
        (FileAt::within(self.data.as_fd(), &self.recovery_area_path), &self.recovery_area_path)
    }

    /// Whether there are region and recovery area.
    pub(crate) fn has_memories(&self) -> Result<(bool, bool), FolderError> {
        Ok((self.region.has(REGION_FILE)?, self.data.has(RECOVERY_AREA_FILE)?))
    }
}

/// What of a table lies in a folder directly: tables that were made there would go with that one when
/// it is dropped, or look like a damaged one. Others' folders that cannot be looked into are not, and
/// beside `tables` copies of tables may lie.
pub(crate) fn table_in(folder: &Folder) -> std::io::Result<Option<String>> {
    let mut names = folder.names()?;
    if names.iter().any(|name| name == TABLES) {
        names.retain(|name| name == TABLES);
    }
    let names = names.into_iter().map(|name| format!("{name}/{DESCRIPTOR}"));
    Ok(std::iter::once(DESCRIPTOR.to_owned()).chain(names).find(|name| folder.has(name).unwrap_or(false)))
}

/// What lies in a folder that never had tables, if anything does: it may be the wrong one.
pub(crate) fn foreign_contents(folder: &Folder) -> Option<String> {
    const SHOWN: usize = 3;
    if folder.has(TABLES).unwrap_or(true) {
        return None;
    }
    let mut names = folder.names().unwrap_or_default();
    // File systems begin with this one.
    names.retain(|name| name != "lost+found");
    names.sort_unstable();
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect();
    let others = match names.len() {
        0 => return None,
        count if count > SHOWN => format!(" and {} more", count - SHOWN),
        _ => String::new(),
    };
    Some(shown.join(", ") + &others)
}

/// Writes a file that is not there yet, down to the disk.
fn write_new(folder: &Folder, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = folder.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The bytes of a file; of one longer than any of these can be, its beginning.
fn read(folder: &Folder, name: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    folder.open_file(name, OFlags::RDONLY)?.take(1 + MAX_MAP_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Puts another map in the place of a range's; `sync` makes the folder's names durable.
fn put_map_in(
    folder: &Folder,
    map: &RangeMap,
    sync: impl Fn(&Folder) -> Result<(), FolderError>,
) -> Result<(), FolderError> {
    for left in [NEW_MAP, OLD_MAP] {
        folder.remove_all(left)?;
    }
    let put = || {
        // Before the new one counts: later the disk may take nothing more.
        write_new(folder, OLD_MAP, &read(folder, MAP)?)?;
        write_new(folder, NEW_MAP, &map.encode())?;
        folder.rename(NEW_MAP, MAP)
    };
    put().map_err(FolderError::new(folder.path().join(MAP), "writing it"))?;
    sync(folder).inspect_err(|_| {
        // The new one is not acknowledged, so it must not count later.
        if folder.rename(OLD_MAP, MAP).is_ok() {
            let _ = sync(folder);
        }
    })?;
    // What stays is removed the next time.
    let _ = folder.remove_all(OLD_MAP);
    Ok(())
}

/// Whether a file could not be opened because there is none, or something else in its place.
fn is_no_file(error: &std::io::Error) -> bool {
    let none = [Errno::NOENT, Errno::LOOP, Errno::ISDIR, Errno::NXIO];
    Errno::from_io_error(error).is_some_and(|errno| none.contains(&errno))
}

impl TablesFolder {
    /// The tables below these folders, which are made if they are not there. What a crash left of
    /// tables that were being made or removed is removed, or stays if it cannot be: it is of no
    /// other table, and looked at again when one of its name is made or dropped.
    pub(crate) fn open(folders: &Folders) -> Result<Self, FolderError> {
        let below = |path| Folder::named(path)?.make_child(TABLES);
        let opened = Self { data: below(&folders.data)?, regions: below(&folders.region)? };
        for name in opened.names()? {
            let removed = match name.strip_prefix(DROPPED) {
                Some(dropped) => opened.clear_dropped(dropped),
                None if name.starts_with(NEW) => opened.data.remove_all(&name),
                None => Ok(()),
            };
            if let Err(error) = removed {
                warn!("what is left of a table that was being made or removed stays in {name}: {error}");
            }
        }
        Ok(opened)
    }

    /// The tables that are there, in the order of their names.
    pub(crate) fn tables(&self) -> Result<Vec<TableName>, FolderError> {
        let mut names: Vec<TableName> = self.names()?.iter().filter_map(|name| name.parse().ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn names(&self) -> Result<Vec<String>, FolderError> {
        self.data.names().map_err(FolderError::new(self.data.path(), "listing it"))
    }

    /// Where a table's files lie. The folder of its region is made if it is not there.
    pub(crate) fn of(&self, name: &TableName) -> Result<TableFolder, FolderError> {
        Ok(TableFolder::new(self.data.child(name.as_str())?, self.regions.make_child(name.as_str())?))
    }

    /// What a table is.
    pub(crate) fn descriptor(&self, name: &TableName) -> Result<TableDescriptor, TableOpenError> {
        let path = self.data.path().join(name.as_str()).join(DESCRIPTOR);
        let folder = match self.data.child(name.as_str()) {
            Err(error @ FolderError::Unsafe { .. }) => return Err(error.into()),
            opened => opened.map_err(|error| error.to_string()),
        };
        let bytes = folder.and_then(|folder| read(&folder, DESCRIPTOR).map_err(|error| error.to_string()));
        let descriptor = bytes.and_then(|bytes| TableDescriptor::decode(&bytes));
        descriptor.map_err(|why| TableOpenError::Descriptor { path, why })
    }

    /// Makes a table's folder: it is there for good, or not at all.
    pub(crate) fn create(
        &self,
        name: &TableName,
        descriptor: &TableDescriptor,
        map: Option<&RangeMap>,
    ) -> Result<(), FolderError> {
        self.clear_dropped(name.as_str())?;
        let new = format!("{NEW}{name}");
        self.data.remove_all(&new)?;
        let folder = self.data.make_child(&new)?;
        let make = || -> std::io::Result<()> {
            write_new(&folder, DESCRIPTOR, &descriptor.encode())?;
            if let Some(map) = map {
                write_new(&folder, MAP, &map.encode())?;
            }
            folder.sync()?;
            self.data.rename(&new, name.as_str())
        };
        make().map_err(FolderError::new(self.data.path().join(name.as_str()), "making it"))?;
        self.data.sync().inspect_err(|_| {
            // It is not acknowledged, so it must not be there later. What cannot be removed now is
            // at the next start.
            let dropped = format!("{DROPPED}{name}");
            if self.data.rename(name.as_str(), &dropped).is_ok() {
                let _ = self.data.remove_all(&dropped);
            }
        })
    }

    /// The map that a range goes by.
    pub(crate) fn map(&self, name: &TableName) -> Result<RangeMap, TableOpenError> {
        let path = self.data.path().join(name.as_str()).join(MAP);
        let map = || -> Result<RangeMap, String> {
            let folder = self.data.child(name.as_str()).map_err(|error| error.to_string())?;
            let bytes = read(&folder, MAP).map_err(|error| error.to_string())?;
            RangeMap::decode(&bytes).map_err(|error| error.to_string())
        };
        map().map_err(|why| TableOpenError::Descriptor { path, why })
    }

    /// Has a range go by another map from its next start on: by the one or the other, whatever
    /// happens. After an error it is the one that it had, if the disk takes so much.
    pub(crate) fn put_map(&self, name: &TableName, map: &RangeMap) -> Result<(), FolderError> {
        put_map_in(&self.data.child(name.as_str())?, map, Folder::sync)
    }

    /// Removes a table's folder: from here on the table is gone for good. Its files remain until
    /// [`remove_dropped`](Self::remove_dropped).
    pub(crate) fn drop_table(&self, name: &TableName) -> Result<(), FolderError> {
        let dropped = format!("{DROPPED}{name}");
        if !self.data.has(name.as_str())? && self.data.has(&dropped)? {
            // It was renamed already, by a call that failed after that: perhaps this was not made
            // durable.
            return self.data.sync();
        }
        self.clear_dropped(name.as_str())?;
        let renamed = self.data.rename(name.as_str(), &dropped);
        renamed.map_err(FolderError::new(self.data.path().join(name.as_str()), "renaming it"))?;
        self.data.sync()
    }

    /// Gives up the region of a table that was dropped, which some process may still map, and
    /// removes its files, if there was one of this name.
    pub(crate) fn clear_dropped(&self, name: &str) -> Result<(), FolderError> {
        self.give_up_region(name)?;
        self.remove_dropped(name)
    }

    /// Gives up the region of a table that was dropped: a process that still maps it reads nothing
    /// of it.
    pub(crate) fn give_up_region(&self, name: &str) -> Result<(), FolderError> {
        // Unless the table is there again. What is no safe folder is no memory node's.
        if !self.data.has(&format!("{DROPPED}{name}"))? || self.data.has(name)? {
            return Ok(());
        }
        let Ok(folder) = self.regions.child(name) else { return Ok(()) };
        let path = folder.path().join(REGION_FILE);
        let failed = |source| FolderError::new(&path, "clearing the memory in it")(source);
        match folder.open_file(REGION_FILE, OFlags::RDWR | OFlags::NONBLOCK) {
            // What is a link goes itself.
            Err(error) if is_no_file(&error) => Ok(()),
            Err(error) => Err(failed(error)),
            Ok(_) => {
                let place = FileAt::within(folder.as_fd(), &path);
                match SharedMemory::open_file(place, Access::ReadWrite) {
                    Ok((region, _)) => {
                        hosted::give_up_all(&region).map_err(|error| failed(std::io::Error::other(error)))
                    }
                    // Another's, or no memory node's.
                    Err(MemoryError::FileInUse { .. } | MemoryError::NotMemory { .. }) => Ok(()),
                    Err(error) => Err(failed(std::io::Error::other(error))),
                }
            }
        }
    }

    /// Removes the files of a table that was dropped, if there was one of this name.
    pub(crate) fn remove_dropped(&self, name: &str) -> Result<(), FolderError> {
        let dropped = format!("{DROPPED}{name}");
        if !self.data.has(&dropped)? {
            return Ok(());
        }
        // The region first: as long as the other folder is there, this is known to be of no use.
        // Unless the table is there again.
        if !self.data.has(name)? && !self.is_in_use(name) {
            self.regions.remove_all(name)?;
        }
        self.data.remove_all(&dropped)
    }

    /// Whether a running memory node has the region of this table: folders for regions may be
    /// shared by mistake.
    fn is_in_use(&self, name: &str) -> bool {
        // What is no safe folder is no memory node's; what is removed then is the name.
        let Ok(folder) = self.regions.child(name) else { return false };
        let path = folder.path().join(REGION_FILE);
        let opened = SharedMemory::open_file(FileAt::within(folder.as_fd(), &path), Access::ReadWrite);
        matches!(opened, Err(MemoryError::FileInUse { .. }))
    }
}

#[cfg(test)]
mod machine_ends;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use fpcache::key_space::KeyKind;
    use fpcache::map::MapState;

    const U64: TableDescriptor = TableDescriptor { kind: KeyKind::U64, region_bytes: None, creation: 5 };

    fn name(name: &str) -> TableName {
        name.parse().expect(name)
    }

    #[test]
    fn what_a_crash_leaves_of_tables_half_made_or_half_removed_is_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let folders = Folders { data: place.path().join("data"), region: place.path().join("region") };
        let tables = TablesFolder::open(&folders).expect("made");
        for table in ["a", "b", "c"] {
            tables.create(&name(table), &U64, None).expect("made");
            tables.of(&name(table)).expect("made");
        }
        assert!(tables.create(&name("a"), &U64, None).is_err(), "it is there");
        tables.drop_table(&name("b")).expect("dropped");
        fs::create_dir(tables.data.path().join(".new-d")).expect("made");
        fs::write(tables.data.path().join("notes.txt"), "somebody's").expect("written");
        let region = |of: &str| folders.region.join("tables").join(of);
        assert!(region("b").exists());

        let tables = TablesFolder::open(&folders).expect("there");
        assert_eq!(tables.tables().expect("listed"), [name("a"), name("c"), name("notes.txt")]);
        assert!(!region("b").exists() && region("c").exists());
        let mut left = tables.names().expect("listed");
        left.sort();
        assert_eq!(left, ["a", "c", "notes.txt"]);
        assert_eq!(tables.descriptor(&name("a")).expect("whole"), U64);
        let error = tables.descriptor(&name("notes.txt")).expect_err("no folder").to_string();
        assert!(error.contains("table.fpt") && error.contains("restore that file"), "{error}");
    }

    #[test]
    fn a_table_that_is_made_anew_keeps_nothing_of_the_one_before() {
        let place = tempfile::tempdir().expect("a folder");
        let folders = Folders { data: place.path().to_owned(), region: place.path().to_owned() };
        let tables = TablesFolder::open(&folders).expect("made");
        let table = name("t");
        tables.create(&table, &U64, None).expect("made");
        let region = place.path().join("tables/t/region.fpr");
        fs::write(&region, "memory").expect("written");
        tables.drop_table(&table).expect("dropped");
        let bytes = TableDescriptor { kind: KeyKind::Bytes, ..U64 };
        tables.create(&table, &bytes, None).expect("made");
        assert!(!region.exists());
        assert_eq!(tables.descriptor(&table).expect("whole"), bytes);
        assert_eq!(tables.names().expect("listed"), ["t"]);
    }

    #[test]
    fn a_map_that_could_not_be_made_durable_does_not_count_at_the_next_start() {
        let place = tempfile::tempdir().expect("a folder");
        let folders = Folders { data: place.path().to_owned(), region: place.path().to_owned() };
        let tables = TablesFolder::open(&folders).expect("made");
        let nodes = ["shm://a".to_owned(), "shm://b".to_owned()];
        let made =
            RangeMap::divide(name("t"), KeyKind::U64, 5, &nodes, &[vec![1; 8]]).expect("a map of two ranges");
        let prepared = made.next(MapState::Making).expect("a version");
        let table = made.table(&made.ranges[0]).expect("a name");
        tables.create(&table, &U64, Some(&made)).expect("made");
        let folder = tables.data.child(table.as_str()).expect("there");
        let failing = |folder: &Folder| {
            Err(FolderError::new(folder.path(), "syncing it")(std::io::ErrorKind::StorageFull.into()))
        };
        for _ in 0..2 {
            put_map_in(&folder, &prepared, failing).expect_err("it is not durable");
            assert_eq!(tables.map(&table).expect("readable"), made);
        }
        tables.put_map(&table, &prepared).expect("written");
        assert_eq!(tables.map(&table).expect("readable"), prepared);
        let mut left = folder.names().expect("listed");
        left.sort();
        assert_eq!(left, [MAP, DESCRIPTOR]);
    }
}
