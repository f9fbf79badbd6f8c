//! Where long-lived keys live: each in a page of its own, locked into memory where the system allows it,
//! left out of core dumps and of forked processes, and wiped when dropped.
//!
//! Invariants:
//! 1. A key's page holds nothing else, so unlocking and unmapping it cannot touch another key.
//! 2. The page is wiped before it is freed.
//!
//! A room holds a handful of such keys (20 KiB), far below the usual limit of 8 MiB on locked memory.
//! Locking is done where allowed: a system that forbids it still gets the room, with keys that could reach
//! its swap. The expanded keys of single segments live in the cipher library's own memory, which wipes but
//! does not lock them; one opens one segment.
//!
//! A child made by `fork` finds zeros in the place of the keys: a program that goes into the background opens
//! its room there.

use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use rustix::param::page_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zeroize::Zeroize;

use crate::KEY_LEN;

/// 32 bytes in a page of their own.
pub(crate) struct KeyPage(NonNull<u8>);

// SAFETY: the page is owned by this value alone, is written only through `&mut self` or before it is
// shared, and belongs to no thread.
unsafe impl Send for KeyPage {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for KeyPage {}

impl KeyPage {
    /// A page whose first 32 bytes `fill` has set.
    pub(crate) fn filled_by(fill: impl FnOnce(&mut [u8; KEY_LEN])) -> KeyPage {
        let mut page = KeyPage::map();
        fill(page.bytes_mut());
        page
    }

    fn map() -> KeyPage {
        let address = map_page();
        // A refusal (no allowance for locked memory, an old kernel) leaves an ordinary page, which is the
        // documented fallback.
        // SAFETY: the call names exactly the page just mapped, and changes nothing of what it holds.
        let _ = unsafe { mlock(address.as_ptr().cast::<c_void>(), page_size()) };
        advise(address, Advice::LinuxDontDump);
        advise(address, Advice::LinuxWipeOnFork);
        KeyPage(address)
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_LEN] {
        // SAFETY: the page is mapped readable for as long as `self` lives, is longer than 32 bytes,
        // zero-filled at first, and a byte array has no alignment to keep. `&self` keeps writers away.
        unsafe { &*self.0.as_ptr().cast::<[u8; KEY_LEN]>() }
    }

    fn bytes_mut(&mut self) -> &mut [u8; KEY_LEN] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only reference.
        unsafe { &mut *self.0.as_ptr().cast::<[u8; KEY_LEN]>() }
    }
}

/// A page of zeros.
fn map_page() -> NonNull<u8> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel picks a free address for a null hint, so no mapping in use is replaced.
    let address =
        unsafe { mmap_anonymous(ptr::null_mut(), page_size(), protection, MapFlags::PRIVATE) };
    let address = address
        .ok()
        .and_then(|address| NonNull::new(address.cast::<u8>()));
    // As for any other small allocation, there is no going on without the memory.
    address.expect("the system has one page of memory")
}

/// Says what becomes of a page in dumps or forks. False if the kernel does not know that.
fn advise(page: NonNull<u8>, advice: Advice) -> bool {
    // SAFETY: the page is mapped by `map_page`, and neither advice changes what it holds in this process.
    unsafe { madvise(page.as_ptr().cast::<c_void>(), page_size(), advice) }.is_ok()
}

impl Clone for KeyPage {
    fn clone(&self) -> KeyPage {
        KeyPage::filled_by(|bytes| bytes.copy_from_slice(self.bytes()))
    }
}

impl Drop for KeyPage {
    fn drop(&mut self) {
        // SAFETY: the page is mapped and owned by `self`, and nothing can borrow from it any more.
        // Unmapping also unlocks it.
        unsafe {
            slice::from_raw_parts_mut(self.0.as_ptr(), KEY_LEN).zeroize();
            let _ = munmap(self.0.as_ptr().cast::<c_void>(), page_size());
        }
    }
}

impl fmt::Debug for KeyPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Set in the process that made it, and not in the memory of any fork of it, however that was made: the kernel wipes the page
/// (`MADV_WIPEONFORK`, Linux 4.14). Looking at it takes no system call.
#[derive(Debug)]
pub struct ProcessMark(NonNull<AtomicBool>);

// SAFETY: the page is owned by this value alone and holds an atomic.
unsafe impl Send for ProcessMark {}
// SAFETY: as above.
unsafe impl Sync for ProcessMark {}

impl ProcessMark {
    /// `None` where the kernel does not wipe pages in forks.
    pub fn set() -> Option<Self> {
        let page = map_page();
        let mark = Self(page.cast());
        advise(page, Advice::LinuxWipeOnFork).then(|| {
            mark.flag().store(true, Ordering::Relaxed);
            mark
        })
    }

    /// Whether this is the memory of the process that set it.
    pub fn is_set(&self) -> bool {
        self.flag().load(Ordering::Relaxed)
    }

    fn flag(&self) -> &AtomicBool {
        // SAFETY: the page is mapped for as long as `self` lives, and a byte of zero or one is a bool.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ProcessMark {
    fn drop(&mut self) {
        // SAFETY: the page is mapped and owned by `self`, and nothing can borrow from it any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast::<c_void>(), page_size()) };
    }
}

/// Turns core dumps off for this process and what it starts. Call it once, first thing in `main`.
///
/// Sets the size limit for core files to one byte: the kernel writes no core file that small, and for a
/// program that collects cores through a pipe, where a limit of zero is not looked at, it takes exactly 1
/// as "no dump" (`core(5)`, `do_coredump`). The process stays "dumpable" in the sense of `prctl(2)`:
/// clearing that flag would give `/proc/self` to root, which `fusermount3` and an ordinary user's mount
/// need. A process that parses others' data clears it afterwards (crate `confine`). Best effort: a refusal
/// changes nothing, and key pages are left out of dumps in any case.
pub fn protect_process() {
    let hard = getrlimit(Resource::Core).maximum;
    let limit = hard.map_or(1, |hard| hard.min(1));
    let _ = setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_page_holds_what_was_put_in_and_clones_apart() {
        let page = KeyPage::filled_by(|bytes| bytes.fill(7));
        let clone = page.clone();
        drop(page);
        assert_eq!(clone.bytes(), &[7; KEY_LEN]);
        assert_eq!(format!("{clone:?}"), "Key(..)");
    }

    #[test]
    fn a_key_page_is_left_out_of_dumps_and_forks_and_locked_where_allowed() {
        let page = KeyPage::filled_by(|bytes| bytes.fill(1));
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let address = page.0.as_ptr() as usize;
        let mut inside = false;
        let mut flags = None;
        for line in maps.lines() {
            if let Some((range, _)) = line.split_once(' ')
                && let Some((from, to)) = range.split_once('-')
                && let (Ok(from), Ok(to)) = (
                    usize::from_str_radix(from, 16),
                    usize::from_str_radix(to, 16),
                )
            {
                inside = (from..to).contains(&address);
            }
            if inside && line.starts_with("VmFlags:") {
                flags = Some(line.to_owned());
            }
        }
        let flags = flags.expect("the page is mapped");
        assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
        assert!(flags.split(' ').any(|flag| flag == "wf"), "{flags}");
        if getrlimit(Resource::Memlock)
            .current
            .is_none_or(|bytes| bytes >= 1 << 20)
        {
            assert!(flags.split(' ').any(|flag| flag == "lo"), "{flags}");
        }
    }

    #[test]
    fn a_protected_process_writes_no_core() {
        protect_process();
        assert!(
            getrlimit(Resource::Core)
                .current
                .is_some_and(|bytes| bytes <= 1)
        );
    }
}
