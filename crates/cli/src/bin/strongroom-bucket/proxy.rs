//! The directory that represents a room in a bucket: where the room is, how it is opened, and the cache.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bucket::{BucketStorage, LogPlace, Options, Place, Standby, WriterId};
use metadata_server::server::{Fence, OpenFiles, Turn};
use netdisk::Writer;
use rustix::fs::{FlockOperation, flock};
use storage::Storage;
use strongroom_cli::bucket::{Buckets, MARKER, Moments, Pair, StoreReply};

/// After the store did not answer one that waits to write.
const PAUSE: Duration = Duration::from_millis(500);

/// What the marker is written as before it has its name.
const MARKER_NEW: &str = "bucket.new";

/// The marker as it was before a creation, which may find that the place is taken.
const MARKER_BEFORE: &str = "bucket.before";

/// A file that a process holds locked which asks to take the room over, as long as it runs. One that nobody holds asks for nothing: who wrote it
/// has failed, or wrote nothing.
const TAKE_OVER: &str = "take-over";

/// What a command line says about how a room is opened.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) take_over: bool,
    pub(crate) log: Option<LogPlace>,
}

/// The variable with the password of a log.
pub(crate) const LOG_PASSWORD: &str = "STRONGROOM_LOG_PASSWORD";

/// A line of the marker: the place first, then `name value`.
fn text<'a>(marker: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = marker.lines().filter_map(|line| line.split_once(' '));
    Some(lines.find(|(known, _)| *known == name)?.1)
}

fn value(marker: &str, name: &str) -> Option<u64> {
    text(marker, name)?.parse().ok()
}

/// Makes the directory of a place, and keeps the settings there: all but passwords. Commands that begin at one moment do so one after the
/// other.
pub(crate) fn note(
    dir: &Path,
    place: &Place,
    settings: &Settings,
    is_new: bool,
) -> Result<(), String> {
    let failed = |e: io::Error| format!("{}: {e}", dir.display());
    let mut builder = fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(failed)?;
    let _alone = alone(dir).map_err(failed)?;
    let path = dir.join(MARKER);
    let known = match fs::read_to_string(&path) {
        Ok(known) => known,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(failed(e)),
    };
    if known.is_empty() {
        let mut others = fs::read_dir(dir).map_err(failed)?;
        if others.any(|entry| entry.map_or(true, |entry| entry.file_name() != MARKER_NEW)) {
            return Err(format!(
                "{}: not empty, and no cache of a room; choose another --cache",
                dir.display()
            ));
        }
    } else if known.lines().next() != Some(&place.to_string()) {
        return Err(format!(
            "{}: the cache of {}; a cache is of one room",
            dir.display(),
            known.lines().next().unwrap_or_default()
        ));
    }
    let mut lines = format!("{place}\n");
    let log = settings.log.as_ref().map(LogPlace::to_string);
    let known_log = text(&known, "log").filter(|_| !is_new).map(str::to_owned);
    if let Some(log) = log.or(known_log) {
        lines.push_str(&format!("log {log}\n"));
    }
    if let Some(bytes) = settings.cache_bytes.or_else(|| value(&known, "cache")) {
        lines.push_str(&format!("cache {bytes}\n"));
    }
    let timeout = settings.timeout.map(|timeout| timeout.as_secs());
    if let Some(seconds) = timeout.or_else(|| value(&known, "timeout")) {
        lines.push_str(&format!("timeout {seconds}\n"));
    }
    let before = dir.join(MARKER_BEFORE);
    if is_new && !known.is_empty() {
        fs::write(before, &known).map_err(failed)?;
    } else {
        // Of a creation that was killed, or has not ended: this command counts with what is noted now.
        let _ = fs::remove_file(before);
    }
    if lines != known {
        // A command that is past this reads it at any moment.
        let new = dir.join(MARKER_NEW);
        fs::write(&new, lines).map_err(failed)?;
        fs::rename(&new, &path).map_err(failed)?;
    }
    if settings.take_over {
        ask_to_take_over(dir).map_err(failed)?;
    }
    Ok(())
}

/// Keeps other commands from changing what is noted in a directory, until it is dropped.
fn alone(dir: &Path) -> io::Result<fs::File> {
    let alone = fs::File::open(dir)?;
    flock(&alone, FlockOperation::LockExclusive)?;
    Ok(alone)
}

/// The files by which this process asks.
static ASKING: Mutex<Vec<fs::File>> = Mutex::new(Vec::new());

/// Asks for what [`TAKE_OVER`] says, for this process and those that it starts. The directory is locked.
fn ask_to_take_over(dir: &Path) -> io::Result<()> {
    let mut options = fs::File::options();
    let file = options.write(true).create(true).truncate(true);
    let file = file.open(dir.join(TAKE_OVER))?;
    flock(&file, FlockOperation::LockShared)?;
    let mut asking = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    asking.push(file);
    Ok(())
}

