//! The files of an audit log as a server writes them.
//!
//! 1. An entry is with the kernel when [`AuditLog::record`] returns, and durable within [`SYNC_EVERY`]; what
//!    [`AuditLog::record_durably`] records is durable when it returns.
//! 2. The key on disk is replaced within [`SEAL_EVERY`], and the one before overwritten: what was logged before that cannot be written
//!    again with what the machine holds.
//! 3. The chain goes on over files and restarts. One process writes a log.
//! 4. Entries that cannot be written wait in memory, in their order; calls are refused meanwhile ([`Full::Refuse`]), or entries dropped
//!    and counted once a megabyte waits ([`Full::Warn`]).

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use storage::{HostStorage, LockGuard, OpenMode, Storage, StorageFile};

use super::chain::{self, Key, Place};
use super::event::Event;
use super::state::{State, read_state, write_state};

/// Entries are durable within this time.
pub const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Their keys are gone from the disk within this time.
pub const SEAL_EVERY: Duration = Duration::from_secs(5);
/// An idle log says that it goes on.
const MARK_EVERY: Duration = Duration::from_secs(3600);
/// Refused connections are counted for this long: they cannot fill the log.
const REFUSED_EVERY: Duration = Duration::from_secs(10);
/// Waiting entries beyond this many bytes are dropped and counted; under [`Full::Refuse`] the calls that run are bounded long before.
const WAITING_MAX: usize = 1 << 20;
const WAITING_MAX_REFUSING: usize = 64 << 20;
const NAME: &str = "name";
const LOCK: &str = "lock";
/// The first line of a file is shorter.
const FIRST_LINE_MAX: u64 = 4096;
/// Longest that is read again at a start: what one interval between two states wrote.
const TAIL_MAX: u64 = 1 << 30;

/// What happens when entries cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Full {
    /// Calls that would be logged wait until there is space again.
    #[default]
    Refuse,
    /// They go on; entries that do not fit are dropped, and their number is logged later.
    Warn,
}

/// How a log is written.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its directory, made by [`AuditLog::create`].
    pub dir: std::path::PathBuf,
    /// A file is closed when it has so many bytes.
    pub file_size: u64,
    /// What happens when entries cannot be written.
    pub full: Full,
    /// Instead of the directory: for tests.
    #[doc(hidden)]
    pub storage: Option<Arc<dyn Storage>>,
}

impl Settings {
    /// A log in a directory, with the usual settings.
    pub fn new(dir: std::path::PathBuf) -> Self {
        Self {
            dir,
            file_size: 64 << 20,
            full: Full::Refuse,
            storage: None,
        }
    }
}

/// The name of a file of the log.
pub(super) fn file_name(number: u64) -> String {
    format!("audit.{number:08}.jsonl")
}

struct Writer {
    storage: Arc<dyn Storage>,
    full: Full,
    file_size: u64,
    log: String,
    place: Place,
    key: Key,
    number: u64,
    file: Option<Arc<dyn StorageFile>>,
    len: u64,
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    lost: u64,
    /// Entries before this one are durable.
    synced: u64,
    sync_failed: bool,
    /// Where the state on disk is.
    sealed: u64,
    sealed_at: Instant,
    last: Instant,
    refused: Option<(u64, String, String)>,
    refused_at: Instant,
    /// `None`: the server has ended, and another process may write the log.
    lock: Option<Box<dyn LockGuard>>,
}

/// A log that is written.
pub struct AuditLog {
    writer: Mutex<Writer>,
    /// Held by the one thread that makes the log durable and replaces the state: of two syncs at once the kernel reports a failure to one.
    tending: Mutex<()>,
    failing: AtomicBool,
    full: Full,
    stopping: Mutex<bool>,
    stopped: Condvar,
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").finish_non_exhaustive()
    }
}

pub(super) fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

