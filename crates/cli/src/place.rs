//! Where an argument points: into a room (`ROOM:/path`, or just `ROOM`), into a snapshot of one (`ROOM@NAME:/path`, `ROOM@NAME`), or at
//! an ordinary file. A room may also be named by the place where it is mounted.
//!
//! 1. A mistyped room is never taken for a host path silently; only `cp` and `mv` take host paths at all.
//! 2. What exists under a name with an `@` is what the name means; only otherwise is it a snapshot.
//! 3. Who asks for a path to change never gets one in a snapshot: [`room_path`] and [`live`] refuse it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::mounts::{self, Mount};
use crate::output::{quoted, shown_path};
use crate::proxy::{is_proxy, room_name};
use crate::tree::Fault;

/// What a first backup, and so a restore, that is not complete has in its directory.
pub(crate) const INCOMPLETE: &str = "backup.incomplete";

/// Either side of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    Room(RoomPath),
    Host(PathBuf),
}

/// A path inside a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoomPath {
    /// The room's directory, as it was typed.
    pub(crate) room: PathBuf,
    /// The snapshot of the room that it is in; `None`: in the room as it is now.
    pub(crate) snapshot: Option<String>,
    /// Absolute, without a slash at its end unless it is the root.
    pub(crate) path: PathBuf,
    /// Whether a slash ended it, or it was the root: it must be a directory.
    pub(crate) must_be_directory: bool,
}

impl RoomPath {
    /// As it is written.
    pub(crate) fn words(&self) -> String {
        format!("{}:{}", self.tree_words(), shown_path(&self.path))
    }

    /// The room, or the snapshot of it, as it is written.
    pub(crate) fn tree_words(&self) -> String {
        let room = room_name(&self.room);
        match &self.snapshot {
            Some(name) => format!("{}@{name}", room.display()),
            None => room.display().to_string(),
        }
    }

    /// That something failed with it.
    pub(crate) fn failed(&self, fault: Fault) -> Error {
        Error::at(self.words(), fault)
    }
}

/// How clap reads the argument of a command that is about a whole room: its directory, or where it is mounted.
pub(crate) fn room_argument() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(room_of)
}

/// The directory of the room that a path names: the path itself, or of what is mounted there.
pub(crate) fn room_of(path: PathBuf) -> PathBuf {
    if is_room(&path) {
        return path;
    }
    match mounted_at(&path) {
        Some(mount) if is_room(&mount.source) => mount.source,
        _ => path,
    }
}

/// What is mounted at exactly this path.
fn mounted_at(path: &Path) -> Option<Mount> {
    // Symbolic links are followed, and a mount whose process has died is not touched.
    mounts::without_touching(path)
        .ok()
        .and_then(|path| mounts::strongroom_at(&path))
        .or_else(|| mounts::strongroom_at(&path.canonicalize().ok()?))
}

/// A path below a mountpoint as a path inside the room that is mounted there. A symbolic link there is itself what its name says.
fn below_mount(path: &Path) -> Option<RoomPath> {
    let itself = path.file_name().and_then(|name| {
        let above = path.parent().filter(|above| *above != Path::new(""));
        let above = above.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(above.join(name))
    });
    let places = itself.into_iter().chain(path.canonicalize());
    places.into_iter().find_map(|place| {
        let mount = place.ancestors().find_map(mounts::strongroom_at)?;
        let below = place.strip_prefix(&mount.mountpoint).ok()?;
        let mut below = below.as_os_str().as_bytes().to_vec();
        if path.as_os_str().as_bytes().ends_with(b"/") {
            below.push(b'/');
        }
        is_room(&mount.source).then(|| inside(mount.source, None, &below))
    })
}

/// Whether a directory is certainly a room, and not one that merely has a file `header.json`.
fn is_whole_room(dir: &Path) -> bool {
    is_proxy(dir)
        || (is_room(dir) && dir.join("segments").is_dir() && dir.join("catalog.db").exists())
}

/// Whether a directory looks like a room: it has a copy of the header.
pub(crate) fn is_room(dir: &Path) -> bool {
    // The last one is of a replica whose first transfer was killed when it was complete.
    let names = ["header.json", "header.backup.json", "incoming.done"];
    is_proxy(dir) || names.iter().any(|name| dir.join(name).exists())
}

