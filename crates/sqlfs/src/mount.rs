//! What is open: several handles may be of the same room.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use embed::{Error, Key, Kind, OpenOptions, Result, Secret, Session};
use parking_lot::{Mutex, RwLock};
use subtle::ConstantTimeEq;

use crate::sqlfs_t;

/// The handle that NULL refers to; 0: none.
static PRESENT: AtomicU64 = AtomicU64::new(0);

/// What opens a container.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    Passphrase(&'a [u8]),
    Raw(&'a [u8]),
}

impl Given<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Passphrase(bytes) | Self::Raw(bytes) => bytes,
        }
    }

    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Passphrase(bytes) => Key::Passphrase(Secret::from(*bytes)),
            Self::Raw(bytes) => Key::Raw(Secret::from(*bytes)),
        }
    }
}

struct Kept {
    raw: bool,
    secret: Secret,
}

impl Kept {
    fn of(given: Given<'_>) -> Self {
        Self {
            raw: matches!(given, Given::Raw(_)),
            secret: Secret::from(given.bytes()),
        }
    }

    fn given(&self) -> Given<'_> {
        match self.raw {
            true => Given::Raw(self.secret.expose()),
            false => Given::Passphrase(self.secret.expose()),
        }
    }
}

/// An open room.
pub(crate) struct Mount {
    dir: PathBuf,
    session: RwLock<Session>,
    /// What opened it: for a second handle, which must show the same, and for opening it again to take a transaction back.
    kept: Mutex<Kept>,
    level: Mutex<u32>,
}

struct Handle(Arc<Mount>);

impl Mount {
    /// The open room; for the time of one call.
    pub(crate) fn session(&self) -> Session {
        self.session.read().clone()
    }

    pub(crate) fn begin(&self) -> Result<()> {
        let mut level = self.level.lock();
        self.session().begin()?;
        *level += 1;
        Ok(())
    }

    pub(crate) fn complete(&self) -> Result<()> {
        let mut level = self.level.lock();
        self.session().complete()?;
        *level = level.saturating_sub(1);
        Ok(())
    }

    /// Whether the next completion is the one that counts.
    pub(crate) fn is_outermost(&self) -> bool {
        *self.level.lock() <= 1
    }

    /// Takes the open transaction back: the room is left as after a crash, and opened again. Where that fails, the room is closed, and
    /// the next call tries it again.
    pub(crate) fn take_back(&self) -> Result<()> {
        let _one = foreign::opening();
        // Or what another thread closed meanwhile would be opened again for nobody.
        if !self.has_handles() {
            return Err(Error::Closed("container"));
        }
        let mut level = self.level.lock();
        let mut session = self.session.write();
        if *level == 0 && session.is_open() {
            return Err(Error::Argument(
                "there is no transaction to take back".into(),
            ));
        }
        // Closed also where it fails. What was before the transaction is durable since its beginning.
        let _ = session.abandon();
        *level = 0;
        let key = self.kept.lock().given().key();
        *session = Session::open(&self.dir, key, OpenOptions::default())?;
        Ok(())
    }

    /// For a further handle: refuses another key than the one that opened the room, and opens one again that
    /// [`take_back`](Self::take_back) could not. Called while the process opens nothing else.
    fn admit(&self, given: Given<'_>) -> Result<()> {
        if !self.session().is_open() {
            let session = Session::open(&self.dir, given.key(), OpenOptions::default())?;
            *self.kept.lock() = Kept::of(given);
            *self.session.write() = session;
        }
        match same(&self.kept.lock(), given) {
            true => Ok(()),
            false => Err(wrong_key()),
        }
    }

    fn has_handles(&self) -> bool {
        let handles = foreign::all::<Handle>();
        handles.iter().any(|handle| ptr::eq(&*handle.0, self))
    }

    /// Puts another key in the place of the one that opened it.
    fn change_key(&self, old: Given<'_>, new: Given<'_>) -> Result<()> {
        // Before the lock: `take_back` waits for that one while it keeps the session from others.
        let session = self.session();
        let mut kept = self.kept.lock();
        if !same(&kept, old) {
            return Err(wrong_key());
        }
        replace_key(&session, old, new)?;
        *kept = Kept::of(new);
        Ok(())
    }
}

