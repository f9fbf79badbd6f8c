//! System calls that no library of ours has, or has only unsafely: what is in the page cache, and large pages.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Pages of the machine's page size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CachedPages {
    /// In the cache.
    pub resident: u64,
    /// Of them not on the device yet, or just going there; `None` where the kernel does not report it.
    pub dirty: Option<u64>,
}

/// `cachestat(2)`, the same number on every architecture since Linux 6.5.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    off: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    nr_cache: u64,
    nr_dirty: u64,
    nr_writeback: u64,
    nr_evicted: u64,
    nr_recently_evicted: u64,
}

/// What the page cache holds of the whole of `file`, by `cachestat(2)`.
///
/// # Errors
/// `ENOSYS` before Linux 6.5, `EOPNOTSUPP` for hugetlbfs, `EPERM` where a later kernel forbids it for files one may not write.
pub(crate) fn cachestat(file: BorrowedFd<'_>) -> std::io::Result<CachedPages> {
    let range = CachestatRange { off: 0, len: 0 };
    let mut found = Cachestat::default();
    // SAFETY: the descriptor is open while borrowed; both structures have the kernel's layout and outlive the call.
    let done = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &range, &mut found, 0u32) };
    if done != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(CachedPages {
        resident: found.nr_cache,
        dirty: Some(found.nr_dirty + found.nr_writeback),
    })
}

/// Asks for large pages under `memory`, before it is touched (`madvise(2)`, `MADV_HUGEPAGE`). A wish: where the kernel has none,
/// nothing changes.
pub(crate) fn prefer_large_pages(memory: &mut [u8]) {
    let at = memory.as_mut_ptr();
    let skip = at.align_offset(rustix::param::page_size());
    let Some(length) = memory.len().checked_sub(skip).filter(|length| *length > 0) else {
        return;
    };
    // SAFETY: the range is within `memory`, which is borrowed alone; this advice changes no contents.
    let done = unsafe { libc::madvise(at.add(skip).cast(), length, libc::MADV_HUGEPAGE) };
    if done != 0 {
        tracing::debug!(error = %std::io::Error::last_os_error(), "no large pages");
    }
}

/// Pages of the first `bytes` of `file` in the page cache, by `mmap(2)` and `mincore(2)`: what is left before Linux 6.5. It does
/// not report which are dirty.
///
/// # Errors
/// Those of the two calls; `mincore` is correct only for users that own or may write the file.
pub(crate) fn mincore(file: BorrowedFd<'_>, bytes: u64) -> std::io::Result<CachedPages> {
    let none = CachedPages {
        resident: 0,
        dirty: None,
    };
    if bytes == 0 {
        return Ok(none);
    }
    let length = usize::try_from(bytes).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    let page = rustix::param::page_size();
    let mut present = vec![0u8; length.div_ceil(page)];
    // SAFETY: a new shared mapping that nobody reads through: the file may shrink under it without harm. It is unmapped
    // below, and `mincore` writes one byte for each page of the length it is given, which is what `present` has.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let done = libc::mincore(at, length, present.as_mut_ptr());
        let failed = (done != 0).then(std::io::Error::last_os_error);
        libc::munmap(at, length);
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(CachedPages {
        resident: present.iter().filter(|page| **page & 1 == 1).count() as u64,
        ..none
    })
}
