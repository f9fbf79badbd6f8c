//! A storage whose changes stay in memory: what is below is only read.
//!
//! A file's changed blocks are kept, so memory is used for what is written and for nothing else. Nothing is ever durable. A file
//! that was opened for reading does not show what is written by a later opening.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::{LockGuard, OpenMode, Space, Storage, StorageFile, parent};

const BLOCK: usize = 4096;

/// Changes in memory over a storage that is not changed.
#[derive(Debug)]
pub struct Overlay {
    below: Arc<dyn Storage>,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    /// Files that were opened or changed; `None` where the name was removed.
    files: BTreeMap<String, Option<Arc<File>>>,
    dirs: BTreeSet<String>,
}

/// A file of the storage below with its changes.
#[derive(Debug)]
struct File {
    below: Option<Arc<dyn StorageFile>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    len: u64,
    /// Bytes of the file below that can still be seen.
    visible: u64,
    changed: BTreeMap<u64, Box<[u8; BLOCK]>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Overlay {
    /// An overlay without changes.
    pub fn new(below: Arc<dyn Storage>) -> Self {
        Self {
            below,
            names: Mutex::default(),
        }
    }

    fn file(&self, names: &mut Names, path: &str) -> io::Result<Arc<File>> {
        if let Some(known) = names.files.get(path) {
            return known.clone().ok_or_else(|| ErrorKind::NotFound.into());
        }
        let below = self.below.open(path, OpenMode::Read)?;
        let len = below.len()?;
        let file = Arc::new(File {
            below: Some(below),
            state: Mutex::new(State {
                len,
                visible: len,
                ..State::default()
            }),
        });
        names.files.insert(path.to_owned(), Some(file.clone()));
        Ok(file)
    }

    fn exists(&self, names: &mut Names, path: &str) -> io::Result<bool> {
        match self.file(names, path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(names.dirs.contains(path)),
            other => other.map(|_| true),
        }
    }
}

impl Storage for Overlay {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let mut names = lock(&self.names);
        let file = match mode {
            OpenMode::CreateNew if self.exists(&mut names, path)? => {
                return Err(ErrorKind::AlreadyExists.into());
            }
            OpenMode::CreateNew => {
                let file = Arc::new(File {
                    below: None,
                    state: Mutex::default(),
                });
                names.files.insert(path.to_owned(), Some(file.clone()));
                file
            }
            // Not kept: there may be more files than a process can have open.
            OpenMode::Read if !names.files.contains_key(path) => {
                return self.below.open(path, OpenMode::Read);
            }
            OpenMode::Read | OpenMode::ReadWrite => self.file(&mut names, path)?,
        };
        Ok(Arc::new(Handle {
            file,
            writable: mode != OpenMode::Read,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut names = lock(&self.names);
        let file = self.file(&mut names, from)?;
        names.files.insert(from.to_owned(), None);
        names.files.insert(to.to_owned(), Some(file));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut names = lock(&self.names);
        self.file(&mut names, path)?;
        names.files.insert(path.to_owned(), None);
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let names = lock(&self.names);
        let below = match self.below.list(dir) {
            Err(e) if e.kind() == ErrorKind::NotFound && names.dirs.contains(dir) => Vec::new(),
            other => other?,
        };
        let mut found: BTreeSet<String> = below.into_iter().collect();
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        for (path, file) in names.files.iter().filter(|(path, _)| parent(path) == dir) {
            match file {
                Some(_) => found.insert(name(path)),
                None => found.remove(&name(path)),
            };
        }
        let dirs = names.dirs.iter().filter(|path| parent(path) == dir);
        found.extend(dirs.map(|path| name(path)));
        Ok(found.into_iter().collect())
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        match self.below.list(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            other => return other.and(Err(ErrorKind::AlreadyExists.into())),
        }
        match lock(&self.names).dirs.insert(path.to_owned()) {
            true => Ok(()),
            false => Err(ErrorKind::AlreadyExists.into()),
        }
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        self.below.space()
    }

    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>> {
        self.below.lock(path, note)
    }
}

#[derive(Debug)]
struct Handle {
    file: Arc<File>,
    writable: bool,
}

impl Handle {
    fn writable(&self) -> io::Result<MutexGuard<'_, State>> {
        match self.writable {
            true => Ok(lock(&self.file.state)),
            false => Err(rustix::io::Errno::BADF.into()),
        }
    }
}

impl File {
    /// Fills `out` with what the file below has at `offset`, and zeros behind what can be seen of it.
    fn read_below(&self, visible: u64, out: &mut [u8], offset: u64) -> io::Result<()> {
        let there = visible.saturating_sub(offset).min(out.len() as u64) as usize;
        out[there..].fill(0);
        match &self.below {
            Some(below) if there > 0 => below.read_at(&mut out[..there], offset),
            _ => Ok(()),
        }
    }

