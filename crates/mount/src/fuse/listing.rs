//! Requests for the names of a directory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{INodeNo, ReplyDirectory, ReplyDirectoryPlus, Request};
use model::InodeNo;

use super::convert::{file_attr, file_type};
use super::{GENERATION, Handler};

impl Handler {
    pub(super) fn answer_names(
        &self,
        req: &Request,
        no: InodeNo,
        handle: u64,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let answer = self.serve(req, || {
            self.server.list(no, handle, offset, false, |one| {
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
        let answer = self.serve(req, || {
            self.server.list(no, handle, offset, true, |one| {
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
