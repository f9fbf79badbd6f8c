//! A store under measurement: the store, its large file, and what is known of both.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{Context, failed};
use crate::clock::Clock;
use crate::data::{BLOCK, Content, Data};
use crate::engine::Arena;
use crate::observe::{Ceilings, Evidence, Observer, Subject};
use crate::store::{Mode, Object, Powers, Store};
use crate::{Error, Result};

/// Name of the large file.
const MAIN: &str = "data";
/// The number of the large file's data.
const MAIN_FILE: u64 = 0;
/// Bytes written at once when it is made.
const PIECE: usize = 1 << 20;

/// A store with its large file.
pub struct Bed {
    store: Box<dyn Store>,
    /// Memory for what is read and written.
    pub arena: Arena,
    /// What the device beneath can do at most.
    pub ceilings: Ceilings,
    /// Versions of the large file's blocks; empty before it is made, and where it is not ours.
    versions: Vec<u32>,
    /// Things made so far, so that no two have the same name or content.
    made: u32,
    /// What a reader should know, each once.
    notes: Vec<String>,
}

impl Bed {
    /// For this store; nothing is made yet.
    pub fn new(store: Box<dyn Store>) -> Bed {
        Bed {
            store,
            arena: Arena::default(),
            ceilings: Ceilings::default(),
            versions: Vec::new(),
            made: 0,
            notes: Vec::new(),
        }
    }

    /// The store's name.
    pub fn label(&self) -> &str {
        &self.store.facts().label
    }

    /// The store.
    pub fn store(&mut self) -> &mut dyn Store {
        &mut *self.store
    }

    /// What the store is.
    pub fn facts(&self) -> crate::model::StoreFacts {
        self.store.facts().clone()
    }

    /// What the store can do.
    pub fn powers(&self) -> Powers {
        self.store.powers()
    }

    /// Everything noted so far.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Remembers something for the reader.
    pub fn note(&mut self, words: String) {
        let words = format!("{}: {words}", self.label());
        if !self.notes.contains(&words) {
            self.notes.push(words);
        }
    }

    /// Empties caches. Nothing may be open.
    ///
    /// # Errors
    /// As [`Store::make_cold`].
    pub fn make_cold(&mut self) -> Result<()> {
        let cold = self.store.make_cold()?;
        if !cold.done.is_empty() {
            self.note(format!("before each cold read: {}", cold.done.join("; ")));
        }
        for missing in cold.missing {
            self.note(format!("cold reads may not be: {missing}"));
        }
        Ok(())
    }

    /// A number that was not used yet.
    pub fn fresh(&mut self) -> u32 {
        self.made += 1;
        self.made
    }

    /// Makes sure the large file is there, `size` bytes of it, durable.
    ///
    /// # Errors
    /// What the store says; [`Error::Stopped`].
    pub fn prepare(&mut self, context: &Context<'_>) -> Result<()> {
        if self.powers().single || !self.versions.is_empty() {
            return Ok(());
        }
        let object = self.store.open(MAIN, Mode::Make)?;
        let data = main_data(context);
        let bytes = self.arena.get(PIECE);
        let mut at = 0;
        let mut outcome = Ok(());
        while at < context.size && outcome.is_ok() {
            context.go_on()?;
            let piece = &mut bytes[..PIECE.min((context.size - at) as usize)];
            data.fill(at, piece, |_| 0);
            outcome = object.write_at(piece, at);
            at += piece.len() as u64;
        }
        outcome
            .and_then(|()| object.sync())
            .map_err(failed(self, "making the large file"))?;
        self.versions = vec![0; context.size.div_ceil(BLOCK as u64) as usize];
        drop(object);
        self.store.settle()
    }

    /// Opens the large file, or the one object that the store is.
    ///
    /// # Errors
    /// What the store says.
    pub fn open_main(&mut self, mode: Mode) -> Result<Arc<dyn Object>> {
        self.store.open(MAIN, mode)
    }