    fn write(&self, state: &mut State, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset
            .checked_add(bytes.len() as u64)
            .ok_or(ErrorKind::FileTooLarge)?;
        let mut at = offset;
        while at < end {
            let (block, from) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let len = (BLOCK - from).min((end - at) as usize);
            if !state.changed.contains_key(&block) {
                let mut bytes = Box::new([0; BLOCK]);
                self.read_below(state.visible, &mut *bytes, block * BLOCK as u64)?;
                state.changed.insert(block, bytes);
            }
            let done = (at - offset) as usize;
            if let Some(block) = state.changed.get_mut(&block) {
                block[from..from + len].copy_from_slice(&bytes[done..done + len]);
            }
            at += len as u64;
        }
        state.len = state.len.max(end);
        Ok(())
    }
}

impl StorageFile for Handle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let state = lock(&self.file.state);
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > state.len) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.file.read_below(state.visible, buf, offset)?;
        let end = offset + buf.len() as u64;
        let blocks = offset / BLOCK as u64..end.div_ceil(BLOCK as u64);
        for (block, bytes) in state.changed.range(blocks) {
            let start = block * BLOCK as u64;
            let (from, to) = (start.max(offset), (start + BLOCK as u64).min(end));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.writable()?;
        self.file.write(&mut state, buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.file.state).len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.writable()?;
        if len < state.len {
            // What is cut off reads as zeros if the file grows again.
            let rest = (len.next_multiple_of(BLOCK as u64) - len) as usize;
            self.file.write(&mut state, &vec![0; rest], len)?;
            state.changed.split_off(&len.div_ceil(BLOCK as u64));
            state.visible = state.visible.min(len);
        }
        state.len = len;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.writable()?;
        let end = offset.saturating_add(len).min(state.len);
        let zeros = vec![0; end.saturating_sub(offset) as usize];
        self.file.write(&mut state, &zeros, offset)
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        self.writable().map(drop)
    }

    fn prefetch(&self, offset: u64, len: u64) {
        if let Some(below) = &self.file.below {
            below.prefetch(offset, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryStorage;

    fn bytes(storage: &dyn Storage, path: &str) -> Vec<u8> {
        crate::read_limited(storage, path, 1 << 20).unwrap()
    }

    #[test]
    fn changes_are_seen_above_and_not_below() {
        let below = Arc::new(MemoryStorage::new());
        for name in ["a", "b", "c"] {
            crate::replace(&*below, name, &[1; 10_000]).unwrap();
        }
        let above = Overlay::new(below.clone());
        let file = above.open("a", OpenMode::ReadWrite).unwrap();
        file.write_at(&[2; 3], 4095).unwrap();
        let mut expected = vec![1; 10_000];
        expected[4095..4098].fill(2);
        assert_eq!(bytes(&above, "a"), expected);
        file.write_at(&[3], 12_000).unwrap();
        expected.resize(12_000, 0);
        expected.push(3);
        assert_eq!(bytes(&above, "a"), expected);
        file.set_len(5000).unwrap();
        file.set_len(6000).unwrap();
        expected.truncate(5000);
        expected.resize(6000, 0);
        assert_eq!(bytes(&above, "a"), expected);
        file.punch(10, 10).unwrap();
        expected[10..20].fill(0);
        assert_eq!(bytes(&above, "a"), expected);
        above.remove("b").unwrap();
        above.rename("c", "d").unwrap();
        above.create_dir("dir").unwrap();
        above.open("dir/e", OpenMode::CreateNew).unwrap();
        assert_eq!(above.list("").unwrap(), ["a", "d", "dir"]);
        assert_eq!(above.list("dir").unwrap(), ["e"]);
        assert!(above.open("b", OpenMode::Read).is_err());
        assert!(above.open("d", OpenMode::CreateNew).is_err());
        let mut names = below.list("").unwrap();
        names.sort_unstable();
        assert_eq!(names, ["a", "b", "c"]);
        for name in names {
            assert_eq!(bytes(&*below, &name), [1; 10_000]);
        }
    }

    #[test]
    fn a_read_behind_the_end_fails_as_below() {
        let above = Overlay::new(Arc::new(MemoryStorage::new()));
        let file = above.open("a", OpenMode::CreateNew).unwrap();
        file.write_at(&[1; 10], 0).unwrap();
        let behind = file.read_at(&mut [0; 11], 0).unwrap_err();
        assert_eq!(behind.kind(), ErrorKind::UnexpectedEof);
        assert!(
            above
                .open("a", OpenMode::Read)
                .unwrap()
                .write_at(&[0], 0)
                .is_err()
        );
    }
}
