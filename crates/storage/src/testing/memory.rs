//! A storage in memory whose power can be cut.
//!
//! 1. After a cut the storage holds what was made durable, and of the rest nothing or a chosen part: single blocks of a
//!    write may be there while others are not, a name may be there without its data, a length without either.
//! 2. Handles from before a cut are dead: every call on them is refused, as for a process that is gone.
//! 3. It promises no more than [`Storage`] does: a synced file whose directory was not synced may lose its name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::{LockGuard, OpenMode, Space, Storage, StorageFile, parent};

/// What a power cut keeps or loses as a whole, in bytes.
const BLOCK: usize = 4096;

/// Files in memory. Clones are the same storage.
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    /// Locked paths, with the power cycle of the holder.
    locked: BTreeMap<String, u64>,
    power: u64,
}

#[derive(Debug, Clone)]
enum Node {
    Dir,
    File(Arc<Mutex<Content>>),
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    durable_len: usize,
    /// What the blocks written since the last sync held before.
    before: BTreeMap<usize, Vec<u8>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl MemoryStorage {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the power: everything not made durable is lost.
    pub fn power_cut(&self) {
        self.cut(|| false);
    }

    /// Cuts the power: of everything not made durable, the part that `seed` chooses survives.
    pub fn power_cut_keeping_some(&self, seed: u64) {
        let mut state = seed;
        self.cut(move || {
            // The steps of SplitMix64 with its usual constants; any mixing would do.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ (mixed >> 27)) & 1 == 1
        });
    }

    fn cut(&self, mut keep: impl FnMut() -> bool) {
        let mut state = lock(&self.0);
        state.power += 1;
        let State { names, durable, .. } = &mut *state;
        let paths: BTreeSet<String> = names.keys().chain(durable.keys()).cloned().collect();
        for path in paths {
            if keep() {
                match names.get(&path) {
                    Some(node) => durable.insert(path, node.clone()),
                    None => durable.remove(&path),
                };
            }
        }
        // A name in a directory that is gone cannot be reached.
        let dirs: BTreeSet<String> = durable
            .iter()
            .filter(|(_, n)| matches!(n, Node::Dir))
            .map(|(p, _)| p.clone())
            .collect();
        durable.retain(|path, _| parent(path).is_empty() || dirs.contains(parent(path)));
        for node in durable.values() {
            if let Node::File(content) = node {
                lock(content).cut(&mut keep);
            }
        }
        *names = durable.clone();
    }

    fn handle(
        &self,
        content: Arc<Mutex<Content>>,
        writable: bool,
        power: u64,
    ) -> Arc<dyn StorageFile> {
        Arc::new(MemoryFile {
            storage: self.clone(),
            content,
            writable,
            power,
        })
    }
}

impl State {
    fn file(&self, path: &str) -> io::Result<Arc<Mutex<Content>>> {
        match self.names.get(path) {
            Some(Node::File(content)) => Ok(content.clone()),
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
}

impl Content {
    /// Remembers what the blocks of a range hold, before they change.
    fn remember(&mut self, from: usize, to: usize) {
        for block in from / BLOCK..to.div_ceil(BLOCK) {
            let bytes = &self.bytes;
            self.before.entry(block).or_insert_with(|| {
                let start = (block * BLOCK).min(bytes.len());
                bytes[start..bytes.len().min(start + BLOCK)].to_vec()
            });
        }
    }

    fn cut(&mut self, keep: &mut impl FnMut() -> bool) {
        let len = if keep() {
            self.bytes.len()
        } else {
            self.durable_len
        };
        let full = self.bytes.len().max(len).next_multiple_of(BLOCK);
        self.bytes.resize(full, 0);
        for (block, before) in std::mem::take(&mut self.before) {
            if !keep() {
                let start = block * BLOCK;
                if self.bytes.len() < start + BLOCK {
                    self.bytes.resize(start + BLOCK, 0);
                }
                self.bytes[start..start + BLOCK].fill(0);
                self.bytes[start..start + before.len()].copy_from_slice(&before);
            }
        }
        self.bytes.resize(len, 0);
        self.durable_len = len;
    }
}

impl Storage for MemoryStorage {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let mut state = lock(&self.0);
        let power = state.power;
        if mode != OpenMode::CreateNew {
            return Ok(self.handle(state.file(path)?, mode == OpenMode::ReadWrite, power));
        }
        state.need_dir(parent(path))?;
        if state.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let content = Arc::<Mutex<Content>>::default();
        state
            .names
            .insert(path.to_owned(), Node::File(content.clone()));
        Ok(self.handle(content, true, power))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = lock(&self.0);
        let content = state.file(from)?;
        state.need_dir(parent(to))?;
        if matches!(state.names.get(to), Some(Node::Dir)) {
            return Err(ErrorKind::IsADirectory.into());
        }
        state.names.remove(from);
        state.names.insert(to.to_owned(), Node::File(content));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.file(path)?;
        state.names.remove(path);
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let state = lock(&self.0);
        state.need_dir(dir)?;
        let inside = state.names.keys().filter(|path| parent(path) == dir);
        Ok(inside
            .map(|path| path.rsplit('/').next().unwrap_or(path).to_owned())
            .collect())
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.need_dir(parent(path))?;
        if state.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        state.names.insert(path.to_owned(), Node::Dir);
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.need_dir(dir)?;
        let State { names, durable, .. } = &mut *state;
        durable.retain(|path, _| parent(path) != dir);
        let inside = names.iter().filter(|(path, _)| parent(path) == dir);
        durable.extend(inside.map(|(path, node)| (path.clone(), node.clone())));
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
        let file = match self.open(path, OpenMode::ReadWrite) {
            Err(e) if e.kind() == ErrorKind::NotFound => self.open(path, OpenMode::CreateNew)?,
            other => other?,
        };
        let mut state = lock(&self.0);
        let power = state.power;
        if state.locked.get(path) == Some(&power) {
            return Err(ErrorKind::WouldBlock.into());
        }
        state.locked.insert(path.to_owned(), power);
        drop(state);
        let held = HeldPath {
            storage: self.clone(),
            path: path.to_owned(),
            power,
        };
        file.set_len(0)?;
        file.write_at(note.as_bytes(), 0)?;
        Ok(Box::new(held))
    }
}

#[derive(Debug)]
struct HeldPath {
    storage: MemoryStorage,
    path: String,
    power: u64,
}

impl LockGuard for HeldPath {}

impl Drop for HeldPath {
    fn drop(&mut self) {
        let mut state = lock(&self.storage.0);
        if state.locked.get(&self.path) == Some(&self.power) {
            state.locked.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct MemoryFile {
    storage: MemoryStorage,
    content: Arc<Mutex<Content>>,
    writable: bool,
    power: u64,
}

impl MemoryFile {
    fn content(&self) -> io::Result<MutexGuard<'_, Content>> {
        // Under the storage's lock, so that no call straddles a power cut.
        let state = lock(&self.storage.0);
        if state.power != self.power {
            return Err(io::Error::other("the handle is from before a power cut"));
        }
        Ok(lock(&self.content))
    }

    fn writable(&self) -> io::Result<MutexGuard<'_, Content>> {
        if self.writable {
            self.content()
        } else {
            Err(rustix::io::Errno::BADF.into())
        }
    }
}

fn range(offset: u64, len: usize) -> io::Result<(usize, usize)> {
    let start = usize::try_from(offset).map_err(|_| ErrorKind::FileTooLarge)?;
    Ok((
        start,
        start.checked_add(len).ok_or(ErrorKind::FileTooLarge)?,
    ))
}

impl StorageFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.content()?;
        let (start, end) = range(offset, buf.len())?;
        if end > content.bytes.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        buf.copy_from_slice(&content.bytes[start..end]);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut content = self.writable()?;
        let (start, end) = range(offset, buf.len())?;
        content.remember(start, end);
        if content.bytes.len() < end {
            content.bytes.resize(end, 0);
        }
        content.bytes[start..end].copy_from_slice(buf);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content()?.bytes.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut content = self.writable()?;
        let (len, _) = range(len, 0)?;
        let old = content.bytes.len();
        content.remember(len.min(old), old);
        content.bytes.resize(len, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut content = self.content()?;
        content.before.clear();
        content.durable_len = content.bytes.len();
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut content = self.writable()?;
        let end = content.bytes.len();
        let start = usize::try_from(offset).unwrap_or(end).min(end);
        let end = usize::try_from(offset.saturating_add(len))
            .unwrap_or(end)
            .min(end);
        content.remember(start, end);
        content.bytes[start..end].fill(0);
        Ok(())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        self.writable().map(|_| ())
    }

