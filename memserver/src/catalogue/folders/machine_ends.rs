//! Tables that are made and dropped on a machine that ends: in each folder the names may be those
//! that are there, or those that were there when they were last synced.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;

use fpcache::key_space::KeyKind;

use super::*;
use crate::folder::tests::BEFORE_SYNC;

/// What lies in a folder.
type Names = BTreeMap<OsString, Entry>;

#[derive(Clone, PartialEq)]
enum Entry {
    /// By its inode.
    Folder(u64),
    File(Vec<u8>),
}

/// All folders in this one, by their inodes, and their own.
fn folders_in(path: &Path, found: &mut HashMap<u64, (File, Names)>) -> u64 {
    let folder = File::open(path).expect("it is there");
    let inode = folder.metadata().expect("it can be examined").ino();
    let names = fs::read_dir(path).expect("it can be listed").map(|entry| {
        let path = entry.expect("it can be listed").path();
        let entry = match path.is_dir() {
            true => Entry::Folder(folders_in(&path, found)),
            false => Entry::File(fs::read(&path).expect("it can be read")),
        };
        (path.file_name().expect("it has a name").to_owned(), entry)
    });
    let names = names.collect();
    found.insert(inode, (folder, names));
    inode
}

/// Makes a folder of these names, and all in it.
fn build(path: &Path, inode: u64, names: &impl Fn(u64) -> Names) {
    DirBuilder::new().mode(0o700).create(path).expect("room");
    for (name, entry) in names(inode) {
        match entry {
            Entry::Folder(inode) => build(&path.join(name), inode, names),
            Entry::File(bytes) => fs::write(path.join(name), bytes).expect("room"),
        }
    }
}

/// A machine with folders, and what a memory node on it has acknowledged.
struct Machine {
    root: PathBuf,
    /// The folders as they were last synced. They are kept open, so that their inodes remain
    /// theirs.
    synced: HashMap<u64, (File, Names)>,
    /// The creations of the tables that there are.
    tables: BTreeMap<String, u64>,
    /// What is being done.
    change: Option<(String, Option<u64>)>,
}

impl Machine {
    /// That each way in which it may end now leaves the tables that there are, with or without the
    /// change under way.
    fn may_end(&self) {
        let mut live = HashMap::new();
        let root = folders_in(&self.root, &mut live);
        let names = |of: &HashMap<u64, (File, Names)>, inode| of.get(&inode).map(|(_, names)| names.clone());
        let is_new = |inode: &u64| names(&self.synced, *inode) != names(&live, *inode);
        let changed: BTreeSet<u64> = live.keys().copied().filter(is_new).collect();
        for which in 0..1u32 << changed.len() {
            let is_live = |inode| {
                changed.iter().position(|other| *other == inode).is_some_and(|at| which >> at & 1 == 1)
            };
            let left =
                |inode| names(if is_live(inode) { &live } else { &self.synced }, inode).unwrap_or_default();
            let place = tempfile::tempdir().expect("a folder");
            build(&place.path().join("machine"), root, &left);
            self.check(&place.path().join("machine"));
        }
    }

    fn check(&self, left: &Path) {
        let tables = TablesFolder::open(&folders(left)).expect("it can be opened");
        let creation = |name: &TableName| tables.descriptor(name).expect("it is whole").creation;
        let found = tables.tables().expect("listed").into_iter();
        let found: BTreeMap<_, _> = found.map(|name| (name.to_string(), creation(&name))).collect();
        let mut changed = self.tables.clone();
        match &self.change {
            Some((name, Some(creation))) => _ = changed.insert(name.clone(), *creation),
            Some((name, None)) => _ = changed.remove(name),
            None => {}
        }
        assert!(found == self.tables || found == changed, "{found:?} for {:?} or {changed:?}", self.tables);
    }
}

fn folders(root: &Path) -> Folders {
    Folders { data: root.join("data"), region: root.join("regions") }
}

/// Nothing of a table that is made or dropped depends on names that were not synced.
#[test]
fn a_machine_may_end_at_any_step_of_making_and_dropping_tables() {
    let place = tempfile::tempdir().expect("a folder");
    let tables = TablesFolder::open(&folders(place.path())).expect("made");
    let (root, mut synced) = (place.path().to_owned(), HashMap::new());
    folders_in(&root, &mut synced);
    let machine = Rc::new(RefCell::new(Machine { root, synced, tables: BTreeMap::new(), change: None }));
    let watched = Rc::clone(&machine);
    let before_sync = move |path: &Path| {
        watched.borrow().may_end();
        let mut live = HashMap::new();
        let inode = folders_in(path, &mut live);
        watched.borrow_mut().synced.extend(live.remove_entry(&inode));
    };
    BEFORE_SYNC.set(Some(Box::new(before_sync)));

    let changes =
        [("a", true), ("b", true), ("a", false), ("a", true), ("b", false), ("a", false), ("b", true)];
    for (creation, (table, is_made)) in (1..).zip(changes) {
        let name: TableName = table.parse().expect("a name");
        let becomes = is_made.then_some(creation);
        machine.borrow_mut().change = Some((table.to_owned(), becomes));
        if is_made {
            let descriptor = TableDescriptor { kind: KeyKind::U64, region_bytes: None, creation };
            tables.create(&name, &descriptor, None).expect("made");
        } else {
            tables.drop_table(&name).expect("dropped");
        }
        let mut now = machine.borrow_mut();
        now.change = None;
        match becomes {
            Some(creation) => _ = now.tables.insert(table.to_owned(), creation),
            None => _ = now.tables.remove(table),
        }
        drop(now);
        machine.borrow().may_end();
        if is_made {
            let folder = tables.of(&name).expect("made");
            fs::write(folder.region.path().join(REGION_FILE), "memory").expect("room");
        } else if table == "a" {
            tables.remove_dropped(table).expect("removed");
        }
        machine.borrow().may_end();
    }
    BEFORE_SYNC.set(None);
}
