//! Rooms and disks in buckets, which another program of this package opens: `strongroom-bucket`.
//!
//! A room in a bucket has a *proxy* on this machine: a directory with a file that names the place, the cache, the locks, the control
//! socket. Commands work with that directory as with a room's; only here it is found out that its files are in a bucket.
//!
//! It deliberately does not know object stores: `strongroom-bucket` brings what opens them, as [`Buckets`].

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metadata_server::server::{InDirectory, OpenFiles, RoomFiles, Turn};
use room::{CheckReport, Credential, KnownKey, NewRoom, OpenOptions, Room};
use storage::{HostStorage, Storage};

use crate::error::{Error, Result};
pub use crate::proxy::{MARKER, SCHEME};
pub(crate) use crate::proxy::{is_proxy, room_name};
use crate::siblings;
pub use crate::wire::StoreReply;

const PROGRAM: &str = "strongroom-bucket";

/// The moments of a room in a bucket that another machine writes to, one after the other.
pub trait Moments: Send {
    /// The storage at the newest moment, where that is newer than what was returned last. `look`: find out also whether the store went
    /// back, which takes more requests.
    ///
    /// # Errors
    /// `InvalidData` where the store does not go on from there: it went back, or is damaged.
    fn newer(&mut self, look: bool) -> io::Result<Option<Arc<dyn Storage>>>;
}

/// Opens the storages of proxies.
pub trait Buckets: Send + Sync {
    /// Makes an empty storage.
    fn create(&self, dir: &Path) -> io::Result<Arc<dyn Storage>>;
    /// Opens the storage.
    fn open(&self, dir: &Path, read_only: bool) -> io::Result<Arc<dyn Storage>>;
    /// Opens the storage for reading, and what follows it.
    fn follow(&self, dir: &Path) -> io::Result<(Arc<dyn Storage>, Box<dyn Moments>)>;
    /// Opens the storage for a metadata server, and what shows that it is the only one of the room. One of a pair waits until the other one
    /// is gone; `Interrupted` when the wait is ended.
    fn serve(&self, dir: &Path, pair: Option<Pair>, turn: &Turn<'_>) -> io::Result<OpenFiles>;
    /// What this process has asked the store of an open room for, and what the room has there. `None`: it is not open here.
    fn usage(&self, dir: &Path) -> Option<StoreReply>;
    /// Files that are named where the room is, and read when it is opened.
    fn files(&self, dir: &Path) -> Vec<PathBuf>;
    /// Removes what a creation left that failed.
    fn discard(&self, dir: &Path) -> io::Result<()>;
}

/// How a metadata server is one of several of which one serves the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The others take the room over when the one that serves it has had no heartbeat for so long.
    pub lease: Duration,
}

static BUCKETS: OnceLock<Box<dyn Buckets>> = OnceLock::new();

/// From now on this process can open rooms in buckets.
pub fn provide(buckets: Box<dyn Buckets>) {
    let _ = BUCKETS.set(buckets);
}

/// The place that a word of a command line names, if it is one: `s3://…`, or behind an option as in `--store=s3://…`.
pub fn place_in(word: &OsStr) -> Option<&OsStr> {
    let bytes = word.as_bytes();
    let behind = match bytes.starts_with(b"--") {
        true => &bytes[bytes.iter().position(|byte| *byte == b'=')? + 1..],
        false => bytes,
    };
    behind
        .starts_with(SCHEME.as_bytes())
        .then(|| OsStr::from_bytes(behind))
}

/// Becomes the program for rooms in buckets, if an argument names one and this is not that program.
pub(crate) fn hand_over(arguments: &[OsString]) -> Result<()> {
    let is_place = |argument: &OsString| place_in(argument).is_some();
    if BUCKETS.get().is_some() || !arguments.iter().skip(1).any(is_place) {
        return Ok(());
    }
    become_bucket_program(arguments)
}

/// The same where a server's setting names a place, from its file or the environment: that program finds it on its command line.
pub(crate) fn hand_over_setting(option: &str, value: &Path) -> Result<()> {
    if place_in(value.as_os_str()).is_none() {
        return Ok(());
    }
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    arguments.extend([option.into(), value.into()]);
    become_bucket_program(&arguments)
}

fn become_bucket_program(arguments: &[OsString]) -> Result<()> {
    let Some(program) = siblings::find(PROGRAM) else {
        return Err(Error::failed(format!(
            "rooms and disks in buckets are opened by {PROGRAM}, which is not installed: install the package {PROGRAM}, or put that \
             program beside this one"
        )));
    };
    let mut command = Command::new(&program);
    // mount(8) starts a helper by that name.
    command.arg0(&arguments[0]).args(&arguments[1..]);
    let error = command.exec();
    Err(Error::host(&program, error))
}

