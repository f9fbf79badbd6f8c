//! File data: read, write, allocate, seek, copy, make durable.

use model::{Fallocate, InodeNo, SeekTo, SetAttr};

use crate::errno::{Errno, OrErrno};
use crate::server::{Caller, Server};

/// Longest copy answered at once, in bytes: the reply counts in 32 bits, and a copy should stay interruptible.
const COPY_MAX: u64 = 1 << 30;

impl Server {
    /// Fills `buf` from `offset`; less only at the end of the file.
    pub(crate) fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let got = self.room.read(no, offset, buf).or_errno("read", no)?;
        self.touch_atime(no);
        Ok(got)
    }

    /// Writes all of `data`.
    pub(crate) fn write(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.stamped_by_kernel(|| self.with_space(|| self.room.write(no, offset, data)))
            .or_errno("write", no)
    }

    /// Adds all of `data` to the end of a shared file, which the kernel takes to be at `offset`.
    pub(crate) fn append(&self, no: InodeNo, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let is_known = self.opens.ends_at(no, offset);
        let end = match is_known {
            true => offset,
            false => self.attributes(no)?.size,
        };
        self.write(no, end, data)?;
        self.opens.note_end(no, end + data.len() as u64, !is_known);
        Ok(())
    }

    /// Writes all of `data`, which the kernel's cache accepted earlier. True where there was no space for it as new data.
    pub(crate) fn write_cached(
        &self,
        no: InodeNo,
        offset: u64,
        data: &[u8],
    ) -> Result<bool, Errno> {
        let written = self.room.write_cached(no, offset, data);
        if let Err(e) = &written {
            if matches!(e, model::Error::NoSpace) {
                tracing::error!(
                    inode = no.0,
                    "{} bytes at {offset} that a program wrote find no space and are lost; its next fsync or close says so",
                    data.len()
                );
            }
            if !self.shared {
                self.pressure.lost(&*self.room, no, offset);
            }
        }
        written.or_errno("write", no)
    }

    /// A program is about to write: ENOSPC where the file already grew beyond the space there is.
    pub(crate) fn before_write(&self, no: InodeNo) -> Result<(), Errno> {
        let may = !self.pressure.is_tight() || self.pressure.may_write(&*self.room, no);
        match may || self.finds_space() {
            true => Ok(()),
            false => Err(Errno::ENOSPC),
        }
    }

    /// Takes set-id bits and file capabilities away before an unprivileged change of data. `true`: there were some,
    /// and the kernel's idea of the attributes is old.
    pub(crate) fn drop_privileges(&self, caller: Caller, no: InodeNo) -> Result<bool, Errno> {
        if self.shared && self.opens.is_plain(no) {
            return Ok(false);
        }
        let changes = self.opens.changes();
        let inode = self.attributes(no)?;
        if inode.mode & 0o6000 == 0 && !inode.has_xattrs {
            self.opens.note_plain(no, changes);
            return Ok(false);
        }
        let set = SetAttr {
            drop_privileges: true,
            drop_setgid: !self.shared && caller.loses_setgid(&inode),
            ..SetAttr::default()
        };
        let after = self.change_attributes(no, &set)?;
        Ok(after.mode != inode.mode || after.has_xattrs)
    }

    /// As [`drop_privileges`](Self::drop_privileges), for requests in which the kernel does not say whether the caller
    /// may keep them: root may.
    pub(crate) fn drop_privileges_of(&self, caller: Caller, no: InodeNo) -> Result<bool, Errno> {
        if caller.uid == 0 {
            Ok(false)
        } else {
            self.drop_privileges(caller, no)
        }
    }

    /// `mode` is that of fallocate.
    pub(crate) fn allocate(
        &self,
        no: InodeNo,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        let what = allocation(mode).ok_or(Errno::EOPNOTSUPP)?;
        self.stamped_by_kernel(|| self.with_space(|| self.room.fallocate(no, what, offset, len)))
            .or_errno("fallocate", no)?;
        if !self.shared {
            // Before the answer: what is reserved is not there for what the kernel holds back.
            self.pressure.look(&*self.room);
        }
        self.changed(no)
    }

    /// `whence` is SEEK_DATA or SEEK_HOLE.
    pub(crate) fn seek(&self, no: InodeNo, offset: i64, whence: i32) -> Result<i64, Errno> {
        let to = match whence {
            libc::SEEK_DATA => SeekTo::Data,
            libc::SEEK_HOLE => SeekTo::Hole,
            _ => return Err(Errno::EINVAL),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno(libc::ENXIO))?;
        let found = self.room.seek(no, offset, to).or_errno("seek", no)?;
        i64::try_from(found).map_err(|_| Errno(libc::EOVERFLOW))
    }

    /// Copies up to `len` bytes; answers how many.
    pub(crate) fn copy(
        &self,
        from: (InodeNo, u64),
        to: (InodeNo, u64),
        len: u64,
    ) -> Result<u32, Errno> {
        let len = len.min(COPY_MAX);
        let copy = || self.room.copy_range(from.0, from.1, to.0, to.1, len);
        let copied = self
            .stamped_by_kernel(|| self.with_space(copy))
            .or_errno("copy", from.0)?;
        self.changed(to.0)?;
        // Own bug if it were more than asked for, and that fits.
        u32::try_from(copied).map_err(|_| Errno::EIO)
    }

    pub(crate) fn fsync(&self, no: InodeNo) -> Result<(), Errno> {
        self.make_durable("fsync", no)
    }

    pub(crate) fn sync(&self) -> Result<(), Errno> {
        self.room.sync().or_errno("sync", InodeNo::ROOT)
    }
}

/// What the room is to do for a mode of fallocate; `None` if nobody does that.
fn allocation(mode: i32) -> Option<Fallocate> {
    const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE;
    const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | KEEP_SIZE;
    match mode {
        0 => Some(Fallocate::Allocate { keep_size: false }),
        KEEP_SIZE => Some(Fallocate::Allocate { keep_size: true }),
        PUNCH_HOLE => Some(Fallocate::PunchHole),
        ZERO_RANGE => Some(Fallocate::ZeroRange { keep_size: false }),
        ZERO_KEEP => Some(Fallocate::ZeroRange { keep_size: true }),
        // Linux 6.18 refuses these two itself for every FUSE mount; a later one may not.
        libc::FALLOC_FL_COLLAPSE_RANGE => Some(Fallocate::Collapse),
        libc::FALLOC_FL_INSERT_RANGE => Some(Fallocate::Insert),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_of_fallocate_that_linux_defines_is_understood_or_refused() {
        use libc::*;
        assert_eq!(
            allocation(0),
            Some(Fallocate::Allocate { keep_size: false })
        );
        assert_eq!(
            allocation(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE),
            Some(Fallocate::PunchHole)
        );
        assert_eq!(
            allocation(FALLOC_FL_ZERO_RANGE),
            Some(Fallocate::ZeroRange { keep_size: false })
        );
        assert_eq!(
            allocation(FALLOC_FL_COLLAPSE_RANGE),
            Some(Fallocate::Collapse)
        );
        assert_eq!(allocation(FALLOC_FL_INSERT_RANGE), Some(Fallocate::Insert));
        assert_eq!(
            allocation(FALLOC_FL_PUNCH_HOLE),
            None,
            "a hole may not change the length"
        );
        assert_eq!(allocation(FALLOC_FL_UNSHARE_RANGE), None);
    }
}
