//! Diagnosis of a room that cannot be opened: which of its parts are whole.

use std::path::PathBuf;
use std::sync::Arc;

use catalog::Catalog;
use seal::Credential;
use segments::{DirStore, SegmentFile, SegmentNo};
use storage::Storage;

use crate::blocks::BLOCK;
use crate::header::{self, BACKUP, HEADER, keyring};
use crate::layout::{CATALOG, NEW_CATALOG, check_not_network_backed};
use crate::lock::RoomLock;
use crate::reports::CheckReport;
use crate::usage;
use crate::{Error, Result};

/// Looks at a closed room and changes nothing.
pub(crate) fn examine(
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    credential: &Credential,
) -> Result<CheckReport> {
    let names = storage.list("")?;
    if ![HEADER, BACKUP, CATALOG]
        .iter()
        .any(|name| names.iter().any(|found| found == name))
    {
        return Err(Error::NotARoom(dir));
    }
    let _lock = RoomLock::take(&*storage, true)?;
    let mut report = CheckReport::default();
    let findings = &mut report.findings;
    let (header, previous, warning) = match header::load(&*storage, credential) {
        Ok(loaded) => loaded,
        Err(e @ Error::WrongCredential(_)) => return Err(e),
        Err(e) => {
            findings.push(format!("header: {e}"));
            return Ok(report);
        }
    };
    findings.extend(warning.map(|w| format!("header: {w}")));
    if names.iter().any(|name| name == NEW_CATALOG) {
        findings.push(
            "a rekey or backup was interrupted: opening the room for writing settles it".into(),
        );
    }
    let key = header.header.catalog_key(&header.master);
    let options = catalog::OpenOptions::for_reading();
    let catalog = match Catalog::open(&storage, CATALOG, &key, &options) {
        Ok(catalog) => catalog,
        Err(e) => {
            findings.push(format!("catalog: {e}"));
            return Ok(report);
        }
    };
    check_not_network_backed(&catalog)?;
    match catalog.verify() {
        Ok(found) => findings.extend(found.into_iter().map(|f| format!("catalog: {f}"))),
        Err(e) => findings.push(format!("catalog: {e}")),
    }
    match catalog.segments() {
        Ok(known) => {
            let ids = known.iter().map(|a| a.id).collect();
            let store = DirStore::open(
                storage.clone(),
                keyring(&header, previous.as_ref()),
                ids,
                SegmentNo(known.iter().map(|a| a.id.no.0).max().unwrap_or(0) + 1),
            )?;
            for account in known.iter().filter(|a| a.live > 0) {
                if let Err(e) = store.check_header(account.id.no) {
                    findings.push(e.to_string());
                }
            }
            match usage::ends(&catalog) {
                Ok(ends) => {
                    for SegmentFile { no, len, .. } in store.list()? {
                        let needed = ends.get(&no).map_or(0, |end| u64::from(*end) * BLOCK);
                        if len < needed {
                            let no = no.0;
                            findings.push(format!(
                                "segment {no}: its file has {len} bytes of {needed}"
                            ));
                        }
                    }
                }
                Err(e) => findings.push(format!("maps of files: {e}")),
            }
        }
        Err(e) => findings.push(format!("segments: {e}")),
    }
    Ok(report)
}
