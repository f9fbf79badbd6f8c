//! The tree: names, and what making, linking, removing and moving them does to inodes.
//!
//! 1. Every change of the tree holds `names`, so what was looked up stays true until it is acted on.
//! 2. What can be refused is refused before anything is changed; one `apply` makes the change whole.
//! 3. An inode that lost its last name lives on while it is held, else the maintenance thread deletes it.
//!
//! It deliberately does not check permissions: the mount does.

mod paths;
mod rename;

use std::sync::Arc;

use catalog::{Change, DirEntry, FileKind, Inode, InodeNo, Timestamp};
use parking_lot::Mutex;

use crate::acl;
use crate::commit::Commits;
use crate::current::CurrentCatalog;
use crate::data::Data;
use crate::environment::Environment;
use crate::flags::{refuse_flagged, refuse_immutable};
use crate::holds::Holds;
use crate::inodes::Cell;
use crate::name_cache::NameCache;
use crate::owners::More;
use crate::space::Space;
use crate::{Error, NewFile, Result};

/// Longest name in bytes.
const NAME_MAX: usize = 255;
/// Most names of one inode.
const LINKS_MAX: u32 = 1 << 20;
/// Longest target of a symbolic link in bytes.
const TARGET_MAX: usize = 4095;
/// Bytes that a new name may take in the catalog: for the check of free space.
const NAME_COST: u64 = 1024;

#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) env: Arc<Environment>,
    pub(crate) catalog: Arc<CurrentCatalog>,
    pub(crate) data: Arc<Data>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) space: Arc<Space>,
    pub(crate) holds: Arc<Holds>,
    pub(crate) found: NameCache,
    /// Held by every change of the tree.
    pub(crate) names: Mutex<()>,
}

/// The inode of an empty directory that is, or will be, in the root; the root is in itself.
pub(crate) fn directory_in_root(
    no: InodeNo,
    mode: u16,
    (uid, gid): (u32, u32),
    now: Timestamp,
) -> Inode {
    Inode {
        mode,
        uid,
        gid,
        nlink: 2,
        parent: InodeNo::ROOT,
        ..Inode::new(no, FileKind::Directory, now)
    }
}

impl Tree {
    /// Forgets the names found lately, once the catalog was changed in any way.
    pub(crate) fn forget_found(&self) {
        self.found.clear();
    }