/// In a room that this library created there is one slot of the kind; with more, the slot of `old` is unknown.
fn replace_key(session: &Session, old: Given<'_>, new: Given<'_>) -> Result<()> {
    let kind = match old {
        Given::Passphrase(_) => embed::SlotKind::Passphrase,
        Given::Raw(_) => embed::SlotKind::RawKey,
    };
    let slots = session.slots()?;
    let mut of_kind = slots.iter().filter(|slot| slot.kind == kind);
    match (of_kind.next(), of_kind.next()) {
        (Some(slot), None) => session.change_key(slot.id, new.key(), None),
        _ => Err(Error::Argument(
            "the room has several keys of this kind: change them by `strongroom key`".into(),
        )),
    }
}

fn same(kept: &Kept, given: Given<'_>) -> bool {
    let kind = kept.raw == matches!(given, Given::Raw(_));
    kind && bool::from(kept.secret.expose().ct_eq(given.bytes()))
}

fn wrong_key() -> Error {
    Error::Argument("wrong key".into())
}

fn close_all() {
    for handle in foreign::all::<Handle>() {
        let _ = shut(&handle.0);
    }
}

/// Closes a room; an open transaction is taken back, as libsqlfs's is.
fn shut(mount: &Mount) -> Result<()> {
    let session = mount.session();
    match session.close() {
        Err(e) if e.kind() == Kind::Busy => session.abandon(),
        other => other,
    }
}

/// Opens the room at a path, and makes it where nothing is.
pub(crate) fn open(path: &Path, given: Given<'_>) -> Result<u64> {
    let _one = foreign::opening();
    if let Some(mount) = find(path) {
        mount.admit(given)?;
        return Ok(present(mount));
    }
    let options = OpenOptions::default();
    let session = match is_new(path)? {
        true => Session::create(path, given.key(), None, options)?,
        false => Session::open(path, given.key(), options)?,
    };
    let dir = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    foreign::at_exit(close_all);
    Ok(present(Arc::new(Mount {
        dir,
        session: RwLock::new(session),
        kept: Mutex::new(Kept::of(given)),
        level: Mutex::new(0),
    })))
}

fn is_new(path: &Path) -> Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotADirectory => Err(Error::Argument(format!(
            "{}: is a file, not a room: take a container of libsqlfs over by `strongroom import`",
            path.display()
        ))),
        Err(e) => Err(Error::Argument(format!("{}: {e}", path.display()))),
    }
}

fn present(mount: Arc<Mount>) -> u64 {
    let handle = foreign::insert(Handle(mount));
    PRESENT.store(handle, Ordering::Release);
    handle
}

/// The room with handles in a directory; of several, of which all but one were closed by a failure, the open one.
fn find(path: &Path) -> Option<Arc<Mount>> {
    let dir = fs::canonicalize(path).ok()?;
    let handles = foreign::all::<Handle>();
    handles
        .iter()
        .map(|handle| &handle.0)
        .filter(|mount| mount.dir == dir)
        .max_by_key(|mount| mount.session().is_open())
        .cloned()
}

/// Changes the key of a container that is open or not.
pub(crate) fn change_key(path: &Path, old: Given<'_>, new: Given<'_>) -> Result<()> {
    let _one = foreign::opening();
    if let Some(mount) = find(path) {
        return mount.change_key(old, new);
    }
    let session = Session::open(path, old.key(), OpenOptions::default())?;
    replace_key(&session, old, new)?;
    session.close()
}

/// How many handles there are.
pub(crate) fn handles() -> usize {
    foreign::all::<Handle>().len()
}

/// The mount of a pointer.
pub(crate) fn get(sqlfs: *mut sqlfs_t) -> Result<Arc<Mount>> {
    let handle = match sqlfs.is_null() {
        true => PRESENT.load(Ordering::Acquire),
        false => sqlfs.addr() as u64,
    };
    Ok(foreign::get::<Handle>(handle, "container")?.0.clone())
}

/// Closes a handle, and the room with its last one.
pub(crate) fn close(sqlfs: *mut sqlfs_t) -> Result<()> {
    let _one = foreign::opening();
    let handle = match sqlfs.is_null() {
        true => PRESENT.swap(0, Ordering::AcqRel),
        false => sqlfs.addr() as u64,
    };
    let closed = foreign::remove::<Handle>(handle, "container")?;
    let _ = PRESENT.compare_exchange(handle, 0, Ordering::AcqRel, Ordering::Relaxed);
    match closed.0.has_handles() {
        true => Ok(()),
        false => shut(&closed.0),
    }
}
