use super::*;
use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;

type Watch = Box<dyn FnMut(&Path)>;

thread_local! {
    /// What is done before a folder's names are made durable.
    pub(crate) static BEFORE_SYNC: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

pub(crate) fn before_sync(path: &Path) {
    // What it does may sync folders, too.
    let Some(mut watch) = BEFORE_SYNC.take() else { return };
    watch(path);
    BEFORE_SYNC.set(Some(watch));
}

/// Goes to a folder; in which folders names were made durable on the way, each as it was then.
fn synced_on_the_way(path: &Path) -> Vec<(u64, Vec<CString>)> {
    let mut synced = Vec::new();
    let sync = |folder: BorrowedFd<'_>| {
        synced.push((rustix::fs::fstat(folder)?.st_ino, entries(folder)?));
        sync_names(folder)
    };
    Walk::begin(path, sync).and_then(Walk::end).expect("this user may write here");
    synced
}

#[test]
fn the_names_of_folders_that_are_made_are_made_durable_in_their_parents() {
    let top = tempfile::tempdir().expect("a folder");
    let path = top.path().join("some/data");
    let inode = |path: &Path| path.metadata().expect("a folder").ino();
    let synced = synced_on_the_way(&path);
    let expected = [
        (inode(top.path()), vec![c"some".to_owned()]),
        (inode(&top.path().join("some")), vec![c"data".to_owned()]),
    ];
    assert_eq!(synced, expected, "each in its parent, once it is there");
    assert_eq!(synced_on_the_way(&path), [], "nothing is made");
    std::os::unix::fs::symlink("some/other", top.path().join("link")).expect("a link");
    let by_link = synced_on_the_way(&top.path().join("link"));
    assert_eq!(by_link.len(), 1);
    assert_eq!(by_link[0].0, inode(&top.path().join("some")), "where it lies, not where the link does");
}

/// File systems in user space need not tell: no snapshot was ever begun there.
#[test]
fn a_file_system_that_does_not_tell_its_room_is_not_full() {
    let mut told = rustix::fs::statvfs("/").expect("a file system");
    (told.f_blocks, told.f_bfree, told.f_bavail, told.f_frsize) = (10, 4, 3, 4096);
    assert_eq!((room_of(&told, false), room_of(&told, true)), (Some(3 * 4096), Some(4 * 4096)));
    (told.f_bfree, told.f_bavail) = (0, 0);
    assert_eq!((room_of(&told, false), room_of(&told, true)), (Some(0), Some(0)), "it is full");
    told.f_blocks = 0;
    assert_eq!((room_of(&told, false), room_of(&told, true)), (None, None));
}

/// Memory that could not be looked for was taken for absent: what it alone had was replaced.
#[test]
fn what_cannot_be_looked_for_is_not_said_to_be_absent() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = Folder::named(place.path()).expect("ours");
    std::fs::write(place.path().join("there"), "").expect("written");
    assert!(folder.has("there").expect("told"));
    assert!(!folder.has("absent").expect("told") && !folder.has("there/absent").expect("told"));
    // No file system looks for that.
    let error = folder.has(&"n".repeat(5000)).expect_err("not told");
    assert!(error.to_string().contains("looking for it"), "{error}");
}