    /// A name in a directory.
    pub(crate) fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if let Some(no) = self.found.get(parent, name)
            && let Ok(inode) = self.data.attributes(no)
        {
            return Ok(inode);
        }
        let catalog = self.catalog.get();
        loop {
            let (seen, names_seen) = (self.data.inodes().evictions(), self.found.seen());
            let Some(row) = catalog.lookup(parent, name)? else {
                // A lookup in what is not a directory finds nothing either, but the reason differs.
                let parent = self.data.cell(parent)?;
                let kind = parent.state.read().inode.kind;
                return Err(if kind == FileKind::Directory {
                    Error::NotFound
                } else {
                    Error::NotDirectory
                });
            };
            if let Some(cell) = self.data.inodes().adopt(row, seen) {
                self.found.put(parent, name, cell.no, names_seen);
                return self.data.attributes(cell.no);
            }
        }
    }

    /// The cell behind a name.
    fn find(&self, parent: InodeNo, name: &[u8]) -> Result<Arc<Cell>> {
        let inode = self.lookup(parent, name)?;
        self.data.cell(inode.no)
    }

    /// The cell of a directory that names may be put into.
    fn directory(&self, no: InodeNo) -> Result<Arc<Cell>> {
        let cell = self.existing_directory(no)?;
        refuse_immutable(&cell.state.read().inode)?;
        Ok(cell)
    }

    /// The cell of a directory that names may be taken from.
    fn directory_to_shrink(&self, no: InodeNo) -> Result<Arc<Cell>> {
        let cell = self.existing_directory(no)?;
        refuse_flagged(&cell.state.read().inode)?;
        Ok(cell)
    }

    fn existing_directory(&self, no: InodeNo) -> Result<Arc<Cell>> {
        let cell = self.data.cell(no)?;
        let state = cell.state.read();
        if state.inode.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        if state.is_gone() || state.inode.nlink == 0 {
            return Err(Error::NotFound);
        }
        drop(state);
        Ok(cell)
    }

    /// Makes a file of any kind under a name.
    pub(crate) fn make(&self, parent: InodeNo, name: &[u8], new: &NewFile) -> Result<Inode> {
        check_name(name)?;
        self.space.with_space(NAME_COST, || {
            let _change = self.commits.change()?;
            let _names = self.names.lock();
            let directory = self.directory(parent)?;
            if self.catalog.get().lookup(parent, name)?.is_some() {
                return Err(Error::Exists);
            }
            let is_directory = new.kind == FileKind::Directory;
            let (inode, xattrs) =
                self.new_inode(&directory, new, if is_directory { 2 } else { 1 })?;
            self.enter(&inode, &xattrs, Some((parent, name)))?;
            self.found.put(parent, name, inode.no, self.found.seen());
            self.touch_directory(&directory, i64::from(is_directory));
            Ok(inode)
        })
    }

    /// Makes a regular file without a name, held once for the caller.
    pub(crate) fn create_tmpfile(&self, parent: InodeNo, new: &NewFile) -> Result<Inode> {
        if new.kind != FileKind::Regular {
            return Err(Error::InvalidArgument(
                "only a regular file can be without a name",
            ));
        }
        self.space.with_space(NAME_COST, || {
            let _change = self.commits.change()?;
            let _names = self.names.lock();
            let directory = self.directory(parent)?;
            let (inode, xattrs) = self.new_inode(&directory, new, 0)?;
            self.enter(&inode, &xattrs, None)?;
            self.holds.hold_unnamed(inode.no);
            Ok(inode)
        })
    }

    /// Puts a new inode, its extended attributes and its first name, if it has one, into the catalog and into memory. The caller holds
    /// a change.
    pub(crate) fn enter(
        &self,
        inode: &Inode,
        xattrs: &[(&'static [u8], Vec<u8>)],
        name: Option<(InodeNo, &[u8])>,
    ) -> Result<()> {
        let mut changes = vec![Change::PutInode(inode)];
        changes.extend(
            name.map(|(parent, name)| Change::put_entry(parent, name, inode.no, inode.kind)),
        );
        changes.extend(
            xattrs
                .iter()
                .map(|(name, value)| Change::put_xattr(inode.no, name, value)),
        );
        let one = More {
            blocks: inode.blocks,
            files: 1,
        };
        self.data.owners().check(inode.uid, one)?;
        let evictions = self.data.inodes().evictions();
        self.catalog.get().apply(&changes)?;
        self.data.owners().came(inode);
        self.data.inodes().adopt(inode.clone(), evictions);
        Ok(())
    }

    /// The inode of a new file, with what it inherits from its directory, and its extended attributes.
    fn new_inode(
        &self,
        directory: &Cell,
        new: &NewFile,
        nlink: u32,
    ) -> Result<(Inode, acl::Xattrs)> {
        if new.target.len() > TARGET_MAX {
            return Err(Error::NameTooLong);
        }
        let (parent, parent_gid, parent_mode, has_xattrs) = {
            let state = directory.state.read();
            (
                directory.no,
                state.inode.gid,
                state.inode.mode,
                state.inode.has_xattrs,
            )
        };
        let default = if has_xattrs {
            self.catalog.get().xattr(parent, acl::DEFAULT)?
        } else {
            None
        };
        let inherited = acl::inherit(default.as_deref(), new.kind, new.mode, new.umask)?;
        let mut mode = inherited.mode;
        let mut gid = new.gid;
        if parent_mode & 0o2000 != 0 {
            gid = parent_gid;
            if new.kind == FileKind::Directory {
                mode |= 0o2000;
            }
        }
        let now = self.env.now();
        let is_directory = new.kind == FileKind::Directory;
        let inode = Inode {
            mode: mode & 0o7777,
            uid: new.uid,
            gid,
            nlink,
            size: new.target.len() as u64,
            rdev: if matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice) {
                new.rdev
            } else {
                0
            },
            parent: if is_directory { parent } else { InodeNo(0) },
            has_xattrs: !inherited.xattrs.is_empty(),
            target: new.target.clone(),
            ..Inode::new(self.catalog.get().new_inode(), new.kind, now)
        };
        Ok((inode, inherited.xattrs))
    }

    /// Notes that a directory's names changed, and how many subdirectories came or went.
    fn touch_directory(&self, directory: &Arc<Cell>, subdirectories: i64) {
        let mut state = directory.state.write();
        state.inode.nlink = state
            .inode
            .nlink
            .saturating_add_signed(subdirectories as i32);
        self.data.touch(directory, &mut state, self.env.now());
    }

    /// Gives a file another name.
    pub(crate) fn link(&self, no: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        check_name(name)?;
        self.space.with_space(NAME_COST, || {
            let _change = self.commits.change()?;
            let _names = self.names.lock();
            let directory = self.directory(parent)?;
            let cell = self.data.cell(no)?;
            let kind = {
                let state = cell.state.read();
                match state.inode.kind {
                    _ if state.is_gone() => return Err(Error::NotFound),
                    FileKind::Directory => {
                        return Err(Error::NotPermitted("a directory has one name"));
                    }
                    _ if state.inode.nlink >= LINKS_MAX => return Err(Error::TooManyLinks),
                    kind => {
                        refuse_flagged(&state.inode)?;
                        kind
                    }
                }
            };
            if self.catalog.get().lookup(parent, name)?.is_some() {
                return Err(Error::Exists);
            }
            self.catalog
                .get()
                .apply(&[Change::put_entry(parent, name, no, kind)])?;
            let mut state = cell.state.write();
            state.inode.nlink += 1;
            self.data.touch_inode(&cell, &mut state, self.env.now());
            if state.inode.nlink == 1 {
                self.holds.got_name(no);
            }
            let inode = state.inode.clone();
            drop(state);
            self.touch_directory(&directory, 0);
            Ok(inode)
        })
    }

    /// Removes a name of anything but a directory.
    pub(crate) fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let _change = self.commits.change()?;
        let _names = self.names.lock();
        let directory = self.directory_to_shrink(parent)?;
        let cell = self.find(parent, name)?;
        if cell.state.read().inode.kind == FileKind::Directory {
            return Err(Error::IsDirectory);
        }
        refuse_flagged(&cell.state.read().inode)?;
        self.catalog
            .get()
            .apply(&[Change::remove_entry(parent, name)])?;
        self.found.forget(parent, name);
        self.drop_name(&cell);
        self.touch_directory(&directory, 0);
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let _change = self.commits.change()?;
        let _names = self.names.lock();
        let directory = self.directory_to_shrink(parent)?;
        let cell = self.find(parent, name)?;
        if cell.state.read().inode.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        refuse_flagged(&cell.state.read().inode)?;
        if !self.catalog.get().is_empty(cell.no)? {
            return Err(Error::NotEmpty);
        }
        self.catalog
            .get()
            .apply(&[Change::remove_entry(parent, name)])?;
        self.found.forget(parent, name);
        self.drop_name(&cell);
        self.touch_directory(&directory, -1);
        Ok(())
    }

    /// An inode lost a name; a directory has only one.
    fn drop_name(&self, cell: &Arc<Cell>) {
        let mut state = cell.state.write();
        let is_directory = state.inode.kind == FileKind::Directory;
        state.inode.nlink = if is_directory {
            0
        } else {
            state.inode.nlink.saturating_sub(1)
        };
        self.data.touch_inode(cell, &mut state, self.env.now());
        if state.inode.nlink > 0 {
            return;
        }
        drop(state);
        self.holds.lost_last_name(cell.no);
    }

    /// Up to `limit` names with a cookie above `after`, with their inodes.
    pub(crate) fn read_dir(
        &self,
        no: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>> {
        if self.data.cell(no)?.state.read().inode.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let (seen, names_seen) = (self.data.inodes().evictions(), self.found.seen());
        let rows = self.catalog.get().entries_plus(no, after, limit)?;
        // The files are often opened or removed next.
        let listed = rows.iter().map(|(entry, _)| (&*entry.name, entry.inode));
        self.found.put_all(no, listed, names_seen);
        Ok(self.data.inodes().listed(rows, seen))
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" | b"." | b".." => Err(Error::InvalidArgument("not a name")),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
        _ if name.contains(&b'/') || name.contains(&0) => {
            Err(Error::InvalidArgument("a name with `/` or NUL"))
        }
        _ => Ok(()),
    }
}
