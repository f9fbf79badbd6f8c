//! What the log holds since it last began: the tag of every frame, and the codes that chain its commits.
//!
//! 1. A commit's code covers the one before it, and page number, size field and tag of every frame since: it
//!    authenticates the whole history back to the table of pages, and no other.
//! 2. A commit that SQLite takes back (it found a torn page in it, or rolled back) leaves the chain with the first
//!    frame that is written in its place.
//!
//! It is pure: it does not know files or offsets.

use std::collections::HashMap;

use seal::PageDigestKey;

use super::{Mac, Tag};

/// One frame of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Number of the page, from 1.
    pub(super) page: u32,
    /// Pages of the database after the commit that the frame ends; 0 in every other frame.
    pub(super) size: u32,
    pub(super) tag: Tag,
    /// A sum of the whole page, as this process wrote or found it. The tag names a version; that the bytes are those of
    /// the version is seen when SQLCipher opens the page, but a checkpoint copies pages without opening them.
    pub(super) sum: u64,
}

#[derive(Debug, Clone, Copy)]
struct Commit {
    /// Frames of the log up to and with the commit's last.
    frames: usize,
    size: u32,
    mac: Mac,
}

/// The log's frames and commits.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The code of the log's header; none while there is no log.
    base: Option<Mac>,
    frames: Vec<Frame>,
    commits: Vec<Commit>,
    /// The tag that each page has by the newest commit.
    newest: HashMap<u32, Tag>,
}

impl Chain {
    /// The code that ties a log to the table it begins from.
    pub(super) fn base(header: &[u8; 32], root: &Mac, key: &PageDigestKey) -> Mac {
        key.mac(&[b"strongroom log header\0", &header[..], root].concat())
    }

    /// A log begins, with nothing in it.
    pub(super) fn begin(&mut self, base: Mac) {
        *self = Self {
            base: Some(base),
            ..Self::default()
        };
    }

    /// There is no log any more.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    pub(super) fn has_begun(&self) -> bool {
        self.base.is_some()
    }

    /// Frames known, of commits and of what is not yet one.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Frames known that are not of a commit.
    pub(super) fn pending(&self) -> usize {
        self.frames.len().saturating_sub(self.committed())
    }

    pub(super) fn frame(&self, index: usize) -> Option<Frame> {
        self.frames.get(index).copied()
    }

    /// Whether there is any commit in the log.
    pub(super) fn has_commits(&self) -> bool {
        !self.commits.is_empty()
    }

    /// The tag that a page has by the newest commit, where the log has the page.
    pub(super) fn newest(&self, page: u32) -> Option<Tag> {
        self.newest.get(&page).copied()
    }

    /// Pages of the database by the newest commit.
    pub(super) fn size(&self) -> Option<u32> {
        self.commits.last().map(|commit| commit.size)
    }

    /// Takes note of a frame written at `index`, which is at most [`Chain::len`]. Returns the commit's code where it
    /// ends one.
    ///
    /// A frame written within the chain either replaces one of the pending transaction, or one of a commit that SQLite
    /// takes back; what follows is known to be stale only when the commit comes.
    pub(super) fn put(&mut self, index: usize, frame: Frame, key: &PageDigestKey) -> Option<Mac> {
        assert!(
            index <= self.frames.len() && frame.page != 0,
            "frames are written one behind the other"
        );
        self.rewind(index);
        if index == self.frames.len() {
            self.frames.push(frame);
        } else {
            self.frames[index] = frame;
        }
        if frame.size == 0 {
            return None;
        }
        self.frames.truncate(index + 1);
        let mac = self.code(key);
        self.commit(mac);
        Some(mac)
    }

    /// Forgets the frames from `index` on, and the commits they belong to.
    pub(super) fn cut(&mut self, index: usize) {
        self.rewind(index);
        self.frames.truncate(index);
    }

    /// Adds a frame found in the log. `code` is the code stored beside it. Returns whether the chain holds so far.
    pub(super) fn found(&mut self, frame: Frame, code: &[u8], key: &PageDigestKey) -> bool {
        self.frames.push(frame);
        if frame.size == 0 {
            return true;
        }
        let mac = self.code(key);
        let holds = mac == code;
        if holds {
            self.commit(mac);
        }
        holds
    }

    /// Forgets the frames that no commit covers.
    pub(super) fn keep_commits(&mut self) {
        self.frames.truncate(self.committed());
    }

    fn committed(&self) -> usize {
        self.commits.last().map_or(0, |commit| commit.frames)
    }

    /// The code of a commit that ends with the last frame.
    fn code(&self, key: &PageDigestKey) -> Mac {
        let before = self.commits.last().map(|commit| commit.mac).or(self.base);
        let before = before.expect("a log has begun before a frame is written");
        let since = &self.frames[self.committed()..];
        let mut bytes = Vec::with_capacity(64 + since.len() * 24);
        bytes.extend(b"strongroom log commit\0");
        bytes.extend(before);
        for frame in since {
            bytes.extend(frame.page.to_be_bytes());
            bytes.extend(frame.size.to_be_bytes());
            bytes.extend(frame.tag);
        }
        key.mac(&bytes)
    }

    fn commit(&mut self, mac: Mac) {
        let from = self.committed();
        self.newest
            .extend(self.frames[from..].iter().map(|f| (f.page, f.tag)));
        self.commits.push(Commit {
            frames: self.frames.len(),
            size: self.frames.last().map_or(0, |frame| frame.size),
            mac,
        });
    }

    /// Takes back the commits that a frame at `index` belongs to.
    fn rewind(&mut self, index: usize) {
        if self.committed() <= index {
            return;
        }
        self.commits.retain(|commit| commit.frames <= index);
        let kept = &self.frames[..self.committed()];
        self.newest = kept.iter().map(|f| (f.page, f.tag)).collect();
    }
}
