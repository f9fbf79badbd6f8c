//! Open rooms, and what is done in them by path.
#![allow(unsafe_code)] // In `native`: symbols by name are what Java looks for.
#![allow(non_snake_case)] // Their names are Java's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use embed::{
    Error, Kind, OpenOptions, RenameMode, Result, Session, SetAttr, SetTime, Timestamp, XattrMode,
};
use jni::Env;
use jni::objects::{JByteArray, JLongArray, JString};
use jni::sys::{jboolean, jint, jlong};

use crate::call::{array, bytes, java, kind, native, put_stat, text};
use crate::keys::{cost, key};
use crate::table;

/// Raised with each change of what Java calls here: a library of another version is refused instead of called.
const INTERFACE: jint = 3;
/// Longs that say which attributes to change, and to what.
const SET_LEN: usize = 9;

/// A path in a room, or of the host.
pub(crate) fn path(bytes: &[u8]) -> Result<&Path> {
    if bytes.is_empty() {
        return Err(Error::Argument("an empty path".into()));
    }
    if bytes.contains(&0) {
        return Err(Error::Argument("a path with a NUL in it".into()));
    }
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Bits: 1 read-only, 2 accept a rollback. `interval_ms` below 0 and an empty `state_dir`: the usual.
fn options(
    env: &Env<'_>,
    flags: jint,
    state_dir: &JByteArray<'_>,
    interval_ms: jlong,
) -> Result<OpenOptions> {
    let usual = OpenOptions::default();
    let state = bytes(env, state_dir)?;
    Ok(OpenOptions {
        read_only: flags & 1 != 0,
        accept_rollback: flags & 2 != 0,
        state_dir: match state.is_empty() {
            true => None,
            false => Some(path(&state)?.to_owned()),
        },
        commit_interval_ms: u64::try_from(interval_ms).unwrap_or(usual.commit_interval_ms),
        ..usual
    })
}

/// Which (bits: 1 mode, 2 owner, 4 group, 8 length, 16 access time, 32 change time), then mode, owner, group, length, and
/// seconds and nanoseconds of the two times.
pub(crate) fn attributes(env: &Env<'_>, values: &JLongArray<'_>) -> Result<SetAttr> {
    let mut v: [jlong; SET_LEN] = [0; SET_LEN];
    values.get_region(env, 0, &mut v).map_err(java)?;
    let has = |bit: jlong| v[0] & bit != 0;
    let bad = |what: &str, n: jlong| Error::Argument(format!("{what} {n}"));
    let id = |bit, n: jlong| match has(bit) {
        true => u32::try_from(n)
            .map(Some)
            .map_err(|_| bad("an owner or group of", n)),
        false => Ok(None),
    };
    let time = |bit, secs, nanos: jlong| match (has(bit), u32::try_from(nanos)) {
        (false, _) => Ok(None),
        (true, Ok(nanos)) if nanos < 1_000_000_000 => {
            Ok(Some(SetTime::At(Timestamp { secs, nanos })))
        }
        _ => Err(bad("nanoseconds of", nanos)),
    };
    Ok(SetAttr {
        mode: has(1).then_some((v[1] & 0o7777) as u16),
        uid: id(2, v[2])?,
        gid: id(4, v[3])?,
        size: match has(8) {
            true => Some(crate::call::offset(v[4])?),
            false => None,
        },
        atime: time(16, v[5], v[6])?,
        mtime: time(32, v[7], v[8])?,
        ..SetAttr::default()
    })
}

fn xattr_mode(mode: jint) -> Result<XattrMode> {
    match mode {
        0 => Ok(XattrMode::Any),
        1 => Ok(XattrMode::Create),
        2 => Ok(XattrMode::Replace),
        other => Err(Error::Argument(format!("a mode of {other}"))),
    }
}

fn rename_mode(mode: jint) -> Result<RenameMode> {
    match mode {
        0 => Ok(RenameMode::Replace),
        1 => Ok(RenameMode::NoReplace),
        2 => Ok(RenameMode::Exchange),
        other => Err(Error::Argument(format!("a mode of {other}"))),
    }
}

native! {
    fn version(_) -> jint {
        Ok(INTERFACE)
    }

    fn create(
        env,
        dir: JByteArray<'l>,
        key_kind: jint,
        secret: JByteArray<'l>,
        memory_kib: jint,
        passes: jint,
        lanes: jint,
        flags: jint,
        state_dir: JByteArray<'l>,
        interval_ms: jlong,
    ) -> jlong {
        let key = key(env, key_kind, &secret)?;
        let dir = bytes(env, &dir)?;
        let options = options(env, flags, &state_dir, interval_ms)?;
        let cost = cost(memory_kib, passes, lanes)?;
        table::add_room(Session::create(path(&dir)?, key, cost, options)?)
    }

    fn open(
        env,
        dir: JByteArray<'l>,
        key_kind: jint,
        secret: JByteArray<'l>,
        flags: jint,
        state_dir: JByteArray<'l>,
        interval_ms: jlong,
    ) -> jlong {
        let key = key(env, key_kind, &secret)?;
        let dir = bytes(env, &dir)?;
        let options = options(env, flags, &state_dir, interval_ms)?;
        table::add_room(Session::open(path(&dir)?, key, options)?)
    }

    fn close(_, room: jlong) {
        table::close_room(room)
    }

    fn abandon(_, room: jlong) {
        table::abandon_room(room)
    }

    /// The virtual machine ends.
    fn end(_) {
        table::end()
    }

    fn isOpen(_, room: jlong) -> jboolean {
        Ok(table::room(room).is_ok_and(|room| room.is_open()))
    }

    fn isReadOnly(_, room: jlong) -> jboolean {
        table::room(room)?.is_read_only()
    }

    fn sync(_, room: jlong) {
        table::room(room)?.sync()
    }

    fn begin(_, room: jlong) {
        table::room(room)?.begin()
    }

    fn complete(_, room: jlong) {
        table::room(room)?.complete()
    }

    fn inTransaction(_, room: jlong) -> jboolean {
        table::room(room)?.in_transaction()
    }

    /// Numbers into `out`; identity and suite as an answer.
    fn info(env, room: jlong, out: JLongArray<'l>) -> JString<'l> {
        let room = table::room(room)?;
        let (info, space) = (room.info()?, room.space()?);
        let values = [
            info.format.into(),
            info.generation as jlong,
            info.key_epoch.into(),
            info.created as jlong,
            info.slots as jlong,
            info.segments as jlong,
            space.total as jlong,
            space.free as jlong,
            space.available as jlong,
            space.live as jlong,
            space.stored as jlong,
            space.inodes as jlong,
        ];
        out.set_region(env, 0, &values).map_err(java)?;
        text(env, &format!("{}\0{}", info.id, info.suite))
    }

    /// 0; 1 where there is nothing, 2 where a parent is not a directory: asked often, and not worth an exception.
    fn stat(env, room: jlong, name: JByteArray<'l>, follow: jboolean, out: JLongArray<'l>) -> jint {
        let name = bytes(env, &name)?;
        match table::room(room)?.stat(path(&name)?, follow) {
            Ok(inode) => put_stat(env, &inode, &out).map(|()| 0),
            Err(e) if e.kind() == Kind::NotFound => Ok(1),
            Err(e) if e.kind() == Kind::NotDirectory => Ok(2),
            Err(e) => Err(e),
        }
    }

    /// All names of a directory, each as a byte for its kind, one for the length of its name, and the name.
    fn list(env, room: jlong, name: JByteArray<'l>) -> JByteArray<'l> {
        let name = bytes(env, &name)?;
        let all = table::room(room)?.list(path(&name)?)?;
        let mut packed = Vec::with_capacity(all.len() * 24);
        for entry in &all {
            packed.extend([kind(entry.inode.kind) as u8, entry.name.len() as u8]);
            packed.extend(&entry.name);
        }
        array(env, &packed)
    }

    fn makeDirectory(env, room: jlong, name: JByteArray<'l>, mode: jint) {
        let name = bytes(env, &name)?;
        table::room(room)?.make_dir(path(&name)?, (mode & 0o7777) as u16)
    }

    fn makeDirectories(env, room: jlong, name: JByteArray<'l>) {
        let name = bytes(env, &name)?;
        table::room(room)?.make_dirs(path(&name)?)
    }

    fn removeFile(env, room: jlong, name: JByteArray<'l>) {
        let name = bytes(env, &name)?;
        table::room(room)?.remove_file(path(&name)?)
    }

    fn removeDirectory(env, room: jlong, name: JByteArray<'l>) {
        let name = bytes(env, &name)?;
        table::room(room)?.remove_dir(path(&name)?)
    }

    fn rename(env, room: jlong, from: JByteArray<'l>, to: JByteArray<'l>, mode: jint) {
        let (from, to) = (bytes(env, &from)?, bytes(env, &to)?);
        table::room(room)?.rename(path(&from)?, path(&to)?, rename_mode(mode)?)
    }

    fn link(env, room: jlong, existing: JByteArray<'l>, new: JByteArray<'l>) {
        let (existing, new) = (bytes(env, &existing)?, bytes(env, &new)?);
        table::room(room)?.link(path(&existing)?, path(&new)?)
    }

    fn symlink(env, room: jlong, target: JByteArray<'l>, name: JByteArray<'l>) {
        let (target, name) = (bytes(env, &target)?, bytes(env, &name)?);
        table::room(room)?.symlink(path(&target)?.as_os_str().as_bytes(), path(&name)?)
    }

    fn readLink(env, room: jlong, name: JByteArray<'l>) -> JByteArray<'l> {
        let name = bytes(env, &name)?;
        let target = table::room(room)?.read_link(path(&name)?)?;
        array(env, &target)
    }

    fn setAttributes(
        env,
        room: jlong,
        name: JByteArray<'l>,
        follow: jboolean,
        values: JLongArray<'l>,
    ) {
        let name = bytes(env, &name)?;
        let set = attributes(env, &values)?;
        table::room(room)?
            .set_attributes(path(&name)?, &set, follow)
            .map(drop)
    }

    fn xattr(env, room: jlong, name: JByteArray<'l>, xattr: JByteArray<'l>) -> JByteArray<'l> {
        let (name, xattr) = (bytes(env, &name)?, bytes(env, &xattr)?);
        let value = table::room(room)?.xattr(path(&name)?, &xattr)?;
        array(env, &value)
    }

    fn setXattr(
        env,
        room: jlong,
        name: JByteArray<'l>,
        xattr: JByteArray<'l>,
        value: JByteArray<'l>,
        mode: jint,
    ) {
        let (name, xattr, value) = (bytes(env, &name)?, bytes(env, &xattr)?, bytes(env, &value)?);
        table::room(room)?.set_xattr(path(&name)?, &xattr, &value, xattr_mode(mode)?)
    }

    fn removeXattr(env, room: jlong, name: JByteArray<'l>, xattr: JByteArray<'l>) {
        let (name, xattr) = (bytes(env, &name)?, bytes(env, &xattr)?);
        table::room(room)?.remove_xattr(path(&name)?, &xattr)
    }

    /// Separated by NUL.
    fn xattrNames(env, room: jlong, name: JByteArray<'l>) -> JByteArray<'l> {
        let name = bytes(env, &name)?;
        let names = table::room(room)?.xattr_names(path(&name)?)?;
        array(env, &names.join(&0))
    }
}
