//! Opening and closing a room.
//!
//! 1. Opening checks, in this order: the lock, the header under the credential, the catalog under the master key, the
//!    generation against this machine's memory. Only then anything is changed.
//! 2. Segment files that the catalog does not know are leftovers of a crash: they are deleted. Inodes without a name are
//!    deleted too; those of a backup that nobody has changed wait until somebody has.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::{Catalog, CatalogError, FileKind};
use pages::authentic;
use seal::{Credential, MasterKey};
use segments::{DirStore, SegmentNo};
use storage::{HostStorage, Storage};

use crate::accounts::Accounts;
use crate::commit::unpunched;
use crate::environment::Environment;
use crate::header::{self, HeaderState, keyring};
use crate::layout::{
    CATALOG, CATALOG_TABLE, HEADER_REVISION, LAST_SEGMENT, LINEAGE, NETWORK_BACKED, NEW_CATALOG,
    NEW_CATALOG_TABLE, RESERVED, SEGMENTS, check_not_network_backed, is_network_backed,
    put_new_catalog_in_place,
};
use crate::lock::RoomLock;
use crate::maintenance::is_unchanged_backup;
use crate::parts::{Found, Parts};
use crate::replica;
use crate::rollback::Memory;
use crate::{Error, OpenOptions, Result};

/// What a directory that is a replica is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// For its user, who only reads it.
    User,
    /// To apply what was received, for good.
    Settle,
}

/// Opens a room.
pub(crate) fn open(dir: &Path, credential: &Credential, options: OpenOptions) -> Result<Parts> {
    open_on(host(dir)?, dir.to_owned(), credential, options)
}

/// Opens a replica for writing: what was received is applied to it for good.
pub(crate) fn settle(
    storage: Arc<dyn Storage>,
    dir: &Path,
    credential: &Credential,
    options: OpenOptions,
) -> Result<Parts> {
    if !replica::is_replica(&*storage)? {
        return Err(Error::InvalidArgument("the directory is not a replica"));
    }
    open_as(Role::Settle, storage, dir.to_owned(), credential, options)
}

/// The directory of a room as a storage.
pub(crate) fn host(dir: &Path) -> Result<Arc<dyn Storage>> {
    match HostStorage::open(dir) {
        Ok(storage) => Ok(Arc::new(storage)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(Error::NotARoom(dir.to_owned()))
        }
        Err(e) => Err(e.into()),
    }
}

/// Opens the room in a storage.
pub(crate) fn open_on(
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    credential: &Credential,
    options: OpenOptions,
) -> Result<Parts> {
    open_as(Role::User, storage, dir, credential, options)
}

/// Opens a later moment of a room that is open for reading, with the keys and the lock that it has.
pub(crate) fn open_later(earlier: &Parts, storage: Arc<dyn Storage>) -> Result<Parts> {
    let options = earlier.env.options.clone();
    if !options.read_only {
        return Err(Error::InvalidArgument(
            "a room that is written to follows nobody",
        ));
    }
    let master = earlier.keys.header().master.clone();
    let (header, previous) = header::load_later(&*storage, &master)?;
    let storage = settle_rekey(storage, &header, true)?;
    let key = header.header.catalog_key(&master);
    let is_replica = replica::is_replica(&*storage)?;
    let mut opened = open_catalog(storage, &key, &options)?;
    if is_replica {
        let changes = master.changes_key(&header.header.room_id(), header.header.suite());
        opened = replicated(opened, &key, &changes, &options)?;
    }
    if opened.found < earlier.found {
        return Err(Error::RolledBack {
            seen: earlier.found,
            found: opened.found,
        });
    }
    let place = Place {
        dir: earlier.env.dir.clone(),
        lock: earlier.lock.clone(),
        is_replica,
        is_unchanged_backup: false,
    };
    assemble(place, options, header, previous, opened)
}