fn buckets() -> io::Result<&'static dyn Buckets> {
    BUCKETS.get().map(|buckets| &**buckets).ok_or_else(|| {
        io::Error::other("this directory is the cache of a room in a bucket: name the room itself, as in s3://bucket/prefix")
    })
}

/// The storage of a room that is in a bucket; `None` where `dir` is the room.
pub(crate) fn storage(dir: &Path, read_only: bool) -> io::Result<Option<Arc<dyn Storage>>> {
    match is_proxy(dir) {
        true => buckets()?.open(dir, read_only).map(Some),
        false => Ok(None),
    }
}

/// An empty storage in the bucket that a proxy represents.
pub(crate) fn create_storage(dir: &Path) -> io::Result<Arc<dyn Storage>> {
    buckets()?.create(dir)
}

/// Removes what a creation left that failed; nothing of it is open any more.
pub(crate) fn discard(dir: &Path) {
    let discarded = buckets().and_then(|buckets| buckets.discard(dir));
    if let Err(e) = discarded {
        tracing::warn!(
            "{}: what was made is still there: {e}",
            room_name(dir).display()
        );
    }
}

/// Where the files of a room are that a metadata server serves.
#[derive(Debug)]
struct InBucket(Option<Pair>);

impl RoomFiles for InBucket {
    fn open(&self, dir: &Path, turn: &Turn<'_>) -> io::Result<OpenFiles> {
        buckets()?.serve(dir, self.0, turn)
    }
}

/// Where the files of a shared room are that `dir` represents.
pub(crate) fn files_of(dir: &Path) -> Arc<dyn RoomFiles> {
    files_of_pair(dir, None)
}

/// The same for one of a pair of metadata servers.
pub(crate) fn files_of_pair(dir: &Path, pair: Option<Pair>) -> Arc<dyn RoomFiles> {
    match is_proxy(dir) {
        true => Arc::new(InBucket(pair)),
        false => Arc::new(InDirectory),
    }
}

/// The key of a room, which is not opened.
pub(crate) fn known_key(dir: &Path, credential: &Credential) -> room::Result<KnownKey> {
    match storage(dir, true)? {
        Some(storage) => KnownKey::of(&*storage, credential),
        None => KnownKey::of(&HostStorage::open(dir)?, credential),
    }
}

/// Opens the room of a directory, wherever its files are.
pub(crate) fn open_room(
    dir: &Path,
    credential: &Credential,
    options: OpenOptions,
) -> room::Result<Room> {
    if !is_proxy(dir) {
        return Room::open(dir, credential, options);
    }
    let (buckets, read_only) = (buckets()?, options.read_only);
    let open = || {
        let storage = buckets.open(dir, read_only)?;
        Room::open_for(storage, dir, credential, options.clone())
    };
    match read_only {
        true => unless_overtaken(open),
        false => open(),
    }
}

/// Opens for reading what another machine may be writing. Where machines share a state directory, it may remember a commit that came
/// after the storage was opened here. That is no rollback, and shows in a storage that is opened again: it is newer then.
fn unless_overtaken<T>(mut open: impl FnMut() -> room::Result<T>) -> room::Result<T> {
    let mut last = None;
    loop {
        match open() {
            Err(room::Error::RolledBack { found, .. }) if last.is_none_or(|last| found > last) => {
                last = Some(found);
            }
            done => return done,
        }
    }
}

/// Opens a room in a bucket for reading, and what follows it.
pub(crate) fn follow_room(
    dir: &Path,
    credential: &Credential,
    options: OpenOptions,
) -> room::Result<(Room, Box<dyn Moments>)> {
    let buckets = buckets()?;
    unless_overtaken(|| {
        let (storage, moments) = buckets.follow(dir)?;
        let room = Room::open_for(storage, dir, credential, options.clone())?;
        Ok((room, moments))
    })
}

/// What an open room has in its store; `None` where it is in a directory.
pub(crate) fn usage(dir: &Path) -> Option<StoreReply> {
    match is_proxy(dir) {
        true => BUCKETS.get()?.usage(dir),
        false => None,
    }
}

/// Creates a room in a directory, or in the bucket that the directory represents.
pub(crate) fn create_room(dir: &Path, new: NewRoom) -> room::Result<Room> {
    if !is_proxy(dir) {
        return Room::create(dir, new);
    }
    Room::create_for(create_storage(dir)?, dir, new).inspect_err(|_| discard(dir))
}

/// Checks a room that cannot be opened.
pub(crate) fn examine_room(dir: &Path, credential: &Credential) -> room::Result<CheckReport> {
    match storage(dir, true)? {
        Some(storage) => Room::examine_on(storage, credential),
        None => Room::examine(dir, credential),
    }
}

