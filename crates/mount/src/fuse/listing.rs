//! Requests for the names of a directory.
//!
//! The kernel passes on how much its caller takes: 32 KiB from `readdir` of the C library, 8 KiB and less from others. No more is read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{INodeNo, ReplyDirectory, ReplyDirectoryPlus, Request};
use model::InodeNo;

use super::convert::{file_attr, file_type};
use super::{GENERATION, Handler};

/// Bytes of an entry with a name of up to 8: `struct fuse_dirent`, and `struct fuse_direntplus`.
const LEAST: usize = 24 + 8;
const LEAST_PLUS: usize = 128 + LEAST;

/// More names than fit into so many bytes: one that does not fit says that the listing goes on.
fn names_for(bytes: usize, least: usize) -> usize {
    bytes / least + 1
}

impl Handler {
    pub(super) fn answer_names(
        &self,
        req: &Request,
        no: InodeNo,
        handle: u64,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let most = names_for(reply.max_size(), LEAST);
        let answer = self.serve(req, || {
            self.server.list(no, (handle, offset), most, false, |one| {
                let name = OsStr::from_bytes(one.name);
                !reply.add(
                    INodeNo(one.inode.no.0),
                    one.cookie,
                    file_type(one.inode.kind),
                    name,
                )
            })
        });
        match answer {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e.into()),
        }
    }

    pub(super) fn answer_names_with_attributes(
        &self,
        req: &Request,
        no: InodeNo,
        handle: u64,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let most = names_for(reply.max_size(), LEAST_PLUS);
        let answer = self.serve(req, || {
            self.server.list(no, (handle, offset), most, true, |one| {
                let name = OsStr::from_bytes(one.name);
                let attr = file_attr(one.inode);
                !reply.add(
                    attr.ino,
                    one.cookie,
                    name,
                    self.name_ttl(no, one.name),
                    &attr,
                    GENERATION,
                )
            })
        });
        match answer {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e.into()),
        }
    }
}
