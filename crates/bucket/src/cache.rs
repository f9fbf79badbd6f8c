//! Chunks of objects in a directory of this machine: what was read or written lately.
//!
//! 1. Only bytes of objects that do not change are here, so that nothing here is ever out of date, after a crash or years. What a room has
//!    not made durable is never here.
//! 2. A chunk's file has a hash behind each of its blocks, which is compared at every read. What a crash tore, or its disk changed, is read
//!    from the store again.
//! 3. There are at most `limit` bytes, plus what is just being added; what was not used for longest goes first. A full disk makes the cache
//!    smaller, and fails nothing.
//!
//! The bytes are those of the store, and as useless without the key.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::{Condvar, Mutex};

use crate::names::ObjectName;

/// Bytes of a chunk; the last one of an object is shorter.
pub(crate) const CHUNK: u64 = 1 << 20;
/// Bytes of a chunk that have one hash; the last ones of a chunk may be fewer.
const BLOCK: usize = 16 << 10;
/// Bytes of the hash behind them.
const HASH: usize = 16;

/// A chunk: its object, and its number in it.
pub(crate) type Key = (ObjectName, u64);

#[derive(Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
    limit: u64,
    state: Mutex<State>,
    /// Somebody has fetched what he was fetching.
    fetched: Condvar,
}

#[derive(Debug, Default)]
struct State {
    chunks: HashMap<Key, Chunk>,
    /// By when they were used last.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    bytes: u64,
    fetching: HashSet<Key>,
    /// For names of files that are being written.
    writes: u64,
}

#[derive(Debug)]
struct Chunk {
    used: u64,
    /// Bytes of its file.
    len: u64,
}

impl State {
    fn touch(&mut self, key: Key) {
        self.uses += 1;
        if let Some(chunk) = self.chunks.get_mut(&key) {
            self.by_use.remove(&chunk.used);
            chunk.used = self.uses;
            self.by_use.insert(self.uses, key);
        }
    }

    fn add(&mut self, key: Key, len: u64) {
        self.remove(&key);
        self.uses += 1;
        let used = self.uses;
        self.chunks.insert(key, Chunk { used, len });
        self.by_use.insert(used, key);
        self.bytes += len;
    }

    fn remove(&mut self, key: &Key) {
        if let Some(chunk) = self.chunks.remove(key) {
            self.by_use.remove(&chunk.used);
            self.bytes -= chunk.len;
        }
    }

    /// An object's chunks that are here. A commit says how large an object is, and a hostile store any number.
    fn chunks_of(&self, object: ObjectName, size: u64) -> Vec<Key> {
        let chunks = size.div_ceil(CHUNK);
        if chunks > self.chunks.len() as u64 {
            let here = self.chunks.keys().filter(|key| key.0 == object);
            return here.copied().collect();
        }
        let keys = (0..chunks).map(|chunk| (object, chunk));
        keys.filter(|key| self.chunks.contains_key(key)).collect()
    }
}

fn file_name((object, chunk): &Key) -> String {
    match object {
        ObjectName::Data { epoch, number } => format!("{epoch:x}-{number:x}-{chunk:x}"),
        ObjectName::Commit(number) => format!("c-{number:x}-{chunk:x}"),
    }
}

fn key_of(name: &str) -> Option<Key> {
    let mut parts = name.split('-').map(|part| u64::from_str_radix(part, 16));
    let (epoch, number, chunk) = (
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    );
    let key = (ObjectName::Data { epoch, number }, chunk);
    (file_name(&key) == name).then_some(key)
}

/// The hash of a block with this number, of the chunk of this name. Another block in its place has another one.
fn hash(chunk: &str, block: u64, bytes: &[u8]) -> [u8; HASH] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes);
    hasher.update(chunk.as_bytes());
    hasher.update(&block.to_le_bytes());
    let whole = hasher.finalize();
    whole.as_bytes()[..HASH]
        .try_into()
        .expect("sixteen of thirty-two")
}

/// A chunk as its file has it.
fn encode(key: &Key, bytes: &[u8]) -> Vec<u8> {
    let (blocks, name) = (bytes.chunks(BLOCK), file_name(key));
    let mut encoded = Vec::with_capacity(bytes.len() + blocks.len() * HASH);
    for (number, block) in (0..).zip(blocks) {
        encoded.extend_from_slice(block);
        encoded.extend_from_slice(&hash(&name, number, block));
    }
    encoded
}

