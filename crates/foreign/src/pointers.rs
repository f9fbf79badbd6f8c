//! Pointers: what is read from and written to memory of the caller's.
//!
//! Every function here asks its caller for the same: a pointer that is not NULL points to what the header says, and nobody else changes
//! that during the call.

use std::ffi::{c_char, c_void};
use std::slice;

use embed::{Error, Result};

/// Longest text that is read, in bytes with its NUL: Linux's PATH_MAX, below which all names, labels and targets of links are.
pub const TEXT_MAX: usize = 4096;
/// Most bytes of one read or write: more than any machine has addresses for, so a length above it is a mistake.
pub const BYTES_MAX: usize = 1 << 46;

/// A text that ends with NUL. `what` names it in errors.
///
/// # Safety
/// `text` is NULL or points to a text that ends with NUL, which stays for `'a`.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a [u8]> {
    not_null(text, what)?;
    // SAFETY: the caller's promise; no byte beyond the NUL is looked at.
    let len = unsafe { libc::strnlen(text, TEXT_MAX) };
    if len == TEXT_MAX {
        return Err(Error::Argument(format!(
            "{what} is longer than {} bytes",
            TEXT_MAX - 1
        )));
    }
    // SAFETY: strnlen has just read all of them.
    Ok(unsafe { slice::from_raw_parts(text.cast(), len) })
}

/// `len` bytes. Where there are none, the pointer may be anything.
///
/// # Safety
/// `data` is NULL or points to `len` bytes, which stay and do not change for `'a`.
pub unsafe fn bytes<'a>(data: *const c_void, len: usize, what: &str) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    not_null(data, what)?;
    bounded(len, what)?;
    // SAFETY: the caller's promise; u8 has no alignment, and the length is far below isize::MAX.
    Ok(unsafe { slice::from_raw_parts(data.cast(), len) })
}

/// Room for `len` bytes.
///
/// # Safety
/// `data` is NULL or points to `len` bytes that are the callee's for `'a`.
pub unsafe fn bytes_mut<'a>(data: *mut c_void, len: usize, what: &str) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    not_null(data, what)?;
    bounded(len, what)?;
    // SAFETY: as in `bytes`; that nobody else uses them is the caller's promise too.
    Ok(unsafe { slice::from_raw_parts_mut(data.cast(), len) })
}

/// A copy of what a pointer leads to.
///
/// # Safety
/// `from` is NULL or points to a valid `T`.
pub unsafe fn value<T: Copy>(from: *const T, what: &str) -> Result<T> {
    not_null(from, what)?;
    // SAFETY: the caller's promise; an address that is not aligned is no reason to fall over.
    Ok(unsafe { from.read_unaligned() })
}

/// Looks whether there is a place for a result, before anything is done for it.
pub fn out<T>(to: *mut T, what: &str) -> Result<*mut T> {
    not_null(to, what)?;
    Ok(to)
}

/// Puts a result in its place, where there is one.
///
/// # Safety
/// `to` is NULL or points to room for a `T`.
pub unsafe fn put<T>(to: *mut T, result: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write_unaligned(result) };
    }
}

fn not_null<T>(pointer: *const T, what: &str) -> Result<()> {
    match pointer.is_null() {
        true => Err(Error::Argument(format!("{what} is NULL"))),
        false => Ok(()),
    }
}

fn bounded(len: usize, what: &str) -> Result<()> {
    match len > BYTES_MAX {
        true => Err(Error::Argument(format!(
            "{what} is said to have {len} bytes, which no memory has"
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn null_is_an_error_but_for_nothing() {
        // SAFETY: NULL is what these are asked about.
        unsafe {
            assert!(text(ptr::null(), "text").is_err());
            assert!(bytes(ptr::null(), 1, "data").is_err());
            assert!(bytes_mut(ptr::null_mut(), 1, "data").is_err());
            assert!(value::<u32>(ptr::null(), "value").is_err());
            assert_eq!(bytes(ptr::null(), 0, "data").unwrap(), b"");
            put(ptr::null_mut(), 1_u32);
        }
        assert!(out::<u32>(ptr::null_mut(), "result").is_err());
    }

    #[test]
    fn a_text_without_end_is_refused_at_its_bound() {
        let long = vec![b'x'; TEXT_MAX];
        // SAFETY: no byte beyond the bound is read.
        assert!(unsafe { text(long.as_ptr().cast(), "path") }.is_err());
        let mut fits = vec![b'x'; TEXT_MAX];
        fits[TEXT_MAX - 1] = 0;
        // SAFETY: it ends with NUL.
        let read = unsafe { text(fits.as_ptr().cast(), "path") }.unwrap();
        assert_eq!(read.len(), TEXT_MAX - 1);
    }

    #[test]
    fn a_length_that_no_memory_has_is_refused() {
        let byte = 1_u8;
        for len in [BYTES_MAX + 1, usize::MAX, isize::MAX as usize] {
            // SAFETY: refused before anything is read.
            assert!(unsafe { bytes((&raw const byte).cast(), len, "data") }.is_err());
        }
    }
}
