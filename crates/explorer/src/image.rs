//! A directory tree in memory that costs little to copy and to compare.
//!
//! 1. A [`Content`] is a table of 4 KiB chunks shared between copies; a write copies the chunks it touches, and a chunk
//!    of zeros is not kept at all.
//! 2. Bytes of the last chunk beyond the length are zeros, so a file that is lengthened again reads as zeros there.
//! 3. Equal trees have equal hashes, however they came to be.
//!
//! It deliberately does not know storage operations, crashes, or what the bytes mean.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;
use std::sync::{Arc, OnceLock};

use siphasher::sip128::{Hasher128, SipHasher13};

/// Bytes of a chunk.
const CHUNK: usize = 4096;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8; CHUNK]>,
    /// Of the bytes; made when first asked for.
    hash: OnceLock<u128>,
}

impl Clone for Chunk {
    // A copy is made to be changed, so it starts without a hash.
    fn clone(&self) -> Self {
        Self {
            bytes: self.bytes.clone(),
            hash: OnceLock::new(),
        }
    }
}

impl Chunk {
    fn zeros() -> Self {
        Self {
            bytes: Box::new([0; CHUNK]),
            hash: OnceLock::new(),
        }
    }

    fn hash(&self) -> u128 {
        *self.hash.get_or_init(|| hash(&[&*self.bytes]))
    }
}

/// The hash of some bytes, cut as they are.
fn hash(parts: &[&[u8]]) -> u128 {
    let mut hasher = SipHasher13::new();
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    hasher.finish128().as_u128()
}

/// Bytes of one file. A clone shares them until one of the two is changed.
#[derive(Clone, Default)]
pub struct Content {
    len: u64,
    /// `None` is a chunk of zeros; chunks beyond the table are zeros too.
    chunks: Arc<Vec<Option<Arc<Chunk>>>>,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.len)
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.hash() == other.hash()
    }
}

impl Eq for Content {}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }
}

/// Cuts a range of bytes at the borders of chunks: index of the chunk, first byte in it, number of bytes.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (usize, usize, usize)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        let within = (at % CHUNK as u64) as usize;
        let take = (end - at).min((CHUNK - within) as u64) as usize;
        let piece = ((at / CHUNK as u64) as usize, within, take);
        at += take as u64;
        (take > 0).then_some(piece)
    })
}

impl Content {
    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes out; bytes beyond the end read as zeros.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let mut done = 0;
        for (index, within, len) in pieces(offset, out.len() as u64) {
            let to = &mut out[done..done + len];
            match self.chunks.get(index) {
                Some(Some(chunk)) => to.copy_from_slice(&chunk.bytes[within..within + len]),
                _ => to.fill(0),
            }
            done += len;
        }
    }

    /// All bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes);
        bytes
    }

    /// Puts bytes at an offset, lengthening the content where needed.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.put(offset, bytes);
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    /// Puts bytes at an offset without a change of length: bytes beyond the end stay hidden until the content is
    /// lengthened. The caller must call [`Content::hide`] at the end.
    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        let chunks = Arc::make_mut(&mut self.chunks);
        for (index, within, len) in pieces(offset, bytes.len() as u64) {
            let from = &bytes[done..done + len];
            done += len;
            if chunks.len() <= index {
                chunks.resize(index + 1, None);
            }
            // Compared as a whole: this is where the time goes when a state is made.
            let zeros = *from == ZEROS[..len];
            if zeros && (len == CHUNK || chunks[index].is_none()) {
                chunks[index] = None;
                continue;
            }
            let chunk = chunks[index].get_or_insert_with(|| Arc::new(Chunk::zeros()));
            let chunk = Arc::make_mut(chunk);
            chunk.hash = OnceLock::new();
            chunk.bytes[within..within + len].copy_from_slice(from);
        }
    }

    /// Makes a range zeros, without a change of length.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let chunks = Arc::make_mut(&mut self.chunks);
        let held = (chunks.len() * CHUNK) as u64;
        let len = held.saturating_sub(offset).min(len);
        for (index, within, len) in pieces(offset, len) {
            if len == CHUNK {
                chunks[index] = None;
            } else if let Some(chunk) = &mut chunks[index] {
                let chunk = Arc::make_mut(chunk);
                chunk.hash = OnceLock::new();
                chunk.bytes[within..within + len].fill(0);
            }
        }
    }

    /// Cuts or extends; an extension reads as zeros.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, u64::MAX - len);
        }
        self.len = len;
    }

    /// Sets the length as it is: bytes put beyond the old one come to light.
    pub(crate) fn show(&mut self, len: u64) {
        self.len = len;
    }

    /// Forgets the bytes beyond the length.
    pub(crate) fn hide(&mut self) {
        self.zero(self.len, u64::MAX - self.len);
    }

    /// A hash of length and bytes.
    pub fn hash(&self) -> u128 {
        let mut hasher = SipHasher13::new();
        hasher.write_u64(self.len);
        for (index, chunk) in self.chunks.iter().enumerate() {
            let Some(chunk) = chunk else { continue };
            // A kept chunk of zeros counts as none.
            if chunk.hash() != zeros_hash() {
                hasher.write_usize(index);
                hasher.write_u128(chunk.hash());
            }
        }
        hasher.finish128().as_u128()
    }
}

