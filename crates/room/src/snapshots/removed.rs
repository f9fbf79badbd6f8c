//! What was removed from the room, and snapshots still have.
//!
//! A name that goes is kept for the newest snapshot that sees it: these rows are read, and no directory that did not change. Only the
//! directories above what is found are searched, for their names.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use catalog::{Inode, InodeNo};
use model::{FileKind, Snapshot};

use super::Past;
use crate::{Error, Result};

/// Rows read at once.
const PAGE: usize = 1024;

/// A file that was removed, or a directory with what was in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Its path in the newest snapshot that has it.
    pub path: PathBuf,
    /// Its attributes there.
    pub inode: Inode,
    /// The snapshots that have it, among those that were asked for, from the newest; at least one.
    pub snapshots: Vec<Snapshot>,
    /// Files of any kind that go with it, itself among them.
    pub files: u64,
    /// The lengths of the regular files among them together, in bytes.
    pub bytes: u64,
}

/// A name that is gone.
struct Gone {
    /// The place of the newest snapshot that has it.
    at: usize,
    parent: InodeNo,
    name: Vec<u8>,
    inode: Inode,
}

impl Past {
    /// See [`Room::removed_since`](crate::Room::removed_since).
    pub(crate) fn removed(&self, since: Option<&str>) -> Result<Vec<Removed>> {
        // It may take long.
        let _swap = self.catalog.keep();
        let since = since.map(|name| self.find(name)).transpose()?;
        let since = since.map_or(0, |row| row.no());
        let all = self.list();
        let living: Vec<Snapshot> = all.into_iter().filter(|s| s.number >= since).collect();
        let gone = self.gone(&living)?;
        // A directory by its number: what was in it when it went is part of it.
        let directories: HashMap<InodeNo, usize> = gone
            .iter()
            .enumerate()
            .filter(|(_, gone)| gone.inode.kind == FileKind::Directory)
            .map(|(place, gone)| (gone.inode.no, place))
            .collect();
        let mut sums: HashMap<usize, (u64, u64)> = HashMap::new();
        for (place, one) in gone.iter().enumerate() {
            let mut top = place;
            while let Some(above) = directories.get(&gone[top].parent)
                && gone[*above].at == one.at
            {
                top = *above;
            }
            let sum = sums.entry(top).or_default();
            sum.0 += 1;
            if one.inode.kind == FileKind::Regular {
                sum.1 += one.inode.size;
            }
        }
        let mut paths = HashMap::new();
        let mut removed = Vec::with_capacity(sums.len());
        for (place, (files, bytes)) in sums {
            let one = &gone[place];
            let above = self.path_of(living[one.at].number, one.parent, &mut paths)?;
            let path = above.join(OsStr::from_bytes(&one.name));
            // Brought back in another directory of the same path.
            if self.has_path(&path)? {
                continue;
            }
            removed.push(Removed {
                path,
                inode: one.inode.clone(),
                snapshots: self.with(one, &living)?,
                files,
                bytes,
            });
        }
        removed.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(removed)
    }

    /// Names that these snapshots have and the room has not; each once. A file that went on under another name is not gone.
    fn gone(&self, living: &[Snapshot]) -> Result<Vec<Gone>> {
        let catalog = self.catalog.get();
        let mut gone = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for row in catalog.snapshots().iter().rev() {
            // What is still kept for a deleted one goes to the one before.
            let Some(at) = living.iter().rposition(|s| s.number <= row.no()) else {
                break;
            };
            let mut after = (InodeNo(0), 0);
            loop {
                let page = catalog.entries_until(row.no(), after, PAGE)?;
                let Some(last) = page.last() else {
                    break;
                };
                after = *last;
                for (parent, cookie) in page {
                    let found = catalog.past_entry(living[at].number, parent, cookie)?;
                    let Some(entry) = found else {
                        continue;
                    };
                    if catalog.lookup(parent, &entry.name)?.is_some()
                        || self.is_there(living.get(at + 1), entry.inode)?
                        || !seen.insert((parent, entry.name.clone()))
                    {
                        continue;
                    }
                    if let Some(inode) = catalog.past_inode(living[at].number, entry.inode)? {
                        gone.push(Gone {
                            at,
                            parent,
                            name: entry.name,
                            inode,
                        });
                    }
                }
            }
        }
        Ok(gone)
    }

    /// Whether the room has something at a path; no symbolic link on it is followed.
    fn has_path(&self, path: &Path) -> Result<bool> {
        let catalog = self.catalog.get();
        let mut at = InodeNo::ROOT;
        for name in path.iter().skip(1) {
            match catalog.lookup(at, name.as_bytes())? {
                Some(inode) => at = inode.no,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Whether a file is there under whatever name: in a snapshot, or now.
    fn is_there(&self, at: Option<&Snapshot>, no: InodeNo) -> Result<bool> {
        let found = match at {
            Some(at) => self.data.past_inode(at.number, no),
            None => self.data.attributes(no),
        };
        match found {
            Ok(inode) => Ok(inode.nlink > 0),
            Err(Error::NotFound) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The snapshots up to the newest one that has a name, from that on.
    fn with(&self, gone: &Gone, living: &[Snapshot]) -> Result<Vec<Snapshot>> {
        let catalog = self.catalog.get();
        let mut with = Vec::new();
        for snapshot in living[..=gone.at].iter().rev() {
            let found = catalog.past_lookup(snapshot.number, gone.parent, &gone.name)?;
            if found.is_some() {
                with.push(snapshot.clone());
            }
        }
        Ok(with)
    }

    /// The path of a directory in a snapshot.
    fn path_of(
        &self,
        at: u64,
        no: InodeNo,
        known: &mut HashMap<(u64, InodeNo), PathBuf>,
    ) -> Result<PathBuf> {
        let mut below = Vec::new();
        let mut no = no;
        let mut path = loop {
            if no == InodeNo::ROOT {
                break PathBuf::from("/");
            }
            if let Some(path) = known.get(&(at, no)) {
                break path.clone();
            }
            let parent = self.data.past_inode(at, no)?.parent;
            below.push((no, self.name_in(at, parent, no)?));
            no = parent;
        };
        for (no, name) in below.into_iter().rev() {
            path = Path::join(&path, OsStr::from_bytes(&name));
            known.insert((at, no), path.clone());
        }
        Ok(path)
    }

    fn name_in(&self, at: u64, parent: InodeNo, no: InodeNo) -> Result<Vec<u8>> {
        let mut after = 0;
        loop {
            let page = self.catalog.get().past_entries(at, parent, after, PAGE)?;
            let last = page.last().ok_or(Error::NotFound)?;
            after = last.cookie;
            if let Some(found) = page.into_iter().find(|entry| entry.inode == no) {
                return Ok(found.name);
            }
        }
    }
}
