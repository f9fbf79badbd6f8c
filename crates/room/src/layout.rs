//! What the files of a room are called, and the values of its catalog; how a catalog takes another one's place.

use std::io::ErrorKind;

use catalog::Catalog;
use storage::{Storage, remove_if_there};

use crate::{Error, Result};

pub(crate) const CATALOG: &str = "catalog.db";
/// A catalog that a rekey has written but not yet put in place.
pub(crate) const NEW_CATALOG: &str = "catalog.db.new";
pub(crate) const CATALOG_LOG: &str = "catalog.db-wal";
/// What SQLite writes before the catalog has a log.
pub(crate) const CATALOG_JOURNAL: &str = "catalog.db-journal";
/// The records since the catalog's last commit.
pub(crate) const CATALOG_RECORDS: &str = "catalog.db-log";
/// The table that vouches for the catalog's pages.
pub(crate) const CATALOG_TABLE: &str = "catalog.db-pages";
/// That of the new catalog.
pub(crate) const NEW_CATALOG_TABLE: &str = "catalog.db.new-pages";
pub(crate) const SEGMENTS: &str = "segments";
/// Catalog value: revision of the newest header, so that an older one put back is noticed.
pub(crate) const HEADER_REVISION: &str = "header_revision";
/// Catalog value: highest segment number ever used.
pub(crate) const LAST_SEGMENT: &str = "last_segment";
/// Catalog value: blocks reserved for holes of files.
pub(crate) const RESERVED: &str = "reserved";
/// Catalog value: there in a backup, and different in each; 32 hexadecimal digits.
pub(crate) const LINEAGE: &str = "lineage";
/// Catalog value: there, and not empty, where the segments are on network disks.
pub(crate) const NETWORK_BACKED: &str = "placed";

/// Marks a directory as a replica.
pub(crate) const REPLICA: &str = "replica";
/// All of a transfer to a replica was received.
pub(crate) const RECEIVED: &str = "incoming.done";
/// Catalog value: the number of the last changes that were applied to a replica, a space, and the moment that they led to.
pub(crate) const APPLIED: &str = "replica_applied";

/// Puts the catalog that a rekey wrote in the place of the old one, whose log must go first. Its table follows: an opening
/// in between finds it by what is in it, also after a crash that loses its new name.
pub(crate) fn put_new_catalog_in_place(storage: &dyn Storage) -> Result<()> {
    remove_if_there(storage, CATALOG_LOG)?;
    // Durably: were it back after a crash, SQLite would replay it over the new catalog.
    storage.sync_dir("")?;
    storage.rename(NEW_CATALOG, CATALOG)?;
    storage.sync_dir("")?;
    match storage.rename(NEW_CATALOG_TABLE, CATALOG_TABLE) {
        Ok(()) => Ok(()),
        // A room whose catalog is not vouched for.
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Whether a directory is a replica, or will be as soon as its first transfer is in its place.
pub(crate) fn is_replica(storage: &dyn Storage) -> Result<bool> {
    let names = storage.list("")?;
    Ok([REPLICA, RECEIVED]
        .iter()
        .any(|of_one| names.iter().any(|name| name == of_one)))
}

/// Whether the catalog says that the segments are on network disks.
pub(crate) fn is_network_backed(catalog: &Catalog) -> Result<bool> {
    // Empty in a backup of such a room, whose directory has them.
    Ok(catalog
        .meta(NETWORK_BACKED)?
        .is_some_and(|value| !value.is_empty()))
}

/// Refuses a room whose segments are on network disks: it would be taken for one that lost them all.
pub(crate) fn check_not_network_backed(catalog: &Catalog) -> Result<()> {
    match is_network_backed(catalog)? {
        true => Err(Error::OnNetworkDisks),
        false => Ok(()),
    }
}
