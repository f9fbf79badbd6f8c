//! Snapshots of open rooms.
#![allow(unsafe_code)] // In `native`: symbols by name are what Java looks for.
#![allow(non_snake_case)] // Their names are Java's.

use std::os::unix::ffi::OsStrExt;

use embed::{Change, Error, Result, SnapshotInfo, What};
use jni::objects::{JByteArray, JString};
use jni::sys::jlong;

use crate::call::{array, bytes, kind, native, text};
use crate::rooms::path;
use crate::table;

fn name(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| Error::Argument("a snapshot's name is not UTF-8".into()))
}

/// Number, seconds and nanoseconds since 1970, 1 for an automatic one, bytes that it alone holds, and name, all separated by NUL.
fn fields(info: &SnapshotInfo) -> String {
    let of = &info.snapshot;
    format!(
        "{}\0{}\0{}\0{}\0{}\0{}",
        of.number,
        of.created.secs,
        of.created.nanos,
        u8::from(of.automatic),
        info.exclusive,
        of.name
    )
}

/// The fields of all of them, one after the other.
pub(crate) fn list(snapshots: &[SnapshotInfo]) -> String {
    let all: Vec<String> = snapshots.iter().map(fields).collect();
    all.join("\0")
}

native! {
    fn createSnapshot(env, room: jlong, called: JByteArray<'l>) -> JString<'l> {
        let called = name(bytes(env, &called)?)?;
        let info = table::room(room)?.create_snapshot(&called)?;
        text(env, &fields(&info))
    }

    fn snapshots(env, room: jlong) -> JString<'l> {
        text(env, &list(&table::room(room)?.snapshots()?))
    }

    fn heldBySnapshots(_, room: jlong) -> jlong {
        Ok(table::room(room)?.held_by_snapshots()? as jlong)
    }

    fn renameSnapshot(env, room: jlong, from: JByteArray<'l>, to: JByteArray<'l>) {
        let (from, to) = (name(bytes(env, &from)?)?, name(bytes(env, &to)?)?);
        table::room(room)?.rename_snapshot(&from, &to)
    }

    fn deleteSnapshot(env, room: jlong, called: JByteArray<'l>) {
        let called = name(bytes(env, &called)?)?;
        table::room(room)?.delete_snapshot(&called)
    }

    fn openSnapshot(env, room: jlong, called: JByteArray<'l>) -> jlong {
        let called = name(bytes(env, &called)?)?;
        table::add_room(table::room(room)?.open_snapshot(&called)?)
    }

    /// Of each change a byte for what it is, one for the kind of file, bytes before and after as 8 bytes each (-1: none), and its path and
    /// earlier path, each after its length as 4 bytes. An empty `later` is now.
    fn diffSnapshots(
        env,
        room: jlong,
        earlier: JByteArray<'l>,
        later: JByteArray<'l>,
    ) -> JByteArray<'l> {
        let (earlier, later) = (name(bytes(env, &earlier)?)?, name(bytes(env, &later)?)?);
        let later = Some(later.as_str()).filter(|later| !later.is_empty());
        let mut packed = Vec::new();
        for change in table::room(room)?.diff_snapshots(&earlier, later)? {
            pack(&change, &mut packed);
        }
        array(env, &packed)
    }
}

fn pack(change: &Change, to: &mut Vec<u8>) {
    let (what, from) = match &change.what {
        What::Added => (0, None),
        What::Removed => (1, None),
        What::Renamed { from } => (2, Some(from)),
        What::Contents => (3, None),
        What::Attributes => (4, None),
    };
    to.extend([what, kind(change.kind) as u8]);
    for bytes in [change.before, change.after] {
        let bytes = bytes.and_then(|bytes| i64::try_from(bytes).ok());
        to.extend(bytes.unwrap_or(-1).to_be_bytes());
    }
    let from = from.map_or(&b""[..], |from| from.as_os_str().as_bytes());
    for path in [change.path.as_os_str().as_bytes(), from] {
        to.extend((path.len() as u32).to_be_bytes());
        to.extend(path);
    }
}

native! {
    /// Returns how many files.
    fn restoreSnapshot(
        env,
        room: jlong,
        called: JByteArray<'l>,
        from: JByteArray<'l>,
        to: JByteArray<'l>,
    ) -> jlong {
        let called = name(bytes(env, &called)?)?;
        let (from, to) = (bytes(env, &from)?, bytes(env, &to)?);
        let (from, to) = (path(&from)?, path(&to)?);
        let done = table::room(room)?.restore_snapshot(&called, from, Some(to))?;
        Ok(done.files as jlong)
    }
}
