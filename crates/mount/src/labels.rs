//! SELinux labels: the answer for a file without one.
//!
//! `ls -l` asks for the label of each file, whether the kernel has SELinux or not, and the kernel caches no answer.
//!
//! 1. A label that a file has is returned, always.
//! 2. Where the kernel has no SELinux, a file without a label is answered with EOPNOTSUPP: `ls` then asks for no other file of
//!    this mount.
//! 3. Where it has SELinux, and once a label was seen through this mount, the answer is ENODATA, and programs go on asking.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::errno::Errno;

const NAME: &[u8] = b"security.selinux";

/// Whether labels are used here.
#[derive(Debug)]
pub(crate) struct Labels(AtomicBool);

impl Labels {
    pub(crate) fn new() -> Self {
        // If the list cannot be read, there may be SELinux.
        let without = std::fs::read_to_string("/proc/filesystems")
            .is_ok_and(|list| !list.contains("selinuxfs"));
        Self(AtomicBool::new(!without))
    }

    /// The answer to a request for the attribute `name`, for which the file system returned `found`.
    pub(crate) fn answer(
        &self,
        name: &[u8],
        found: Result<Vec<u8>, Errno>,
    ) -> Result<Vec<u8>, Errno> {
        match found {
            Ok(_) => self.seen(name),
            Err(Errno(libc::ENODATA)) if name == NAME && !self.0.load(Ordering::Relaxed) => {
                return Err(Errno::EOPNOTSUPP);
            }
            Err(_) => {}
        }
        found
    }

    /// A file has the attribute `name`.
    pub(crate) fn seen(&self, name: &[u8]) {
        if name == NAME {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_DATA: Result<Vec<u8>, Errno> = Err(Errno(libc::ENODATA));

    #[test]
    fn labels_are_unsupported_until_one_is_seen() {
        let labels = Labels(AtomicBool::new(false));
        assert_eq!(labels.answer(NAME, NO_DATA), Err(Errno::EOPNOTSUPP));
        assert_eq!(labels.answer(b"user.note", NO_DATA), NO_DATA);
        assert_eq!(labels.answer(NAME, Err(Errno::EIO)), Err(Errno::EIO));
        assert_eq!(labels.answer(NAME, Ok(vec![1])), Ok(vec![1]));
        assert_eq!(labels.answer(NAME, NO_DATA), NO_DATA);
    }

    #[test]
    fn with_selinux_a_file_without_a_label_has_no_data() {
        let labels = Labels(AtomicBool::new(true));
        assert_eq!(labels.answer(NAME, NO_DATA), NO_DATA);
    }
}