/// Refuses a directory that is no room, with the next step.
pub(crate) fn must_be_room(dir: &Path) -> Result<()> {
    if is_room(dir) {
        return Ok(());
    }
    let name = dir.display();
    if let Err(e) = std::fs::metadata(dir.join("header.json"))
        && e.kind() == std::io::ErrorKind::PermissionDenied
    {
        return Err(Error::failed(format!(
            "{name}: permission denied: the room belongs to another user"
        )));
    }
    if let Some(mount) = mounted_at(dir) {
        let source = mount.source.to_string_lossy().into_owned();
        return Err(if is_url(&source) {
            shared(&source, Some(dir))
        } else {
            Error::said(
                Exit::NotARoom,
                format!(
                    "{name}: the room {source} is mounted here; name the room, or use the mounted files"
                ),
            )
        });
    }
    if is_url(&dir.to_string_lossy()) {
        return Err(shared(&dir.to_string_lossy(), None));
    }
    let message = match std::fs::metadata(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            if let Ok(Some((room, Some(snapshot)))) = tree_named(dir.as_os_str().as_bytes()) {
                return Err(Error::usage(format!(
                    "{name}: a snapshot, which this command does not work on; mount it with: strongroom mount {} MOUNTPOINT --snapshot {}",
                    quoted(&room),
                    quoted(snapshot.as_ref())
                )));
            }
            format!(
                "{name}: there is no room here; make one with: strongroom create {}",
                quoted(dir)
            )
        }
        Err(e) => format!("{name}: {e}"),
        Ok(meta) if !meta.is_dir() => {
            format!("{name}: not a room, but a file; a room is a directory")
        }
        Ok(_) if dir.join(INCOMPLETE).exists() => {
            format!("{name}: an unfinished backup or restore; run the same command again")
        }
        Ok(_) if dir.join("segments").exists() || dir.join("catalog.db").exists() => {
            return Err(Error::said(
                Exit::HeaderDamaged,
                format!(
                    "{name}: both copies of the room's header are missing; restore one with: strongroom header restore {} FILE",
                    quoted(dir)
                ),
            ));
        }
        Ok(_) => format!(
            "{name}: not a room (no header.json); make one with `strongroom create` in a new directory"
        ),
    };
    Err(Error::said(Exit::NotARoom, message))
}

/// Whether this is the name of a shared file system.
fn is_url(text: &str) -> bool {
    text.starts_with("strongroom://")
}

/// Refuses a shared file system where a room's directory is wanted.
fn shared(name: &str, mountpoint: Option<&Path>) -> Error {
    let next = match mountpoint {
        Some(path) => format!("work with the files in {} directly", quoted(path)),
        None => {
            let server = name.trim_start_matches("strongroom:").trim_matches('/');
            let server = server.split('/').next().unwrap_or(server);
            format!(
                "mount it, and work with the files there: strongroom mount strongroom://{server}/ MOUNTPOINT --identity FILE"
            )
        }
    };
    Error::usage(format!(
        "{name}: a shared file system, whose data is on network disks; {next}"
    ))
}

/// Reads arguments that must all point into rooms as they are now.
pub(crate) fn room_paths(arguments: &[OsString]) -> Result<Vec<RoomPath>> {
    arguments.iter().map(|path| room_path(path)).collect()
}

/// Reads an argument that must point into a room as it is now.
pub(crate) fn room_path(argument: &OsStr) -> Result<RoomPath> {
    readable_path(argument).and_then(live)
}

/// Reads arguments that must all point into rooms or snapshots of them.
pub(crate) fn readable_paths(arguments: &[OsString]) -> Result<Vec<RoomPath>> {
    arguments.iter().map(|path| readable_path(path)).collect()
}

/// Reads an argument that must point into a room or a snapshot of one.
pub(crate) fn readable_path(argument: &OsStr) -> Result<RoomPath> {
    match place(argument)? {
        Location::Room(path) => Ok(path),
        Location::Host(path) => {
            if let Some(inside) = below_mount(&path) {
                return Ok(inside);
            }
            let name = path.display();
            if path.is_absolute() && !path.exists() {
                return Err(Error::usage(format!(
                    "{name}: not in a room; paths inside a room are written ROOM:{name}"
                )));
            }
            must_be_room(&path)?;
            Ok(whole(path, None))
        }
    }
}