    /// The version of a block of the large file.
    pub fn version(&self, block: u64) -> u32 {
        self.versions[block as usize]
    }

    /// Marks a block of the large file as rewritten; [`version`](Self::version) reports it.
    pub fn next_version(&mut self, block: u64) {
        self.versions[block as usize] += 1;
    }

    /// Bytes of `buf`, read at `offset` of the large file, that are not what was written; `None` where nobody knows.
    pub fn wrong_in_main(&self, context: &Context<'_>, offset: u64, buf: &[u8]) -> Option<u64> {
        if self.versions.is_empty() {
            return None;
        }
        let data = main_data(context);
        Some(wrong_bytes(&data, offset, buf, |block| {
            self.versions[block as usize]
        }))
    }

    /// Watches while `body` works on `files`; `body` gets the moment the watch began.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn watch<T>(
        &self,
        clock: &dyn Clock,
        files: &[BorrowedFd<'_>],
        body: impl FnOnce(u64) -> Result<T>,
    ) -> Result<(T, Evidence)> {
        // Again each time: a store that mounts again has another process.
        let observer = Observer::new(Subject {
            path: self.store.path().unwrap_or_default(),
            backing: self.store.backing().into_iter().collect(),
            servers: self.store.pids(),
        });
        let watch = observer.begin(clock, files);
        let done = body(watch.began_ns())?;
        Ok((done, watch.finish(files)))
    }

    /// Unmounts and removes everything.
    ///
    /// # Errors
    /// As [`Store::close`].
    pub fn close(self) -> Result<()> {
        self.store.close()
    }
}

/// The bytes of the large file.
pub(super) fn main_data(context: &Context<'_>) -> Data {
    Data::new(context.seed, MAIN_FILE, Content::Unique)
}

/// Bytes of the blocks of `buf` that are not what `data` says.
pub(super) fn wrong_bytes(
    data: &Data,
    offset: u64,
    buf: &[u8],
    version: impl Fn(u64) -> u32,
) -> u64 {
    let mut wrong = 0;
    for (at, block) in (offset..).step_by(BLOCK).zip(buf.chunks(BLOCK)) {
        if data.check(at, block, &version).is_err() {
            wrong += block.len() as u64;
        }
    }
    wrong
}

/// Reads an object from the beginning and compares.
///
/// # Errors
/// Reading failed.
pub(super) fn wrong_in_object(
    object: &dyn Object,
    arena: &mut Arena,
    data: &Data,
    bytes: u64,
    version: impl Fn(u64) -> u32,
) -> std::io::Result<u64> {
    let mut wrong = 0;
    let mut at = 0;
    while at < bytes {
        let piece = arena.poisoned(PIECE.min((bytes - at) as usize));
        object.read_at(piece, at)?;
        wrong += wrong_bytes(data, at, piece, &version);
        at += piece.len() as u64;
    }
    Ok(wrong)
}

/// Bytes of the large file when nobody says: 1 GiB, which takes a fast disk long enough to be measured, or an eighth of the
/// memory where that is less.
pub fn usual_size() -> u64 {
    const MOST: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;
    match crate::observe::machine().memory_bytes {
        0 => MOST / 4,
        memory => (memory / 8).clamp(MIB, MOST) / MIB * MIB,
    }
}

impl Context<'_> {
    /// Refuses sizes that works cannot use.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check(&self) -> Result<()> {
        const SMALLEST: u64 = 1 << 20;
        if self.size < SMALLEST || !self.size.is_multiple_of(SMALLEST) {
            return Err(Error::Usage(
                "--size must be a multiple of 1 MiB, and at least that".into(),
            ));
        }
        let memory = crate::observe::machine().memory_bytes;
        if memory > 0 && self.size > memory / 4 {
            return Err(Error::Usage(format!(
                "--size: what is read and written is kept in memory to be compared, so it may be a quarter of it at most: {} MiB",
                (memory / 4) >> 20
            )));
        }
        Ok(())
    }
}
