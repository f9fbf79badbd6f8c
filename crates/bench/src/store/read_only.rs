//! What was there before is only ever read: the one store of files, devices, volumes and network block devices that are not ours.
//!
//! 1. Every mode that writes is refused before the system is asked, and so are names and removing.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Cold, Mode, Names, Object, Powers, Store};
use crate::model::StoreFacts;
use crate::{Error, Result};

/// Something that was there before, and how it is read.
pub(super) trait Existing: Send {
    /// Whether it can be read past the page cache.
    const DIRECT: bool;

    fn facts(&self) -> &StoreFacts;

    /// What it is, and what a user may do instead of writing to it.
    fn refusal(&self) -> String;

    /// Opens it for reading, in a mode that it has.
    fn open(&self, mode: Mode) -> Result<Arc<dyn Object>>;

    /// As [`Store::make_cold`].
    fn make_cold(&mut self) -> Result<Cold>;

    /// As [`Store::path`].
    fn path(&self) -> Option<PathBuf>;

    /// As [`Store::backing`].
    fn backing(&self) -> Option<PathBuf> {
        None
    }
}

/// The store of it.
#[derive(Debug)]
pub(crate) struct ReadOnly<T>(pub(super) T);

impl<T: Existing> ReadOnly<T> {
    fn refuse<R>(&self) -> Result<R> {
        Err(Error::Refused(self.0.refusal()))
    }
}

impl<T: Existing> Store for ReadOnly<T> {
    fn facts(&self) -> &StoreFacts {
        self.0.facts()
    }

    fn powers(&self) -> Powers {
        Powers {
            direct: T::DIRECT,
            files: false,
            single: true,
        }
    }

    fn open(&mut self, _name: &str, mode: Mode) -> Result<Arc<dyn Object>> {
        if mode.writes() || mode.is_direct() && !T::DIRECT {
            return self.refuse();
        }
        self.0.open(mode)
    }

    fn remove(&mut self, _name: &str) -> Result<()> {
        self.refuse()
    }

    fn names(&mut self) -> Result<Arc<dyn Names>> {
        self.refuse()
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn make_cold(&mut self) -> Result<Cold> {
        self.0.make_cold()
    }

    fn path(&self) -> Option<PathBuf> {
        self.0.path()
    }

    fn backing(&self) -> Option<PathBuf> {
        self.0.backing()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
