//! The files that a command made at its target, which none of its other sources may replace.
//!
//! A target can take two names for one, such as `a` and `A` on a FAT file system. So a file is known by its identity too, and where that does
//! not last as long as the file, by names that differ in case only.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::tree::{FileId, Meta, Tree};

/// What was made.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// By its name in small letters.
    places: HashMap<PathBuf, PathBuf>,
    files: HashSet<FileId>,
}

/// How a place is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// By what was made under this name.
    ByThis,
    /// By what was made under another name, which is the same to the target.
    ByAnother,
}

fn in_small_letters(place: &Path) -> PathBuf {
    place.to_string_lossy().to_lowercase().into()
}

impl Made {
    /// A file was created.
    pub(super) fn note(&mut self, tree: &dyn Tree, place: &Path) {
        // Somebody may have removed it again: then nothing of it can be replaced.
        self.files
            .extend(tree.stat(place, false).ok().map(|meta| meta.id));
        self.places
            .entry(in_small_letters(place))
            .or_insert_with(|| place.to_owned());
    }

    /// Whether what is at a place is one of these.
    pub(super) fn taken(&self, tree: &dyn Tree, place: &Path, there: &Meta) -> Option<Taken> {
        let first = self.places.get(&in_small_letters(place));
        if first.is_some_and(|first| first == place) {
            return Some(Taken::ByThis);
        }
        let is_it = |first: &PathBuf| tree.stat(first, false).is_ok_and(|it| it.id == there.id);
        let taken = self.files.contains(&there.id) || first.is_some_and(is_it);
        taken.then_some(Taken::ByAnother)
    }
}