    fn prefetch(&self, _offset: u64, _len: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cut_leaves_what_was_synced() {
        let storage = MemoryStorage::new();
        let file = storage.open("kept", OpenMode::CreateNew).unwrap();
        file.write_at(&[1; 5000], 0).unwrap();
        file.sync().unwrap();
        storage.sync_dir("").unwrap();
        file.write_at(&[2; 5000], 3000).unwrap();
        storage
            .open("lost", OpenMode::CreateNew)
            .unwrap()
            .sync()
            .unwrap();
        storage.power_cut();
        assert!(file.len().is_err());
        assert_eq!(storage.list("").unwrap(), ["kept"]);
        let file = storage.open("kept", OpenMode::Read).unwrap();
        let mut bytes = vec![0; 5000];
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes, file.len().unwrap()), (vec![1; 5000], 5000));
    }

    #[test]
    fn an_unsynced_rename_is_lost_and_a_synced_one_kept() {
        let storage = MemoryStorage::new();
        crate::replace(&storage, "f", b"one").unwrap();
        storage.open("f.new", OpenMode::CreateNew).unwrap();
        storage.rename("f.new", "f").unwrap();
        storage.power_cut();
        assert_eq!(crate::read_limited(&storage, "f", 9).unwrap(), b"one");
    }

    #[test]
    fn a_cut_that_keeps_some_tears_at_blocks() {
        let outcomes: BTreeSet<Vec<u8>> = (0..64)
            .map(|seed| {
                let storage = MemoryStorage::new();
                crate::replace(&storage, "f", &[0; 3 * BLOCK]).unwrap();
                storage
                    .open("f", OpenMode::ReadWrite)
                    .unwrap()
                    .write_at(&[1; 3 * BLOCK], 0)
                    .unwrap();
                storage.power_cut_keeping_some(seed);
                let bytes = crate::read_limited(&storage, "f", 1 << 20).unwrap();
                bytes.chunks(BLOCK).map(|block| block[0]).collect()
            })
            .collect();
        assert_eq!(
            outcomes.len(),
            8,
            "every mixture of three blocks: {outcomes:?}"
        );
    }
}
