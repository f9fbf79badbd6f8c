//! The log: SQLite's write-ahead log with 32 bytes of ours behind its header and behind each frame.
//!
//! | bytes | what |
//! |---|---|
//! | 32 | SQLite's header |
//! | 32 | the code of header and root |
//! | 24 + 4096 + 32 | frame 1: SQLite's frame header, the page, and the commit's code or zeros |
//! | … | the other frames |
//!
//! 1. SQLite sees its own layout. Frames that no valid chain covers read as zeros, which it takes for the log's end.
//! 2. SQLite writes a frame's header, then its page; both go to disk in one write. It may overwrite a frame of the pending
//!    transaction, and then rewrites the headers behind it with new checksums, after the commit's frame: page numbers
//!    and tags are the same then, and so is the commit's code.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::chain::Frame;
use super::state::State;
use super::{PAGE, authenticating, bad, is_version, sum_of, tag_of, unexpected};
use crate::PageFile;

/// Bytes of SQLite's header.
pub(super) const HEADER: usize = 32;
/// Bytes of SQLite's header of a frame.
const FRAME_HEADER: usize = 24;
/// Bytes of our code.
pub(super) const SLOT: usize = 32;
/// Bytes of a frame as SQLite sees it.
pub(super) const FRAME: usize = FRAME_HEADER + PAGE;
/// Bytes of a frame on disk.
pub(super) const STRIDE: usize = FRAME + SLOT;
/// Frames read at once when a log is opened.
const BATCH: usize = 64;

/// The log of a catalog whose pages are vouched for.
///
/// Beyond what every file says: a frame that is no longer what was written, or found at the opening, is `InvalidData`; a
/// write of anything but a header, a frame's header or a frame's page is `InvalidInput`.
pub(crate) struct LogFile {
    state: Arc<Mutex<State>>,
    file: Box<dyn PageFile>,
    header: [u8; HEADER],
    /// The header of a frame whose page has not come yet.
    begun: Option<(usize, [u8; FRAME_HEADER])>,
}

impl LogFile {
    pub(super) fn open(state: Arc<Mutex<State>>, mut file: Box<dyn PageFile>) -> io::Result<Self> {
        let mut header = [0; HEADER];
        {
            let mut locked = state.lock();
            locked.chain.end();
            let mut start = [0; HEADER + SLOT];
            let read = file.read(&mut start, 0)?;
            let found: &[u8; HEADER] = start.first_chunk().expect("longer than a header");
            // A log that is based on another table than the one on disk ended before: see the module's invariant 3.
            if read == start.len()
                && let Ok(base) = locked.base(found)
                && base == start[HEADER..]
            {
                header = *found;
                locked.chain.begin(base);
                let State { chain, key, .. } = &mut *locked;
                walk(&mut *file, &header, |frame, code| {
                    chain.found(frame, code, key)
                })?;
                chain.keep_commits();
                locked.between = locked.chain.has_commits();
            }
        }
        Ok(Self {
            state,
            file,
            header,
            begun: None,
        })
    }

    fn read_header(&self, buf: &mut [u8], at: usize) -> usize {
        let part = buf.len().min(HEADER - at);
        let known = self.state.lock().chain.has_begun();
        if known {
            buf[..part].copy_from_slice(&self.header[at..at + part]);
        } else {
            buf[..part].fill(0);
        }
        part
    }

    fn read_frame(&mut self, buf: &mut [u8], index: usize, within: usize) -> io::Result<usize> {
        let part = buf.len().min(FRAME - within);
        let buf = &mut buf[..part];
        let mut state = self.state.lock();
        let Some(frame) = state.chain.frame(index) else {
            buf.fill(0);
            return Ok(part);
        };
        let mut bytes = [0; FRAME];
        // Of the page all is needed to know its version; of the header by itself only the header.
        let (from, to) = match (within < FRAME_HEADER, within + part > FRAME_HEADER) {
            (true, true) => (0, FRAME),
            (true, false) => (0, FRAME_HEADER),
            (false, _) => (FRAME_HEADER, FRAME),
        };
        self.file
            .read(&mut bytes[from..to], disk(index) + from as u64)?;
        let (header, page) = bytes
            .split_first_chunk::<FRAME_HEADER>()
            .expect("a frame is longer than its header");
        let page = page.first_chunk().expect("a frame has a page");
        let (number, size, _) = parts(header);
        if (from == 0 && (number, size) != (frame.page, frame.size))
            || (to == FRAME && !is_version(page, frame.tag))
        {
            let what = format!(
                "page {} in frame {} of the log of {} was replaced by another version",
                frame.page,
                index + 1,
                state.path
            );
            return Err(state.found(what));
        }
        if to == FRAME && authenticating(|| sum_of(page)) != frame.sum {
            return Err(bad(format!(
                "page {} in frame {} of the log of {} was read damaged",
                frame.page,
                index + 1,
                state.path
            )));
        }
        buf.copy_from_slice(&bytes[within..within + part]);
        Ok(part)
    }