/// Whether a process that still runs asks to take the room over.
fn is_to_be_taken_over(dir: &Path) -> io::Result<bool> {
    // Nobody else tries the lock meanwhile.
    let _alone = alone(dir)?;
    let mut options = fs::File::options();
    let file = match options.read(true).write(true).open(dir.join(TAKE_OVER)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(false),
        Err(e) if e == rustix::io::Errno::WOULDBLOCK => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// The storages that are open here, for what `info` shows of them.
static OPEN: Mutex<Vec<(PathBuf, Weak<BucketStorage>)>> = Mutex::new(Vec::new());

fn note_open(dir: &Path, storage: &Arc<BucketStorage>) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(known, storage)| known != dir && storage.strong_count() > 0);
    open.push((dir.to_owned(), Arc::downgrade(storage)));
}

/// The storages that this process created, for a creation that fails later: nothing else is removed then.
static CREATED: Mutex<Vec<(PathBuf, WriterId)>> = Mutex::new(Vec::new());

fn created_here(dir: &Path) -> Option<WriterId> {
    let created = CREATED.lock().unwrap_or_else(PoisonError::into_inner);
    created
        .iter()
        .find(|(known, _)| known == dir)
        .map(|(_, id)| *id)
}

/// Opens what the directories of this machine represents.
pub(crate) struct Proxies;

/// The log that a marker names.
fn log_in(marker: &str) -> Option<Result<LogPlace, String>> {
    text(marker, "log").map(LogPlace::parse)
}

fn place_and_options(dir: &Path) -> io::Result<(Place, Options)> {
    let marker = fs::read_to_string(dir.join(MARKER))?;
    let place = Place::parse(marker.lines().next().unwrap_or_default());
    let place = place.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
    let mut options = Options::default();
    if let Some(bytes) = value(&marker, "cache") {
        options.cache_bytes = bytes;
    }
    if let Some(seconds) = value(&marker, "timeout") {
        options.timeout = Duration::from_secs(seconds);
    }
    if let Some(log) = log_in(&marker) {
        let log = log.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        let log = log.with_password(std::env::var(LOG_PASSWORD).ok());
        options.log = Some(log.open(place.bucket())?);
    }
    Ok((place, options))
}

/// An error with the place in front: the directory is not what the user typed.
fn at(place: &Place) -> impl Fn(io::Error) -> io::Error {
    move |e| io::Error::new(e.kind(), format!("{place}: {e}"))
}

/// Creates the storage that a directory represents.
fn create(dir: &Path) -> io::Result<BucketStorage> {
    let (place, mut options) = place_and_options(dir)?;
    options.take_over = is_to_be_taken_over(dir)?;
    options.remains = room::is_left_of_creation;
    let made = BucketStorage::create(place.store()?, place.prefix(), dir, options);
    let made = made.map_err(at(&place))?;
    taken_over(dir);
    Ok(made)
}

/// Opens the storage that a directory represents.
fn open(dir: &Path, read_only: bool) -> io::Result<(Place, Arc<BucketStorage>)> {
    let (place, mut options) = place_and_options(dir)?;
    options.read_only = read_only;
    options.take_over = !read_only && is_to_be_taken_over(dir)?;
    let opened = BucketStorage::open(place.store()?, place.prefix(), dir, options);
    let opened = Arc::new(opened.map_err(at(&place))?);
    if !read_only {
        taken_over(dir);
    }
    note_open(dir, &opened);
    Ok((place, opened))
}

impl Buckets for Proxies {
    fn create(&self, dir: &Path) -> io::Result<Arc<dyn Storage>> {
        let made = create(dir);
        let before = dir.join(MARKER_BEFORE);
        // What was noted for the room that is there is still right.
        let _ = match &made {
            Ok(_) => fs::remove_file(before),
            Err(_) => fs::rename(before, dir.join(MARKER)),
        };
        let made = made?;
        let mut created = CREATED.lock().unwrap_or_else(PoisonError::into_inner);
        created.retain(|(known, _)| known != dir);
        created.push((dir.to_owned(), made.id()));
        Ok(Arc::new(made))
    }

    fn open(&self, dir: &Path, read_only: bool) -> io::Result<Arc<dyn Storage>> {
        let (_, opened) = open(dir, read_only)?;
        Ok(opened)
    }

    fn serve(&self, dir: &Path, pair: Option<Pair>, turn: &Turn<'_>) -> io::Result<OpenFiles> {
        let storage = match pair {
            None => open(dir, false)?.1,
            Some(pair) => wait_to_write(dir, pair, turn)?,
        };
        let lease = pair.map(|pair| pair.lease);
        Ok(OpenFiles {
            storage: storage.clone(),
            fence: Arc::new(WriterFence { storage, lease }),
        })
    }

    fn follow(&self, dir: &Path) -> io::Result<(Arc<dyn Storage>, Box<dyn Moments>)> {
        let (place, shown) = open(dir, true)?;
        let dir = dir.to_owned();
        Ok((shown.clone(), Box::new(Followed { place, dir, shown })))
    }

