//! A plain directory: files in a work directory below it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Cold, Making, Mode, Names, Object, Powers, Store, facts, host};
use crate::Result;
use crate::model::StoreFacts;
use crate::run_file::WorkDir;

/// A plain directory.
#[derive(Debug)]
pub(crate) struct Directory {
    facts: StoreFacts,
    work: WorkDir,
    fuse: bool,
    direct: bool,
    drop_caches: bool,
}

impl Directory {
    /// A work directory below `under`.
    pub(crate) fn make(under: &Path, target: &str, making: &Making) -> Result<Directory> {
        let work = making.run.directory(under)?;
        let facts = StoreFacts {
            label: making.label.clone(),
            kind: "directory".into(),
            target: target.into(),
            ..facts::of_path(work.path())
        };
        Ok(Directory {
            facts,
            fuse: facts::is_fuse(work.path()),
            direct: host::takes_direct(work.path())?,
            work,
            drop_caches: making.drop_caches,
        })
    }
}

impl Store for Directory {
    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    fn powers(&self) -> Powers {
        Powers {
            write: true,
            direct: self.direct,
            names: true,
            files: true,
            single: false,
        }
    }

    fn open(&mut self, name: &str, mode: Mode) -> Result<Arc<dyn Object>> {
        host::HostFile::open(&self.work.path().join(name), mode)
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        super::remove_host(&self.work.path().join(name))
    }

    fn names(&mut self) -> Result<Arc<dyn Names>> {
        let beneath = match self.fuse {
            true => host::Beneath::Unknown,
            false => host::Beneath::Kernel,
        };
        host::HostNames::open(self.work.path(), beneath)
    }

    fn settle(&mut self) -> Result<()> {
        host::sync_below(self.work.path())
    }

    fn make_cold(&mut self) -> Result<Cold> {
        self.settle()?;
        let mut cold = Cold::default();
        host::forget_pages(self.work.path())?;
        cold.done.push("page cache emptied of its files".into());
        super::forget_all(self.drop_caches, &mut cold);
        if self.fuse && !self.drop_caches {
            cold.missing.push(
                "what the process that serves this mount keeps in memory cannot be emptied from outside".into(),
            );
        }
        Ok(cold)
    }

    fn path(&self) -> Option<PathBuf> {
        Some(self.work.path().to_owned())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.work.remove()
    }
}
