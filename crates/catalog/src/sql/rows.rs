//! Rows to values and back. What a row holds is checked here, once: inside the crate a value is known to be good.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

mod past;

pub(super) use past::*;

use rusqlite::{Row, types::ValueRef};

use crate::{
    ANSWER_MAX, CachedReply, CatalogError, Chunk, ClientKey, DirEntry, FileFlags, FileKind, Inode,
    InodeNo, Result, SegmentAccount, SegmentId, SegmentNo, Timestamp,
};

const NANOS: u32 = 1_000_000_000;

pub(super) fn damaged(what: impl Into<String>) -> CatalogError {
    CatalogError::Damaged(what.into())
}

/// The stored form of a number that is below 2^63 by its meaning.
///
/// # Panics
/// If it is not: file sizes, inode numbers and positions of our own making never are.
pub(super) fn to_sql(value: u64) -> i64 {
    i64::try_from(value).expect("numbers in the catalog are below 2^63")
}

/// The same for a bound of a search, where everything is below 2^63 anyway.
pub(super) fn bound(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn number<T: TryFrom<i64>>(row: &Row<'_>, column: usize, what: &str) -> Result<T> {
    let value: i64 = row.get(column)?;
    T::try_from(value).map_err(|_| damaged(format!("{what} is {value}")))
}

pub(super) fn bytes(row: &Row<'_>, column: usize, what: &str) -> Result<Vec<u8>> {
    Ok(blob(row, column, what)?.to_vec())
}

pub(super) fn blob<'r>(row: &'r Row<'_>, column: usize, what: &str) -> Result<&'r [u8]> {
    match row.get_ref(column)? {
        ValueRef::Blob(bytes) => Ok(bytes),
        other => Err(damaged(format!(
            "{what} is {}, not a blob",
            other.data_type()
        ))),
    }
}

pub(super) fn kind_number(kind: FileKind) -> i64 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::Symlink => 3,
        FileKind::Fifo => 4,
        FileKind::Socket => 5,
        FileKind::CharDevice => 6,
        FileKind::BlockDevice => 7,
    }
}

fn kind(row: &Row<'_>, column: usize) -> Result<FileKind> {
    Ok(match row.get::<_, i64>(column)? {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::Symlink,
        4 => FileKind::Fifo,
        5 => FileKind::Socket,
        6 => FileKind::CharDevice,
        7 => FileKind::BlockDevice,
        other => return Err(damaged(format!("file kind {other} is not known"))),
    })
}

fn time(row: &Row<'_>, column: usize) -> Result<Timestamp> {
    let time = Timestamp::new(
        row.get(column)?,
        number(row, column + 1, "a time's nanoseconds")?,
    );
    if time.nanos >= NANOS {
        return Err(damaged(format!("a time has {} nanoseconds", time.nanos)));
    }
    Ok(time)
}

/// Where a file's flags begin in the column of its mode.
const FLAGS_SHIFT: u32 = 16;

/// The column of the mode: permission bits, and above them the flags.
fn mode_and_flags(row: &Row<'_>, column: usize) -> Result<(u16, FileFlags)> {
    let value: u32 = number(row, column, "a mode")?;
    let flags = u8::try_from(value >> FLAGS_SHIFT).ok();
    match flags.and_then(FileFlags::from_bits) {
        Some(flags) => Ok(((value & 0xffff) as u16, flags)),
        None => Err(damaged(format!("a mode is {value}"))),
    }
}

/// An inode from the first columns of a row.
pub(super) fn inode(row: &Row<'_>) -> Result<Inode> {
    let (mode, flags) = mode_and_flags(row, 2)?;
    let inode = Inode {
        no: InodeNo(number(row, 0, "an inode number")?),
        kind: kind(row, 1)?,
        mode,
        flags,
        uid: number(row, 3, "an owner")?,
        gid: number(row, 4, "a group")?,
        nlink: number(row, 5, "a link count")?,
        size: number(row, 6, "a size")?,
        blocks: number(row, 7, "a block count")?,
        rdev: row.get::<_, i64>(8)?.cast_unsigned(),
        atime: time(row, 9)?,
        mtime: time(row, 11)?,
        ctime: time(row, 13)?,
        btime: time(row, 15)?,
        parent: InodeNo(number(row, 17, "a parent")?),
        has_xattrs: match row.get::<_, i64>(18)? {
            0 => false,
            1 => true,
            other => return Err(damaged(format!("has_xattrs is {other}"))),
        },
        target: bytes(row, 19, "a link's target")?,
    };
    if inode.no.0 == 0 || inode.mode > 0o7777 {
        return Err(damaged(format!(
            "inode {} has mode {:o}",
            inode.no.0, inode.mode
        )));
    }
    Ok(inode)
}

