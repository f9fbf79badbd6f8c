//! Opening, closing, keys, transactions.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use embed::{Error, Result};

use crate::answer::{yes, yes_or_busy, zero};
use crate::mount::{self, Given};
use crate::sqlfs_t;

/// libsqlfs's bound on passwords, in bytes with the NUL.
const PASSWORD_MAX: usize = 512;
const KEY_LEN: usize = 32;

/// # Safety
/// `path` is NULL or a text.
unsafe fn place<'a>(path: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { foreign::text(path, "db_file") }?;
    match bytes.is_empty() {
        true => Err(Error::Argument("db_file is empty".into())),
        false => Ok(Path::new(OsStr::from_bytes(bytes))),
    }
}

/// # Safety
/// `password` is NULL or a text.
unsafe fn password<'a>(password: *const c_char) -> Result<Given<'a>> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { foreign::text(password, "password") }?;
    match bytes.len() {
        0 => Err(no_key()),
        n if n >= PASSWORD_MAX => Err(Error::Argument(format!(
            "a password has at most {} bytes",
            PASSWORD_MAX - 1
        ))),
        _ => Ok(Given::Passphrase(bytes)),
    }
}

/// # Safety
/// `key` is NULL or points to `len` bytes.
unsafe fn raw<'a>(key: *const c_void, len: usize) -> Result<Given<'a>> {
    if len != KEY_LEN {
        return Err(Error::Argument(format!(
            "a key has {KEY_LEN} bytes, not {len}"
        )));
    }
    // SAFETY: the caller's promise.
    Ok(Given::Raw(unsafe { foreign::bytes(key, len, "key") }?))
}

fn no_key() -> Error {
    Error::Argument(
        "there are no containers without encryption: use sqlfs_open_key or sqlfs_open_password"
            .into(),
    )
}

/// Opens, and puts the handle in its place.
///
/// # Safety
/// `to` is NULL or points to room for a pointer.
unsafe fn opened(to: *mut *mut sqlfs_t, open: impl FnOnce() -> Result<u64>) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { foreign::put(to, ptr::null_mut()) };
    yes(|| {
        let to = foreign::out(to, "psqlfs")?;
        let handle = open()?;
        // SAFETY: the same.
        unsafe { foreign::put(to, ptr::without_provenance_mut(handle as usize)) };
        Ok(())
    })
}

/// Opens a container with 32 bytes of key, or creates it; 1 for success. From then on NULL refers to the handle.
///
/// # Safety
/// `db_file` is NULL or a text, `key` NULL or `key_len` bytes, `psqlfs` NULL or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_open_key(
    db_file: *const c_char,
    key: *const u8,
    key_len: usize,
    psqlfs: *mut *mut sqlfs_t,
) -> c_int {
    // SAFETY: the caller's promise, three times.
    unsafe {
        opened(psqlfs, || {
            mount::open(place(db_file)?, raw(key.cast(), key_len)?)
        })
    }
}

/// The same with a password of up to 511 bytes.
///
/// # Safety
/// `db_file` and `password` are NULL or texts, `psqlfs` NULL or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_open_password(
    db_file: *const c_char,
    password: *const c_char,
    psqlfs: *mut *mut sqlfs_t,
) -> c_int {
    // SAFETY: the caller's promise, three times.
    unsafe {
        opened(psqlfs, || {
            mount::open(place(db_file)?, self::password(password)?)
        })
    }
}

/// Fails: there are no containers without encryption.
///
/// # Safety
/// `psqlfs` is NULL or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_open(_db_file: *const c_char, psqlfs: *mut *mut sqlfs_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { opened(psqlfs, || Err(no_key())) }
}

/// Opens the container that NULL refers to; 0 for success.
///
/// # Safety
/// `db_file` is NULL or a text, `key` NULL or `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_init_key(
    db_file: *const c_char,
    key: *const u8,
    key_len: usize,
) -> c_int {
    // SAFETY: the caller's promise, twice.
    zero(|| unsafe { mount::open(place(db_file)?, raw(key.cast(), key_len)?) }.map(drop))
}

