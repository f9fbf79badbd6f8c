//! A storage in memory that remembers every operation in order.
//!
//! 1. A file's identity follows the file, not its path: a rename does not change it, several handles share it.
//! 2. Operations are logged in the order in which they take effect, with the caller's marks between them.
//! 3. A lock is held in memory only. Its file is durable at once, because nothing depends on what a crash leaves
//!    of it.
//! 4. A sync at an ignored [`Site`] is neither logged nor does it have an effect.
//!
//! It deliberately does not know what a crash leaves (see `states`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use storage::{LockGuard, OpenMode, Space, Storage, StorageFile, parent};

use crate::image::{Content, Entry, Image};
use crate::sites::{Site, Watch};

/// A file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// What the caller says between operations. Steps count from 1; 0 is the state before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A step was begun: from here on a crash may leave its outcome.
    Begun(usize),
    /// A step returned.
    Did(usize),
    /// Everything up to this step was reported durable to the caller.
    Durable(usize),
}

/// One operation on the storage, or a mark. Offsets and lengths are bytes.
#[derive(Debug, Clone)]
pub enum Event {
    /// A file was created.
    Create {
        /// The new file.
        file: FileId,
        /// Its name.
        path: Arc<str>,
    },
    /// Bytes were written.
    Write {
        /// To which file.
        file: FileId,
        /// Where.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// A file was cut or extended.
    SetLen {
        /// Which.
        file: FileId,
        /// To this length.
        len: u64,
    },
    /// A range was made a hole.
    Punch {
        /// Of which file.
        file: FileId,
        /// Where.
        offset: u64,
        /// How much.
        len: u64,
    },
    /// A name took the place of another.
    Rename {
        /// The old name.
        from: Arc<str>,
        /// The new one.
        to: Arc<str>,
    },
    /// A name was removed.
    Remove {
        /// Which.
        path: Arc<str>,
    },
    /// A directory was made.
    CreateDir {
        /// Its name.
        path: Arc<str>,
    },
    /// A file's data and length were made durable.
    Sync {
        /// Which.
        file: FileId,
    },
    /// A directory's names were made durable.
    SyncDir {
        /// Which; `""` is the root.
        dir: Arc<str>,
    },
    /// What was written to a file since its last sync will not reach the disk any more, although reading shows it: a
    /// sync failed and the system marked its pages clean.
    Dropped {
        /// Which.
        file: FileId,
    },
    /// A lock's file was created, durable at once.
    Locked {
        /// The file.
        file: FileId,
        /// Its name.
        path: Arc<str>,
        /// What it says.
        note: Arc<[u8]>,
    },
    /// A word of the caller.
    Mark(Mark),
}

/// Operations in order, over what was there before the first: everything in `start` is durable.
#[derive(Debug, Clone)]
pub struct Log {
    /// The tree before the first operation.
    pub start: Image,
    /// Who is who in `start`; files made later are numbered by their events.
    pub files: BTreeMap<String, FileId>,
    /// The operations.
    pub events: Vec<Event>,
}

/// A [`Storage`] in memory that logs. Clones are the same storage.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    start: Image,
    state: Mutex<State>,
    watch: Option<Watch>,
    logging: bool,
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, Node>,
    files: HashMap<FileId, Content>,
    next: u32,
    locked: BTreeSet<String>,
    events: Vec<Event>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Dir,
    File(FileId),
}

impl Recorder {
    /// An empty directory.
    pub fn new() -> Self {
        Self::over(&Image::new())
    }

    /// A tree to go on from. What it holds counts as durable.
    pub fn over(image: &Image) -> Self {
        Self::build(image, None, true)
    }

    /// As [`Recorder::over`], without a log: for looking at a state.
    pub fn unlogged(image: &Image) -> Self {
        Self::build(image, None, false)
    }

    /// As [`Recorder::over`]; each sync is shown to `watch`, which may ignore it. Slow: it walks the stack at each.
    pub fn watched(image: &Image, watch: Watch) -> Self {
        Self::build(image, Some(watch), true)
    }

    /// As [`Recorder::over`]; syncs at `site` do nothing.
    pub fn ignoring(image: &Image, site: Site) -> Self {
        Self::watched(image, Watch::ignoring(site))
    }