/// Refuses a path in a snapshot.
pub(crate) fn live(path: RoomPath) -> Result<RoomPath> {
    match path.snapshot {
        None => Ok(path),
        Some(_) => Err(Error::usage(format!(
            "{}: in a snapshot, which this command does not work on: a snapshot never changes; ls, tree, cat, stat, du, export and cp \
             (as the source) read it",
            path.words()
        ))),
    }
}

fn whole(room: PathBuf, snapshot: Option<String>) -> RoomPath {
    RoomPath {
        room,
        snapshot,
        path: PathBuf::from("/"),
        must_be_directory: true,
    }
}

/// Reads an argument that may point into a room or at a host's file.
pub(crate) fn place(argument: &OsStr) -> Result<Location> {
    let bytes = argument.as_bytes();
    if bytes.is_empty() {
        return Err(Error::usage(
            "an argument is empty; paths inside a room are written ROOM:/path",
        ));
    }
    // A room's own name may hold a colon: the first split that names a room wins.
    let splits = || {
        bytes
            .iter()
            .enumerate()
            .filter(|(_, b)| **b == b':')
            .map(|(at, _)| at)
    };
    let after = |at: usize| bytes.get(at + 1).copied();
    for at in splits().filter(|at| matches!(after(*at), None | Some(b'/'))) {
        if let Some((room, snapshot)) = tree_named(&bytes[..at])? {
            return Ok(Location::Room(inside(room, snapshot, &bytes[at + 1..])));
        }
    }
    if is_url(&argument.to_string_lossy()) {
        return Err(shared(&argument.to_string_lossy(), None));
    }
    let host = PathBuf::from(argument);
    if is_whole_room(&host) {
        return Ok(Location::Room(whole(host, None)));
    }
    if host.exists() || host.is_symlink() {
        return Ok(Location::Host(host));
    }
    // With a colon behind the name it was looked at before.
    let ends_with_name = bytes
        .rsplit(|b| *b == b'@')
        .next()
        .is_some_and(|name| !name.contains(&b':'));
    if ends_with_name && let Some((room, Some(snapshot))) = tree_named(bytes)? {
        return Ok(Location::Room(whole(room, Some(snapshot))));
    }
    for at in splits().filter(|at| *at > 0) {
        let room = PathBuf::from(OsStr::from_bytes(&bytes[..at]));
        match after(at) {
            None | Some(b'/') => {
                must_be_room(&room)?;
            }
            Some(_) if is_room(&room) => {
                let path = String::from_utf8_lossy(&bytes[at + 1..]);
                return Err(Error::usage(format!(
                    "{}: paths inside a room begin with a slash; did you mean {}:/{path} ?",
                    host.display(),
                    room.display()
                )));
            }
            Some(_) => {}
        }
    }
    Ok(Location::Host(host))
}

/// A path inside a room that is named by itself: it begins with a slash.
pub(crate) fn path_in(room: &Path, snapshot: Option<&str>, path: &OsStr) -> Result<RoomPath> {
    if !path.as_bytes().starts_with(b"/") {
        return Err(Error::usage_at(
            Path::new(path),
            "a path inside a room begins with a slash",
        ));
    }
    let path = inside(
        room.to_owned(),
        snapshot.map(str::to_owned),
        path.as_bytes(),
    );
    if path
        .path
        .components()
        .any(|part| part == std::path::Component::ParentDir)
    {
        return Err(Error::usage(format!(
            "{}: write it without ..",
            path.words()
        )));
    }
    Ok(path)
}