fn zeros_hash() -> u128 {
    static HASH: OnceLock<u128> = OnceLock::new();
    *HASH.get_or_init(|| Chunk::zeros().hash())
}

/// One name of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Dir,
    /// A file.
    File(Content),
}

/// A directory tree: paths relative to its root, `/`-separated; the root itself has no entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    entries: BTreeMap<String, Entry>,
}

impl Image {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a file in; its directory must be there.
    pub fn with_file(mut self, path: &str, bytes: &[u8]) -> Self {
        self.insert(path.to_owned(), Entry::File(bytes.into()));
        self
    }

    /// Puts a directory in.
    pub fn with_dir(mut self, path: &str) -> Self {
        self.insert(path.to_owned(), Entry::Dir);
        self
    }

    pub(crate) fn insert(&mut self, path: String, entry: Entry) {
        self.entries.insert(path, entry);
    }

    /// What is at a path.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// The bytes of a file; `None` where there is no file.
    pub fn file(&self, path: &str) -> Option<&Content> {
        match self.entries.get(path) {
            Some(Entry::File(content)) => Some(content),
            _ => None,
        }
    }

    /// All names with what they are, in order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries
            .iter()
            .map(|(path, entry)| (path.as_str(), entry))
    }

    /// A hash of names, kinds, lengths and bytes.
    pub fn hash(&self) -> u128 {
        let mut hasher = SipHasher13::new();
        for (path, entry) in &self.entries {
            hasher.write_usize(path.len());
            hasher.write(path.as_bytes());
            match entry {
                Entry::Dir => hasher.write_u8(0),
                Entry::File(content) => {
                    hasher.write_u8(1);
                    hasher.write_u128(content.hash());
                }
            }
        }
        hasher.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_behaves_as_a_vector_of_bytes() {
        let mut content = Content::default();
        let mut model: Vec<u8> = Vec::new();
        let mut random = fastrand::Rng::with_seed(7);
        for step in 0..2000_u64 {
            let (offset, len) = (random.usize(..20_000), random.usize(..9000));
            match step % 4 {
                0 | 1 => {
                    let bytes = vec![if step % 8 == 0 { 0 } else { step as u8 }; len];
                    content.write(offset as u64, &bytes);
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].copy_from_slice(&bytes);
                }
                2 => {
                    content.zero(offset as u64, len as u64);
                    let end = (offset + len).min(model.len());
                    model[offset.min(end)..end].fill(0);
                }
                _ => {
                    content.set_len(offset as u64);
                    model.resize(offset, 0);
                }
            }
            assert_eq!(content.bytes(), model, "step {step}");
            assert_eq!(content.hash(), Content::from(&model[..]).hash());
        }
    }

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let first = Image::new().with_file("f", &[1; 10_000]);
        let Some(Entry::File(mut content)) = first.get("f").cloned() else {
            panic!("a file")
        };
        let hash = first.hash();
        content.write(5000, &[2; 10]);
        assert_eq!(first.file("f").unwrap().bytes(), [1; 10_000]);
        assert_eq!(first.hash(), hash);
        assert_ne!(content.hash(), first.file("f").unwrap().hash());
    }

    #[test]
    fn what_is_beyond_the_length_is_hidden_until_it_shows() {
        let mut content = Content::from(&[1; 100][..]);
        content.put(200, &[2; 10]);
        let mut shown = content.clone();
        shown.show(210);
        shown.hide();
        assert_eq!(shown.bytes()[200..], [2; 10]);
        content.hide();
        content.set_len(210);
        assert_eq!(content.bytes()[100..], [0; 110]);
    }

    #[test]
    fn the_hash_distinguishes_names_kinds_and_bytes() {
        let images = [
            Image::new(),
            Image::new().with_file("a", b""),
            Image::new().with_dir("a"),
            Image::new().with_file("b", b""),
            Image::new().with_file("a", b"\0"),
            Image::new().with_file("a", b"").with_file("b", b""),
        ];
        for (i, one) in images.iter().enumerate() {
            for (j, other) in images.iter().enumerate() {
                assert_eq!(one.hash() == other.hash(), i == j);
            }
        }
    }
}
