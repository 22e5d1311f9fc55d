//! Folders in which others could put something else are refused, and no symbolic link leads a
//! memory node out of its own.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use fpcache::TableName;
use fpcache::key_space::{KeyKind, U64Keys};
use fpcache::layout::{DROPPED, REUSE_OFFSET, RecordShape, SUPERBLOCK_BYTES, TableParameters};
use fpcache::message::ErrorCode;
use fpcache_fabric::{Access, SharedMemory};
use fpcache_memserver::durability::SyncPolicy;
use fpcache_memserver::files::Folders;
use fpcache_memserver::{Catalogue, CatalogueConfig, CatalogueError};
use tempfile::TempDir;

/// Some user who is neither root nor the one who runs the tests.
const OTHER: u32 = 65_534;

/// Folders for a memory node, and something beside them that is none of its business.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.elsewhere()).unwrap();
        fs::write(place.elsewhere().join("precious"), "somebody's").unwrap();
        fs::write(place.elsewhere().join("region.fpr"), "somebody's").unwrap();
        place
    }

    fn elsewhere(&self) -> PathBuf {
        self.0.path().join("elsewhere")
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn region(&self) -> PathBuf {
        self.0.path().join("region")
    }

    fn try_open(&self) -> Result<Catalogue, CatalogueError> {
        self.open_at(&self.data(), &self.region())
    }

    fn open_at(&self, data: &Path, region: &Path) -> Result<Catalogue, CatalogueError> {
        let folders = Folders { data: data.to_owned(), region: region.to_owned() };
        let durable = Some((folders, SyncPolicy::Never));
        Catalogue::open(&CatalogueConfig { durable, ..CatalogueConfig::of(8 << 20) })
    }

    fn open(&self) -> Catalogue {
        self.try_open().unwrap()
    }

    /// What an opening says that serves no table, whether it fails or closes them.
    #[track_caller]
    fn says_why_none_is_served(&self) -> String {
        match self.try_open() {
            Err(error) => error.to_string(),
            Ok(tables) => {
                assert_eq!(tables.tables().count(), 0);
                let closed = tables.closed().map(|(name, why)| format!("the table `{name}`: {why}"));
                closed.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Opening is refused in these words, and changes nothing elsewhere.
    #[track_caller]
    fn refuses(&self, words: &[&str]) {
        let error = self.says_why_none_is_served();
        for word in words {
            assert!(error.contains(word), "{word} in {error}");
        }
        self.elsewhere_is_untouched();
    }

    #[track_caller]
    fn elsewhere_is_untouched(&self) {
        let mut names: Vec<_> =
            fs::read_dir(self.elsewhere()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["precious", "region.fpr"]);
        assert_eq!(fs::read(self.elsewhere().join("region.fpr")).unwrap(), b"somebody's");
    }
}

fn name(name: &str) -> TableName {
    name.parse().unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_link_in_place_of_the_folder_of_tables_is_refused() {
    for of_region in [false, true] {
        let place = Place::new();
        place.open().create(name("a"), KeyKind::U64, None).unwrap();
        let tables = if of_region { place.region() } else { place.data() }.join("tables");
        fs::rename(&tables, place.0.path().join("away")).unwrap();
        symlink(place.elsewhere(), &tables).unwrap();
        place.refuses(&[tables.to_str().unwrap(), "is a symbolic link", "remove the link"]);
    }
}

#[test]
fn a_link_in_place_of_a_tables_folder_is_refused() {
    for of_region in [false, true] {
        let place = Place::new();
        place.open().create(name("a"), KeyKind::U64, None).unwrap();
        let table = if of_region { place.region() } else { place.data() }.join("tables/a");
        fs::rename(&table, place.0.path().join("away")).unwrap();
        symlink(place.elsewhere(), &table).unwrap();
        place.refuses(&["the table `a`", table.to_str().unwrap(), "is a symbolic link", "remove the link"]);
        // The real one in its place is as good as it was.
        fs::remove_file(&table).unwrap();
        fs::rename(place.0.path().join("away"), &table).unwrap();
        place.open();
    }
}

#[test]
fn a_drop_removes_links_and_not_what_they_name() {
    let place = Place::new();
    let mut tables = place.open();
    for table in ["a", "b"] {
        tables.create(name(table), KeyKind::U64, None).unwrap();
    }
    // In place of the whole folder, and of something within.
    let region = place.region().join("tables");
    fs::rename(region.join("a"), place.0.path().join("away")).unwrap();
    symlink(place.elsewhere(), region.join("a")).unwrap();
    symlink(place.elsewhere(), region.join("b/link")).unwrap();
    symlink(place.elsewhere(), place.data().join("tables/b/link")).unwrap();
    for table in ["a", "b"] {
        tables.drop_table(&name(table)).unwrap();
        assert!(fs::symlink_metadata(region.join(table)).is_err());
        assert!(!place.data().join("tables").join(table).exists());
    }
    place.elsewhere_is_untouched();
    // Nor does a start that clears away what a crash left.
    drop(tables);
    for left in [".new-c", ".dropped-d"] {
        symlink(place.elsewhere(), place.data().join("tables").join(left)).unwrap();
    }
    symlink(place.elsewhere(), region.join("d")).unwrap();
    place.open();
    place.elsewhere_is_untouched();
    assert_eq!(fs::read_dir(place.data().join("tables")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(region).unwrap().count(), 0);
}

#[test]
fn a_table_that_could_not_be_dropped_is_closed_until_it_is_dropped_again() {
    let place = Place::new();
    let mut tables = place.open();
    for table in ["a", "b"] {
        tables.create(name(table), KeyKind::U64, None).unwrap();
    }
    let granted = tables.budget().granted();
    // Its folder cannot be renamed where it is not.
    let (folder, away) = (place.data().join("tables/a"), place.0.path().join("away"));
    fs::rename(&folder, &away).unwrap();
    let refusal = tables.drop_table(&name("a")).unwrap_err();
    assert!(
        refusal.message.contains("is closed now") && refusal.message.contains("drop it again"),
        "{refusal}"
    );
    // No client is told that there is none, and no other takes its name: it would come back under
    // it.
    let refusal = tables.create(name("a"), KeyKind::U64, None).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::TableExists, "{refusal}");
    assert!(tables.drop_table(&name("a")).is_err());
    assert_eq!(tables.budget().granted(), granted, "its memory is still there");
    fs::rename(&away, &folder).unwrap();
    tables.drop_table(&name("a")).unwrap();
    assert!(tables.budget().granted() < granted);
    assert!(!folder.exists() && !place.region().join("tables/a").exists());
    tables.create(name("a"), KeyKind::U64, None).unwrap();
    drop(tables);
    assert_eq!(place.open().tables().count(), 2);
}

/// The second call took what the first had renamed away, found nothing to rename, and so did each
/// one after it.
#[test]
fn a_drop_that_failed_after_its_rename_is_finished_when_it_is_repeated() {
    let place = Place::new();
    let mut tables = place.open();
    tables.create(name("a"), KeyKind::U64, None).unwrap();
    let (all, away) = (place.data().join("tables"), place.0.path().join("away"));
    fs::rename(all.join("a"), &away).unwrap();
    tables.drop_table(&name("a")).unwrap_err();
    // As if the rename had been made, and its sync had failed.
    fs::rename(&away, all.join(".dropped-a")).unwrap();
    tables.drop_table(&name("a")).unwrap();
    assert_eq!(fs::read_dir(&all).unwrap().count(), 0);
    assert!(!place.region().join("tables/a").exists());
    tables.create(name("a"), KeyKind::U64, None).unwrap();
    drop(tables);
    assert_eq!(place.open().tables().count(), 1);
}

/// A mapping of a table's region, as its readers have, and whether it holds anything of the table.
struct Reader(SharedMemory);

impl Reader {
    fn of(place: &Place, table: &str) -> Self {
        let path = place.region().join("tables").join(table).join("region.fpr");
        Self(SharedMemory::open_file(&path, Access::ReadOnly).unwrap().0)
    }

    fn reads_something(&self) -> bool {
        let mut words = vec![0; (self.0.len() - SUPERBLOCK_BYTES) / 8];
        self.0.read_words(SUPERBLOCK_BYTES as u64, &mut words).unwrap();
        words.iter().any(|word| *word != 0)
    }

    #[track_caller]
    fn is_given_up(&self) {
        assert_eq!(self.0.load_relaxed(REUSE_OFFSET).unwrap(), DROPPED);
        assert!(!self.reads_something());
    }
}

/// Two tables, the first of which has records; and a reader of it.
fn with_records(place: &Place) -> (Catalogue, Reader) {
    let mut tables = place.open();
    for table in ["a", "b"] {
        tables.create(name(table), KeyKind::U64, None).unwrap();
    }
    let parameters = TableParameters { shape: RecordShape::fixed(8, 8), ..TableParameters::default() };
    let node = tables.node::<U64Keys>(&name("a")).unwrap();
    node.load(parameters, (0..1000u32).map(u64::from), |_, value| value.fill(7)).unwrap();
    let reader = Reader::of(place, "a");
    assert!(reader.reads_something());
    (tables, reader)
}

#[test]
fn whoever_still_maps_a_closed_table_reads_nothing_of_it_once_it_is_dropped() {
    let place = Place::new();
    let (tables, reader) = with_records(&place);
    drop(tables);
    fs::write(place.data().join("tables/a/table.fpt"), "damaged").unwrap();
    let mut tables = place.open();
    assert!(reader.reads_something(), "it is closed, not gone");
    tables.drop_table(&name("a")).unwrap();
    reader.is_given_up();
    assert!(!place.region().join("tables/a").exists());
}

#[test]
fn a_table_that_cannot_be_opened_is_closed_also_if_it_is_the_only_one() {
    let place = Place::new();
    place.open().create(name("a"), KeyKind::U64, None).unwrap();
    let descriptor = place.data().join("tables/a/table.fpt");
    let whole = fs::read(&descriptor).unwrap();
    fs::write(&descriptor, "damaged").unwrap();
    let mut tables = place.open();
    assert_eq!(tables.tables().count(), 0);
    let closed: Vec<_> = tables.closed().map(|(name, why)| (*name, why)).collect();
    assert!(closed.len() == 1 && closed[0].0 == name("a"), "{closed:?}");
    assert!(closed[0].1.contains("table.fpt"), "{closed:?}");
    // No other takes its name, but there may be others beside it.
    assert_eq!(tables.create(name("a"), KeyKind::U64, None).unwrap_err().code, ErrorCode::TableExists);
    tables.create(name("b"), KeyKind::U64, None).unwrap();
    drop(tables);
    fs::write(&descriptor, whole).unwrap();
    let tables = place.open();
    assert_eq!((tables.tables().count(), tables.closed().count()), (2, 0));
}

#[test]
fn a_drop_that_is_repeated_leaves_nothing_in_the_region() {
    let place = Place::new();
    let (mut tables, reader) = with_records(&place);
    let (folder, away) = (place.data().join("tables/a"), place.0.path().join("away"));
    fs::rename(&folder, &away).unwrap();
    for _ in 0..2 {
        tables.drop_table(&name("a")).unwrap_err();
        assert!(reader.reads_something(), "it may be wanted back");
    }
    // Its name leads elsewhere by now, as that of a region without a file does.
    let region = place.region().join("tables/a/region.fpr");
    fs::rename(&region, place.0.path().join("region.away")).unwrap();
    fs::rename(&away, &folder).unwrap();
    tables.drop_table(&name("a")).unwrap();
    reader.is_given_up();
    assert!(!place.region().join("tables/a").exists());
}

#[test]
fn a_region_that_a_start_cannot_use_is_given_up() {
    for is_dropped in [true, false] {
        let place = Place::new();
        let (tables, reader) = with_records(&place);
        drop(tables);
        let folder = place.data().join("tables/a");
        if is_dropped {
            // As a crash leaves it that comes amid a drop.
            fs::rename(&folder, place.data().join("tables/.dropped-a")).unwrap();
        } else {
            fs::remove_file(folder.join("notes.fpn")).unwrap();
        }
        let tables = place.open();
        reader.is_given_up();
        assert_eq!(tables.tables().count(), 2 - usize::from(is_dropped));
    }
}

#[test]
fn a_link_in_place_of_a_file_is_not_written_through() {
    let place = Place::new();
    let mut tables = place.open();
    tables.create(name("a"), KeyKind::U64, None).unwrap();
    drop(tables);
    let region = place.region().join("tables/a/region.fpr");
    fs::remove_file(&region).unwrap();
    symlink(place.elsewhere().join("region.fpr"), &region).unwrap();
    let error = place.says_why_none_is_served();
    assert!(error.contains("the path names a symbolic link"), "{error}");
    place.elsewhere_is_untouched();
}

#[test]
fn folders_that_others_may_write_are_refused_but_for_those_like_tmp() {
    let place = Place::new();
    place.open().create(name("a"), KeyKind::U64, None).unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for folder in [place.data(), place.region()] {
        for bits in [0o777, 0o770, 0o702] {
            mode(&folder, bits);
            place.refuses(&[folder.to_str().unwrap(), &format!("mode {bits:o}"), "chmod go-w", "within it"]);
        }
        mode(&folder, 0o1777);
        place.open();
        mode(&folder, 0o755);
        for below in [folder.join("tables"), folder.join("tables/a")] {
            mode(&below, 0o1777);
            place.refuses(&[below.to_str().unwrap(), "mode 1777", "chmod go-w"]);
            mode(&below, 0o755);
        }
    }
    place.open();
}

#[test]
fn folders_of_other_users_are_refused() {
    if !is_root() {
        // Only root can make some.
        return;
    }
    let place = Place::new();
    place.open().create(name("a"), KeyKind::U64, None).unwrap();
    for folder in [place.data(), place.region()] {
        for folder in [folder.clone(), folder.join("tables"), folder.join("tables/a")] {
            chown(&folder, Some(OTHER), None).unwrap();
            let owner = format!("owner {OTHER}");
            place.refuses(&[folder.to_str().unwrap(), "belongs to another user", &owner, "chown"]);
            chown(&folder, Some(0), None).unwrap();
        }
    }
    place.open();
}

#[test]
fn only_links_of_ones_own_lead_to_the_folders() {
    let place = Place::new();
    let link = place.0.path().join("link");
    symlink(".", &link).unwrap();
    let (data, region) = (link.join("data"), link.join("../").join(place.0.path()).join("region"));
    place.open_at(&data, &region).unwrap().create(name("a"), KeyKind::U64, None).unwrap();
    assert!(place.data().join("tables/a").exists() && place.region().join("tables/a").exists());
    if is_root() {
        lchown(&link, Some(OTHER), None).unwrap();
        let error = place.open_at(&data, &region).map(drop).unwrap_err().to_string();
        assert!(error.contains("is another user's symbolic link"), "{error}");
    }
    fs::remove_file(&link).unwrap();
    symlink("link", &link).unwrap();
    let error = place.open_at(&data, &region).map(drop).unwrap_err().to_string();
    assert!(error.contains("cannot be used"), "{error}");
}

#[test]
fn folders_that_a_memory_node_makes_are_its_users_alone() {
    let place = Place::new();
    let (data, region) = (place.0.path().join("some/way/data"), place.0.path().join("some/way/region"));
    place.open_at(&data, &region).unwrap().create(name("a"), KeyKind::U64, None).unwrap();
    for folder in [place.0.path().join("some"), data.clone(), data.join("tables/a"), region.join("tables/a")]
    {
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700, "{}", folder.display());
    }
}