/// The same with a password.
///
/// # Safety
/// `db_file` and `password` are NULL or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_init_password(
    db_file: *const c_char,
    password: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise, twice.
    zero(|| unsafe { mount::open(place(db_file)?, self::password(password)?) }.map(drop))
}

/// Fails: there are no containers without encryption.
#[unsafe(no_mangle)]
pub extern "C" fn sqlfs_init(_db_file: *const c_char) -> c_int {
    zero(|| Err(no_key()))
}

/// Closes; 1 when it was the last one that was open. A transaction that is open is taken back.
#[unsafe(no_mangle)]
pub extern "C" fn sqlfs_close(sqlfs: *mut sqlfs_t) -> c_int {
    yes(|| {
        mount::close(sqlfs)?;
        match mount::handles() {
            0 => Ok(()),
            n => Err(Error::Argument(format!("closed; {n} are still open"))),
        }
    })
}

/// Closes the container that NULL refers to; 0 for success, also where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn sqlfs_destroy() -> c_int {
    zero(|| match mount::get(ptr::null_mut()) {
        Ok(_) => mount::close(ptr::null_mut()),
        Err(_) => Ok(()),
    })
}

/// Nothing: threads share what is open, and need not say when they end.
#[unsafe(no_mangle)]
pub extern "C" fn sqlfs_detach_thread() {}

/// How many handles are open.
#[unsafe(no_mangle)]
pub extern "C" fn sqlfs_instance_count() -> c_int {
    c_int::try_from(mount::handles()).unwrap_or(c_int::MAX)
}

/// Changes a key; 1 for success. The container may be open; libsqlfs refuses that.
///
/// # Safety
/// `db_file` is NULL or a text, the keys are NULL or have their lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_rekey(
    db_file: *const c_char,
    old_key: *const u8,
    old_key_len: usize,
    new_key: *const c_void,
    new_key_len: usize,
) -> c_int {
    yes(|| {
        // SAFETY: the caller's promise, three times.
        let (path, old, new) = unsafe {
            (
                place(db_file)?,
                raw(old_key.cast(), old_key_len)?,
                raw(new_key, new_key_len)?,
            )
        };
        mount::change_key(path, old, new)
    })
}

/// Changes a password; 1 for success.
///
/// # Safety
/// All are NULL or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlfs_change_password(
    db_file: *const c_char,
    old_password: *const c_char,
    new_password: *const c_char,
) -> c_int {
    yes(|| {
        // SAFETY: the caller's promise, three times.
        let (path, old, new) = unsafe {
            (
                place(db_file)?,
                password(old_password)?,
                password(new_password)?,
            )
        };
        mount::change_key(path, old, new)
    })
}

/// Begins a transaction, or a further one within it; 1, or 2 for busy.
#[unsafe(no_mangle)]
pub extern "C" fn sqlfs_begin_transaction(sqlfs: *mut sqlfs_t) -> c_int {
    yes_or_busy(|| mount::get(sqlfs)?.begin())
}

/// Completes a transaction, which is durable then; with `i` 0 the outermost is taken back instead. 1, or 2 for busy.
#[unsafe(no_mangle)]
pub extern "C" fn sqlfs_complete_transaction(sqlfs: *mut sqlfs_t, i: c_int) -> c_int {
    yes_or_busy(|| {
        let mount = mount::get(sqlfs)?;
        match i == 0 && mount.is_outermost() {
            true => mount.take_back(),
            false => mount.complete(),
        }
    })
}

/// Takes the whole transaction back, nested or not: the room is left as after a crash, and opened again, for which a password takes its
/// second. Other threads wait meanwhile. 1 for success.
#[unsafe(no_mangle)]
pub extern "C" fn sqlfs_break_transaction(sqlfs: *mut sqlfs_t) -> c_int {
    yes_or_busy(|| mount::get(sqlfs)?.take_back())
}