/// The columns of an inode but the last, its target.
pub(super) fn inode_numbers(inode: &Inode) -> [i64; 19] {
    [
        to_sql(inode.no.0),
        kind_number(inode.kind),
        i64::from(inode.mode) | i64::from(inode.flags.bits()) << FLAGS_SHIFT,
        i64::from(inode.uid),
        i64::from(inode.gid),
        i64::from(inode.nlink),
        to_sql(inode.size),
        to_sql(inode.blocks),
        inode.rdev.cast_signed(),
        inode.atime.secs,
        i64::from(inode.atime.nanos),
        inode.mtime.secs,
        i64::from(inode.mtime.nanos),
        inode.ctime.secs,
        i64::from(inode.ctime.nanos),
        inode.btime.secs,
        i64::from(inode.btime.nanos),
        to_sql(inode.parent.0),
        i64::from(inode.has_xattrs),
    ]
}

/// An entry from the four columns cookie, name, inode, kind, the first of which is at `column`.
pub(super) fn entry(row: &Row<'_>, column: usize) -> Result<DirEntry> {
    let entry = DirEntry {
        cookie: number(row, column, "a cookie")?,
        name: bytes(row, column + 1, "a name")?,
        inode: InodeNo(number(row, column + 2, "an entry's inode")?),
        kind: kind(row, column + 3)?,
    };
    if !is_name(&entry.name) || entry.cookie < super::schema::FIRST_COOKIE || entry.inode.0 == 0 {
        return Err(damaged(format!(
            "the directory entry with cookie {} is malformed",
            entry.cookie
        )));
    }
    Ok(entry)
}

pub(super) fn is_name(name: &[u8]) -> bool {
    (1..=255).contains(&name.len()) && !name.contains(&b'/') && !name.contains(&0)
}

pub(super) fn chunk(row: &Row<'_>, column: usize) -> Result<Chunk> {
    Chunk::decode(blob(row, column, "an extent map")?).map_err(damaged)
}

pub(super) fn segment(row: &Row<'_>) -> Result<SegmentAccount> {
    let no: u64 = number(row, 0, "a segment's number")?;
    let salt = blob(row, 2, "a segment's salt")?;
    let account = SegmentAccount {
        id: SegmentId {
            no: SegmentNo(no),
            key_epoch: number(row, 1, "a key epoch")?,
            salt: salt
                .try_into()
                .map_err(|_| damaged(format!("segment {no} has a salt of {} bytes", salt.len())))?,
        },
        length: number(row, 3, "a segment's length")?,
        live: number(row, 4, "a segment's live blocks")?,
    };
    if no == 0 {
        return Err(damaged("a segment has the number 0"));
    }
    Ok(account)
}

/// A client from one column.
pub(super) fn client(row: &Row<'_>, column: usize) -> Result<ClientKey> {
    let client = blob(row, column, "a client")?;
    let key = client.try_into();
    key.map(ClientKey)
        .map_err(|_| damaged(format!("a client has {} bytes", client.len())))
}

/// An answer from the three columns slot, sequence, answer, the first of which is at `column`.
pub(super) fn reply(row: &Row<'_>, column: usize) -> Result<CachedReply> {
    let reply = CachedReply {
        slot: number(row, column, "a slot")?,
        sequence: number(row, column + 1, "an operation's number")?,
        answer: bytes(row, column + 2, "an answer")?,
    };
    if reply.sequence == 0 || !(1..=ANSWER_MAX).contains(&reply.answer.len()) {
        return Err(damaged(format!(
            "the answer to operation {} has {} bytes",
            reply.sequence,
            reply.answer.len()
        )));
    }
    Ok(reply)
}