fn open_as(
    role: Role,
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    credential: &Credential,
    options: OpenOptions,
) -> Result<Parts> {
    let is_replica = replica::is_replica(&*storage)?;
    if !is_replica && !has_any(&*storage, &[header::HEADER, header::BACKUP, CATALOG])? {
        return Err(Error::NotARoom(dir));
    }
    let lock = Arc::new(RoomLock::take(&*storage, options.read_only)?);
    let storage = match is_replica {
        true => prepare_replica(storage, role, options.read_only)?,
        false => storage,
    };
    if !has_any(&*storage, &[CATALOG, NEW_CATALOG])? {
        return Err(Error::Damaged(format!("{CATALOG} is missing")));
    }
    let known = options.known_key.as_ref();
    // One from before a rekey opens nothing any more.
    let known = known.and_then(|known| header::load_known(&*storage, known).ok());
    let (header, previous, warning) = match known {
        Some(loaded) => loaded,
        None => header::load(&*storage, credential)?,
    };
    if let Some(warning) = &warning {
        tracing::warn!("{warning}");
    }
    let storage = settle_rekey(storage, &header, options.read_only)?;
    let is_unchanged_backup = !options.read_only && is_unchanged_backup(&*storage)?;
    let key = header.header.catalog_key(&header.master);
    let mut opened = open_catalog(storage, &key, &options)?;
    if is_replica {
        let key = header
            .master
            .changes_key(&header.header.room_id(), header.header.suite());
        opened = replicated(
            opened,
            &header.header.catalog_key(&header.master),
            &key,
            &options,
        )?;
    }
    let place = Place {
        dir,
        lock,
        is_replica,
        is_unchanged_backup,
    };
    let parts = assemble(place, options, header, previous, opened)?;
    if warning.is_some() && !parts.env.options.read_only {
        // Only now is it certain that this copy is the room's newest.
        header::write_both(&*parts.env.storage, &parts.keys.header().bytes)?;
    }
    Ok(parts)
}

fn has_any(storage: &dyn Storage, names: &[&str]) -> Result<bool> {
    let there = storage.list("")?;
    Ok(there.iter().any(|name| names.contains(&name.as_str())))
}

/// Completes what was received, and refuses what would make a replica another room than its source. Returns what the replica is read from: where
/// nothing may be written, a first transfer is put in its place in memory.
fn prepare_replica(
    storage: Arc<dyn Storage>,
    role: Role,
    read_only: bool,
) -> Result<Arc<dyn Storage>> {
    if role == Role::User && !read_only {
        return Err(Error::NotPermitted(
            "the directory is a replica: open it for reading only, or make it a room of its own with `strongroom receive --promote`",
        ));
    }
    match replica::complete(&*storage) {
        Err(e) if read_only && replica::was_replica(&*storage)? => {
            // What it was before is whole.
            tracing::warn!("what the replica received is not put in its place: {e}");
            Ok(storage)
        }
        Err(_) if read_only => {
            let above = storage::Overlay::new(storage);
            replica::complete(&above)?;
            Ok(Arc::new(above))
        }
        done => done.map(|()| storage),
    }
}

/// Applies what a replica received; where nothing may be written, in memory.
fn replicated(
    opened: OpenedCatalog,
    key: &seal::CatalogKey,
    changes: &seal::ChangesKey,
    options: &OpenOptions,
) -> Result<OpenedCatalog> {
    let OpenedCatalog {
        mut catalog,
        mut storage,
        ..
    } = opened;
    if !replica::has_more(&*storage, &catalog)? {
        return Ok(OpenedCatalog {
            found: catalog.generation(),
            catalog,
            storage,
        });
    }
    if options.read_only {
        drop(catalog);
        storage = Arc::new(storage::Overlay::new(storage));
        catalog = Arc::new(Catalog::open(
            &storage,
            CATALOG,
            key,
            &catalog::OpenOptions::default(),
        )?);
    }
    replica::apply_all(&*storage, &catalog, changes)?;
    if !options.read_only {
        replica::remove_applied(&*storage, &catalog)?;
    }
    Ok(OpenedCatalog {
        found: catalog.generation(),
        catalog,
        storage,
    })
}

/// A catalog at the state of the last record of its log.
pub(crate) struct OpenedCatalog {
    pub(crate) catalog: Arc<Catalog>,
    /// Number of that record, or of the last commit where there is none.
    pub(crate) found: u64,
    /// What the room is read from: where nothing may be written, the records are applied in memory.
    pub(crate) storage: Arc<dyn Storage>,
}

/// Opens the catalog of a room.
fn open_catalog(
    storage: Arc<dyn Storage>,
    key: &seal::CatalogKey,
    options: &OpenOptions,
) -> Result<OpenedCatalog> {
    let catalog_options = catalog::OpenOptions {
        read_only: options.read_only,
        cut_log: options.accept_rollback,
        ..catalog::OpenOptions::default()
    };
    match Catalog::open(&storage, CATALOG, key, &catalog_options) {
        Ok(catalog) if !catalog.has_unreplayed_records() => return replayed(storage, catalog),
        Ok(_) => {}
        // SQLite opens its log for writing also where it only reads.
        Err(CatalogError::Denied(_)) if options.read_only => {}
        Err(e) => return Err(e.into()),
    }
    let storage: Arc<dyn Storage> = Arc::new(storage::Overlay::new(storage));
    let catalog_options = catalog::OpenOptions {
        read_only: false,
        ..catalog_options
    };
    let catalog = Catalog::open(&storage, CATALOG, key, &catalog_options)?;
    replayed(storage, catalog)
}

