//! A disk's blocks in a file of a [`Storage`] that other machines reach too: one in a bucket.
//!
//! 1. What is written waits in memory until a flush. A process that dies loses that, and another one, elsewhere, may take its place: so
//!    each opening is an incarnation of its own ([`Surroundings::of_opening`](crate::Surroundings::of_opening)).
//! 2. Every call is answered under a *proof*: that this process was the writer not longer than [`PROOF_MAX`] ago. One that slept while
//!    another took its place asks before it answers.
//! 3. When it was overtaken, or something failed for good, no call is answered: [`StoredDevice::open`]'s `ended` is called instead.
//!
//! It deliberately does not know where the storage is, nor how a process ends.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Device, range};
use parking_lot::{Condvar, Mutex};
use storage::{OpenMode, Storage, StorageFile, WriterState};

use crate::server::TimeSource;

/// The file's name.
const FILE: &str = "disk";
/// How long a proof holds, from the beginning of the question on.
pub const PROOF_MAX: Duration = Duration::from_secs(10);
/// How often the storage is asked while nobody waits for it.
const EVERY: Duration = Duration::from_secs(5);
/// The longest wait of a call for a proof.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// How often what no flush was for is made durable, discards above all.
const SYNC_EVERY: Duration = Duration::from_secs(60);

/// What happens when a device has ended.
type Ended = dyn Fn(&WriterState) + Send + Sync;

/// A device in a storage.
pub struct StoredDevice {
    file: Arc<dyn StorageFile>,
    len: u64,
    /// `None` when closed.
    storage: Mutex<Option<Arc<dyn Storage>>>,
    time: Arc<dyn TimeSource>,
    proof: Mutex<Proof>,
    asked: Condvar,
    ended: Box<Ended>,
}

struct Proof {
    /// When the last question that had a good answer began.
    begun: Duration,
    /// Somebody is asking.
    is_asking: bool,
    ended: Option<WriterState>,
}

