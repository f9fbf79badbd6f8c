//! Restores that the server is asked for: what can be refused is refused before it begins, in the words of a room that nobody serves.

use std::path::Path;

use metadata_server::server::{MetadataServer, Restore, ServerError};
use room::restore::find;
use room::{FileKind, Room, Snapshots as _};

use super::messages::{Comeback, RestoredReply, Version};
use super::refused;
use crate::commands::undelete::{in_the_way, no_snapshot_has};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hex::{path_from_hex, path_to_hex};
use crate::place::RoomPath;
use crate::snapshots::missing;
use crate::tree::Fault;
use crate::work::Progress;

/// A place in the room of a server, as it was asked for.
fn place(room: &Path, snapshot: Option<&str>, hex: &str, is_directory: bool) -> Result<RoomPath> {
    Ok(RoomPath {
        room: room.to_owned(),
        snapshot: snapshot.map(str::to_owned),
        path: path_from_hex(hex)?,
        must_be_directory: is_directory,
    })
}

/// Puts back what a snapshot has.
pub(super) fn put_back(
    server: &MetadataServer,
    room: &Path,
    what: &Comeback,
    progress: Progress<'_>,
) -> Result<RestoredReply> {
    match &what.version {
        Version::Of(snapshot) => restore(server, room, (snapshot, what), progress),
        Version::NewestSince(since) => undelete(server, room, (since.as_deref(), what), progress),
    }
}

/// Puts back what is in a snapshot, in the place of what is there.
fn restore(
    server: &MetadataServer,
    room: &Path,
    (snapshot, what): (&str, &Comeback),
    progress: Progress<'_>,
) -> Result<RestoredReply> {
    let from = place(room, Some(snapshot), &what.path, what.must_be_directory)?;
    let to = place(room, None, &what.to, false)?;
    let possible = server.with_snapshots(|open| can_restore(open, &from, &to));
    possible.map_err(|e| refused(room, e))??;
    done(server, (snapshot, &from, &to), true, progress)
}

fn can_restore(open: &Room, from: &RoomPath, to: &RoomPath) -> Result<()> {
    let name = from.snapshot.as_deref().unwrap_or_default();
    let past = open.snapshot(name).map_err(|e| match e {
        room::Error::NotFound => missing(&from.room, name),
        other => Error::room(&from.room, other),
    })?;
    let found = find(&*past, &from.path, false).map_err(|e| from.failed(Fault::Room(e)))?;
    let is_directory = found.kind == FileKind::Directory;
    if from.must_be_directory && !is_directory {
        return Err(not_a_directory(from));
    }
    if to.path == Path::new("/") && !is_directory {
        return Err(Error::usage(format!(
            "{}: only a directory can take the place of a room's root",
            from.words()
        )));
    }
    match from.path == to.path {
        true => Ok(()),
        false => parent_must_be_there(open, to),
    }
}

fn not_a_directory(path: &RoomPath) -> Error {
    path.failed(Fault::Refused("not a directory".into()))
}

fn parent_must_be_there(open: &Room, to: &RoomPath) -> Result<()> {
    let parent = to.path.parent().unwrap_or(Path::new("/"));
    match find(open, parent, false) {
        Ok(there) if there.kind == FileKind::Directory => Ok(()),
        Ok(_) => Err(to.failed(Fault::Refused(format!(
            "{} is not a directory",
            crate::output::shown_path(parent)
        )))),
        Err(e) => Err(to.failed(Fault::Room(e))),
    }
}

/// Puts the newest version of a path back, where nothing is.
fn undelete(
    server: &MetadataServer,
    room: &Path,
    (since, what): (Option<&str>, &Comeback),
    progress: Progress<'_>,
) -> Result<RestoredReply> {
    let path = place(room, None, &what.path, what.must_be_directory)?;
    let to = place(room, None, &what.to, false)?;
    let newest = server.with_snapshots(|open| newest(open, &path, &to, since));
    let snapshot = newest.map_err(|e| refused(room, e))??;
    let from = RoomPath {
        snapshot: Some(snapshot.clone()),
        ..path
    };
    done(server, (&snapshot, &from, &to), false, progress)
}

/// The newest snapshot that has a path.
fn newest(open: &Room, path: &RoomPath, to: &RoomPath, since: Option<&str>) -> Result<String> {
    match find(open, &to.path, false) {
        Err(room::Error::NotFound) => {}
        Err(e) => return Err(to.failed(Fault::Room(e))),
        Ok(_) => return Err(in_the_way(to)),
    }
    let failed = |e| Error::room(&path.room, e);
    let all = open.snapshots().map_err(failed)?;
    let first = match since {
        None => 0,
        Some(name) => {
            let found = all.iter().find(|snapshot| snapshot.name == name);
            found.ok_or_else(|| missing(&path.room, name))?.number
        }
    };
    let newest_first = all.into_iter().rev();
    for snapshot in newest_first.take_while(|snapshot| snapshot.number >= first) {
        let past = open.snapshot_of_number(snapshot.number).map_err(failed)?;
        match find(&*past, &path.path, false) {
            Err(room::Error::NotFound) => {}
            Err(e) => return Err(path.failed(Fault::Room(e))),
            Ok(found) if path.must_be_directory && found.kind != FileKind::Directory => {
                return Err(not_a_directory(path));
            }
            Ok(_) => {
                if path.path != to.path {
                    parent_must_be_there(open, to)?;
                }
                return Ok(snapshot.name);
            }
        }
    }
    Err(no_snapshot_has(path, since))
}

fn done(
    server: &MetadataServer,
    (snapshot, from, to): (&str, &RoomPath, &RoomPath),
    replaces: bool,
    progress: Progress<'_>,
) -> Result<RestoredReply> {
    let what = Restore {
        snapshot,
        path: &from.path,
        to: &to.path,
        replaces,
    };
    let report = server.restore(&what, &|_, bytes| progress(bytes, 0));
    let report = report.map_err(|e| match e {
        ServerError::Room(room::Error::Exists) if !replaces => in_the_way(to),
        ServerError::Room(room::Error::Io(e)) if e.kind() == std::io::ErrorKind::Interrupted => {
            Error::said(Exit::Interrupted, "stopped; nothing was changed")
        }
        ServerError::Room(e) => to.failed(Fault::Room(e)),
        other => refused(&to.room, other),
    })?;
    let directory = to.path.parent().unwrap_or(Path::new("/"));
    let meanwhile = report.meanwhile.map(|(snapshot, name)| {
        use std::os::unix::ffi::OsStringExt;
        let name = std::ffi::OsString::from_vec(name);
        (snapshot.name, path_to_hex(&directory.join(name)))
    });
    Ok(RestoredReply {
        snapshot: snapshot.to_owned(),
        files: report.restored.files,
        bytes: report.restored.bytes,
        before: report.before.map(|snapshot| snapshot.name),
        meanwhile,
        revoked: report.revoked,
    })
}
