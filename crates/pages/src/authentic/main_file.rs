//! The catalog's file: its bytes are SQLCipher's, unchanged; every page is compared with its tag.
//!
//! 1. The file is as long as the table says, whatever follows on disk; a missing page does not read as zeros.
//! 2. Reads within the first 100 bytes are passed on unchecked: SQLite and SQLCipher look there for the salt and for
//!    hints before they know the page. A wrong salt opens no page, and the hints are ciphertext to begin with.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::state::State;
use super::{PAGE, Tag, authenticating, is_version, tag_of, unexpected};
use crate::PageFile;

/// Bytes at the beginning that may be read by themselves.
const HEAD: u64 = 100;

/// The file of a catalog whose pages are vouched for.
///
/// Beyond what every file says: a page that is not the version it must be is `InvalidData`; a write of anything but
/// one page, of a page that the log does not hold, or a length that its newest commit does not have is `InvalidInput`,
/// for only a checkpoint writes here, once the catalog is made.
pub(crate) struct MainFile {
    state: Arc<Mutex<State>>,
    file: Box<dyn PageFile>,
}

impl MainFile {
    pub(super) fn new(state: Arc<Mutex<State>>, file: Box<dyn PageFile>) -> Self {
        Self { state, file }
    }
}

impl PageFile for MainFile {
    fn read(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state.lock();
        let len = (state.tags.len() * PAGE) as u64;
        let there = len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..there];
        if offset + there as u64 <= HEAD {
            return self.file.read(buf, offset);
        }
        let mut done = 0;
        while done < there {
            let at = offset + done as u64;
            let (index, within) = ((at / PAGE as u64) as usize, (at % PAGE as u64) as usize);
            let part = (PAGE - within).min(there - done);
            let mut page = [0; PAGE];
            self.file.read(&mut page, at - within as u64)?;
            if !authenticating(|| is_version(&page, state.tags[index])) {
                let what = format!(
                    "page {} of {} was replaced by another version of itself",
                    index + 1,
                    state.path
                );
                return Err(state.found(what));
            }
            buf[done..done + part].copy_from_slice(&page[within..within + part]);
            done += part;
        }
        Ok(there)
    }

    fn write(&mut self, buf: &[u8], offset: u64) -> io::Result<()> {
        let page: &[u8; PAGE] = buf
            .try_into()
            .ok()
            .filter(|_| offset.is_multiple_of(PAGE as u64))
            .ok_or_else(|| unexpected("a write to the catalog's file is not of one page"))?;
        let index = (offset / PAGE as u64) as usize;
        let mut state = self.state.lock();
        let tag = tag_of(page);
        let number = u32::try_from(index + 1).unwrap_or(0);
        if !state.is_making() && state.chain.newest(number) != Some(tag) {
            let what = format!(
                "page {number} of {} was to be overwritten with what its log does not hold",
                state.path
            );
            return Err(state.found(what));
        }
        state.changes();
        if state.tags.len() <= index {
            state.tags.resize(index + 1, Tag::default());
        }
        state.tags[index] = tag;
        self.file.write(buf, offset)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let pages = (len / PAGE as u64) as usize;
        let by_log = state.chain.size().map(|pages| pages as usize);
        let changes = pages != state.tags.len();
        if !len.is_multiple_of(PAGE as u64)
            || (changes && !state.is_making() && by_log != Some(pages))
        {
            return Err(unexpected(format!(
                "{} was to be cut to {len} bytes, which its log does not say",
                state.path
            )));
        }
        if changes {
            state.changes();
            state.tags.resize(pages, Tag::default());
        }
        state.unsynced = true;
        self.file.truncate(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.state.lock();
        self.file.sync()?;
        state.unsynced = false;
        if state.is_making() {
            return Ok(());
        }
        state.prepare()
    }

    fn len(&self) -> io::Result<u64> {
        Ok((self.state.lock().tags.len() * PAGE) as u64)
    }
}