    /// The log starts over: its contents are in the catalog's file.
    fn begin(&mut self, header: &[u8; HEADER]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.persist()?;
        let base = state.base(header)?;
        let mut bytes = [0; HEADER + SLOT];
        bytes[..HEADER].copy_from_slice(header);
        bytes[HEADER..].copy_from_slice(&base);
        self.file.write(&bytes, 0)?;
        self.header = *header;
        self.begun = None;
        state.chain.begin(base);
        Ok(())
    }

    fn write_frame_header(&mut self, index: usize, header: [u8; FRAME_HEADER]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.usable()?;
        if !state.chain.has_begun() || index > state.chain.len() {
            return Err(unexpected("a frame far behind the end of the log"));
        }
        if let Some(known) = state.chain.frame(index) {
            let (page, size, _) = parts(&header);
            if (page, size) == (known.page, known.size) {
                // New checksums for the same frame; or another version of the same page, which then follows.
                return self.file.write(&header, disk(index));
            }
            state.chain.cut(index);
        }
        self.begun = Some((index, header));
        Ok(())
    }

    fn write_page(&mut self, index: usize, page: &[u8; PAGE]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.usable()?;
        let begun = self.begun.take().filter(|(at, _)| *at == index);
        let (number, size) = match (&begun, state.chain.frame(index)) {
            (Some((_, header)), _) => {
                let (page, size, _) = parts(header);
                (page, size)
            }
            (None, Some(known)) => (known.page, known.size),
            (None, None) => return Err(unexpected("a page of the log without its header")),
        };
        if number == 0 {
            return Err(unexpected("a frame of page 0"));
        }
        let code = authenticating(|| {
            let frame = Frame {
                page: number,
                size,
                tag: tag_of(page),
                sum: sum_of(page),
            };
            let State { chain, key, .. } = &mut *state;
            chain.put(index, frame, key).unwrap_or_default()
        });
        let mut bytes = [0; STRIDE];
        bytes[FRAME_HEADER..FRAME].copy_from_slice(page);
        bytes[FRAME..].copy_from_slice(&code);
        match begun {
            Some((_, header)) => {
                bytes[..FRAME_HEADER].copy_from_slice(&header);
                self.file.write(&bytes, disk(index))
            }
            None => {
                let at = disk(index) + FRAME_HEADER as u64;
                self.file.write(&bytes[FRAME_HEADER..], at)
            }
        }
    }
}

impl PageFile for LogFile {
    fn read(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let covered = (HEADER + self.state.lock().chain.len() * FRAME) as u64;
        let end = offset.saturating_add(buf.len() as u64);
        let end = if end <= covered {
            end
        } else {
            end.min(self.len()?)
        };
        let there = end.saturating_sub(offset) as usize;
        let mut done = 0;
        while done < there {
            let at = offset + done as u64;
            let rest = &mut buf[done..there];
            done += if at < HEADER as u64 {
                self.read_header(rest, at as usize)
            } else {
                let (index, within) = place(at);
                self.read_frame(rest, index, within)?
            };
        }
        Ok(there)
    }

    fn write(&mut self, buf: &[u8], offset: u64) -> io::Result<()> {
        if offset == 0 {
            return match buf.try_into() {
                Ok(header) => self.begin(header),
                Err(_) => Err(unexpected("the log's header is not 32 bytes")),
            };
        }
        let (index, within) = place(offset.max(HEADER as u64));
        match (within, buf.len()) {
            _ if offset < HEADER as u64 => Err(unexpected("half a header of the log")),
            (0, FRAME_HEADER) => {
                let mut header = [0; FRAME_HEADER];
                header.copy_from_slice(buf);
                self.write_frame_header(index, header)
            }
            (FRAME_HEADER, PAGE) => {
                let mut page = [0; PAGE];
                page.copy_from_slice(buf);
                self.write_page(index, &page)
            }
            _ => Err(unexpected("a part of a frame of the log")),
        }
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if len == 0 {
            state.persist()?;
            state.chain.end();
            self.begun = None;
        } else if len < (HEADER + state.chain.len() * FRAME) as u64 {
            return Err(unexpected("the log was to be cut within its frames"));
        }
        self.file.truncate(on_disk(len))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        let len = self.file.len()?;
        let (start, slot) = ((HEADER + SLOT) as u64, SLOT as u64);
        if len <= start {
            return Ok(len.min(HEADER as u64));
        }
        let (frames, rest) = ((len - start) / STRIDE as u64, (len - start) % STRIDE as u64);
        let rest = rest.min(STRIDE as u64 - slot);
        Ok(HEADER as u64 + frames * FRAME as u64 + rest)
    }
}

