//! A file or block device that was there before: read, never written.
//!
//! 1. It is opened with `O_RDONLY`, here and nowhere else.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::read_only::{Existing, ReadOnly};
use super::{Cold, Making, Mode, Object, facts, host};
use crate::model::StoreFacts;
use crate::{Error, Result};

/// An existing file or device.
#[derive(Debug)]
pub(crate) struct Single {
    facts: StoreFacts,
    path: PathBuf,
    device: bool,
    drop_caches: bool,
}

impl Single {
    /// The file or device at `path`.
    pub(crate) fn find(path: &Path, target: &str, making: &Making) -> Result<ReadOnly<Single>> {
        let path = path
            .canonicalize()
            .map_err(|e| Error::io(path, "finding it", e))?;
        let meta = std::fs::metadata(&path).map_err(|e| Error::io(&path, "looking at it", e))?;
        let device = meta.file_type().is_block_device();
        if !device && !meta.is_file() {
            return Err(Error::Usage(format!(
                "{}: neither directory, file nor block device, so there is nothing to measure",
                path.display()
            )));
        }
        let facts = StoreFacts {
            label: making.label.clone(),
            kind: if device { "block device" } else { "file" }.into(),
            target: target.into(),
            ..facts::of_path(&path)
        };
        Ok(ReadOnly(Single {
            facts,
            path,
            device,
            drop_caches: making.drop_caches,
        }))
    }

    /// What a process keeps in memory for a file it serves is out of our reach.
    fn say_if_served(&self, file: &Path, cold: &mut Cold) {
        if facts::is_fuse(file) {
            super::say_of_server(&file.display().to_string(), self.drop_caches, cold);
        }
    }
}

impl Existing for Single {
    const DIRECT: bool = true;

    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    fn refusal(&self) -> String {
        format!(
            "{}: a {} that was there before is only ever read: writing would destroy what is in it; to measure writing, name \
             a directory, in which files are created and removed again",
            self.path.display(),
            self.facts.kind
        )
    }

    fn open(&self, mode: Mode) -> Result<Arc<dyn Object>> {
        host::HostFile::open(&self.path, mode)
    }

    fn make_cold(&mut self) -> Result<Cold> {
        let mut cold = Cold::default();
        let file = File::open(&self.path).map_err(|e| Error::io(&self.path, "opening", e))?;
        if self.device {
            match super::blkflsbuf::flush_buffers(&file) {
                Ok(()) => cold.done.push("BLKFLSBUF".into()),
                Err(e) => cold.missing.push(format!(
                    "{}: BLKFLSBUF: {e}; run it as root",
                    self.path.display()
                )),
            }
            // Reading a loop device reads its file, which has pages of its own.
            if let Some(behind) = facts::loop_file(&self.path) {
                match host::forget_pages(&behind) {
                    Ok(_) => cold
                        .done
                        .push("page cache emptied of the file behind it".into()),
                    Err(e) => cold.missing.push(e.to_string()),
                }
                self.say_if_served(&behind, &mut cold);
            }
        } else {
            self.say_if_served(&self.path, &mut cold);
        }
        host::forget_file(&file)
            .map_err(|e| Error::io(&self.path, "emptying the page cache", e))?;
        cold.done.push("page cache emptied of it".into());
        super::forget_all(self.drop_caches, &mut cold);
        Ok(cold)
    }

    fn path(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_file::Run;
    use crate::store::Store;

    #[test]
    fn a_file_that_was_there_is_never_opened_for_writing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        std::fs::write(&path, "mine").unwrap();
        let making = Making::new(Run::begin(&dir.path().join("state")).unwrap(), "a");
        let mut store = Single::find(&path, "precious", &making).unwrap();
        for mode in [Mode::Make, Mode::MakeDirect, Mode::Write, Mode::WriteDirect] {
            let refused = store.open("x", mode).map(drop).unwrap_err();
            assert!(matches!(refused, Error::Refused(_)), "{refused}");
        }
        assert!(matches!(store.remove("x"), Err(Error::Refused(_))));
        assert!(matches!(store.names().map(drop), Err(Error::Refused(_))));
        let object = store.open("x", Mode::Read).unwrap();
        assert!(object.write_at(b"theirs", 0).is_err());
        store.make_cold().unwrap();
        drop(object);
        Box::new(store).close().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
