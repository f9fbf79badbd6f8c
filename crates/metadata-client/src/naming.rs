//! Noting by which names files are reached, and showing them to a server that has not seen them.

use model::{Error, FileKind, Inode, InodeNo, Result};

use super::client::ClientCore;
use super::files::File;
use super::names::Name;

impl ClientCore {
    /// A file was reached by this name.
    pub(super) fn reached(&self, inode: &Inode, name: Name) {
        if inode.kind == FileKind::Regular {
            self.is_named(inode.no, name);
        }
    }

    /// A regular file has this name.
    pub(super) fn is_named(&self, no: InodeNo, name: Name) {
        if let Some(file) = self.files.get(no) {
            file.state.lock().name = Some(name.clone());
        }
        self.names.put(no, name);
    }

    /// Shows the server by which name a file was reached. `false`: it is not known, or not the file's any more.
    pub(super) fn show_name(&self, file: &File) -> Result<bool> {
        let Some(Name { parent, name }) = file.state.lock().name.clone() else {
            return Ok(false);
        };
        let found = self.call(|client, context, session| {
            let name = name.to_vec();
            async move { client.lookup(context, session, parent, name).await }
        });
        match found {
            Ok(found) => Ok(found.inode.no == file.no),
            Err(Error::NotFound | Error::NotDirectory | Error::Stale) => Ok(false),
            Err(e) => Err(e),
        }
    }
}