pub(super) fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Writer {
    /// What a restart now would go on from.
    fn state(&self) -> State {
        State {
            version: 1,
            seq: self.place.seq,
            key: self.key.to_hex().to_string(),
            prev: self.place.prev.to_hex().to_string(),
            file: self.number,
            len: self.len,
        }
    }

    fn save_state(&mut self) -> io::Result<()> {
        write_state(&*self.storage, &self.state())?;
        self.sealed = self.place.seq;
        self.sealed_at = Instant::now();
        Ok(())
    }

    /// Closes the file, and begins the next one; nothing waits.
    fn begin_file(&mut self) -> io::Result<()> {
        if !self.sync_failed {
            self.sync_file()?;
        }
        let name = file_name(self.number + 1);
        // One that a failure just here left has nothing that a state refers to.
        storage::remove_if_there(&*self.storage, &name)?;
        let file = self.storage.open(&name, OpenMode::CreateNew)?;
        self.storage.sync_dir("")?;
        self.number += 1;
        (self.file, self.len) = (Some(file), 0);
        self.push(&Event::File {
            file: self.number,
            log: self.log.clone(),
        });
        if std::mem::take(&mut self.sync_failed) {
            let since = self.synced;
            self.push(&Event::Unsynced { since });
        }
        Ok(())
    }

    /// Makes the present file durable. A sync that succeeds after one that failed proves nothing of it.
    fn sync_file(&mut self) -> io::Result<()> {
        let synced = self.file.as_ref().map_or(Ok(()), |file| file.sync());
        self.sync_failed |= synced.is_err();
        synced
    }

    /// Adds an entry to those that wait.
    fn push(&mut self, event: &Event) {
        let line = chain::line(&mut self.place, &mut self.key, &now(), event);
        self.waiting_bytes += line.len();
        self.waiting.push_back(line);
        self.last = Instant::now();
    }

    /// Writes what waits.
    fn flush(&mut self) -> io::Result<()> {
        while let Some(line) = self.waiting.front() {
            let Some(file) = &self.file else {
                return Err(damaged("there is no file"));
            };
            if let Err(e) = file.write_at(line, self.len) {
                // A part of it may be there.
                let _ = file.set_len(self.len);
                return Err(e);
            }
            self.len += line.len() as u64;
            self.waiting_bytes -= line.len();
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Goes on behind what the files hold since the state was written. Returns the bytes that a power cut left and that are removed.
    fn resume(&mut self) -> io::Result<u64> {
        if self.number == 0 {
            self.begin_file()?;
            self.flush()?;
            return Ok(0);
        }
        let mut cut = 0;
        loop {
            let name = file_name(self.number);
            let file = self.storage.open(&name, OpenMode::ReadWrite);
            let file = file.map_err(|e| damaged(format!("{name}: {e}")))?;
            let size = file.len()?;
            let tail = size.checked_sub(self.len).filter(|tail| *tail <= TAIL_MAX);
            let tail = tail.ok_or_else(|| {
                damaged(format!(
                    "{name} has {size} bytes, and {} had been made durable: its end was cut",
                    self.len
                ))
            })?;
            let mut bytes = vec![0; tail as usize];
            file.read_at(&mut bytes, self.len)?;
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                let Some(whole) = line.strip_suffix(b"\n") else {
                    break;
                };
                if chain::follow(&mut self.place, Some(&mut self.key), whole).is_err() {
                    break;
                }
                self.len += line.len() as u64;
            }
            if self.len < size {
                cut += size - self.len;
                file.set_len(self.len)?;
                file.sync()?;
            }
            self.file = Some(file);
            if cut > 0 || !self.continues()? {
                return Ok(cut);
            }
            (self.number, self.len) = (self.number + 1, 0);
        }
    }

    /// Whether there is a next file that goes on where this one ends.
    fn continues(&self) -> io::Result<bool> {
        let next = self
            .storage
            .open(&file_name(self.number + 1), OpenMode::Read);
        let next = match next {
            Ok(next) => next,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        let mut bytes = vec![0; next.len()?.min(FIRST_LINE_MAX) as usize];
        next.read_at(&mut bytes, 0)?;
        let line = bytes.split(|byte| *byte == b'\n').next();
        let (mut place, mut key) = (self.place.clone(), self.key.clone());
        Ok(line.is_some_and(|line| chain::follow(&mut place, Some(&mut key), line).is_ok()))
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        if self.lock.is_none() {
            return Err(io::Error::other("it has ended with its server"));
        }
        let most = match self.full {
            Full::Warn => WAITING_MAX,
            Full::Refuse => WAITING_MAX_REFUSING,
        };
        if self.waiting_bytes > most
            && let Err(e) = self.flush()
            && self.waiting_bytes > most
        {
            self.lost += 1;
            return Err(e);
        }
        if self.waiting.is_empty()
            && (self.len >= self.file_size || self.sync_failed)
            && let Err(e) = self.begin_file()
        {
            tracing::warn!("the audit log goes on in its old file: {e}");
        }
        if self.waiting.is_empty() && self.lost > 0 {
            let entries = std::mem::take(&mut self.lost);
            self.push(&Event::Lost { entries });
        }
        self.push(event);
        self.flush()
    }

    /// Makes durable what is written, while nobody adds anything.
    fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        let upto = self.place.seq;
        if self.sync_failed {
            self.begin_file()?;
            return self.sync();
        }
        if self.synced == upto {
            return Ok(());
        }
        self.sync_file()?;
        self.synced = upto;
        Ok(())
    }

    /// Adds the entries that are due, and writes what waits.
    fn write_due(&mut self) -> io::Result<()> {
        let due = self.refused_at.elapsed() >= REFUSED_EVERY;
        if due && let Some((count, last_address, last_why)) = self.refused.take() {
            self.refused_at = Instant::now();
            self.write(&Event::ConnectionsRefused {
                count,
                last_address,
                last_why,
            })?;
        }
        if self.last.elapsed() >= MARK_EVERY {
            self.write(&Event::Mark {})?;
        }
        match self.sync_failed {
            true => self.sync(),
            false => self.flush(),
        }
    }
}

impl AuditLog {
    /// Makes a log in a new directory. The key that verifies it is returned and kept nowhere.
    ///
    /// # Errors
    /// `AlreadyExists` where the directory is there.
    pub fn create(dir: &Path) -> io::Result<Key> {
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .create(dir)?;
        Self::create_on(&HostStorage::open(dir)?)
    }

    fn create_on(storage: &dyn Storage) -> io::Result<Key> {
        let key = Key::random()?;
        let first = Place::first();
        let state = State {
            version: 1,
            seq: 0,
            key: key.to_hex().to_string(),
            prev: first.prev.to_hex().to_string(),
            file: 0,
            len: 0,
        };
        write_state(storage, &state)?;
        storage::write_new(storage, NAME, key.name().as_bytes())?;
        storage.sync_dir("")?;
        Ok(key)
    }

    /// Goes on with a log.
    ///
    /// # Errors
    /// `NotFound`: there is none. `WouldBlock`: another process writes it. `InvalidData`: it is damaged, or has fewer entries than its
    /// state says.
    pub fn open(settings: &Settings) -> io::Result<Arc<Self>> {
        let storage = match &settings.storage {
            Some(storage) => storage.clone(),
            None => Arc::new(HostStorage::open(&settings.dir)?),
        };
        let log = Self::open_on(storage, settings.file_size, settings.full)?;
        let tended = Arc::downgrade(&log);
        std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || {
                while let Some(log) = tended.upgrade() {
                    if !log.pause(SYNC_EVERY) {
                        return;
                    }
                    log.tick();
                }
            })?;
        Ok(log)
    }

    pub(super) fn open_on(
        storage: Arc<dyn Storage>,
        file_size: u64,
        full: Full,
    ) -> io::Result<Arc<Self>> {
        let state = read_state(&*storage)?;
        let lock = storage.lock(LOCK, "")?;
        let log = storage::read_limited(&*storage, NAME, 64)?;
        let log = String::from_utf8(log).map_err(|_| damaged("`name` is damaged"))?;
        let prev = blake3::Hash::from_hex(&state.prev).ok();
        let (Some(prev), Some(key)) = (prev, Key::from_hex(&state.key)) else {
            return Err(damaged("`state` is damaged"));
        };
        let now = Instant::now();
        let mut writer = Writer {
            storage,
            full,
            file_size,
            log,
            place: Place {
                seq: state.seq,
                prev,
            },
            key,
            number: state.file,
            file: None,
            len: state.len,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            lost: 0,
            synced: state.seq,
            sync_failed: false,
            sealed: state.seq,
            sealed_at: now,
            last: now,
            refused: None,
            refused_at: now.checked_sub(REFUSED_EVERY).unwrap_or(now),
            lock: Some(lock),
        };
        let cut = writer.resume()?;
        writer.write(&Event::Start {
            version: env!("CARGO_PKG_VERSION"),
            cut: (cut > 0).then_some(cut),
        })?;
        writer.sync()?;
        writer.save_state()?;
        Ok(Arc::new(Self {
            writer: Mutex::new(writer),
            tending: Mutex::new(()),
            failing: AtomicBool::new(false),
            full,
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
        }))
    }

    fn pause(&self, pause: Duration) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.stopped.wait_for(&mut stopping, pause);
        }
        !*stopping
    }

    fn judge(&self, done: io::Result<()>) -> io::Result<()> {
        let failing = done.is_err();
        if self.failing.swap(failing, Ordering::SeqCst) != failing {
            match &done {
                Err(e) => tracing::error!("the audit log cannot be written: {e}"),
                Ok(()) => tracing::info!("the audit log is written again"),
            }
        }
        done
    }

    /// What is to be done every second.
    pub(super) fn tick(&self) {
        let _one = self.tending.lock();
        // Reported once, where it begins.
        let _ = self.judge(self.tend());
    }

    /// Makes everything durable, then the state of that moment; other threads add entries meanwhile.
    fn tend(&self) -> io::Result<()> {
        let (storage, file, state, is_synced, is_due) = {
            let mut writer = self.writer.lock();
            writer.write_due()?;
            let seq = writer.place.seq;
            let is_due = writer.sealed != seq && writer.sealed_at.elapsed() >= SEAL_EVERY;
            let (storage, file) = (writer.storage.clone(), writer.file.clone());
            (storage, file, writer.state(), writer.synced == seq, is_due)
        };
        if let Some(file) = file
            && !is_synced
        {
            let synced = file.sync();
            let mut writer = self.writer.lock();
            match synced {
                // The sync that closes the file failed meanwhile, and proves the contrary.
                Ok(()) if writer.sync_failed => {}
                Ok(()) => writer.synced = writer.synced.max(state.seq),
                Err(e) => {
                    writer.sync_failed = true;
                    return Err(e);
                }
            }
        }
        if is_due {
            write_state(&*storage, &state)?;
            let mut writer = self.writer.lock();
            (writer.sealed, writer.sealed_at) = (state.seq, Instant::now());
        }
        match self.writer.lock().waiting.is_empty() {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Whether calls may go on that will be logged.
    pub fn is_ready(&self) -> bool {
        self.full == Full::Warn || !self.failing.load(Ordering::SeqCst)
    }

    /// Whether entries wait that cannot be written.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::SeqCst)
    }

    /// How many entries it has.
    pub fn entries(&self) -> u64 {
        self.writer.lock().place.seq
    }

    /// Adds an entry. Where it cannot be written now it waits.
    pub fn record(&self, event: &Event) {
        let mut writer = self.writer.lock();
        let _ = self.judge(writer.write(event));
    }

    /// Adds an entry that is durable when this returns.
    ///
    /// # Errors
    /// It waits to be written.
    pub fn record_durably(&self, event: &Event) -> io::Result<()> {
        let _one = self.tending.lock();
        let mut writer = self.writer.lock();
        let written = writer.write(event).and_then(|()| writer.sync());
        self.judge(written)
    }

    /// Counts a connection that was refused.
    pub fn connection_refused(&self, address: String, why: String) {
        let refused = &mut self.writer.lock().refused;
        let count = refused.take().map_or(0, |(count, ..)| count);
        *refused = Some((count + 1, address, why));
    }

    /// The last entry: the server ends. Another process, or this one, may go on with the log then; here nothing is written any more.
    pub fn stop(&self) {
        *self.stopping.lock() = true;
        self.stopped.notify_all();
        let _one = self.tending.lock();
        let mut writer = self.writer.lock();
        writer.refused_at = writer
            .refused_at
            .checked_sub(REFUSED_EVERY)
            .unwrap_or(writer.refused_at);
        let ended = writer
            .write_due()
            .and_then(|()| writer.write(&Event::Stop {}))
            .and_then(|()| writer.sync())
            .and_then(|()| writer.save_state());
        let _ = self.judge(ended);
        writer.lock = None;
    }
}
