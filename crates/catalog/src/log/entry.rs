//! Changes as the entries of a record, in [postcard](https://postcard.jamesmunns.com/wire-format)'s form.

use std::borrow::Cow;

use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize, Serializer};

use crate::{
    CachedReply, Change, Chunk, ClientKey, FileKind, Inode, InodeNo, KeptChunk, KeptRow, MapEdit,
    SegmentAccount, SegmentId, SegmentNo, Snapshot, SnapshotRow, Timestamp,
};

/// One entry. The order of the variants is part of the format.
#[derive(Serialize, Deserialize)]
enum Item<'a> {
    PutInode(Cow<'a, Inode>),
    DeleteInode(InodeNo),
    PutEntry {
        parent: InodeNo,
        #[serde(borrow, serialize_with = "bytes")]
        name: &'a [u8],
        inode: InodeNo,
        kind: FileKind,
    },
    RemoveEntry {
        parent: InodeNo,
        #[serde(borrow, serialize_with = "bytes")]
        name: &'a [u8],
    },
    RenameEntry {
        parent: InodeNo,
        #[serde(borrow, serialize_with = "bytes")]
        name: &'a [u8],
        #[serde(borrow, serialize_with = "bytes")]
        new_name: &'a [u8],
    },
    PutXattr {
        inode: InodeNo,
        #[serde(borrow, serialize_with = "bytes")]
        name: &'a [u8],
        #[serde(borrow, serialize_with = "bytes")]
        value: &'a [u8],
    },
    RemoveXattr {
        inode: InodeNo,
        #[serde(borrow, serialize_with = "bytes")]
        name: &'a [u8],
    },
    PutChunk {
        inode: InodeNo,
        index: u64,
        #[serde(borrow, serialize_with = "bytes")]
        map: &'a [u8],
    },
    PutSegment {
        no: SegmentNo,
        key_epoch: u32,
        salt: [u8; 32],
        length: u32,
        live: u32,
    },
    DropSegment(SegmentNo),
    ShareUnit {
        segment: SegmentNo,
        position: u32,
        references: i64,
    },
    PutReply {
        client: [u8; 32],
        slot: u32,
        sequence: u64,
        #[serde(borrow, serialize_with = "bytes")]
        answer: &'a [u8],
    },
    DropReplies([u8; 32]),
    SetMeta {
        key: &'a str,
        #[serde(borrow, serialize_with = "bytes")]
        value: &'a [u8],
    },
    /// What was applied as one operation ends here.
    End,
    CreateSnapshot {
        no: u64,
        name: &'a str,
        created: Timestamp,
        automatic: bool,
        next_inode: InodeNo,
        next_cookie: u64,
    },
    RenameSnapshot {
        no: u64,
        name: &'a str,
    },
    DoomSnapshot(u64),
    DropSnapshot(u64),
    MergePast {
        no: u64,
        limit: u32,
    },
    KeepChunk {
        inode: InodeNo,
        index: u64,
        until: u64,
        #[serde(borrow, serialize_with = "bytes")]
        kept: &'a [u8],
    },
    CountSpace {
        since: u64,
        until: u64,
        blocks: i64,
    },
    EditChunk {
        inode: InodeNo,
        index: u64,
        #[serde(borrow, serialize_with = "bytes")]
        edit: &'a [u8],
    },
    EditKept {
        inode: InodeNo,
        index: u64,
        until: u64,
        #[serde(borrow, serialize_with = "bytes")]
        edit: &'a [u8],
    },
}

fn bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// What the entry of a change has of its map.
#[derive(Debug)]
pub(crate) enum EntryMap {
    /// All of it, in the stored form; empty where the change has none.
    Whole(Vec<u8>),
    /// What is new in it.
    Edit(Vec<u8>),
}

/// Appends the changes of one operation, each with what its entry has of its map.
pub(super) fn put(out: &mut Vec<u8>, changes: &[Change<'_>], maps: &[EntryMap]) {
    for (change, map) in changes.iter().zip(maps) {
        append(out, &entry(change, map));
    }
    append(out, &Item::End);
}

/// Appends a named value.
pub(super) fn put_meta(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    append(out, &Item::SetMeta { key, value });
}

fn append(out: &mut Vec<u8>, entry: &Item<'_>) {
    // A vector takes everything; no entry fails to encode.
    postcard::serialize_with_flavor(entry, Appended(out)).expect("an entry can be encoded");
}

/// Puts what is encoded behind what is there, a map at once: postcard's own vectors take byte after byte.
struct Appended<'a>(&'a mut Vec<u8>);

