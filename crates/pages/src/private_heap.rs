//! The memory in which SQLCipher has keys, left out of core dumps.
//!
//! SQLCipher locks this memory, its *private heap*, and masks the keys in it while it does not use them. But a core dump would have both
//! the heap and the mask, which is elsewhere, and both together are the keys.

use std::ffi::c_void;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

/// Its size (`SQLCIPHER_PRIVATE_HEAP_SIZE_DEFAULT`). What does not fit in comes from the program's allocator.
const LEN: usize = 48 << 10;

unsafe extern "C" {
    /// What SQLCipher gives to providers of ciphers. Null: no memory.
    fn sqlcipher_malloc(len: u64) -> *mut c_void;
    fn sqlcipher_free(memory: *mut c_void, len: u64);
}

/// Leaves the private heap out of core dumps, and up to 96 KiB of the allocator's around it: where it begins is not known. SQLCipher has
/// started.
pub(crate) fn leave_out_of_dumps() {
    // SAFETY: SQLCipher has started, so its heap is there; a null pointer is the only other answer.
    let within = unsafe { sqlcipher_malloc(1) };
    if within.is_null() {
        return;
    }
    let page = page_size();
    let from = (within as usize).saturating_sub(LEN) & !(page - 1);
    let len = (2 * LEN).next_multiple_of(page) + page;
    // What is not mapped there is passed over, and reported afterwards. Where the kernel refuses, a dump is as it was before.
    // SAFETY: the advice changes nothing that this process can see in its memory, whatever is mapped there.
    let _ = unsafe { madvise(within.with_addr(from), len, Advice::LinuxDontDump) };
    // SAFETY: it came from there, with this length, and nothing refers to it.
    unsafe { sqlcipher_free(within, 1) };
}