/// Puts the data that records of the log carried into its segments; then the catalog may have what they changed.
fn replayed(storage: Arc<dyn Storage>, catalog: Catalog) -> Result<OpenedCatalog> {
    let found = catalog.generation();
    segments::restore(&*storage, &catalog.take_replayed())?;
    if catalog.is_dirty() {
        catalog.commit()?;
    }
    Ok(OpenedCatalog {
        catalog: Arc::new(catalog),
        found,
        storage,
    })
}

/// A rekey writes the new catalog beside the old one, then the header, then puts the catalog in place. The header
/// decides: see `rekey`. Returns what the room is read from: where nothing may be written, the catalog is put in its place in memory.
fn settle_rekey(
    storage: Arc<dyn Storage>,
    header: &HeaderState,
    read_only: bool,
) -> Result<Arc<dyn Storage>> {
    let key = header.header.catalog_key(&header.master);
    if !has_any(&*storage, &[NEW_CATALOG, NEW_CATALOG_TABLE])? {
        return Ok(storage);
    }
    let storage: Arc<dyn Storage> = match read_only {
        true => Arc::new(storage::Overlay::new(storage)),
        false => storage,
    };
    match has_any(&*storage, &[NEW_CATALOG])? {
        true => settle_catalog(&storage, &key, header.header.revision())?,
        false => settle_table(&*storage, &key)?,
    }
    Ok(storage)
}

/// A crash came before the new catalog was put in place; or before the header had its key, or was the one that it knows.
fn settle_catalog(storage: &Arc<dyn Storage>, key: &seal::CatalogKey, revision: u64) -> Result<()> {
    let options = catalog::OpenOptions {
        read_only: true,
        cut_log: true,
        ..catalog::OpenOptions::default()
    };
    let knows = match Catalog::open(storage, NEW_CATALOG, key, &options) {
        Ok(new) => Some(number(new.meta(HEADER_REVISION)?)),
        Err(_) => None,
    };
    // It goes only where it is certain that the other one is the room's.
    match (Catalog::open(storage, CATALOG, key, &options), knows) {
        // A backup was about to end a rekey: its header has not come yet, and that of before belongs to the catalog of before.
        (Ok(_), Some(knows)) if knows > revision => {}
        (_, Some(_)) => return put_new_catalog_in_place(&**storage),
        (there, None) => drop(there?),
    }
    Ok(Catalog::remove(&**storage, NEW_CATALOG)?)
}

/// A crash came between putting the new catalog in place and its table; or the table is a leftover.
fn settle_table(storage: &dyn Storage, key: &seal::CatalogKey) -> Result<()> {
    let fits = match key.digest() {
        Some(digest) => authentic::fits(storage, NEW_CATALOG_TABLE, CATALOG, digest)?,
        None => false,
    };
    match fits {
        true => Ok(storage.rename(NEW_CATALOG_TABLE, CATALOG_TABLE)?),
        false => Ok(storage.remove(NEW_CATALOG_TABLE)?),
    }
}

/// Where a room is, and what it is there.
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    pub(crate) lock: Arc<RoomLock>,
    pub(crate) is_replica: bool,
    pub(crate) is_unchanged_backup: bool,
}

