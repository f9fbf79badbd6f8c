//! Reading around: the first page that SQLite reads of a part of a database brings the rest of that part.
//!
//! SQLite reads page by page in the order of its trees. The kernel sees no sequence in that and reads no more than each page,
//! so a cold listing waits for the disk once a page. Neighbouring pages usually hold what was written together.
//!
//! Each part is asked for once: what the kernel drops later is read page by page.

use std::collections::HashSet;

use storage::StorageFile;

/// Bytes of a part: the kernel's own read-ahead.
const PART: u64 = 128 << 10;

/// The parts that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Around(HashSet<u64>);

impl Around {
    /// A read at `offset` is about to follow.
    pub(crate) fn read(&mut self, file: &dyn StorageFile, offset: u64) {
        let part = offset / PART;
        if self.0.insert(part) {
            file.prefetch(part * PART, PART);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use super::*;
    use crate::file::{PageFile, Plain};

    /// A file of zeros that records its prefetches.
    #[derive(Debug, Default)]
    struct Recording(Mutex<Vec<(u64, u64)>>);

    impl StorageFile for Recording {
        fn read_at(&self, buf: &mut [u8], _: u64) -> io::Result<()> {
            buf.fill(0);
            Ok(())
        }
        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Ok(())
        }
        fn len(&self) -> io::Result<u64> {
            Ok(4 * PART)
        }
        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
        fn punch(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn prefetch(&self, offset: u64, len: u64) {
            self.0.lock().unwrap().push((offset, len));
        }
    }

    #[test]
    fn each_part_of_a_database_is_asked_for_once() {
        let file = std::sync::Arc::new(Recording::default());
        let mut plain = Plain::of(file.clone()).reading_around();
        for offset in [5000, 4096, PART - 4096, 2 * PART, 0, 2 * PART + 8192] {
            plain.read(&mut [0; 4096], offset).unwrap();
        }
        assert_eq!(*file.0.lock().unwrap(), [(0, PART), (2 * PART, PART)]);
        let mut log = Plain::of(file.clone());
        log.read(&mut [0; 4096], PART).unwrap();
        assert_eq!(file.0.lock().unwrap().len(), 2, "only where it was wanted");
    }
}
