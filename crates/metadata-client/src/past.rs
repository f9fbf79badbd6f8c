//! Snapshots: the file system as it was. Names and attributes are asked for each time, data is read from the disks.
//!
//! 1. The server grants by the rights of then and of now, and needs the name by which a file was reached. The names of the last [`KNOWN`] files
//!    that were looked up or listed are kept; a file beyond these is `Stale`, on which the kernel looks its path up again.
//! 2. What a snapshot has never changes, but where it is does, and who may read it: a map is kept until a disk refuses it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use metadata_proto::rpc::{Past, PastAnswer, PastFile};
use model::{
    DirEntry, Error, FileKind, FileSystem, Inode, InodeNo, ReadFiles, ReadOnly, Result, RoomSpace,
    SeekTo, Snapshot, Snapshots,
};
use parking_lot::Mutex;

use super::SharedRoom;
use super::client::ClientCore;
use super::errors::{gone, unexpected};
use super::file_system::LIST_MAX;
use super::files::Version;
use super::maps::ahead;
use super::reading::{Failed, MapsOf};

/// Files of a snapshot whose names are kept: about 30 MiB.
const KNOWN: NonZeroUsize = NonZeroUsize::new(1 << 18).unwrap();

impl Snapshots for SharedRoom {
    fn snapshots(&self) -> Result<Vec<Snapshot>> {
        self.core.call(|client, context, session| async move {
            client.snapshots(context, session).await
        })
    }

    fn snapshot(&self, name: &str) -> Result<Arc<dyn FileSystem>> {
        let all = self.snapshots()?;
        let found = all.into_iter().find(|snapshot| snapshot.name == name);
        Ok(Arc::new(ReadOnly(PastRoom {
            core: self.core.clone(),
            number: found.ok_or(Error::NotFound)?.number,
            known: Mutex::new(LruCache::new(KNOWN)),
        })))
    }
}

/// What the client knows of a file that is no directory.
#[derive(Debug, Clone)]
struct Known {
    parent: InodeNo,
    name: Arc<[u8]>,
    size: u64,
    version: Version,
    /// Where the last read ended.
    read_end: u64,
}

/// The file system at one snapshot.
#[derive(Debug)]
struct PastRoom {
    core: Arc<ClientCore>,
    number: u64,
    known: Mutex<LruCache<InodeNo, Known>>,
}

impl PastRoom {
    fn ask(&self, what: &Past) -> Result<PastAnswer> {
        let number = self.number;
        self.core.call(|client, context, session| {
            let what = what.clone();
            async move { client.past(context, session, number, what).await }
        })
    }

    fn inode(&self, what: &Past) -> Result<Inode> {
        match self.ask(what)? {
            PastAnswer::Inode(inode) => Ok(*inode),
            _ => Err(unexpected()),
        }
    }

    /// Notes by which name a file was reached.
    fn learn(&self, inode: &Inode, parent: InodeNo, name: &[u8]) {
        if inode.kind == FileKind::Directory {
            return;
        }
        let mut known = self.known.lock();
        if let Some(known) = known.get_mut(&inode.no) {
            (known.parent, known.name) = (parent, name.into());
            return;
        }
        let new = Known {
            parent,
            name: name.into(),
            size: inode.size,
            version: Version::default(),
            read_end: 0,
        };
        known.put(inode.no, new);
    }

    fn file(&self, no: InodeNo) -> PastFile {
        let known = self.known.lock().get(&no).cloned();
        let named = known.map(|known| (known.parent, known.name.to_vec()));
        PastFile { no, named }
    }

    fn read_some(&self, no: InodeNo, known: &Known, offset: u64, out: &mut [u8]) -> Result<()> {
        let number = self.number;
        let file = self.file(no);
        let ask = |first, count| {
            let file = &file;
            let answer = self.core.call_for_capability(|client, context, session| {
                let file = file.clone();
                let what = Past::Map { file, first, count };
                async move { client.past(context, session, number, what).await }
            });
            match answer? {
                PastAnswer::Map(map) => Ok(*map),
                _ => Err(unexpected()),
            }
        };
        let version = || self.known.lock().get(&no).map(|known| known.version);
        let count = ahead(known.read_end, known.size, offset);
        let read = || {
            let version = version().ok_or(Failed::For(Error::Stale))?;
            let maps = MapsOf {
                no,
                version,
                ask: &ask,
            };
            self.core.read_stored(&maps, offset, count, out)
        };
        self.core.until_read(read, || {
            if let Some(known) = self.known.lock().get_mut(&no) {
                known.version = Version::default();
            }
        })
    }
}

impl ReadFiles for PastRoom {
    fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        let name = name.to_vec();
        let what = Past::Lookup { parent, name };
        let inode = self.inode(&what)?;
        if let Past::Lookup { name, .. } = &what {
            self.learn(&inode, parent, name);
        }
        Ok(inode)
    }

    fn attributes(&self, no: InodeNo) -> Result<Inode> {
        self.inode(&Past::Attributes(self.file(no))).map_err(gone)
    }

    fn open(&self, no: InodeNo) -> Result<Inode> {
        self.inode(&Past::Open(self.file(no))).map_err(gone)
    }

    fn read_dir(&self, no: InodeNo, after: u64, limit: usize) -> Result<Vec<(DirEntry, Inode)>> {
        Ok(self.begin_read_dir(no, after, limit)?.0)
    }

    fn begin_read_dir(
        &self,
        no: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<(DirEntry, Inode)>, u64)> {
        let limit = limit.min(LIST_MAX) as u32;
        let asked = self.ask(&Past::ReadDir { no, after, limit });
        let PastAnswer::Listing(listing) = asked.map_err(gone)? else {
            return Err(unexpected());
        };
        for (entry, inode) in &listing.entries {
            self.learn(inode, no, &entry.name);
        }
        Ok((listing.entries, listing.next))
    }

    fn read(&self, no: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let known = self.known.lock().get(&no).cloned().ok_or(Error::Stale)?;
        let len = known.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        if len > 0 {
            self.read_some(no, &known, offset, &mut buf[..len])?;
        }
        if let Some(known) = self.known.lock().get_mut(&no) {
            known.read_end = offset + len as u64;
        }
        Ok(len)
    }

    fn seek(&self, no: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        let (file, hole) = (self.file(no), to == SeekTo::Hole);
        match self.ask(&Past::Seek { file, offset, hole }).map_err(gone)? {
            PastAnswer::Offset(offset) => Ok(offset),
            _ => Err(unexpected()),
        }
    }

    fn xattr(&self, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        match self.ask(&Past::Xattr(self.file(no), name.to_vec()))? {
            PastAnswer::Value(value) => Ok(value),
            _ => Err(unexpected()),
        }
    }

    fn xattr_names(&self, no: InodeNo) -> Result<Vec<Vec<u8>>> {
        match self.ask(&Past::XattrNames(self.file(no)))? {
            PastAnswer::Names(names) => Ok(names),
            _ => Err(unexpected()),
        }
    }

    fn space(&self) -> Result<RoomSpace> {
        let space = self
            .core
            .call(|client, context, session| async move { client.space(context, session).await })?;
        Ok(RoomSpace {
            available: 0,
            ..space
        })
    }

    /// Rights of now count too, and change.
    fn is_shared(&self) -> bool {
        true
    }
}