/// Fills `buf` from `offset` within a chunk, whose file has `len` bytes.
fn read_blocks(file: &Path, len: u64, key: &Key, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let changed = || io::Error::other("torn by a crash, or changed by its disk");
    let first = offset / BLOCK as u64;
    let end = (offset + buf.len() as u64).div_ceil(BLOCK as u64);
    let begin = first * (BLOCK + HASH) as u64;
    let len = len
        .saturating_sub(begin)
        .min((end - first) * (BLOCK + HASH) as u64);
    let mut encoded = vec![0; len as usize];
    File::open(file)?.read_exact_at(&mut encoded, begin)?;
    let name = file_name(key);
    let (mut skip, mut filled) = ((offset % BLOCK as u64) as usize, 0);
    for (number, block) in (first..).zip(encoded.chunks(BLOCK + HASH)) {
        let (bytes, behind) = block.split_last_chunk::<HASH>().ok_or_else(changed)?;
        if hash(&name, number, bytes) != *behind {
            return Err(changed());
        }
        let wanted = bytes.get(skip..).ok_or_else(changed)?;
        let len = wanted.len().min(buf.len() - filled);
        buf[filled..][..len].copy_from_slice(&wanted[..len]);
        (skip, filled) = (0, filled + len);
    }
    match filled == buf.len() {
        true => Ok(()),
        false => Err(changed()),
    }
}

/// When a chunk's file was used, and its bytes. `None`: another process of this machine, which has the cache too, removed it just now.
fn found_chunk(file: &fs::DirEntry, key: Key) -> io::Result<Option<(SystemTime, Key, u64)>> {
    let meta = match file.metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        meta => meta?,
    };
    let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Ok(Some((used, key, meta.len())))
}

fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir)
}

impl Cache {
    /// The cache in a directory, which is made where it is missing. Objects of another room there are not distinguished: a directory is one
    /// room's.
    pub(crate) fn open(dir: &Path, limit: u64) -> io::Result<Self> {
        create_dir(dir)?;
        let mut found = Vec::new();
        for file in fs::read_dir(dir)? {
            let file = file?;
            let name = file.file_name();
            match key_of(&name.to_string_lossy()) {
                Some(key) => found.extend(found_chunk(&file, key)?),
                // What a crash left half written.
                None if name.to_string_lossy().ends_with(".new") => {
                    let _ = fs::remove_file(file.path());
                }
                None => {}
            }
        }
        found.sort_by_key(|(used, ..)| *used);
        let mut state = State::default();
        for (_, key, len) in found {
            state.add(key, len);
        }
        let cache = Self {
            dir: dir.to_owned(),
            limit,
            state: Mutex::new(state),
            fetched: Condvar::new(),
        };
        cache.shrink(limit);
        Ok(cache)
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.dir.join(file_name(key))
    }

    /// Fills `buf` from `offset` within a chunk, if it is here.
    pub(crate) fn read(&self, key: Key, buf: &mut [u8], offset: u64) -> bool {
        let len = {
            let mut state = self.state.lock();
            let Some(chunk) = state.chunks.get(&key) else {
                return false;
            };
            let len = chunk.len;
            state.touch(key);
            len
        };
        let file = self.path(&key);
        let done = read_blocks(&file, len, &key, buf, offset);
        if let Err(e) = &done {
            tracing::debug!("{}: {e}; read again", file.display());
            self.forget(&key);
        }
        done.is_ok()
    }

