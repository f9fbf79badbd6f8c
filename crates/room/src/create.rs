//! Creating a room.
//!
//! 1. Nothing is written before the keys are there.
//! 2. A room under construction has no `header.json`: it is written last, so a crash leaves no half room that opens.
//! 3. A creation that fails removes what it made, and nothing of another's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::{Catalog, InodeNo};
use model::now;
use seal::{Header, MasterKey, Suite};
use storage::{HostStorage, Storage};

use crate::header::{self, HeaderState};
use crate::layout::{
    CATALOG, CATALOG_JOURNAL, CATALOG_LOG, CATALOG_RECORDS, CATALOG_TABLE, HEADER_REVISION,
    SEGMENTS,
};
use crate::lock::{self, LOCK, RoomLock};
use crate::open::{OpenedCatalog, Place, assemble};
use crate::parts::Parts;
use crate::tree::directory_in_root;
use crate::{Error, NewRoom, OpenOptions, Result};

/// Whether a path in a storage is one that a creation makes before the header, with which it ends. Where there are no others, the creation was killed, and
/// nobody can open what is there.
pub fn is_left_of_creation(path: &str) -> bool {
    match path.strip_suffix(".new") {
        Some(path) => [CATALOG_TABLE, header::HEADER].contains(&path),
        None => [
            SEGMENTS,
            CATALOG,
            CATALOG_JOURNAL,
            CATALOG_LOG,
            CATALOG_RECORDS,
            CATALOG_TABLE,
        ]
        .contains(&path),
    }
}

/// Creates a room and opens it.
pub(crate) fn create(dir: &Path, new: NewRoom) -> Result<Parts> {
    let existed = dir.exists();
    if existed && (!dir.is_dir() || dir.read_dir()?.next().is_some()) {
        return Err(Error::NotEmptyTarget(dir.to_owned()));
    }
    let new = Prepared::new(new)?;
    if !existed {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().mode(0o700).create(dir)?;
    }
    let storage: Arc<dyn Storage> = Arc::new(HostStorage::open(dir)?);
    let lock = match claim(&*storage, dir) {
        Ok(lock) => lock,
        Err(e) => {
            // What another creation made stays.
            if !existed {
                let _ = std::fs::remove_dir(dir);
            }
            return Err(e);
        }
    };
    let made = new
        .create_in(storage, dir.to_owned(), lock)
        .and_then(|parts| {
            if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
                std::fs::File::open(parent)?.sync_all()?;
            }
            Ok(parts)
        });
    if made.is_err() {
        // Nothing of a room that could not be made is left behind: the directory was empty before.
        for name in [
            header::HEADER,
            header::BACKUP,
            LOCK,
            CATALOG,
            CATALOG_LOG,
            CATALOG_TABLE,
            "catalog.db-pages.new",
        ] {
            let _ = std::fs::remove_file(dir.join(name));
        }
        let _ = std::fs::remove_dir(dir.join(SEGMENTS));
        if !existed {
            let _ = std::fs::remove_dir(dir);
        }
    }
    made
}

/// Creates a room in an empty storage.
pub(crate) fn create_on(storage: Arc<dyn Storage>, dir: PathBuf, new: NewRoom) -> Result<Parts> {
    let new = Prepared::new(new)?;
    let lock = claim(&*storage, &dir)?;
    new.create_in(storage, dir, lock)
}

/// Takes the lock of a storage in which there is nothing, also once it is taken: another creation may have been faster.
fn claim(storage: &dyn Storage, dir: &Path) -> Result<RoomLock> {
    if !storage.list("")?.is_empty() {
        return Err(Error::NotEmptyTarget(dir.to_owned()));
    }
    let lock = RoomLock::take(storage, false)?;
    match lock::is_alone(storage)? {
        true => Ok(lock),
        false => Err(Error::NotEmptyTarget(dir.to_owned())),
    }
}

/// A new room with its keys. Making them takes as long as guessing the passphrase shall, so it comes before anything is written: a creation
/// that is ended meanwhile leaves nothing.
struct Prepared {
    header: Header,
    master: MasterKey,
    owner: (u32, u32),
    options: OpenOptions,
}

impl Prepared {
    fn new(new: NewRoom) -> Result<Self> {
        let suite = new.suite.unwrap_or_else(Suite::fastest);
        let (header, master) = Header::create(suite, new.credential, &new.label)?;
        Ok(Self {
            header,
            master,
            owner: (new.uid, new.gid),
            options: new.open,
        })
    }

    fn create_in(self, storage: Arc<dyn Storage>, dir: PathBuf, lock: RoomLock) -> Result<Parts> {
        let Self { header, master, .. } = self;
        storage.create_dir(SEGMENTS)?;
        let catalog = Catalog::create(
            &storage,
            CATALOG,
            &header.catalog_key(&master),
            &catalog::OpenOptions::default(),
        )?;
        let root = directory_in_root(InodeNo::ROOT, 0o755, self.owner, now());
        catalog.apply(&[catalog::Change::PutInode(&root)])?;
        catalog.set_meta("room", header.room_id().to_string().as_bytes())?;
        catalog.set_meta(HEADER_REVISION, header.revision().to_string().as_bytes())?;
        let generation = catalog.commit()?;
        storage.sync_dir("")?;
        let mut header = HeaderState {
            header,
            master,
            bytes: Vec::new(),
        };
        header.store(&*storage)?;
        let opened = OpenedCatalog {
            catalog: Arc::new(catalog),
            found: generation,
            storage,
        };
        let lock = Arc::new(lock);
        let place = Place {
            dir,
            lock,
            is_replica: false,
            is_unchanged_backup: false,
        };
        assemble(place, self.options, header, None, opened)
    }
}