/// The bytes on disk of a log that SQLite sees as this long.
fn on_disk(len: u64) -> u64 {
    if len <= HEADER as u64 {
        return len;
    }
    let frames = (len - HEADER as u64).div_ceil(FRAME as u64);
    len + (frames + 1) * SLOT as u64
}

/// Which frame, from 0, and where in it.
fn place(offset: u64) -> (usize, usize) {
    let offset = offset - HEADER as u64;
    (
        (offset / FRAME as u64) as usize,
        (offset % FRAME as u64) as usize,
    )
}

/// Where a frame begins on disk.
fn disk(index: usize) -> u64 {
    (HEADER + SLOT) as u64 + index as u64 * STRIDE as u64
}

/// Page number, size field and salts of a frame's header.
fn parts(header: &[u8; FRAME_HEADER]) -> (u32, u32, [u8; 8]) {
    let [
        p0,
        p1,
        p2,
        p3,
        s0,
        s1,
        s2,
        s3,
        salts @ ..,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
    ] = *header;
    (
        u32::from_be_bytes([p0, p1, p2, p3]),
        u32::from_be_bytes([s0, s1, s2, s3]),
        salts,
    )
}

/// SQLite's running checksum of a log: <https://sqlite.org/fileformat2.html#checksum_algorithm>. It has no key; it shows
/// whether a frame is complete.
struct Checksum {
    words: [u32; 2],
    big_endian: bool,
}

impl Checksum {
    /// The checksum stored behind the log's header.
    fn behind(header: &[u8; HEADER]) -> Self {
        let word = |at: usize| {
            let bytes = header[at..at + 4].try_into();
            u32::from_be_bytes(bytes.expect("four bytes"))
        };
        Self {
            words: [word(24), word(28)],
            big_endian: word(0) & 1 == 1,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        let [first, second] = &mut self.words;
        let word = |bytes: [u8; 4]| match self.big_endian {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        };
        for [a, b, c, d, e, f, g, h] in bytes.as_chunks::<8>().0 {
            *first = first
                .wrapping_add(word([*a, *b, *c, *d]))
                .wrapping_add(*second);
            *second = second
                .wrapping_add(word([*e, *f, *g, *h]))
                .wrapping_add(*first);
        }
    }

    fn is(&self, bytes: &[u8]) -> bool {
        let [first, second] = self.words.map(u32::to_be_bytes);
        bytes == [first, second].concat()
    }
}

/// Reads the frames that belong to the header's log, one after the other, until `take` says that it is enough. Frames end where
/// SQLite's checksum does: what it does not take for a part of the log must not be one here.
fn walk(
    file: &mut dyn PageFile,
    header: &[u8; HEADER],
    mut take: impl FnMut(Frame, &[u8]) -> bool,
) -> io::Result<()> {
    let mut batch = vec![0; BATCH * STRIDE];
    let mut checksum = Checksum::behind(header);
    for first in (0..).step_by(BATCH) {
        let read = file.read(&mut batch, disk(first))?;
        for bytes in batch[..read].as_chunks::<STRIDE>().0 {
            let (head, rest) = bytes
                .split_first_chunk::<FRAME_HEADER>()
                .expect("a frame has a header");
            let (page, code) = rest.split_at(PAGE);
            let page: &[u8; PAGE] = page.try_into().expect("split at a page");
            let (number, size, salts) = parts(head);
            if number == 0 || salts != header[16..24] {
                return Ok(());
            }
            checksum.add(&head[..8]);
            checksum.add(page);
            if !checksum.is(&head[16..]) {
                return Ok(());
            }
            let frame = Frame {
                page: number,
                size,
                tag: tag_of(page),
                sum: sum_of(page),
            };
            if !take(frame, code) {
                return Ok(());
            }
        }
        if read < batch.len() {
            return Ok(());
        }
    }
    Ok(())
}
