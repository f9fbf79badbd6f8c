//! What a move has copied, as it was then: nothing else is removed.

use std::collections::HashMap;

use room::{FileKind, Timestamp};

use crate::tree::{FileId, Meta};

/// What was copied of one tree.
#[derive(Debug, Default)]
pub(crate) struct Moved(HashMap<FileId, Version>);

/// A state of a file: every change moves one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    size: u64,
    mtime: Timestamp,
    /// `None` of a file with several names: it changes with each that is removed.
    ctime: Option<Timestamp>,
}

impl Version {
    fn of(meta: &Meta) -> Self {
        Self {
            size: meta.size,
            mtime: meta.mtime,
            ctime: (meta.nlink == 1).then_some(meta.ctime),
        }
    }

    fn is_still(self, meta: &Meta) -> bool {
        let now = Self {
            ctime: self.ctime.and(Some(meta.ctime)),
            ..Self::of(meta)
        };
        self == now
    }
}

/// Whether a file is as it was when it had these attributes.
pub(super) fn is_unchanged(then: &Meta, now: &Meta) -> bool {
    then.id == now.id && Version::of(then).is_still(now)
}

impl Moved {
    /// A file was copied as it was with these attributes. Of several names the first counts: that one's contents were read.
    pub(super) fn note(&mut self, meta: &Meta) {
        self.0.entry(meta.id).or_insert_with(|| Version::of(meta));
    }

    /// Whether this is what was copied. Of a directory what is in it is another matter.
    pub(crate) fn has(&self, now: &Meta) -> bool {
        let then = self.0.get(&now.id);
        then.is_some_and(|then| now.kind == FileKind::Directory || then.is_still(now))
    }
}
