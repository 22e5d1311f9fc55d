//! Where the tables of a durable memory node lie: a folder for each.
//!
//! ```text
//! DATA_DIR/tables/NAME/         table.fpt · notes.fpn · log-*.fpl · snapshot-*.fps
//! REGION_DIR/tables/NAME/       region.fpr
//! DATA_DIR/tables/.new-NAME     a table that is being made
//! DATA_DIR/tables/.dropped-NAME a table that is being removed
//! ```
//!
//! A table is there from the renaming of its folder on, and gone from the renaming on: what a crash leaves of either is removed
//! when the memory node starts.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use fpcache::TableName;
use fpcache_fabric::{Access, MemoryError, SharedMemory};

use super::descriptor::Descriptor;
use super::error::{FolderError, TableOpenError};
use crate::store::Folders;

const TABLES: &str = "tables";
const DESCRIPTOR: &str = "table.fpt";
const NEW: &str = ".new-";
const DROPPED: &str = ".dropped-";

/// The folders of a memory node's tables.
#[derive(Debug)]
pub(crate) struct TablesFolder {
    data: PathBuf,
    regions: PathBuf,
}

/// Whether a folder holds a store as memory nodes with one table made it: the file that says so.
pub(crate) fn older_store(data: &Path) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(data)? {
        let path = entry?.path();
        let is_of_store = path
            .extension()
            .is_some_and(|extension| ["fpn", "fpl", "fps", "fpr"].iter().any(|of| extension == *of));
        if is_of_store && path.is_file() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

impl TablesFolder {
    /// The tables below these folders, which are made if they are not there. What a crash left of tables that were being made
    /// or removed is removed.
    pub(crate) fn open(folders: &Folders) -> Result<Self, FolderError> {
        let (data, regions) = (folders.data.join(TABLES), folders.region.join(TABLES));
        for folder in [&data, &regions] {
            fs::create_dir_all(folder).map_err(FolderError::new(folder, "making it"))?;
        }
        sync(&folders.data)?;
        let opened = Self { data, regions };
        for name in opened.names()? {
            if name.starts_with(NEW) {
                remove_all(&opened.data.join(&name))?;
            } else if let Some(name) = name.strip_prefix(DROPPED) {
                opened.clear_dropped(name)?;
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
        let list = || -> io::Result<Vec<String>> {
            // A name that is not UTF-8 is none of ours.
            let entries = fs::read_dir(&self.data)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
            entries.filter_map(Result::transpose).collect()
        };
        list().map_err(FolderError::new(&self.data, "listing it"))
    }

    /// Where a table's files lie.
    pub(crate) fn of(&self, name: &TableName) -> Folders {
        Folders { data: self.data.join(name.as_str()), region: self.regions.join(name.as_str()) }
    }

    /// What a table is.
    pub(crate) fn descriptor(&self, name: &TableName) -> Result<Descriptor, TableOpenError> {
        let path = self.of(name).data.join(DESCRIPTOR);
        let read = fs::read(&path).map_err(|error| error.to_string());
        read.and_then(|bytes| Descriptor::decode(&bytes))
            .map_err(|why| TableOpenError::Descriptor { path, why })
    }

    /// Makes a table's folder: it is there for good, or not at all.
    pub(crate) fn create(&self, name: &TableName, descriptor: &Descriptor) -> Result<(), FolderError> {
        self.clear_dropped(name.as_str())?;
        let (new, folder) = (self.data.join(format!("{NEW}{name}")), self.data.join(name.as_str()));
        remove_all(&new)?;
        let make = || -> io::Result<()> {
            fs::create_dir(&new)?;
            let mut file = File::create_new(new.join(DESCRIPTOR))?;
            file.write_all(&descriptor.encode())?;
            file.sync_all()?;
            File::open(&new)?.sync_all()?;
            fs::rename(&new, &folder)?;
            File::open(&self.data)?.sync_all()
        };
        make().map_err(FolderError::new(&folder, "making it"))
    }

    /// Removes a table's folder: from here on the table is gone for good. Its files remain until
    /// [`clear_dropped`](Self::clear_dropped).
    pub(crate) fn drop_table(&self, name: &TableName) -> Result<(), FolderError> {
        self.clear_dropped(name.as_str())?;
        let (folder, dropped) = (self.data.join(name.as_str()), self.data.join(format!("{DROPPED}{name}")));
        fs::rename(&folder, dropped).map_err(FolderError::new(&folder, "renaming it"))?;
        sync(&self.data)
    }

    /// Removes the files of a table that was dropped, if there was one of this name.
    pub(crate) fn clear_dropped(&self, name: &str) -> Result<(), FolderError> {
        let dropped = self.data.join(format!("{DROPPED}{name}"));
        if !dropped.exists() {
            return Ok(());
        }
        // The region first: as long as the other folder is there, this is known to be of no use. Unless the table is there again.
        let region = self.regions.join(name);
        if !self.data.join(name).exists() && !is_in_use(&region) {
            remove_all(&region)?;
        }
        remove_all(&dropped)
    }
}

/// Whether a running memory node has the region in this folder: folders for regions may be shared by mistake.
fn is_in_use(folder: &Path) -> bool {
    let region = Folders { data: folder.to_owned(), region: folder.to_owned() }.region_file();
    matches!(SharedMemory::open_file(region, Access::ReadWrite), Err(MemoryError::FileInUse { .. }))
}

fn sync(folder: &Path) -> Result<(), FolderError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(FolderError::new(folder, "syncing it"))
}

/// Removes a folder and what is in it, if it is there.
fn remove_all(folder: &Path) -> Result<(), FolderError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(FolderError::new(folder, "removing it")(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpcache::key_space::KeyKind;

    const U64: Descriptor = Descriptor { kind: KeyKind::U64, region_bytes: None };

    fn name(name: &str) -> TableName {
        name.parse().expect(name)
    }

    #[test]
    fn what_a_crash_leaves_of_tables_half_made_or_half_removed_is_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let folders = Folders { data: place.path().join("data"), region: place.path().join("region") };
        let tables = TablesFolder::open(&folders).expect("made");
        for table in ["a", "b", "c"] {
            tables.create(&name(table), &U64).expect("made");
            fs::create_dir(&tables.of(&name(table)).region).expect("made");
        }
        assert!(tables.create(&name("a"), &U64).is_err(), "it is there");
        tables.drop_table(&name("b")).expect("dropped");
        fs::create_dir(tables.data.join(".new-d")).expect("made");
        fs::write(tables.data.join("notes.txt"), "somebody's").expect("written");
        assert!(tables.of(&name("b")).region.exists());

        let tables = TablesFolder::open(&folders).expect("there");
        assert_eq!(tables.tables().expect("listed"), [name("a"), name("c"), name("notes.txt")]);
        assert!(!tables.of(&name("b")).region.exists() && tables.of(&name("c")).region.exists());
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
        tables.create(&table, &U64).expect("made");
        fs::write(tables.of(&table).region_file(), "memory").expect("written");
        tables.drop_table(&table).expect("dropped");
        let bytes = Descriptor { kind: KeyKind::Bytes, ..U64 };
        tables.create(&table, &bytes).expect("made");
        assert!(!tables.of(&table).region_file().exists());
        assert_eq!(tables.descriptor(&table).expect("whole"), bytes);
        assert_eq!(tables.names().expect("listed"), ["t"]);
    }

    #[test]
    fn a_store_of_the_older_form_is_recognised() {
        let place = tempfile::tempdir().expect("a folder");
        TablesFolder::open(&Folders { data: place.path().into(), region: place.path().into() })
            .expect("made");
        assert_eq!(older_store(place.path()).expect("readable"), None);
        let log = place.path().join("log-0000000000000001.fpl");
        fs::write(&log, "").expect("written");
        assert_eq!(older_store(place.path()).expect("readable"), Some(log));
    }
}
