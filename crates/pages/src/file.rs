//! The files behind one file that SQLite has open.

use std::io;
use std::sync::Arc;

use storage::{OpenMode, Storage, StorageFile, parent};

use crate::around::Around;

/// A file as SQLite uses it: one caller at a time. Offsets and lengths are bytes.
pub trait PageFile: Send {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    fn read(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `buf`; a gap before it reads as zeros.
    fn write(&mut self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts or extends the file.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Makes data, length and, where the file was just created, its name durable.
    fn sync(&mut self) -> io::Result<()>;
    /// The length.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A file of a storage, as it is.
pub(crate) struct Plain {
    file: Arc<dyn StorageFile>,
    /// The storage and the directory whose names are still to be synced.
    unnamed: Option<(Arc<dyn Storage>, String)>,
    around: Option<Around>,
}

impl Plain {
    /// A file that is open and has a durable name.
    pub(crate) fn of(file: Arc<dyn StorageFile>) -> Self {
        Self {
            file,
            unnamed: None,
            around: None,
        }
    }

    /// Opens a file; with `create`, one that is not there is made.
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        name: &str,
        mode: OpenMode,
        create: bool,
    ) -> io::Result<Self> {
        if mode != OpenMode::CreateNew {
            match storage.open(name, mode) {
                Err(e) if create && e.kind() == io::ErrorKind::NotFound => {}
                other => return other.map(Self::of),
            }
        }
        Ok(Self {
            file: storage.open(name, OpenMode::CreateNew)?,
            unnamed: Some((storage.clone(), parent(name).to_owned())),
            around: None,
        })
    }

    /// The same file; its first read of a part brings the whole part.
    pub(crate) fn reading_around(self) -> Self {
        Self {
            around: Some(Around::default()),
            ..self
        }
    }
}

impl PageFile for Plain {
    fn read(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(around) = &mut self.around {
            around.read(&*self.file, offset);
        }
        match self.file.read_at(buf, offset) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                let left = self.file.len()?.saturating_sub(offset);
                let some = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                if some > 0 {
                    self.file.read_at(&mut buf[..some], offset)?;
                }
                Ok(some)
            }
            other => other.map(|()| buf.len()),
        }
    }

    fn write(&mut self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(buf, offset)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()?;
        if let Some((storage, dir)) = &self.unnamed {
            storage.sync_dir(dir)?;
            self.unnamed = None;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

/// A file without a name, gone when it is closed.
#[derive(Default)]
pub(crate) struct Unnamed(Vec<u8>);

impl PageFile for Unnamed {
    fn read(&mut self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.0.len());
        let some = buf.len().min(self.0.len() - start);
        buf[..some].copy_from_slice(&self.0[start..start + some]);
        Ok(some)
    }

    fn write(&mut self, buf: &[u8], offset: u64) -> io::Result<()> {
        let end = usize::try_from(offset)
            .ok()
            .and_then(|start| start.checked_add(buf.len()))
            .ok_or(io::ErrorKind::FileTooLarge)?;
        if self.0.len() < end {
            // A refusal, not an abort: SQLite can give the operation up.
            self.0
                .try_reserve(end - self.0.len())
                .map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.0.resize(end, 0);
        }
        self.0[end - buf.len()..end].copy_from_slice(buf);
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}
