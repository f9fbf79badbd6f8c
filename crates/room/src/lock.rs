//! One writer: the lock file of a room, with the holder's process number in it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::{Error, Result};

/// Held for as long as the room is open; the kernel lets it go when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct RoomLock {
    _file: Option<File>,
}

impl RoomLock {
    /// Takes the lock, or says who has it. A read-only directory can have no second writer: then nothing is locked.
    pub(crate) fn take(dir: &Path, read_only: bool) -> Result<Self> {
        let path = dir.join("lock");
        let mut file = match OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
        {
            Ok(file) => file,
            Err(e)
                if read_only
                    && matches!(
                        e.raw_os_error(),
                        Some(libc_errno::EROFS | libc_errno::EACCES)
                    ) =>
            {
                return Ok(Self { _file: None });
            }
            Err(e) => return Err(e.into()),
        };
        if let Err(e) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if e != rustix::io::Errno::WOULDBLOCK {
                return Err(Error::Io(e.into()));
            }
            let mut text = String::new();
            let _ = file.read_to_string(&mut text);
            return Err(Error::InUse {
                pid: text.trim().parse().unwrap_or(0),
            });
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self { _file: Some(file) })
    }
}

impl Drop for RoomLock {
    /// Lets the lock go, not only our descriptor of it: a child process that another thread is just starting has a
    /// copy until it becomes another program, and would keep the lock for that long.
    fn drop(&mut self) {
        if let Some(file) = &self._file {
            // It fails for no lock that is held.
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}

/// The two numbers this module compares with.
mod libc_errno {
    pub(super) const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
    pub(super) const EROFS: i32 = rustix::io::Errno::ROFS.raw_os_error();
}
