//! What the page cache holds of a file: how it is known that a cold read was cold and a durable write durable.
//!
//! Asked with `cachestat(2)`, on the very descriptor; with `mincore(2)` before Linux 6.5, which does not report dirty pages.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::sys;
pub use crate::sys::CachedPages;

impl CachedPages {
    /// [`resident`](Self::resident) in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.resident * rustix::param::page_size() as u64
    }

    /// [`dirty`](Self::dirty) in bytes.
    pub fn dirty_bytes(&self) -> Option<u64> {
        Some(self.dirty? * rustix::param::page_size() as u64)
    }

    fn and(self, other: CachedPages) -> CachedPages {
        CachedPages {
            resident: self.resident + other.resident,
            dirty: self.dirty.zip(other.dirty).map(|(a, b)| a + b),
        }
    }
}

/// What the cache holds of `file`.
///
/// # Errors
/// Those of the system calls, where the file's kind has no page cache to ask about.
pub fn cached(file: BorrowedFd<'_>) -> io::Result<CachedPages> {
    match sys::cachestat(file) {
        Err(error) if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => {
            let length = rustix::fs::fstat(file)?.st_size;
            sys::mincore(file, u64::try_from(length).unwrap_or(0))
        }
        answer => answer,
    }
}

/// What the cache holds of `files` together; `None` when one of them cannot be asked.
pub(crate) fn cached_of(files: &[BorrowedFd<'_>]) -> Option<CachedPages> {
    let none = CachedPages {
        resident: 0,
        dirty: Some(0),
    };
    files
        .iter()
        .try_fold(none, |sum, file| Some(sum.and(cached(*file).ok()?)))
}

/// Files looked at beneath a backing directory, at most: a store with more is judged by the device alone.
const FILES_MAX: usize = 4096;

/// What the cache holds of the regular files in and below `paths`; `None` when there are too many, or one cannot be asked.
/// A file that goes away meanwhile counts as nothing.
pub(crate) fn cached_beneath(paths: &[PathBuf]) -> Option<CachedPages> {
    let mut files = Vec::new();
    for path in paths {
        files.extend(files_beneath(path, FILES_MAX - files.len()).ok()??);
    }
    let mut sum = CachedPages {
        resident: 0,
        dirty: Some(0),
    };
    for path in files {
        match File::open(&path) {
            Ok(file) => sum = sum.and(cached(file.as_fd()).ok()?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
    }
    Some(sum)
}

/// The regular files in and below `path` on its own file system; `None`: more than `most`. What is mounted beneath is another
/// store, perhaps the very one that is measured.
pub(crate) fn files_beneath(path: &Path, most: usize) -> io::Result<Option<Vec<PathBuf>>> {
    let mut files = Vec::new();
    let device = match std::fs::symlink_metadata(path) {
        Ok(found) => found.dev(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(files)),
        Err(error) => return Err(error),
    };
    let mut paths = vec![path.to_path_buf()];
    while let Some(path) = paths.pop() {
        let found = match std::fs::symlink_metadata(&path) {
            Ok(found) if found.dev() == device => found,
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if found.is_dir() {
            for entry in std::fs::read_dir(path)? {
                paths.push(entry?.path());
            }
        } else if found.is_file() {
            if files.len() == most {
                return Ok(None);
            }
            files.push(path);
        }
    }
    Ok(Some(files))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// In the working tree's file system: a temporary directory may be memory, of which every page is in the cache.
    fn on_a_device() -> tempfile::NamedTempFile {
        tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("a file")
    }

    #[test]
    fn what_was_written_is_seen_dirty_then_clean_then_gone() {
        let mut file = on_a_device();
        file.write_all(&[7; 1 << 20]).expect("written");
        let pages = (1 << 20) / rustix::param::page_size() as u64;
        let warm = cached(file.as_file().as_fd()).expect("asked");
        assert_eq!((warm.resident, warm.dirty), (pages, Some(pages)));

        file.as_file().sync_all().expect("synced");
        let clean = cached(file.as_file().as_fd()).expect("asked");
        assert_eq!((clean.resident, clean.dirty), (pages, Some(0)));

        rustix::fs::fadvise(file.as_file(), 0, None, rustix::fs::Advice::DontNeed)
            .expect("dropped");
        assert_eq!(cached(file.as_file().as_fd()).expect("asked").resident, 0);
    }

    #[test]
    fn mincore_sees_the_same_pages_as_cachestat() {
        let mut file = on_a_device();
        file.write_all(&[7; 300_000]).expect("written");
        let by_cachestat = sys::cachestat(file.as_file().as_fd()).expect("asked");
        let by_mincore = sys::mincore(file.as_file().as_fd(), 300_000).expect("asked");
        assert_eq!(by_mincore.resident, by_cachestat.resident);
        assert_eq!(by_mincore.dirty, None);
    }

    #[test]
    fn files_beneath_a_directory_are_added_up() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        std::fs::create_dir(directory.path().join("below")).expect("made");
        std::fs::write(directory.path().join("one"), [1; 8192]).expect("written");
        std::fs::write(directory.path().join("below/two"), [1; 8192]).expect("written");
        let found = cached_beneath(&[directory.path().to_path_buf()]).expect("asked");
        assert_eq!(found.resident_bytes(), 16384);
        assert_eq!(found.dirty_bytes(), Some(16384));
    }

    /// Looking at the backing of a mounted store walked into that store: the measured system served the measurement.
    #[test]
    fn what_is_mounted_beneath_is_left_out() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let mounted = directory.path().join("mounted");
        std::fs::create_dir(&mounted).expect("made");
        std::fs::write(directory.path().join("own"), "1").expect("written");
        let mount = |arguments: &[&str]| {
            std::process::Command::new(arguments[0])
                .args(&arguments[1..])
                .arg(&mounted)
                .status()
        };
        match mount(&["mount", "-t", "tmpfs", "none"]) {
            Ok(status) if status.success() => {}
            other => {
                println!("left out: nothing can be mounted here: {other:?}");
                return;
            }
        }
        std::fs::write(mounted.join("other"), "1").expect("written");
        let found = files_beneath(directory.path(), 10);
        assert!(mount(&["umount"]).expect("run").success());
        assert_eq!(
            found.expect("walked"),
            Some(vec![directory.path().join("own")])
        );
        assert_eq!(files_beneath(directory.path(), 0).expect("walked"), None);
    }
}