impl Flavor for Appended<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

fn entry<'a>(change: &Change<'a>, map: &'a EntryMap) -> Item<'a> {
    match *change {
        Change::PutChunk { inode, index, .. } | Change::EditChunk { inode, index, .. } => match map
        {
            EntryMap::Whole(map) => Item::PutChunk { inode, index, map },
            EntryMap::Edit(edit) => Item::EditChunk { inode, index, edit },
        },
        Change::KeepChunk {
            inode,
            index,
            until,
            ..
        }
        | Change::EditKept {
            inode,
            index,
            until,
            ..
        } => match map {
            EntryMap::Whole(kept) => Item::KeepChunk {
                inode,
                index,
                until,
                kept,
            },
            EntryMap::Edit(edit) => Item::EditKept {
                inode,
                index,
                until,
                edit,
            },
        },
        Change::PutInode(inode) => Item::PutInode(Cow::Borrowed(inode)),
        Change::DeleteInode(no) => Item::DeleteInode(no),
        Change::PutEntry {
            parent,
            name,
            inode,
            kind,
        } => Item::PutEntry {
            parent,
            name,
            inode,
            kind,
        },
        Change::RemoveEntry { parent, name } => Item::RemoveEntry { parent, name },
        Change::RenameEntry {
            parent,
            name,
            new_name,
        } => Item::RenameEntry {
            parent,
            name,
            new_name,
        },
        Change::PutXattr { inode, name, value } => Item::PutXattr { inode, name, value },
        Change::RemoveXattr { inode, name } => Item::RemoveXattr { inode, name },
        Change::PutSegment(SegmentAccount { id, length, live }) => Item::PutSegment {
            no: id.no,
            key_epoch: id.key_epoch,
            salt: id.salt,
            length,
            live,
        },
        Change::DropSegment(no) => Item::DropSegment(no),
        Change::ShareUnit {
            segment,
            position,
            references,
        } => Item::ShareUnit {
            segment,
            position,
            references,
        },
        Change::PutReply { client, reply } => Item::PutReply {
            client: client.0,
            slot: reply.slot,
            sequence: reply.sequence,
            answer: &reply.answer,
        },
        Change::DropReplies(client) => Item::DropReplies(client.0),
        Change::CreateSnapshot(row) => Item::CreateSnapshot {
            no: row.no(),
            name: &row.snapshot.name,
            created: row.snapshot.created,
            automatic: row.snapshot.automatic,
            next_inode: row.next_inode,
            next_cookie: row.next_cookie,
        },
        Change::RenameSnapshot { no, name } => Item::RenameSnapshot { no, name },
        Change::DoomSnapshot(no) => Item::DoomSnapshot(no),
        Change::DropSnapshot(no) => Item::DropSnapshot(no),
        Change::MergePast { no, limit } => Item::MergePast { no, limit },
        Change::CountSpace {
            since,
            until,
            blocks,
        } => Item::CountSpace {
            since,
            until,
            blocks,
        },
    }
}

/// What an operation of a record does.
pub(crate) enum Replayed<'a> {
    /// It applies changes.
    Changes(&'a [Change<'a>]),
    /// It sets a named value.
    Meta(&'a str, &'a [u8]),
}