impl fmt::Debug for StoredDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredDevice")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl StoredDevice {
    /// Makes a device of `len` bytes in an empty storage.
    ///
    /// # Errors
    /// `AlreadyExists` where there is one.
    pub fn create(
        storage: Arc<dyn Storage>,
        len: u64,
        time: Arc<dyn TimeSource>,
    ) -> io::Result<Self> {
        let file = storage.open(FILE, OpenMode::CreateNew)?;
        file.set_len(len)?;
        file.sync()?;
        storage.sync_dir("")?;
        Self::over(storage, file, time, Box::new(|_| {}))
    }

    /// Opens the device in a storage. `ended` is called by every call from the moment on at which this process may not go on, and is best
    /// not to return: a call whose `ended` returned fails.
    ///
    /// # Errors
    /// `NotFound` where there is none.
    pub fn open(
        storage: Arc<dyn Storage>,
        time: Arc<dyn TimeSource>,
        ended: impl Fn(&WriterState) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let file = storage.open(FILE, OpenMode::ReadWrite)?;
        // Nothing says of a disk which state is its newest.
        storage.accept();
        Self::over(storage, file, time, Box::new(ended))
    }

    fn over(
        storage: Arc<dyn Storage>,
        file: Arc<dyn StorageFile>,
        time: Arc<dyn TimeSource>,
        ended: Box<Ended>,
    ) -> io::Result<Self> {
        let device = Self {
            len: file.len()?,
            file,
            storage: Mutex::new(Some(storage)),
            proof: Mutex::new(Proof {
                begun: time.running(),
                is_asking: true,
                ended: None,
            }),
            time,
            asked: Condvar::new(),
            ended,
        };
        device.ask()?;
        Ok(device)
    }

    /// Looks after an open device until it is closed, in a thread of its own: whether this is still the writer, and what was discarded.
    ///
    /// # Errors
    /// Where no thread can be made.
    pub fn tend(self: &Arc<Self>) -> io::Result<()> {
        let device = Arc::downgrade(self);
        let tend = move || {
            let mut synced = Instant::now();
            loop {
                std::thread::sleep(EVERY);
                let Some(device) = device.upgrade().filter(|device| device.is_open()) else {
                    return;
                };
                if let Err(e) = device.prove(EVERY) {
                    tracing::warn!("whether this is still the disk is not known: {e}");
                    continue;
                }
                if synced.elapsed() >= SYNC_EVERY {
                    // A failure is met again by the next call.
                    let _ = device.changed(device.file.sync());
                    synced = Instant::now();
                }
            }
        };
        let thread = std::thread::Builder::new().name("tending".into());
        thread.spawn(tend).map(drop)
    }

    fn is_open(&self) -> bool {
        self.storage.lock().is_some()
    }

    /// Closes the storage in good order. What was not flushed is lost.
    pub fn close(&self) {
        drop(self.storage.lock().take());
    }

    /// Returns when there is a proof that is not older than `age`.
    fn prove(&self, age: Duration) -> io::Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut proof = self.proof.lock();
        loop {
            if let Some(ended) = proof.ended.clone() {
                drop(proof);
                return Err(self.end(&ended));
            }
            if self.time.running().saturating_sub(proof.begun) <= age {
                return Ok(());
            }
            if proof.is_asking {
                if self.asked.wait_until(&mut proof, deadline).timed_out() {
                    let why = "the store does not answer whether this is still the disk";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                continue;
            }
            proof.is_asking = true;
            drop(proof);
            self.ask()?;
            proof = self.proof.lock();
        }
    }

    /// Asks the storage.
    fn ask(&self) -> io::Result<()> {
        let begun = self.time.running();
        // Closing waits for the answer.
        let storage = self.storage.lock();
        let answer = match &*storage {
            Some(storage) => storage.writer_state(),
            None => Ok(WriterState::Failed("it is closed".into())),
        };
        drop(storage);
        let mut proof = self.proof.lock();
        proof.is_asking = false;
        match &answer {
            Ok(WriterState::Current) => proof.begun = begun,
            Ok(ended) => proof.ended = Some(ended.clone()),
            Err(_) => {}
        }
        drop(proof);
        self.asked.notify_all();
        match answer {
            Ok(WriterState::Current) => Ok(()),
            Ok(ended) => Err(self.end(&ended)),
            Err(e) => Err(io::Error::new(io::ErrorKind::TimedOut, e)),
        }
    }

    fn end(&self, ended: &WriterState) -> io::Error {
        (self.ended)(ended);
        match ended {
            WriterState::Overtaken(why) | WriterState::Failed(why) => io::Error::other(why.clone()),
            WriterState::Current => io::Error::other("it is closed"),
        }
    }

    /// What a call that changes something answers. A failure may be the end of the storage, which says so then.
    fn changed(&self, done: io::Result<()>) -> io::Result<()> {
        match done {
            Ok(()) => self.prove(PROOF_MAX),
            Err(e) => {
                self.ask()?;
                Err(e)
            }
        }
    }
}

impl Device for StoredDevice {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        range::to_read(self.len, offset, buf.len() as u64)?;
        self.file.read_at(buf, offset)?;
        // Afterwards: what was read is what the disk held while this was the disk.
        self.prove(PROOF_MAX)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        range::to_write(self.len, offset, buf.len() as u64)?;
        self.changed(self.file.write_at(buf, offset))
    }

    fn flush(&self) -> io::Result<()> {
        self.changed(self.file.sync())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        range::to_write(self.len, offset, len)?;
        self.changed(self.file.punch(offset, len))
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.discard(offset, len)
    }

    fn prefetch(&self, offset: u64, len: u64) -> io::Result<()> {
        range::to_read(self.len, offset, len)?;
        self.file.prefetch(offset, len);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn discards_to_zeros(&self) -> bool {
        true
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
