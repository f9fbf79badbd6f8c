//! The room itself. (Signatures first; bodies follow.)
#![allow(unused_variables, clippy::todo)]

use std::path::Path;

use catalog::{DirEntry, Inode, InodeNo};
use seal::Credential;

use crate::*;

/// An open room. All methods may be called from many threads.
#[derive(Debug)]
pub struct Room {}

impl Room {
    /// Makes a room in `dir` (created, or empty) and opens it.
    pub fn create(dir: &Path, new: NewRoom) -> Result<Room> { todo!() }
    /// Opens the room in `dir`.
    pub fn open(dir: &Path, credential: &Credential, options: OpenOptions) -> Result<Room> { todo!() }
    /// Commits and closes; the error of the last commit is not lost as it is on drop.
    pub fn close(self) -> Result<()> { todo!() }
    /// Facts.
    pub fn info(&self) -> Result<Info> { todo!() }
    /// Space.
    pub fn space(&self) -> Result<RoomSpace> { todo!() }

    // names
    /// A name in a directory.
    pub fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> { todo!() }
    /// Attributes.
    pub fn attributes(&self, no: InodeNo) -> Result<Inode> { todo!() }
    /// Changes attributes.
    pub fn set_attributes(&self, no: InodeNo, set: &SetAttr) -> Result<Inode> { todo!() }
    /// Makes a file of any kind under a name.
    pub fn make(&self, parent: InodeNo, name: &[u8], new: &NewFile) -> Result<Inode> { todo!() }
    /// Makes a regular file without a name (O_TMPFILE), held once for the caller: see [`hold`](Self::hold).
    pub fn make_unnamed(&self, parent: InodeNo, new: &NewFile) -> Result<Inode> { todo!() }
    /// Gives a file another name.
    pub fn link(&self, no: InodeNo, parent: InodeNo, name: &[u8]) -> Result<Inode> { todo!() }
    /// Removes a name of anything but a directory.
    pub fn unlink(&self, parent: InodeNo, name: &[u8]) -> Result<()> { todo!() }
    /// Removes an empty directory.
    pub fn rmdir(&self, parent: InodeNo, name: &[u8]) -> Result<()> { todo!() }
    /// Moves a name.
    pub fn rename(&self, parent: InodeNo, name: &[u8], new_parent: InodeNo, new_name: &[u8], mode: RenameMode) -> Result<()> { todo!() }
    /// Target of a symbolic link.
    pub fn read_link(&self, no: InodeNo) -> Result<Vec<u8>> { todo!() }
    /// Up to `limit` names with a cookie above `after` (0: from the start), in a stable order; `.` and `..` are not among them.
    pub fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>> { todo!() }
    /// Marks a read of the file or directory for its access time (relatime).
    pub fn accessed(&self, no: InodeNo) { todo!() }
    /// Keeps an inode alive beyond its last name, as an open file does. Counted.
    pub fn hold(&self, no: InodeNo) { todo!() }
    /// Undoes `count` holds.
    pub fn release(&self, no: InodeNo, count: u64) { todo!() }