pub(crate) fn assemble(
    place: Place,
    options: OpenOptions,
    header: HeaderState,
    previous: Option<(u32, MasterKey)>,
    opened: OpenedCatalog,
) -> Result<Parts> {
    let Place {
        dir,
        lock,
        is_replica,
        is_unchanged_backup,
    } = place;
    let OpenedCatalog {
        catalog,
        found,
        storage,
    } = opened;
    let room = header.header.room_id();
    let named = catalog.meta("room")?.unwrap_or_default();
    if named != room.to_string().as_bytes() {
        return Err(Error::Damaged(
            "the catalog names another room than the header".into(),
        ));
    }
    let mut header = header;
    if options.network_backed {
        check_shared(&*storage, &catalog, &mut header, &options)?;
    } else {
        check_not_network_backed(&catalog)?;
    }
    let lineage = catalog
        .meta(LINEAGE)?
        .map(|v| String::from_utf8_lossy(&v).into_owned());
    let mut memory = Memory::load(&room, lineage.as_deref(), &dir, &options)?;
    memory.check(
        found,
        options.accept_rollback,
        options.read_only,
        is_replica,
    )?;
    if !options.read_only && memory.note(catalog.generation()) {
        memory.write();
    }
    check_header_revision(&*storage, &catalog, &header, &options)?;
    storage.accept();

    let keyring = keyring(&header, previous.as_ref());
    let known = catalog.segments()?;
    // Of the catalog only: the host names the files. The store passes over those that are there.
    let last_known = known.iter().map(|s| s.id.no.0).max().unwrap_or(0);
    let last_used = number(catalog.meta(LAST_SEGMENT)?).max(last_known);
    let ids = known.iter().map(|s| s.id).collect();
    let segments = DirStore::open(storage.clone(), keyring, ids, SegmentNo(last_used + 1))?;
    if options.network_backed && !options.accept_rollback {
        check_places(&segments, &known)?;
    }
    let mut dead = HashMap::new();
    if !options.read_only {
        let numbers: HashSet<SegmentNo> = known.iter().map(|s| s.id.no).collect();
        let files = segments.list()?;
        for file in files.iter().filter(|file| !numbers.contains(&file.no)) {
            segments.remove(file.no)?;
        }
        dead = unpunched(&files, &known);
        // No segment of before is appended to again: what the catalog refers to is all it will ever hold.
        if options.network_backed {
            for account in &known {
                segments.cut_to(account.id.no, account.length)?;
            }
        }
    }
    // A backup stays as it was written until somebody changes it: then the next opening deletes them.
    let orphans = if options.read_only || is_unchanged_backup {
        Vec::new()
    } else {
        catalog.orphans()?
    };
    let reserved = number(catalog.meta(RESERVED)?);
    let parts = Parts::new(
        Environment::new(dir, options, storage),
        Found {
            generation: found,
            header,
            catalog,
            segments,
            accounts: Accounts::load(known),
            unpunched: dead,
            reserved,
            memory,
            lock,
        },
    );
    for no in orphans {
        // A directory without a name is of no use to anybody.
        let is_kept = parts.env.options.keep_unnamed
            && parts
                .catalog
                .get()
                .inode(no)?
                .is_some_and(|i| i.kind == FileKind::Regular);
        if is_kept {
            parts.holds.hold_unnamed(no);
        } else {
            parts.holds.doom(no);
        }
    }
    Ok(parts)
}

/// Notices a header older than the catalog remembers: a slot that was removed would be back.
fn check_header_revision(
    storage: &dyn Storage,
    catalog: &Catalog,
    header: &HeaderState,
    options: &OpenOptions,
) -> Result<()> {
    let (seen, found) = (
        number(catalog.meta(HEADER_REVISION)?),
        header.header.revision(),
    );
    if found < seen && !options.accept_rollback {
        return Err(Error::OldHeader { seen, found });
    }
    if found != seen && !options.read_only {
        // An opening that was killed may have put the header in place and not made its name durable: were it lost after
        // this, the header before it would be taken for one that somebody put back.
        storage.sync_dir("")?;
        catalog.set_meta(HEADER_REVISION, found.to_string().as_bytes())?;
        catalog.commit()?;
    }
    Ok(())
}

/// Refuses a room that clients cannot share. One that is empty becomes one of network disks.
fn check_shared(
    storage: &dyn Storage,
    catalog: &Catalog,
    header: &mut HeaderState,
    options: &OpenOptions,
) -> Result<()> {
    let has_position_keys = header.header.position_keys_from().is_some();
    if is_network_backed(catalog)? {
        return match has_position_keys || options.without_position_keys {
            true => Ok(()),
            false => Err(Error::NoPositionKeys),
        };
    }
    let is_empty = catalog.segments()?.is_empty() && storage.list(SEGMENTS)?.is_empty();
    if !is_empty || !catalog.snapshots().is_empty() {
        return Err(Error::NotOnNetworkDisks);
    }
    if options.read_only {
        return Ok(());
    }
    // First: a crash in between leaves an empty room that has the feature and is not on network disks yet.
    if !has_position_keys {
        header.header.require_position_keys();
        header.store(storage)?;
    }
    catalog.set_meta(NETWORK_BACKED, b"1")?;
    catalog.commit()?;
    Ok(())
}

/// Refuses a room on network disks whose storage does not know the place of every segment: new data would overwrite the segments
/// that it has forgotten.
fn check_places(segments: &DirStore, known: &[catalog::SegmentAccount]) -> Result<()> {
    let present: HashSet<SegmentNo> = segments.list()?.iter().map(|file| file.no).collect();
    let used = known.iter().filter(|a| a.live > 0);
    let (mut all, mut lost) = (0, 0);
    for account in used {
        all += 1;
        lost += u64::from(!present.contains(&account.id.no));
    }
    if lost == 0 {
        return Ok(());
    }
    Err(Error::Damaged(format!(
        "the places of {lost} of {all} segments on the disks are unknown: the files `placement` and `placement.backup` are gone, or older than the room. Put the newest copy of one of them back; to open the room without that data, and let new data take its space, accept the rollback"
    )))
}

fn number(value: Option<Vec<u8>>) -> u64 {
    value
        .and_then(|v| String::from_utf8(v).ok())
        .and_then(|t| t.parse().ok())
        .unwrap_or(0)
}
