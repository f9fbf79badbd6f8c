//! Files with secrets in them: new, for their owner only, and there as a whole or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A new file, readable for its owner only, that is removed again unless it is [kept](Self::keep).
#[derive(Debug)]
pub struct NewPrivateFile {
    path: PathBuf,
    file: File,
    kept: bool,
}

impl NewPrivateFile {
    /// Makes it, empty. `AlreadyExists` where there is something of this name: nothing is ever written over.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            kept: false,
        })
    }

    /// Writes `content`, and makes it durable, its name too.
    pub fn keep(mut self, content: &[u8]) -> io::Result<()> {
        self.file.write_all(content)?;
        self.file.sync_all()?;
        let parent = self.path.parent();
        let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for NewPrivateFile {
    fn drop(&mut self) {
        if !self.kept {
            // Somebody may have taken it away.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes a new file of `content`, durable and readable for its owner only. `AlreadyExists` where there is something of this
/// name.
pub fn write_new_private(path: &Path, content: &[u8]) -> io::Result<()> {
    NewPrivateFile::create(path)?.keep(content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_private_file_is_its_owners_and_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        write_new_private(&path, b"one").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let taken = write_new_private(&path, b"two").unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &link).unwrap();
        assert!(write_new_private(&link, b"three").is_err());
        assert!(!dir.path().join("elsewhere").exists());
    }

    #[test]
    fn a_private_file_that_was_not_kept_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let file = NewPrivateFile::create(&path).unwrap();
        assert!(path.exists());
        drop(file);
        assert!(!path.exists());
    }
}