/// What is written before a colon: a room, or a snapshot of one. `None`: neither.
fn tree_named(name: &[u8]) -> Result<Option<(PathBuf, Option<String>)>> {
    let path = PathBuf::from(OsStr::from_bytes(name));
    let room = room_of(path.clone());
    if !name.is_empty() && is_room(&room) {
        return Ok(Some((room, None)));
    }
    // A snapshot's name has no @.
    let Some(at) = name.iter().rposition(|b| *b == b'@').filter(|at| *at > 0) else {
        return Ok(None);
    };
    let room = room_of(PathBuf::from(OsStr::from_bytes(&name[..at])));
    if !is_room(&room) || path.symlink_metadata().is_ok() {
        return Ok(None);
    }
    let snapshot = String::from_utf8_lossy(&name[at + 1..]).into_owned();
    room::check_snapshot_name(&snapshot)
        .map_err(|e| Error::usage(format!("{}: {e}", path.display())))?;
    Ok(Some((room, Some(snapshot))))
}

fn inside(room: PathBuf, snapshot: Option<String>, path: &[u8]) -> RoomPath {
    let parts: Vec<&[u8]> = path
        .split(|b| *b == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .collect();
    let mut clean = vec![b'/'];
    clean.extend_from_slice(&parts.join(&b'/'));
    let must_be_directory = parts.is_empty() || path.ends_with(b"/") || path.ends_with(b"/.");
    RoomPath {
        room,
        snapshot,
        path: PathBuf::from(OsStr::from_bytes(&clean)),
        must_be_directory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let room = dir.path().join("a:b");
        std::fs::create_dir(&room).unwrap();
        std::fs::write(room.join("header.json"), "{}").unwrap();
        let name = room.to_str().unwrap().to_owned();
        (dir, name)
    }

    #[test]
    fn a_colon_and_a_slash_after_a_room_point_into_it() {
        let (_dir, room) = made();
        for (typed, path, directory) in [
            (":/", "/", true),
            (":", "/", true),
            (":/x/y", "/x/y", false),
            ("://x//./y/", "/x/y", true),
            (":/x:/y", "/x:/y", false),
        ] {
            let place = place(OsStr::new(&format!("{room}{typed}"))).unwrap();
            let expected = RoomPath {
                room: room.clone().into(),
                snapshot: None,
                path: path.into(),
                must_be_directory: directory,
            };
            assert_eq!(place, Location::Room(expected), "{typed}");
        }
    }

    #[test]
    fn an_at_after_a_room_points_into_a_snapshot_unless_something_has_that_name() {
        let (dir, room) = made();
        let read = |typed: &str| readable_path(OsStr::new(&format!("{room}{typed}")));
        for (typed, path, directory) in [
            ("@monday:/x/y", "/x/y", false),
            ("@monday:", "/", true),
            ("@monday", "/", true),
        ] {
            let expected = RoomPath {
                room: room.clone().into(),
                snapshot: Some("monday".into()),
                path: path.into(),
                must_be_directory: directory,
            };
            assert_eq!(read(typed).unwrap(), expected, "{typed}");
            let refused = room_path(OsStr::new(&format!("{room}{typed}"))).unwrap_err();
            assert_eq!(refused.exit(), Exit::Usage);
        }
        for bad in ["@:/x", "@a/b:/x", "@..:/x", "@\u{7}:/x"] {
            read(bad).unwrap_err();
        }
        // A room of that name is that room, and a directory that directory.
        let other = dir.path().join("a:b@monday");
        std::fs::create_dir(&other).unwrap();
        let error = read("@monday:/x").unwrap_err();
        assert_eq!(error.exit(), Exit::NotARoom, "{error}");
        std::fs::write(other.join("header.json"), "{}").unwrap();
        assert_eq!(read("@monday:/x").unwrap().room, other);
        assert_eq!(read("@monday@tuesday:/x").unwrap().room, other);
    }

    #[test]
    fn a_mistyped_room_is_not_taken_for_a_host_path() {
        let (dir, room) = made();
        let missing = format!("{}/nothing:/x", dir.path().display());
        assert_eq!(
            place(OsStr::new(&missing)).unwrap_err().exit(),
            Exit::NotARoom
        );
        let relative = place(OsStr::new(&format!("{room}:x"))).unwrap_err();
        assert!(relative.to_string().contains(":/x ?"), "{relative}");
        assert_eq!(
            place(OsStr::new("/etc")).unwrap(),
            Location::Host("/etc".into())
        );
        assert!(
            room_path(OsStr::new("/papers"))
                .unwrap_err()
                .to_string()
                .contains("ROOM:/papers")
        );
    }
}
