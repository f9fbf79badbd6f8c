//! What is different between two moments of a room, as a file of sealed records.
//!
//! 1. The file begins with the moments that it leads from and to. Each record is bound to that beginning and to its place, and the
//!    last one says that it is the last: records of two files do not go together, and a part is not taken for the whole.
//! 2. Nothing in it depends on where the receiver keeps data, or what it has besides: a chunk's blocks are replaced, whatever
//!    they are. So compaction, here or there, changes nothing.
//!
//! It deliberately does not know how changes are found or applied.

use std::io::{self, Write};

use catalog::{FileKind, Inode, InodeNo, SegmentNo, Timestamp};
use seal::ChangesKey;
use serde::{Deserialize, Serialize};
use storage::StorageFile;

use super::MomentId;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"SRCHANGE";
const VERSION: u32 = 1;
/// Bytes of the file's beginning: name, version, four zeros, a random id, the two moments.
const HEAD_LEN: usize = 64;
/// Bytes before the body of a record: its length, whether it is the last, three zeros, salt, tag.
const RECORD_HEAD_LEN: usize = 56;
/// Bytes after which a record is full.
const FULL: usize = 256 << 10;
/// Bytes of the largest record that is read.
const BODY_MAX: usize = 4 << 20;

/// One change. The order of the variants is part of the format.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Item {
    /// Revision of the header that goes with this.
    Header(u64),
    /// The snapshots that there still are, up to the last, with their names. Others are deleted.
    Snapshots(Vec<(u64, String)>),
    /// A segment that extents lead to from now on.
    Segment {
        no: SegmentNo,
        key_epoch: u32,
        salt: [u8; 32],
    },
    PutInode(Inode),
    RemoveName {
        parent: InodeNo,
        name: Vec<u8>,
    },
    PutName {
        parent: InodeNo,
        name: Vec<u8>,
        inode: InodeNo,
        kind: FileKind,
    },
    PutXattr {
        inode: InodeNo,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    RemoveXattr {
        inode: InodeNo,
        name: Vec<u8>,
    },
    /// Blocks that were replaced, and what they are now, in the form of `past_chunks`.
    Chunk {
        inode: InodeNo,
        index: u64,
        blocks: Vec<u8>,
    },
    DeleteInode(InodeNo),
    /// Everything before is as of this snapshot.
    Snapshot {
        no: u64,
        name: String,
        created: Timestamp,
        automatic: bool,
        next_inode: InodeNo,
    },
    /// Snapshots that were created since then stay, although the room has deleted them. Comes before [`Item::Snapshots`].
    Keep(Timestamp),
    /// So does the newest snapshot of each of so many hours, days and weeks, among all that there are in the end. Comes before
    /// [`Item::Snapshots`].
    KeepPeriods {
        hourly: u32,
        daily: u32,
        weekly: u32,
    },
}

/// The moments between which changes lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) since: MomentId,
    pub(super) to: MomentId,
}

fn head(id: &[u8; 16], span: &Span) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[16..32].copy_from_slice(id);
    head[32..48].copy_from_slice(&span.since.0);
    head[48..].copy_from_slice(&span.to.0);
    head
}

/// What is authenticated with a record.
fn bound(head: &[u8; HEAD_LEN], index: u64, clear: &[u8]) -> Vec<u8> {
    [&head[..], &index.to_le_bytes(), clear].concat()
}

/// Writes the file.
pub(super) struct Writer<'a, W> {
    key: &'a ChangesKey,
    out: W,
    head: [u8; HEAD_LEN],
    index: u64,
    body: Vec<u8>,
}

impl<'a, W: Write> Writer<'a, W> {
    pub(super) fn new(key: &'a ChangesKey, mut out: W, span: &Span) -> Result<Self> {
        let head = head(seal::RoomId::random().as_bytes(), span);
        out.write_all(&head)?;
        Ok(Self {
            key,
            out,
            head,
            index: 0,
            body: Vec::new(),
        })
    }