    fn usage(&self, dir: &Path) -> Option<StoreReply> {
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let storage = open.iter().find(|(known, _)| known == dir)?.1.upgrade()?;
        drop(open);
        let stored = storage.stored().ok();
        let requests = storage.requests();
        Some(StoreReply {
            objects: stored.map(|(objects, _)| objects),
            bytes: stored.map(|(_, bytes)| bytes),
            puts: requests.puts,
            gets: requests.gets,
            lists: requests.lists,
            deletes: requests.deletes,
            bytes_put: requests.bytes_put,
            bytes_got: requests.bytes_got,
        })
    }

    fn files(&self, dir: &Path) -> Vec<PathBuf> {
        let marker = fs::read_to_string(dir.join(MARKER)).unwrap_or_default();
        match log_in(&marker) {
            Some(Ok(log)) => log.files(),
            _ => Vec::new(),
        }
    }

    fn discard(&self, dir: &Path) -> io::Result<()> {
        let (place, options) = place_and_options(dir)?;
        let created = created_here(dir);
        let created = created.ok_or_else(|| io::Error::other("this process did not create it"))?;
        BucketStorage::discard(place.store()?, place.prefix(), dir, options, created)
            .map_err(at(&place))
    }
}

/// Asked once, done once.
fn taken_over(dir: &Path) {
    let _ = fs::remove_file(dir.join(TAKE_OVER));
}

/// Opens a storage for writing once the other one of a pair is gone.
fn wait_to_write(dir: &Path, pair: Pair, turn: &Turn<'_>) -> io::Result<Arc<BucketStorage>> {
    let (place, mut options) = place_and_options(dir)?;
    options.take_over = is_to_be_taken_over(dir)?;
    options.lease = Some(pair.lease);
    let standby = Standby::open(place.store()?, place.prefix(), dir, options);
    let mut standby = standby.map_err(at(&place))?;
    standby.yields(turn.yields);
    let mut known = String::new();
    while !(turn.stops)() {
        match standby.look() {
            Ok(Some(storage)) => {
                taken_over(dir);
                let storage = Arc::new(storage);
                note_open(dir, &storage);
                return Ok(storage);
            }
            Ok(None) => {
                let writer = standby.writer();
                if writer != known {
                    tracing::info!("standing by for {writer}");
                    known = writer;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(at(&place)(e)),
            Err(e) => {
                tracing::warn!("{place}: {e}");
                std::thread::sleep(PAUSE);
            }
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// What shows that a storage is the only one of its room that is written to.
#[derive(Debug)]
struct WriterFence {
    storage: Arc<BucketStorage>,
    lease: Option<Duration>,
}

impl Fence for WriterFence {
    fn writer(&self) -> Writer {
        Writer(self.storage.writer())
    }

    fn prove(&self) -> io::Result<()> {
        self.storage.prove()
    }

    fn holds(&self) -> bool {
        // Others wait for the whole lease, by clocks that may go a little faster.
        let holds = |lease: Duration| self.storage.since_proven() < lease * 9 / 10;
        self.lease.is_none_or(holds)
    }

    fn is_lost(&self) -> bool {
        self.storage.has_failed()
    }
}

/// A storage for reading that goes on from commit to commit.
struct Followed {
    place: Place,
    dir: PathBuf,
    shown: Arc<BucketStorage>,
}

impl Moments for Followed {
    fn newer(&mut self, look: bool) -> io::Result<Option<Arc<dyn Storage>>> {
        let Some(newer) = self.shown.newer(look).map_err(at(&self.place))? else {
            return Ok(None);
        };
        self.shown = Arc::new(newer);
        note_open(&self.dir, &self.shown);
        Ok(Some(self.shown.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of two commands that began at one moment with a new cache found what the other had just written, and refused the directory.
    #[test]
    fn commands_that_begin_together_make_one_cache() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::parse("s3://rooms/work").unwrap();
        for round in 0..200 {
            let dir = dir.path().join(round.to_string());
            std::thread::scope(|scope| {
                let noted = || note(&dir, &place, &Settings::default(), false);
                let all: Vec<_> = (0..4).map(|_| scope.spawn(noted)).collect();
                for one in all {
                    one.join().unwrap().unwrap();
                }
            });
            let made: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap()).collect();
            assert_eq!(made.len(), 1);
            assert_eq!(fs::read(dir.join(MARKER)).unwrap(), b"s3://rooms/work\n");
        }
    }

    #[test]
    fn a_directory_with_other_files_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::parse("s3://rooms/work").unwrap();
        fs::write(dir.path().join("letter"), "x").unwrap();
        let refused = note(dir.path(), &place, &Settings::default(), false);
        assert!(refused.unwrap_err().contains("choose another --cache"));
        assert!(!dir.path().join(MARKER).exists());
    }
}
