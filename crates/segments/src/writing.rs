//! The segment being appended to: its number, its keys, and the file that the first append makes.
//!
//! 1. A reservation does no input or output, so appends that find a segment just begun reserve and seal while the
//!    first of them makes the file.
//! 2. A segment whose file could not be created is discarded as a whole; its number is not used again.

use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use storage::{OpenMode, Storage, StorageFile};

use crate::unit_keys::UnitKeys;
use crate::{BLOCK_LEN, Keyring, SEGMENT_BLOCKS, SEGMENTS_DIR, SegmentId, file_name, header};

#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) id: SegmentId,
    pub(crate) keys: Arc<UnitKeys>,
    keyring: Arc<Keyring>,
    /// The file, and how many blocks fit in it.
    file: OnceLock<(Arc<dyn StorageFile>, u32)>,
    /// Held while the file is created; afterwards, why that failed.
    failed: Mutex<Option<io::ErrorKind>>,
}

impl Writing {
    pub(crate) fn new(id: SegmentId, keys: Arc<UnitKeys>, keyring: Arc<Keyring>) -> Self {
        Self {
            id,
            keys,
            keyring,
            file: OnceLock::new(),
            failed: Mutex::new(None),
        }
    }

    /// The segment's file, if it is made.
    pub(crate) fn made(&self) -> Option<&Arc<dyn StorageFile>> {
        self.file.get().map(|(file, _)| file)
    }

    /// Blocks that fit, the header included: known once the file is created.
    pub(crate) fn capacity(&self) -> u32 {
        self.file
            .get()
            .map_or(SEGMENT_BLOCKS, |(_, blocks)| *blocks)
    }

    /// The segment's file, made by the first call. `made` runs once, before any call returns the file.
    pub(crate) fn file(
        &self,
        storage: &dyn Storage,
        made: impl FnOnce(&Arc<dyn StorageFile>),
    ) -> io::Result<&Arc<dyn StorageFile>> {
        if let Some(file) = self.made() {
            return Ok(file);
        }
        let mut failed = self.failed.lock();
        if let Some(kind) = *failed {
            return Err(kind.into());
        }
        if let Some(file) = self.made() {
            return Ok(file);
        }
        match self.make(storage) {
            Ok((file, blocks)) => {
                made(&file);
                Ok(&self.file.get_or_init(|| (file, blocks)).0)
            }
            Err(e) => {
                *failed = Some(e.kind());
                Err(e)
            }
        }
    }

    fn make(&self, storage: &dyn Storage) -> io::Result<(Arc<dyn StorageFile>, u32)> {
        // The keyring made this segment's key, so it has its epoch.
        let block = header::encode(&self.id, &self.keyring)
            .expect("the keyring holds the epoch it sealed under");
        let name = file_name(self.id.no);
        let file = match storage.open(&name, OpenMode::CreateNew) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                storage::create_dir_if_missing(storage, SEGMENTS_DIR)?;
                storage.sync_dir("")?;
                storage.open(&name, OpenMode::CreateNew)?
            }
            other => other?,
        };
        let written = file.capacity().and_then(|capacity| {
            file.write_at(&block, 0)?;
            Ok(capacity.map_or(u64::MAX, |bytes| bytes / BLOCK_LEN as u64))
        });
        match written {
            Ok(blocks) => Ok((file, blocks.min(u64::from(SEGMENT_BLOCKS)) as u32)),
            Err(e) => {
                // Left behind it would only take up a name: nothing refers to it.
                let _ = storage.remove(&name);
                Err(e)
            }
        }
    }
}