    pub(super) fn put(&mut self, item: &Item) -> Result<()> {
        let taken = std::mem::take(&mut self.body);
        // A vector takes everything; no item fails to encode.
        self.body = postcard::to_extend(item, taken).expect("an item can be encoded");
        match self.body.len() >= FULL {
            true => self.record(false),
            false => Ok(()),
        }
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.record(true)?;
        Ok(self.out.flush()?)
    }

    fn record(&mut self, last: bool) -> Result<()> {
        let mut salt = [0; 32];
        getrandom::fill(&mut salt)
            .map_err(|e| io::Error::other(format!("no random numbers: {e}")))?;
        let mut clear = [0; 8];
        clear[..4].copy_from_slice(&(self.body.len() as u32).to_le_bytes());
        clear[4] = u8::from(last);
        let with = bound(&self.head, self.index, &clear);
        let tag = self.key.seal(&salt, &with, &mut self.body);
        for part in [&clear[..], &salt, &tag, &self.body] {
            self.out.write_all(part)?;
        }
        self.body.clear();
        self.index += 1;
        Ok(())
    }
}

/// Reads the file.
pub(super) struct Reader<'a> {
    key: &'a ChangesKey,
    file: &'a dyn StorageFile,
    head: [u8; HEAD_LEN],
    pub(super) span: Span,
}

fn malformed(what: &str) -> Error {
    Error::Damaged(format!("changes that were received: {what}"))
}

impl<'a> Reader<'a> {
    pub(super) fn new(key: &'a ChangesKey, file: &'a dyn StorageFile) -> Result<Self> {
        let mut bytes = [0; HEAD_LEN];
        file.read_at(&mut bytes, 0)
            .map_err(|_| malformed("they have no beginning"))?;
        let field = |at: usize| -> [u8; 16] {
            let mut field = [0; 16];
            field.copy_from_slice(&bytes[at..at + 16]);
            field
        };
        let span = Span {
            since: MomentId(field(32)),
            to: MomentId(field(48)),
        };
        if bytes[..8] == MAGIC && bytes[8..12] != VERSION.to_le_bytes() {
            return Err(Error::Unsupported(
                "the changes that it received have a newer form".into(),
            ));
        }
        if head(&field(16), &span) != bytes {
            return Err(malformed("they have no beginning"));
        }
        Ok(Self {
            key,
            file,
            head: bytes,
            span,
        })
    }

    /// Gives each item to `each`, in order. All are authenticated; that the last is there is known only at the end.
    pub(super) fn for_each(&self, mut each: impl FnMut(Item) -> Result<()>) -> Result<()> {
        let (mut at, mut index) = (HEAD_LEN as u64, 0);
        loop {
            let mut fixed = [0; RECORD_HEAD_LEN];
            let cut = |_| malformed("they are cut off");
            self.file.read_at(&mut fixed, at).map_err(cut)?;
            let (clear, rest) = fixed.split_at(8);
            let mut len = [0; 4];
            len.copy_from_slice(&clear[..4]);
            let len = u32::from_le_bytes(len) as usize;
            let (mut salt, mut tag) = ([0; 32], [0; 16]);
            salt.copy_from_slice(&rest[..32]);
            tag.copy_from_slice(&rest[32..]);
            if len > BODY_MAX {
                return Err(malformed("a record is too long"));
            }
            let mut body = vec![0; len];
            self.file
                .read_at(&mut body, at + RECORD_HEAD_LEN as u64)
                .map_err(cut)?;
            self.key
                .open(&salt, &bound(&self.head, index, clear), &tag, &mut body)
                .map_err(|_| malformed(&format!("record {index} fails authentication")))?;
            let mut items = &body[..];
            while !items.is_empty() {
                let (item, left) = postcard::take_from_bytes(items)
                    .map_err(|_| malformed("an item cannot be read"))?;
                items = left;
                each(item)?;
            }
            at += (RECORD_HEAD_LEN + len) as u64;
            index += 1;
            if clear[4] != 0 {
                return match self.file.len()? == at {
                    true => Ok(()),
                    false => Err(malformed("there is more behind their end")),
                };
            }
        }
    }
}