/// Puts a header into a room that is not open.
pub(crate) fn restore_header(
    dir: &Path,
    backup: &[u8],
    credential: &Credential,
) -> room::Result<()> {
    match storage(dir, false)? {
        Some(storage) => Room::header_restore_on(storage, backup, credential),
        None => Room::header_restore(dir, backup, credential),
    }
}

/// Files that a process reads to reach the store and log of the room that `dir` represents.
pub(crate) fn files_for_room(dir: &Path) -> Vec<PathBuf> {
    let mut files = files_for_store();
    let named = BUCKETS.get().map(|buckets| buckets.files(dir));
    files.extend(
        named
            .unwrap_or_default()
            .into_iter()
            .filter(|path| path.exists()),
    );
    files
}

/// Files that a process reads to reach a store or a log: certificates, passwords, and tokens that represent credentials.
pub(crate) fn files_for_store() -> Vec<PathBuf> {
    files_named_by(|name| std::env::var_os(name))
}

/// The same with these variables.
fn files_named_by(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let variables = [
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "AWS_CA_BUNDLE",
        "PGPASSFILE",
        "PGSSLROOTCERT",
        "PGSSLCERT",
        "PGSSLKEY",
        "ETCDCTL_CACERT",
        "ETCDCTL_CERT",
        "ETCDCTL_KEY",
    ];
    // Read again and again, and replaced by other files meanwhile, as Kubernetes does.
    let tokens = [
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    ];
    let home = variable("HOME").map(PathBuf::from);
    let tokens = tokens.into_iter().filter_map(&variable).map(PathBuf::from);
    let tokens = tokens.map(|token| directory_of_token(token, home.as_deref()));
    let given = variables.into_iter().filter_map(&variable);
    let passwords = home.as_deref().map(|home| home.join(".pgpass"));
    let usual = [
        "/etc/ssl",
        "/etc/pki",
        "/usr/share/ca-certificates",
        "/usr/local/share/ca-certificates",
    ];
    let usual = usual.into_iter().map(OsStr::new).map(OsStr::to_owned);
    let all = given.chain(usual).map(PathBuf::from);
    let all = all.chain(passwords).chain(tokens);
    all.filter(|path| path.exists()).collect()
}

/// Where a token is, and those will be that replace it; the file alone where its directory has all of a user's or the machine's files.
fn directory_of_token(token: PathBuf, home: Option<&Path>) -> PathBuf {
    let has_all = |dir: &Path| {
        let is_above_home = home.is_some_and(|home| home.starts_with(dir));
        is_above_home || dir.parent().is_none()
    };
    match token.parent() {
        Some(dir) if !has_all(dir) => dir.to_owned(),
        _ => token,
    }
}

#[cfg(test)]
mod tests {
    use room::Error;

    use super::*;

    /// What openings answer, one after the other, when this is remembered at each and that is found; and how many there were.
    fn opened(seen_and_found: &[(u64, u64)]) -> (room::Result<u64>, usize) {
        let mut count = 0;
        let answer = unless_overtaken(|| {
            let (seen, found) = seen_and_found[count];
            count += 1;
            match found < seen {
                true => Err(Error::RolledBack { seen, found }),
                false => Ok(found),
            }
        });
        (answer, count)
    }

    /// A confined process could read the token that was there when it began, and no later one.
    #[test]
    fn tokens_may_be_replaced_by_other_files() {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, "x").unwrap();
        let files = |home: &Path| {
            files_named_by(|name| match name {
                "AWS_WEB_IDENTITY_TOKEN_FILE" => Some(token.clone().into()),
                "HOME" => Some(home.into()),
                _ => None,
            })
        };
        let elsewhere = files(Path::new("/home/ada"));
        assert!(elsewhere.contains(&dir.path().to_owned()));
        let within_home = files(dir.path());
        assert!(within_home.contains(&token) && !within_home.contains(&dir.path().to_owned()));
    }

    #[test]
    fn a_commit_that_another_machine_remembers_meanwhile_is_no_rollback() {
        assert!(matches!(opened(&[(8, 7), (8, 8)]), (Ok(8), 2)));
        assert!(matches!(opened(&[(8, 7), (9, 8), (9, 9)]), (Ok(9), 3)));
    }

    #[test]
    fn a_store_that_went_back_stays_refused() {
        let (answer, count) = opened(&[(8, 7), (8, 7)]);
        assert!(matches!(
            answer,
            Err(Error::RolledBack { seen: 8, found: 7 })
        ));
        assert_eq!(count, 2);
        assert!(matches!(opened(&[(8, 7), (8, 6)]), (Err(_), 2)));
    }
}
