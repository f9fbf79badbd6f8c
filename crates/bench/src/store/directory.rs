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
            direct: self.direct,
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
        if self.fuse {
            super::say_of_server("this mount", self.drop_caches, &mut cold);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::observe::loop_disk::LoopDisk;
    use crate::run_file::Run;
    use crate::store::single::Single;
    use crate::work::Bed;
    use crate::work::small_files::{MountedHere, Subject as _};

    /// What failed: the processor time of the process that reads was said to be that of the one that serves too, whose own was
    /// known to nobody.
    #[test]
    fn what_an_unknown_process_serves_has_no_processor_time() {
        let Some(disk) = LoopDisk::ext4(64) else {
            return;
        };
        let state = tempfile::tempdir().unwrap();
        let run = Run::begin(state.path()).unwrap();
        let room = MountedHere::new(&disk.path(), run.clone()).unwrap();
        room.files().create("image", b"content").unwrap();
        let mount = disk.path().join("mnt");
        let making = Making::new(run, "a");
        let seen = |store: Box<dyn Store>| {
            let bed = Bed::new(store);
            let ((), evidence) = bed.watch(&SystemClock, &[], |_| Ok(())).unwrap();
            bed.close().unwrap();
            (evidence.cpu_s, evidence.server_io, evidence.unobserved)
        };
        let words = "which process serves the store is not known: its bytes and its processor time are not either";
        let served: [Box<dyn Store>; 2] = [
            Box::new(Directory::make(&mount, "mnt", &making).unwrap()),
            Box::new(Single::find(&mount.join("image"), "image", &making).unwrap()),
        ];
        for store in served {
            let (cpu_s, server_io, unobserved) = seen(store);
            assert_eq!((cpu_s, server_io), (None, None));
            assert!(
                unobserved.iter().any(|said| said == words),
                "{unobserved:?}"
            );
        }
        let plain = Directory::make(&disk.path(), "plain", &making).unwrap();
        let (cpu_s, server_io, unobserved) = seen(Box::new(plain));
        assert!(cpu_s.is_some() && server_io.is_some());
        assert!(!unobserved.iter().any(|said| said == words));
        Box::new(room).close().unwrap();
    }
}
