//! What differs between one mount of a file system, or one attachment of a device, and the next, in which what was not flushed may be
//! missing. The machine's boot and the numbers of device and inode are the same in both.
//!
//! 1. It stays the same while the file system is mounted anywhere, or the device attached: for every process, and mostly
//!    through every bind mount and in every mount namespace, of which a service manager makes one for each start.
//! 2. Where the kernel does not say, no two calls have the same.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use device::FileDevice;

/// File systems that have a directory of their device's name in `/sys/fs/KIND` for as long as they are mounted.
const KINDS: [&str; 3] = ["ext4", "xfs", "f2fs"];

/// The present attachment of a device, or mount of a file's file system.
pub(crate) fn of(device: &FileDevice) -> Vec<u8> {
    let identity = device.identity();
    let known = match identity.inode {
        // A block device.
        0 => disk(identity.device).and_then(|disk| fs::read(sequence_file(&disk)).ok()),
        _ => mounted(identity.device).or_else(|| {
            let number = device.mount()?;
            Some(format!("mount {number}").into_bytes())
        }),
    };
    known.unwrap_or_else(|| crate::keys::random::<16>().to_vec())
}

/// What [`of`] reads for the store at this path; what it looks at only is not among it.
pub(crate) fn files(store: &Path) -> Option<PathBuf> {
    let metadata = fs::metadata(store).ok()?;
    let is_device = metadata.file_type().is_block_device();
    let file = sequence_file(&disk(is_device.then(|| metadata.rdev())?)?);
    file.exists().then_some(file)
}

/// The mount of a file system, by the number of its directory: sysfs gives none twice.
fn mounted(device: u64) -> Option<Vec<u8>> {
    let directory = block_device(device)?;
    let name = directory.file_name()?;
    KINDS.iter().find_map(|kind| {
        let mounted = fs::metadata(Path::new("/sys/fs").join(kind).join(name)).ok()?;
        Some(format!("{kind} {}", mounted.ino()).into_bytes())
    })
}

/// It has another number after each attachment and change of medium (Linux 5.15).
fn sequence_file(disk: &Path) -> PathBuf {
    disk.join("diskseq")
}

/// The whole disk of a block device, which may be a partition.
fn disk(device: u64) -> Option<PathBuf> {
    let directory = block_device(device)?;
    match directory.join("partition").exists() {
        true => directory.parent().map(Path::to_path_buf),
        false => Some(directory),
    }
}

/// A block device in sysfs.
fn block_device(device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}
