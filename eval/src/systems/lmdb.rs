//! LMDB: an ordered map in files that processes of one machine map into their memory. Only with the
//! feature `lmdb`, which builds its C library.

use std::path::Path;

use anyhow::Context;
use fpcache_client::ByteKeys;
use fpcache_datasets::{Bar, Progress};
use lmdb::{
    Database, DatabaseFlags, Environment, EnvironmentFlags, InactiveTransaction, RoTransaction, Transaction,
    WriteFlags,
};

use super::{Facts, Reader, System};
use crate::data::{DataKeys, DataSet};
use crate::leftovers::TemporaryFolder;
use crate::run::values::ValueBytes;

/// Records between two reports of progress.
const STEP: usize = 1 << 16;

/// A store in a folder of its own, which goes with it.
#[derive(Debug)]
pub struct Lmdb {
    environment: Environment,
    database: Database,
    _removed: TemporaryFolder,
}

impl Lmdb {
    /// The version of the library.
    pub fn version() -> String {
        format!(
            "{}.{}.{}",
            lmdb_sys::MDB_VERSION_MAJOR,
            lmdb_sys::MDB_VERSION_MINOR,
            lmdb_sys::MDB_VERSION_PATCH
        )
    }

    /// Stores a data set in a new folder within `folder`: in ascending order, without waiting for
    /// the disk.
    ///
    /// # Errors
    /// If the folder cannot be made, or has no room.
    pub fn build(
        folder: &Path,
        set: &<ByteKeys as DataKeys>::Set,
        values: ValueBytes,
        bar: &Bar,
    ) -> anyhow::Result<Self> {
        let folder = folder.join(format!("fpcache-eval-lmdb-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("making the folder {}", folder.display()))?;
        let removed = TemporaryFolder::new(folder.clone());
        let flags = EnvironmentFlags::NO_SYNC | EnvironmentFlags::NO_READAHEAD | EnvironmentFlags::NO_TLS;
        let bytes = (set.len() * (set.lengths().most + values.most() as usize + 64) * 2).max(64 << 20);
        let environment = Environment::new()
            .set_flags(flags)
            .set_map_size(bytes.next_multiple_of(4096))
            .open(&folder)
            .context("opening an LMDB environment")?;
        let database =
            environment.create_db(None, DatabaseFlags::empty()).context("making an LMDB database")?;
        bar.during("loading lmdb", set.len() as u64, || -> anyhow::Result<()> {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            let mut change = environment.begin_rw_txn()?;
            for i in 0..set.len() {
                value.clear();
                values.append(set.value(i), &mut value);
                change.put(database, &set.key(i, &mut key), &value, WriteFlags::APPEND)?;
                if i % STEP == 0 {
                    bar.advance(i as u64);
                }
            }
            Ok(change.commit()?)
        })?;
        Ok(Self { environment, database, _removed: removed })
    }
}

impl System for Lmdb {
    type Keys = ByteKeys;
    type Reader<'a> = LmdbReader<'a>;

    fn name(&self) -> &str {
        "lmdb"
    }

    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn reader(&self) -> LmdbReader<'_> {
        LmdbReader { store: self, idle: None, values: Vec::new(), answers: Vec::new() }
    }
}

/// One thread's transaction, which is renewed with every call, so that it sees what was written
/// before, as a lookup in the other systems does.
#[derive(Debug)]
pub struct LmdbReader<'a> {
    store: &'a Lmdb,
    idle: Option<InactiveTransaction<'a>>,
    values: Vec<u8>,
    /// Of each key of the group: where its value begins and ends, if it is there.
    answers: Vec<Option<(usize, usize)>>,
}

impl<'a> LmdbReader<'a> {
    fn view(&mut self) -> anyhow::Result<RoTransaction<'a>> {
        match self.idle.take() {
            Some(idle) => Ok(idle.renew()?),
            None => Ok(self.store.environment.begin_ro_txn()?),
        }
    }
}

impl Reader<ByteKeys> for LmdbReader<'_> {
    fn get(&mut self, key: &[u8]) -> anyhow::Result<Option<&[u8]>> {
        self.get_many(&[key])?;
        Ok(self.answer(0))
    }

    fn get_many(&mut self, keys: &[&[u8]]) -> anyhow::Result<()> {
        let view = self.view()?;
        self.values.clear();
        self.answers.clear();
        for key in keys {
            let answer = match view.get(self.store.database, key) {
                Ok(value) => {
                    let start = self.values.len();
                    self.values.extend_from_slice(value);
                    Some((start, self.values.len()))
                }
                Err(lmdb::Error::NotFound) => None,
                Err(error) => return Err(error).context("looking up in lmdb"),
            };
            self.answers.push(answer);
        }
        self.idle = Some(view.reset());
        Ok(())
    }

    fn answer(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = (*self.answers.get(index)?)?;
        Some(&self.values[start..end])
    }
}