    // data
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    pub fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> { todo!() }
    /// Writes all of `data` at `offset`.
    pub fn write(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<()> { todo!() }
    /// Allocates, punches, zeroes, collapses, inserts.
    pub fn fallocate(&self, no: InodeNo, what: Fallocate, offset: u64, len: u64) -> Result<()> { todo!() }
    /// The next data or hole at or after `offset`; `NoMoreData` beyond the end.
    pub fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> { todo!() }
    /// Copies a range between files, or within one, sharing whole blocks instead of copying where offsets allow.
    /// Returns the bytes copied: fewer only where the source ends.
    pub fn copy_range(&self, from: InodeNo, from_offset: u64, to: InodeNo, to_offset: u64, len: u64) -> Result<u64> { todo!() }
    /// Makes everything done to this file so far durable (in fact everything done to the room).
    pub fn fsync(&self, no: InodeNo) -> Result<()> { todo!() }
    /// Makes everything done so far durable.
    pub fn sync(&self) -> Result<()> { todo!() }

    // extended attributes
    /// The value of one.
    pub fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> { todo!() }
    /// Sets one. `system.posix_acl_access` and `_default` are parsed, checked, and kept in step with the mode.
    /// `drop_setgid`: clear the set-group-id bit where an ACL change by a non-member would (FUSE_SETXATTR_ACL_KILL_SGID).
    pub fn set_xattr(&self, no: InodeNo, name: &[u8], value: &[u8], mode: XattrMode, drop_setgid: bool) -> Result<()> { todo!() }
    /// Removes one.
    pub fn remove_xattr(&self, no: InodeNo, name: &[u8]) -> Result<()> { todo!() }
    /// The names of all.
    pub fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>> { todo!() }

    // by path (bytes between slashes; absolute; `follow`: the last symbolic link too)
    /// The inode at a path.
    pub fn resolve(&self, path: &Path, follow: bool) -> Result<InodeNo> { todo!() }
    /// The whole contents of a file.
    pub fn read_file(&self, path: &Path) -> Result<Vec<u8>> { todo!() }
    /// Makes or replaces a file's contents.
    pub fn write_file(&self, path: impl AsRef<Path>, data: &[u8]) -> Result<()> { todo!() }

    // keys
    /// The key slots.
    pub fn slots(&self) -> Vec<seal::KeySlot> { todo!() }
    /// Adds a slot; returns its number.
    pub fn add_slot(&self, new: NewCredential, label: &str) -> Result<u32> { todo!() }
    /// Removes a slot; never the last one.
    pub fn remove_slot(&self, id: u32) -> Result<()> { todo!() }
    /// Replaces what opens a slot.
    pub fn change_slot(&self, id: u32, new: NewCredential) -> Result<()> { todo!() }
    /// The header as it stands, for a backup file.
    pub fn header_backup(&self) -> Vec<u8> { todo!() }
    /// Puts a header made by `header_backup` in the place of both copies of the room in `dir`, after checking that `credential` opens it.
    pub fn header_restore(dir: &Path, backup: &[u8], credential: &Credential) -> Result<()> { todo!() }

    // maintenance: `progress(done, total)` in bytes; may be called from other threads; returning false stops the work between two safe points
    /// Rewrites thin segments so that dead space goes back. Returns bytes given back.
    pub fn compact(&self, thinner_than_percent: u8, progress: &(dyn Fn(u64, u64) -> bool + Sync)) -> Result<u64> { todo!() }
    /// Checks structure, and with `read_data` every unit; with `repair` mends what can be mended and lists what is given up.
    pub fn check(&self, read_data: bool, repair: bool, progress: &(dyn Fn(u64, u64) -> bool + Sync)) -> Result<CheckReport> { todo!() }
    /// Makes or brings up to date a copy in `target`, a consistent state of one moment; segments already there are not copied again.
    pub fn backup(&self, target: &Path, progress: &(dyn Fn(u64, u64) -> bool + Sync)) -> Result<BackupReport> { todo!() }
    /// Gives the room a new master key: header and catalog at once, then re-seals every segment; goes on where an
    /// interrupted one stopped. `credential` keeps its slot, age recipients too; the slots dropped are returned.
    pub fn rekey(&self, credential: &Credential, progress: &(dyn Fn(u64, u64) -> bool + Sync)) -> Result<Vec<u32>> { todo!() }
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct CheckReport {
    /// Files looked at.
    pub files: u64,
    /// Bytes of data opened.
    pub bytes_read: u64,
    /// Everything found, for people.
    pub findings: Vec<String>,
    /// Ranges of files that do not open: path (or inode), first byte, bytes.
    pub lost: Vec<(String, u64, u64)>,
    /// What was mended.
    pub repaired: Vec<String>,
}

/// What a backup did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct BackupReport {
    /// Generation of the copy.
    pub generation: u64,
    /// Segments copied now.
    pub segments_copied: u64,
    /// Segments already there.
    pub segments_kept: u64,
    /// Bytes copied.
    pub bytes_copied: u64,
}
