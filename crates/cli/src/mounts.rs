//! Mounted rooms, found in the kernel's list of mounts.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mount::table;

pub(crate) use mount::table::Mount;

/// Whether it is a mount of the room in `dir` by this user.
pub(crate) fn is_of(mount: &Mount, dir: &Path) -> bool {
    let id = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    is_own(mount) && id(dir).is_some_and(|room| id(&mount.source) == Some(room))
}

/// Whether this user mounted it.
fn is_own(mount: &Mount) -> bool {
    let user = mount.option("user_id").and_then(|user| user.parse().ok());
    user == Some(rustix::process::getuid().as_raw())
}

/// Every room that this user has mounted.
pub(crate) fn own() -> Vec<Mount> {
    let mounts = table::all().into_iter();
    mounts
        .filter(|mount| is_room(mount) && is_own(mount))
        .collect()
}

fn is_room(mount: &Mount) -> bool {
    mount.kind == "fuse.strongroom"
}

/// The room mounted at exactly this (canonical) path, if one is. Its source is the room's directory.
pub(crate) fn strongroom_at(mountpoint: &Path) -> Option<Mount> {
    // A later mount covers an earlier one.
    let mounts = table::all().into_iter().rev();
    mounts
        .filter(is_room)
        .find(|mount| mount.mountpoint == mountpoint)
}

/// Everything that is mounted right below a (canonical) directory, without touching it: a mount may answer no more.
pub(crate) fn mountpoints_in(dir: &Path) -> Vec<PathBuf> {
    let mountpoints = table::all().into_iter().map(|mount| mount.mountpoint);
    mountpoints.filter(|at| at.parent() == Some(dir)).collect()
}

/// Every mounted room that a process sees; where its table cannot be read, those that this process sees.
pub(crate) fn rooms_of(pid: u32) -> Vec<Mount> {
    let mut mounts = table::of_process(pid).unwrap_or_else(|_| table::all());
    mounts.retain(is_room);
    mounts
}

/// The process in the background that serves the mount at exactly this (canonical) path, by its command line.
pub(crate) fn process_of(mountpoint: &Path) -> Option<u32> {
    let serves = |line: &[u8]| {
        let mut words = line.split(|b| *b == 0).skip(1);
        words.next() == Some(b"serve-mount")
            && words.nth(1).map(OsStr::from_bytes) == Some(mountpoint.as_os_str())
    };
    std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .find_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            (line.starts_with(b"strongroom\0") && serves(&line)).then_some(pid)
        })
}

/// An absolute path with its directory resolved but not its last name, which may be a mount that answers no more.
pub(crate) fn without_touching(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    // A slash at the end would have the last name touched.
    let bytes = path.as_os_str().as_bytes();
    let end = bytes
        .iter()
        .rposition(|b| *b != b'/')
        .map_or(1, |at| at + 1);
    let path = Path::new(std::ffi::OsStr::from_bytes(&bytes[..end]));
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => path.canonicalize(),
    }
}
