//! Requests for file data: reading, writing, and where there is any.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;

use fuser::{OpenFlags, ReplyData, ReplyLseek, ReplyWrite, Request, WriteFlags};
use model::InodeNo;

use crate::errno::Errno;
use crate::seeker::Seek;

use super::shared::appends;
use super::{Handler, caller, written};

thread_local! {
    /// Where this thread reads file data, so that not every request pays for fresh zeroed memory.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Handler {
    pub(super) fn answer_read(
        &self,
        req: &Request,
        no: InodeNo,
        offset: u64,
        size: usize,
        mut reply: ReplyData,
    ) {
        if let Some(room) = reply.room(size) {
            match self.serve(req, || self.server.read(no, offset, room)) {
                Ok(got) => reply.filled(got),
                Err(e) => reply.error(e.into()),
            }
            return;
        }
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.serve(req, || self.server.read(no, offset, &mut buffer[..size])) {
                Ok(got) => reply.data(&buffer[..got]),
                Err(e) => reply.error(e.into()),
            }
        });
    }

    /// Answers where the next data or hole is, after what the kernel still keeps was passed on.
    pub(super) fn seek(
        &self,
        req: &Request,
        no: InodeNo,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.server.begin(req.pid());
        let server = self.server.clone();
        let answer = move || {
            let seek = AssertUnwindSafe(|| server.seek(no, offset, whence));
            match std::panic::catch_unwind(seek).unwrap_or(Err(Errno::EIO)) {
                Ok(found) => reply.offset(found),
                Err(e) => reply.error(e.into()),
            }
        };
        match self.server.shared {
            // The kernel keeps nothing back.
            true => answer(),
            false => self
                .seeker
                .ask(Seek::new(no, offset.max(0).unsigned_abs(), answer)),
        }
    }

    pub(super) fn answer_write(
        &self,
        req: &Request,
        no: InodeNo,
        offset: u64,
        data: &[u8],
        (flags, open_flags): (WriteFlags, OpenFlags),
        reply: ReplyWrite,
    ) {
        let answer = self.serve(req, || {
            if flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID)
                && self.server.drop_privileges(caller(req), no)?
            {
                self.kernel.attributes_changed(no);
            }
            let _writing = self.server.writes.begin();
            match flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
                // An fsync follows, where the kernel is to wait for it.
                true => self.server.write_cached(no, offset, data),
                false => {
                    // The answer has the kernel ask for the length again, and it drops what it keeps where that is another.
                    match self.server.shared && appends(open_flags) {
                        true => self.server.append(no, offset, data)?,
                        false => self.server.write(no, offset, data)?,
                    }
                    self.server.changed(no)?;
                    Ok(false)
                }
            }
        });
        let stored = answer.as_ref().ok().copied();
        let refused = answer == Err(Errno(libc::EPERM));
        // The kernel sends no more than it negotiated: 1 MiB.
        written(reply, answer.map(|_| data.len() as u32));
        if refused {
            self.undo_cached(no, offset);
        }
        if let Some(grown) = stored
            && !self.server.shared
        {
            let room = &*self.server.room;
            self.server.pressure.stored(room, no, data.len(), grown);
        }
    }
}
