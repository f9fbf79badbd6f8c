//! A writer: a process that carries its plan out on the mount until the mount is gone, and keeps the journal.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use super::journal::Journal;
use super::model::{Author, within};
use super::plan::{Op, Plan, Way, content};

/// The orders of a writer, through its environment.
#[derive(Debug, Clone)]
pub struct Orders {
    pub root: PathBuf,
    pub journal: PathBuf,
    pub seed: u64,
    pub round: u64,
    pub writer: u64,
}

/// Works until the mount is gone.
pub fn work(orders: &Orders) {
    // Modes are as planned.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let mut journal = Journal::create(&orders.journal);
    for (op, number) in Plan::new(orders.seed, orders.round, orders.writer).zip(0..) {
        let author = Author {
            round: orders.round,
            writer: orders.writer,
            op: number,
        };
        journal.began();
        match carry_out(&orders.root, &op, author) {
            Err(e @ (Errno::NOTCONN | Errno::CONNABORTED | Errno::IO | Errno::CANCELED)) => {
                journal.stopped(e);
                return;
            }
            answer => journal.ended(answer),
        }
    }
}

fn carry_out(root: &Path, op: &Op, author: Author) -> Result<(), Errno> {
    let at = |path: &String| root.join(path);
    let bytes = |offset, len| content(author.round, author.writer, author.op, offset, len);
    let rw = OFlags::RDWR | OFlags::CLOEXEC;
    let open = |path: &String, flags: OFlags| {
        rustix::fs::open(at(path), flags, Mode::from_raw_mode(0o644))
    };
    match op {
        Op::Put {
            path,
            offset,
            len,
            way,
        } => {
            let file = open(path, rw | OFlags::CREATE | flags(*way))?;
            write_all(&file, *offset, &bytes(*offset, *len))
        }
        Op::Append { path, len, way } => {
            let file = open(path, rw | OFlags::CREATE | OFlags::APPEND | flags(*way))?;
            let offset = rustix::fs::fstat(&file)?.st_size as u64;
            write_all(&file, offset, &bytes(offset, *len))
        }
        Op::Map {
            path,
            at,
            len,
            sync,
        } => {
            let file = open(path, rw)?;
            let size = rustix::fs::fstat(&file)?.st_size as u64;
            match within(*at, *len, size) {
                Some((at, len)) => store(&file, size, at, &bytes(at, len), *sync),
                None => Ok(()),
            }
        }
        Op::Truncate { path, len } => rustix::fs::ftruncate(open(path, rw)?, *len),
        Op::Punch { path, offset, len } => allocate(
            &open(path, rw)?,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            *offset,
            *len,
        ),
        Op::Zero { path, offset, len } => {
            allocate(&open(path, rw)?, FallocateFlags::ZERO_RANGE, *offset, *len)
        }
        Op::Copy {
            from,
            to,
            offset,
            len,
        } => copy(&open(from, rw)?, &open(to, rw)?, *offset, *len),
        Op::Rename { from, to } => rustix::fs::rename(at(from), at(to)),
        Op::Exchange { a, b } => {
            rustix::fs::renameat_with(CWD, at(a), CWD, at(b), RenameFlags::EXCHANGE)
        }
        Op::Link { from, to } => rustix::fs::linkat(CWD, at(from), CWD, at(to), AtFlags::empty()),
        Op::Symlink { target, path } => rustix::fs::symlink(target, at(path)),
        Op::Unlink { path } => rustix::fs::unlink(at(path)),
        Op::Mkdir { path } => rustix::fs::mkdir(at(path), Mode::from_raw_mode(0o755)),
        Op::Rmdir { path } => rustix::fs::rmdir(at(path)),
        Op::SetXattr { path, name, len } => {
            rustix::fs::setxattr(at(path), name, &bytes(0, *len), XattrFlags::empty())
        }
        Op::RemoveXattr { path, name } => rustix::fs::removexattr(at(path), name),
        Op::Chmod { path, mode } => rustix::fs::chmod(at(path), Mode::from_raw_mode(*mode)),
        Op::Sync { path, data_only } => {
            let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC)?;
            if *data_only {
                rustix::fs::fdatasync(&file)
            } else {
                rustix::fs::fsync(&file)
            }
        }
    }
}

fn flags(way: Way) -> OFlags {
    match way {
        Way::Cached => OFlags::empty(),
        Way::Direct => OFlags::DIRECT,
        Way::Synced => OFlags::SYNC,
    }
}

fn write_all(file: impl std::os::fd::AsFd, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        // With O_APPEND the offset is not looked at.
        done += rustix::io::pwrite(&file, &bytes[done..], offset + done as u64)?;
    }
    Ok(())
}

fn allocate(
    file: impl std::os::fd::AsFd,
    how: FallocateFlags,
    offset: u64,
    len: u64,
) -> Result<(), Errno> {
    let size = rustix::fs::fstat(&file)?.st_size as u64;
    if offset >= size {
        return Ok(());
    }
    rustix::fs::fallocate(&file, how, offset, len.min(size - offset))
}

fn copy(
    from: impl std::os::fd::AsFd,
    to: impl std::os::fd::AsFd,
    offset: u64,
    len: u64,
) -> Result<(), Errno> {
    let (source, target) = (rustix::fs::fstat(&from)?, rustix::fs::fstat(&to)?);
    let end = (offset + len).min(source.st_size as u64);
    if source.st_ino == target.st_ino {
        return Ok(());
    }
    let (mut read_at, mut write_at) = (offset, offset);
    while read_at < end {
        let left = (end - read_at) as usize;
        // Nothing copied before the end: own bug of the file system, which the comparison shows.
        if rustix::fs::copy_file_range(&from, Some(&mut read_at), &to, Some(&mut write_at), left)?
            == 0
        {
            break;
        }
    }
    Ok(())
}

/// Writes through a mapping. A store into a mount that is gone is a SIGBUS, which ends the writer: as good as an error.
fn store(
    file: impl std::os::fd::AsFd,
    size: u64,
    at: u64,
    bytes: &[u8],
    sync: bool,
) -> Result<(), Errno> {
    let len = size as usize;
    // SAFETY: a new shared mapping of `len` bytes, of which nobody else knows; it is unmapped below, and not used after that.
    // No other process changes the file's length: each has files of its own.
    unsafe {
        let map = rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &file,
            0,
        )?;
        std::ptr::copy_nonoverlapping(
            bytes.as_ptr(),
            map.cast::<u8>().add(at as usize),
            bytes.len(),
        );
        let synced = if sync {
            rustix::mm::msync(map, len, MsyncFlags::SYNC)
        } else {
            Ok(())
        };
        rustix::mm::munmap(map, len)?;
        synced
    }
}
