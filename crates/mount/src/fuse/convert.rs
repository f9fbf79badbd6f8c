//! The room's values in the library's types, and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, ReplyStatfs, TimeOrNow};
use model::{FileKind, Inode, InodeNo, RoomSpace, SetTime, Timestamp};

/// Bytes of a block, here and in the room.
const BLOCK: u32 = 4096;
/// Bytes a new file takes at least: its row in the catalog.
const FILE_COST: u64 = 512;

pub(super) fn no(ino: INodeNo) -> InodeNo {
    InodeNo(ino.0)
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(super) fn file_attr(inode: &Inode) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode.no.0),
        size: inode.size,
        blocks: inode.blocks * u64::from(BLOCK / 512),
        atime: system_time(inode.atime),
        mtime: system_time(inode.mtime),
        ctime: system_time(inode.ctime),
        crtime: system_time(inode.btime),
        kind: file_type(inode.kind),
        perm: inode.mode & 0o7777,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        // makedev's form and the kernel's 32-bit form agree in these bits.
        rdev: inode.rdev as u32,
        blksize: BLOCK,
        flags: 0,
    }
}

/// An entry without an inode: the name does not exist.
pub(super) fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

/// On Linux a `SystemTime` holds any `i64` of seconds; one that it cannot hold becomes the epoch.
fn system_time(t: Timestamp) -> SystemTime {
    let whole = if t.secs >= 0 {
        UNIX_EPOCH.checked_add(Duration::from_secs(t.secs.unsigned_abs()))
    } else {
        UNIX_EPOCH.checked_sub(Duration::from_secs(t.secs.unsigned_abs()))
    };
    whole
        .and_then(|w| w.checked_add(Duration::from_nanos(u64::from(t.nanos))))
        .unwrap_or(UNIX_EPOCH)
}

pub(super) fn timestamp(t: SystemTime) -> Timestamp {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => Timestamp::new(
            i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            d.subsec_nanos(),
        ),
        Err(e) => {
            // Nanoseconds count forward from the second before.
            let d = e.duration();
            let secs = i64::try_from(d.as_secs()).map_or(i64::MIN, |s| -s);
            match d.subsec_nanos() {
                0 => Timestamp { secs, nanos: 0 },
                n => Timestamp::new(secs.saturating_sub(1), 1_000_000_000 - n),
            }
        }
    }
}

pub(super) fn set_time(t: TimeOrNow) -> SetTime {
    match t {
        TimeOrNow::SpecificTime(t) => SetTime::At(timestamp(t)),
        TimeOrNow::Now => SetTime::Now,
    }
}

/// Inodes have no limit of their own: as many are free as their catalog rows find room.
pub(super) fn answer_statfs(space: &RoomSpace, reply: ReplyStatfs) {
    let block = u64::from(BLOCK);
    let files_free = space.available / FILE_COST;
    reply.statfs(
        space.total / block,
        space.free / block,
        space.available / block,
        space.inodes.saturating_add(files_free),
        files_free,
        BLOCK,
        255,
        BLOCK,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_far_ahead_keep_their_nanoseconds() {
        for t in [
            Timestamp { secs: 0, nanos: 0 },
            Timestamp { secs: -1, nanos: 1 },
            Timestamp::new(-2, 500_000_000),
            Timestamp::new(-2_208_988_800, 0),
            Timestamp::new(13_569_465_600, 999_999_999),
            Timestamp::new(i64::MIN, 7),
            Timestamp::new(i64::MAX, 7),
        ] {
            assert_eq!(timestamp(system_time(t)), t);
        }
    }
}