    /// Adds a chunk.
    pub(crate) fn add(&self, key: Key, bytes: &[u8]) {
        let number = {
            let mut state = self.state.lock();
            state.writes += 1;
            state.writes
        };
        let new = self
            .dir
            .join(format!("{}-{number}.new", std::process::id()));
        let encoded = encode(&key, bytes);
        let write = || {
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all_at(&encoded, 0)?;
            fs::rename(&new, self.path(&key))
        };
        let written = match write() {
            // Somebody deleted the cache.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                create_dir(&self.dir).and_then(|()| write())
            }
            written => written,
        };
        match written {
            Ok(()) => {
                self.state.lock().add(key, encoded.len() as u64);
                self.shrink(self.limit);
            }
            Err(e) => {
                tracing::debug!("{}: not cached: {e}", self.dir.display());
                let _ = fs::remove_file(&new);
                if e.kind() == io::ErrorKind::StorageFull {
                    let bytes = self.state.lock().bytes;
                    self.shrink(bytes / 2);
                }
            }
        }
    }

    /// Removes what was not used for longest until there are at most `limit` bytes.
    fn shrink(&self, limit: u64) {
        loop {
            let mut state = self.state.lock();
            if state.bytes <= limit {
                return;
            }
            let Some(key) = state.by_use.first_key_value().map(|(_, key)| *key) else {
                return;
            };
            state.remove(&key);
            let _ = fs::remove_file(self.path(&key));
        }
    }

    fn forget(&self, key: &Key) {
        let mut state = self.state.lock();
        state.remove(key);
        let _ = fs::remove_file(self.path(key));
    }

    /// Removes an object's chunks.
    pub(crate) fn forget_object(&self, object: ObjectName, size: u64) {
        let here = self.state.lock().chunks_of(object, size);
        for key in &here {
            self.forget(key);
        }
    }

    /// Whether a chunk is here.
    #[cfg(test)]
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.state.lock().chunks.contains_key(key)
    }

    /// How many chunks right before one are here or on their way, at most `most`; before those of its object come those up to `earlier`. None,
    /// where none of them is here: a cache that keeps nothing has a full disk.
    pub(crate) fn before(&self, (object, chunk): &Key, earlier: Option<Key>, most: usize) -> u64 {
        let state = self.state.lock();
        let (mut here, mut coming) = (0, 0);
        let own = (0..*chunk).rev().map(|chunk| (*object, chunk));
        let earlier = earlier.into_iter();
        let earlier =
            earlier.flat_map(|(object, last)| (0..=last).rev().map(move |chunk| (object, chunk)));
        for key in own.chain(earlier).take(most) {
            match (
                state.chunks.contains_key(&key),
                state.fetching.contains(&key),
            ) {
                (true, _) => here += 1,
                (false, true) => coming += 1,
                (false, false) => break,
            }
        }
        if here > 0 { here + coming } else { 0 }
    }

    /// Those of the chunks that the caller is to fetch; waits for those that others are fetching. Each one returned must be given to
    /// [`fetched`](Self::fetched).
    pub(crate) fn missing(&self, keys: &[Key]) -> Vec<Key> {
        self.missing_and(keys, &[])
    }

    /// The same, and where the last of them is the caller's to fetch, the first of `next` that are neither here nor on their way.
    pub(crate) fn missing_and(&self, keys: &[Key], next: &[Key]) -> Vec<Key> {
        let mut state = self.state.lock();
        loop {
            let wanted = keys.iter().filter(|key| !state.chunks.contains_key(key));
            let (others, mine): (Vec<&Key>, Vec<&Key>) =
                wanted.partition(|key| state.fetching.contains(key));
            if !mine.is_empty() || others.is_empty() {
                let mut mine: Vec<Key> = mine.into_iter().copied().collect();
                if mine.last().is_some_and(|last| Some(last) == keys.last()) {
                    let is_nowhere = |key: &&Key| {
                        !state.chunks.contains_key(*key) && !state.fetching.contains(*key)
                    };
                    mine.extend(next.iter().take_while(is_nowhere));
                }
                state.fetching.extend(&mine);
                return mine;
            }
            self.fetched.wait(&mut state);
        }
    }

    /// A chunk was fetched, or could not be.
    pub(crate) fn fetched(&self, keys: &[Key]) {
        let mut state = self.state.lock();
        for key in keys {
            state.fetching.remove(key);
        }
        self.fetched.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64, chunk: u64) -> Key {
        (ObjectName::Data { epoch: 1, number }, chunk)
    }

    #[test]
    fn what_was_added_is_read_in_this_process_and_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), 1000).unwrap();
        cache.add(key(1, 0), &[7; 100]);
        for cache in [&cache, &Cache::open(dir.path(), 1000).unwrap()] {
            let mut buf = [0; 10];
            assert!(cache.read(key(1, 0), &mut buf, 90));
            assert_eq!(buf, [7; 10]);
            assert!(!cache.read(key(1, 1), &mut buf, 0));
        }
    }

    /// What was read once, or written, was not compared again: what its disk changed then was returned.
    #[test]
    fn a_torn_or_changed_chunk_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let other = encode(&key(2, 0), &[7; 40_000]);
        let whole = encode(&key(1, 0), &[7; 40_000]);
        let mut flipped = whole.clone();
        flipped[BLOCK + HASH + 50] ^= 1;
        let mut exchanged = whole.clone();
        exchanged.copy_within(..BLOCK + HASH, BLOCK + HASH);
        let short = whole[..whole.len() - 1].to_vec();
        let cut = whole[..2 * (BLOCK + HASH)].to_vec();
        for changed in [other, flipped, exchanged, short, cut, Vec::new()] {
            let cache = Cache::open(dir.path(), 100_000).unwrap();
            cache.add(key(1, 0), &[7; 40_000]);
            let mut found = vec![0; 40_000];
            assert!(cache.read(key(1, 0), &mut found, 0) && found == [7; 40_000]);
            let file = dir.path().join(file_name(&key(1, 0)));
            fs::write(&file, changed).unwrap();
            assert!(!cache.read(key(1, 0), &mut found, 0));
            assert!(!cache.has(&key(1, 0)) && !file.exists());
        }
    }

    #[test]
    fn any_range_of_a_chunk_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), 100_000).unwrap();
        let bytes: Vec<u8> = (0..40_000u32).map(|n| (n % 251) as u8).collect();
        cache.add(key(1, 0), &bytes);
        let places = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 39_999, 40_000];
        for from in places {
            for to in places.into_iter().filter(|to| *to >= from) {
                let mut found = vec![0; to - from];
                assert!(
                    cache.read(key(1, 0), &mut found, from as u64),
                    "{from} {to}"
                );
                assert!(found == bytes[from..to], "{from} {to}");
            }
        }
    }

    /// Nothing was kept any more until the room was opened again.
    #[test]
    fn a_cache_that_was_deleted_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(&dir.path().join("chunks"), 1000).unwrap();
        cache.add(key(1, 0), &[7; 100]);
        fs::remove_dir_all(dir.path().join("chunks")).unwrap();
        assert!(!cache.read(key(1, 0), &mut [0; 1], 0));
        cache.add(key(1, 0), &[7; 100]);
        assert!(cache.read(key(1, 0), &mut [0; 1], 0));
    }

    #[test]
    fn what_is_before_a_chunk_counts_where_some_of_it_is_here() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), 1000).unwrap();
        let of = |chunk| cache.before(&key(1, chunk), None, 8);
        assert_eq!(cache.missing(&[key(1, 2), key(1, 3)]).len(), 2);
        assert_eq!((of(0), of(3), of(4)), (0, 0, 0));
        cache.add(key(1, 1), &[7; 100]);
        assert_eq!((of(2), of(3), of(4), of(5)), (1, 2, 3, 0));
        assert_eq!(cache.before(&key(1, 4), None, 2), 0);
        assert_eq!(cache.before(&key(2, 4), None, 8), 0);
        // And what an object has that comes before this one in the file.
        let behind = |chunk, most| cache.before(&key(2, chunk), Some(key(1, 3)), most);
        assert_eq!((behind(0, 8), behind(0, 2), behind(1, 8)), (3, 0, 0));
        cache.add(key(2, 0), &[7; 100]);
        assert_eq!((behind(1, 8), behind(1, 2)), (4, 2));
    }

    /// The opening of a cache failed where another process removed a chunk at that moment.
    #[test]
    fn a_chunk_that_goes_while_a_cache_is_opened_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), 1000).unwrap();
        cache.add(key(1, 0), &[7; 100]);
        let file = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap();
        let found = |key| found_chunk(&file, key).unwrap().map(|(_, _, len)| len);
        assert_eq!(found(key(1, 0)), Some(116));
        cache.forget(&key(1, 0));
        assert_eq!(found(key(1, 0)), None);
    }

    /// It looked for each chunk that there could be, for years.
    #[test]
    fn an_object_of_any_size_is_forgotten_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), 1000).unwrap();
        cache.add(key(1, 0), &[7; 100]);
        cache.add(key(2, 0), &[7; 100]);
        cache.add(key(2, 1), &[7; 100]);
        cache.forget_object(key(2, 0).0, u64::MAX);
        assert!(cache.has(&key(1, 0)) && !cache.has(&key(2, 0)) && !cache.has(&key(2, 1)));
        cache.forget_object(key(1, 0).0, 100);
        assert_eq!(cache.state.lock().chunks.len(), 0);
    }

    #[test]
    fn the_oldest_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), 250).unwrap();
        cache.add(key(1, 0), &[1; 100]);
        cache.add(key(2, 0), &[2; 100]);
        assert!(cache.read(key(1, 0), &mut [0; 1], 0));
        cache.add(key(3, 0), &[3; 100]);
        assert!(cache.has(&key(1, 0)) && !cache.has(&key(2, 0)) && cache.has(&key(3, 0)));
        assert_eq!(cache.state.lock().bytes, 232);
    }
}