/// Reads the operations of a record and gives each to `apply`.
///
/// # Errors
/// What `apply` returns; `malformed` where the bytes are no operations.
pub(crate) fn changes<E>(
    mut bytes: &[u8],
    malformed: impl Fn(&'static str) -> E,
    mut apply: impl FnMut(Replayed<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut operation = Vec::new();
    while !bytes.is_empty() {
        let (entry, rest) =
            postcard::take_from_bytes(bytes).map_err(|_| malformed("an entry cannot be read"))?;
        bytes = rest;
        match entry {
            Item::SetMeta { key, value } => apply(Replayed::Meta(key, value))?,
            Item::End => apply_owned(&std::mem::take(&mut operation), &mut apply)?,
            entry => operation.push(owned(entry).ok_or_else(|| malformed("a map is malformed"))?),
        }
    }
    match operation.is_empty() {
        true => Ok(()),
        false => Err(malformed("an operation has no end")),
    }
}

/// What an entry holds that a change only refers to.
enum Owned<'a> {
    Inode(Inode),
    Chunk(InodeNo, u64, Chunk),
    Reply(ClientKey, CachedReply),
    Snapshot(SnapshotRow),
    Kept(KeptRow),
    ChunkEdit(InodeNo, u64, MapEdit),
    KeptEdit(InodeNo, u64, u64, MapEdit),
    Other(Change<'a>),
}

fn owned(entry: Item<'_>) -> Option<Owned<'_>> {
    Some(Owned::Other(match entry {
        Item::PutInode(inode) => return Some(Owned::Inode(inode.into_owned())),
        Item::PutChunk { inode, index, map } => {
            return Some(Owned::Chunk(inode, index, Chunk::decode(map).ok()?));
        }
        Item::PutReply {
            client,
            slot,
            sequence,
            answer,
        } => {
            let answer = answer.to_vec();
            let reply = CachedReply {
                slot,
                sequence,
                answer,
            };
            return Some(Owned::Reply(ClientKey(client), reply));
        }
        Item::DeleteInode(no) => Change::DeleteInode(no),
        Item::PutEntry {
            parent,
            name,
            inode,
            kind,
        } => Change::put_entry(parent, name, inode, kind),
        Item::RemoveEntry { parent, name } => Change::remove_entry(parent, name),
        Item::RenameEntry {
            parent,
            name,
            new_name,
        } => Change::rename_entry(parent, name, new_name),
        Item::PutXattr { inode, name, value } => Change::put_xattr(inode, name, value),
        Item::RemoveXattr { inode, name } => Change::remove_xattr(inode, name),
        Item::PutSegment {
            no,
            key_epoch,
            salt,
            length,
            live,
        } => Change::PutSegment(SegmentAccount {
            id: SegmentId {
                no,
                key_epoch,
                salt,
            },
            length,
            live,
        }),
        Item::DropSegment(no) => Change::DropSegment(no),
        Item::ShareUnit {
            segment,
            position,
            references,
        } => Change::share_unit(segment, position, references),
        Item::DropReplies(client) => Change::DropReplies(ClientKey(client)),
        Item::CreateSnapshot {
            no,
            name,
            created,
            automatic,
            next_inode,
            next_cookie,
        } => {
            let snapshot = Snapshot {
                number: no,
                name: name.to_owned(),
                created,
                automatic,
            };
            return Some(Owned::Snapshot(SnapshotRow {
                snapshot,
                doomed: false,
                next_inode,
                next_cookie,
            }));
        }
        Item::RenameSnapshot { no, name } => Change::RenameSnapshot { no, name },
        Item::DoomSnapshot(no) => Change::DoomSnapshot(no),
        Item::DropSnapshot(no) => Change::DropSnapshot(no),
        Item::MergePast { no, limit } => Change::MergePast { no, limit },
        Item::KeepChunk {
            inode,
            index,
            until,
            kept,
        } => {
            return Some(Owned::Kept(KeptRow {
                inode,
                index,
                until,
                kept: KeptChunk::decode(kept).ok()?,
            }));
        }
        Item::CountSpace {
            since,
            until,
            blocks,
        } => Change::count_space(since, until, blocks),
        Item::EditChunk { inode, index, edit } => {
            let edit = MapEdit::decode(edit).ok()?;
            return Some(Owned::ChunkEdit(inode, index, edit));
        }
        Item::EditKept {
            inode,
            index,
            until,
            edit,
        } => {
            let edit = MapEdit::decode(edit).ok().filter(|edit| !edit.reserves())?;
            return Some(Owned::KeptEdit(inode, index, until, edit));
        }
        Item::SetMeta { .. } | Item::End => return None,
    }))
}

fn apply_owned<E>(
    operation: &[Owned<'_>],
    apply: &mut impl FnMut(Replayed<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let changes: Vec<Change<'_>> = operation
        .iter()
        .map(|owned| match owned {
            Owned::Inode(inode) => Change::PutInode(inode),
            Owned::Chunk(inode, index, chunk) => Change::put_chunk(*inode, *index, chunk),
            Owned::Reply(client, reply) => Change::put_reply(*client, reply),
            Owned::Snapshot(row) => Change::CreateSnapshot(row),
            Owned::Kept(row) => Change::keep_chunk(row.inode, row.index, row.until, &row.kept),
            Owned::ChunkEdit(inode, index, edit) => Change::EditChunk {
                inode: *inode,
                index: *index,
                edit,
            },
            Owned::KeptEdit(inode, index, until, edit) => Change::EditKept {
                inode: *inode,
                index: *index,
                until: *until,
                edit,
            },
            Owned::Other(change) => change.clone(),
        })
        .collect();
    apply(Replayed::Changes(&changes))
}