    fn build(image: &Image, watch: Option<Watch>, logging: bool) -> Self {
        let mut state = State::default();
        for (path, entry) in image.entries() {
            let node = match entry {
                Entry::Dir => Node::Dir,
                Entry::File(content) => Node::File(state.adopt(content.clone())),
            };
            state.names.insert(path.to_owned(), node);
        }
        Self(Arc::new(Shared {
            start: image.clone(),
            state: Mutex::new(state),
            watch,
            logging,
        }))
    }

    /// This recorder as a room takes it.
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.clone())
    }

    /// Says something at this place of the log.
    pub fn mark(&self, mark: Mark) {
        let mut state = self.0.state.lock();
        self.log(&mut state, || Event::Mark(mark));
    }

    /// A step begins.
    pub fn begun(&self, step: usize) {
        self.mark(Mark::Begun(step));
    }

    /// A step returned.
    pub fn did(&self, step: usize) {
        self.mark(Mark::Did(step));
    }

    /// Everything up to a step was said to be durable.
    pub fn durable(&self, step: usize) {
        self.mark(Mark::Durable(step));
    }

    /// What was written to the file at `path` since its last sync is lost for the disk, as after a sync that failed.
    /// `NotFound` where there is no file.
    pub fn drop_unsynced(&self, path: &str) -> io::Result<()> {
        let mut state = self.0.state.lock();
        let file = state.file(path)?;
        self.log(&mut state, || Event::Dropped { file });
        Ok(())
    }

    /// Everything logged so far.
    pub fn log_so_far(&self) -> Log {
        let first = Recorder::unlogged(&self.0.start);
        let names = &first.0.state.lock().names;
        let files = names.iter().filter_map(|(path, node)| match node {
            Node::File(file) => Some((path.clone(), *file)),
            Node::Dir => None,
        });
        Log {
            start: self.0.start.clone(),
            files: files.collect(),
            events: self.0.state.lock().events.clone(),
        }
    }

    /// The tree as it is now, synced or not.
    pub fn image(&self) -> Image {
        let state = self.0.state.lock();
        let mut image = Image::new();
        for (path, node) in &state.names {
            let entry = match node {
                Node::Dir => Entry::Dir,
                Node::File(file) => Entry::File(state.files[file].clone()),
            };
            image.insert(path.clone(), entry);
        }
        image
    }

    fn log(&self, state: &mut State, event: impl FnOnce() -> Event) {
        if self.0.logging {
            state.events.push(event());
        }
    }

    /// Whether a sync counts.
    fn counts(&self, what: &str) -> bool {
        self.0.watch.as_ref().is_none_or(|watch| watch.see(what))
    }

    fn handle(&self, file: FileId, path: &str, writable: bool) -> Arc<dyn StorageFile> {
        Arc::new(RecordedFile {
            recorder: self.clone(),
            file,
            path: path.into(),
            writable,
        })
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn adopt(&mut self, content: Content) -> FileId {
        let file = FileId(self.next);
        self.next += 1;
        self.files.insert(file, content);
        file
    }

    fn file(&self, path: &str) -> io::Result<FileId> {
        match self.names.get(path) {
            Some(Node::File(file)) => Ok(*file),
            Some(Node::Dir) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn need_dir(&self, dir: &str) -> io::Result<()> {
        match self.names.get(dir) {
            _ if dir.is_empty() => Ok(()),
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(ErrorKind::NotADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn need_free(&self, path: &str) -> io::Result<()> {
        self.need_dir(parent(path))?;
        if self.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok(())
    }

    fn content(&mut self, file: FileId) -> &mut Content {
        self.files.entry(file).or_default()
    }
}

impl Storage for Recorder {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let mut state = self.0.state.lock();
        if mode != OpenMode::CreateNew {
            let file = state.file(path)?;
            return Ok(self.handle(file, path, mode == OpenMode::ReadWrite));
        }
        state.need_free(path)?;
        let file = state.adopt(Content::default());
        state.names.insert(path.to_owned(), Node::File(file));
        self.log(&mut state, || Event::Create {
            file,
            path: path.into(),
        });
        Ok(self.handle(file, path, true))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.state.lock();
        let file = state.file(from)?;
        state.need_dir(parent(to))?;
        if matches!(state.names.get(to), Some(Node::Dir)) {
            return Err(ErrorKind::IsADirectory.into());
        }
        state.names.remove(from);
        state.names.insert(to.to_owned(), Node::File(file));
        self.log(&mut state, || Event::Rename {
            from: from.into(),
            to: to.into(),
        });
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.file(path)?;
        state.names.remove(path);
        self.log(&mut state, || Event::Remove { path: path.into() });
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let state = self.0.state.lock();
        state.need_dir(dir)?;
        let inside = state.names.keys().filter(|path| parent(path) == dir);
        Ok(inside
            .map(|path| path.rsplit('/').next().unwrap_or(path).to_owned())
            .collect())
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.need_free(path)?;
        state.names.insert(path.to_owned(), Node::Dir);
        self.log(&mut state, || Event::CreateDir { path: path.into() });
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.0.state.lock().need_dir(dir)?;
        if self.counts(&format!(
            "directory {}",
            if dir.is_empty() { "." } else { dir }
        )) {
            let mut state = self.0.state.lock();
            self.log(&mut state, || Event::SyncDir { dir: dir.into() });
        }
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space {
            total: 1 << 40,
            free: 1 << 39,
            available: 1 << 39,
        })
    }

    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>> {
        let mut state = self.0.state.lock();
        if !state.locked.insert(path.to_owned()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let file = match state.file(path) {
            Ok(file) => file,
            Err(_) => {
                let file = state.adopt(Content::default());
                state.names.insert(path.to_owned(), Node::File(file));
                file
            }
        };
        *state.content(file) = note.as_bytes().into();
        self.log(&mut state, || Event::Locked {
            file,
            path: path.into(),
            note: note.as_bytes().into(),
        });
        Ok(Box::new(HeldPath {
            recorder: self.clone(),
            path: path.to_owned(),
        }))
    }
}

#[derive(Debug)]
struct HeldPath {
    recorder: Recorder,
    path: String,
}

impl LockGuard for HeldPath {}

impl Drop for HeldPath {
    fn drop(&mut self) {
        self.recorder.0.state.lock().locked.remove(&self.path);
    }
}

#[derive(Debug)]
struct RecordedFile {
    recorder: Recorder,
    file: FileId,
    /// The name it was opened by, for people.
    path: Arc<str>,
    writable: bool,
}

impl RecordedFile {
    fn state(&self) -> MutexGuard<'_, State> {
        self.recorder.0.state.lock()
    }

    fn to_write(&self) -> io::Result<MutexGuard<'_, State>> {
        if self.writable {
            Ok(self.state())
        } else {
            Err(rustix::io::Errno::BADF.into())
        }
    }
}

impl StorageFile for RecordedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.state();
        let content = state.content(self.file);
        if offset.saturating_add(buf.len() as u64) > content.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        content.read(offset, buf);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.to_write()?;
        if offset.checked_add(buf.len() as u64).is_none() {
            return Err(ErrorKind::FileTooLarge.into());
        }
        state.content(self.file).write(offset, buf);
        self.recorder.log(&mut state, || Event::Write {
            file: self.file,
            offset,
            data: buf.into(),
        });
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state().content(self.file).len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.to_write()?;
        state.content(self.file).set_len(len);
        self.recorder.log(&mut state, || Event::SetLen {
            file: self.file,
            len,
        });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if self.recorder.counts(&self.path) {
            let mut state = self.state();
            self.recorder
                .log(&mut state, || Event::Sync { file: self.file });
        }
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.to_write()?;
        let content = state.content(self.file);
        let end = offset.saturating_add(len).min(content.len());
        let (offset, len) = (offset, end.saturating_sub(offset));
        content.zero(offset, len);
        self.recorder.log(&mut state, || Event::Punch {
            file: self.file,
            offset,
            len,
        });
        Ok(())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        // Nothing one can read changes, so a crash has nothing to lose.
        self.to_write().map(|_| ())
    }

    fn prefetch(&self, _offset: u64, _len: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_contract_of_storage() {
        storage::testing::contract::run(|| (Recorder::new().storage(), ()));
    }

    #[test]
    fn a_log_names_files_not_paths() {
        let recorder = Recorder::over(&Image::new().with_file("old", b"1"));
        let old = recorder.open("old", OpenMode::ReadWrite).unwrap();
        recorder.rename("old", "new").unwrap();
        old.write_at(b"2", 0).unwrap();
        recorder
            .open("new", OpenMode::ReadWrite)
            .unwrap()
            .sync()
            .unwrap();
        let log = recorder.log_so_far();
        let file = log.files["old"];
        assert!(matches!(log.events[1], Event::Write { file: f, .. } if f == file));
        assert!(matches!(log.events[2], Event::Sync { file: f } if f == file));
        assert_eq!(log.start.file("old").unwrap().bytes(), b"1");
        assert_eq!(recorder.image(), Image::new().with_file("new", b"2"));
    }
}
